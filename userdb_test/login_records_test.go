package userdb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// brokenRecords lists damaged records that a login reads, with the commands that write them.
var brokenRecords = []struct{ name, record, command string }{
	{"a secret that is a list", "secret", "RPUSH KEY x"},
	{"a secret that is a hash", "secret", "HSET KEY x y"},
	{"an empty secret", "secret", "SET KEY "},
	{"a short secret", "secret", "SET KEY abcd"},
	{"a secret that is garbage", "secret", "SET KEY " + strings.Repeat("zz", 32)},
	{"counters that are a string", "throttle", "SET KEY x"},
	{"counters that are a set", "throttle", "SADD KEY x"},
	{"counters without numbers", "throttle", "HSET KEY sn many"},
	{"counters that overflow", "throttle", "HSET KEY su 1e400"},
	{"a last login that is not a time", "throttle", "HSET KEY o:x y"},
	{"failures below zero", "throttle", "HSET KEY n:x -1"},
	{"calls that are not numbers", "throttle", "HSET KEY k xyz"},
}

// TestBrokenRecords checks that a login that needs a damaged record hashes nothing, and that its
// error names the record and the command that repairs it.
func TestBrokenRecords(t *testing.T) {
	for _, tt := range brokenRecords {
		t.Run(tt.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *site) {
				g := newLoginSite(s, loginOptions())
				g.add("alice", alicePassword)
				parts := []string{"secret"}
				if tt.record == "throttle" {
					parts = []string{"throttle", "user", "uid", "alice"}
				}
				key, err := recordkey.Own(parts...)
				must(t, err)
				words := strings.Split(strings.ReplaceAll(tt.command, "KEY", key.String()), " ")
				args := make([]any, len(words))
				for i, w := range words {
					args[i] = w
				}
				must(t, g.raw.Do(t.Context(), args...).Err())
				own, other := g.countHashes(func() {
					wantErr(t, tt.name, g.logIn("alice", alicePassword, "home"), userdb.ErrCorrupt, key.String(), "'userdb check --repair'")
				})
				if own+other != 0 {
					t.Errorf("%d hashes were computed, want none", own+other)
				}
				must(t, g.raw.Del(t.Context(), key.String()).Err())
				must(t, g.logIn("alice", alicePassword, "home"))
			})
		})
	}
}

// TestUpdateOfUnreadable updates an entry that has a facet "added" which cannot be decoded. For the
// callback this facet must be absent, and the update must fail unless the callback drops it.
func TestUpdateOfUnreadable(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.storeField("alice", "added", "no date")
		for _, drop := range []bool{false, true} {
			_, err := g.users.Update(t.Context(), hints.UID("alice"), func(e *userdb.Entry) error {
				e.Put("job", schema.Text("cook"))
				if drop {
					e.Drop("added")
				}
				if fields := slices.Collect(e.Fields()); slices.Contains(fields, "added") || !slices.Contains(fields, "job") {
					t.Errorf("the callback sees the fields %q, want job but not added", fields)
				}
				return nil
			})
			if drop {
				must(t, err)
			} else {
				wantErr(t, "without dropping the facet", err, userdb.ErrCorrupt, "added")
			}
		}
	})
}

// TestUnreadableEntryKeepsTokens checks that no token is spent if its entry cannot be decoded.
func TestUnreadableEntryKeepsTokens(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		secret := g.issue(userdb.Token{Purpose: "reset"})
		g.storeField("alice", "added", "no date")
		_, _, err := g.users.Redeem(t.Context(), "reset", secret)
		wantErr(t, "redeem for an entry that cannot be read", err, userdb.ErrCorrupt)
		_, err = g.users.ResetPassword(t.Context(), "reset", secret, resetPassword)
		wantErr(t, "reset for an entry that cannot be read", err, userdb.ErrCorrupt)
		must(t, g.raw.HDel(t.Context(), "user/uid:alice", "added").Err())
		g.wantRedeem("reset", secret, "")
	})
}

// TestNobodyInheritsTokens deletes an account's record directly in Redis and creates the account
// again. The new account must not have the tokens of the old one.
func TestNobodyInheritsTokens(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		secret := g.issue(userdb.Token{Purpose: "reset"})
		must(t, g.raw.Unlink(t.Context(), "user/uid:alice").Err())
		g.wantVoid("a token without an entry", "reset", secret)
		g.add("alice", "")
		g.wantVoid("a token of the old account", "reset", secret)
		g.wantRedeem("login", g.issue(userdb.Token{Purpose: "login"}), "")
		g.issue(userdb.Token{Purpose: "login"})
		g.wantVoid("a token of the old account", "reset", secret)
	})
}

// TestBrokenTokens checks that calls succeed if the record of tokens has malformed members or
// another Redis type, and that no token is valid in a record of another type.
func TestBrokenTokens(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.issue(userdb.Token{Purpose: "reset"})
		must(t, g.raw.HSet(ctx, aliceTokens, "junk", "junk", "more", "99999999999999 x", "", "").Err())
		g.wantRedeem("reset", g.issue(userdb.Token{Purpose: "reset"}), "")
		for _, do := range []func() error{
			func() error { return errOf(g.users.SetPassword(ctx, uid("alice"), resetPassword)) },
			func() error { _, err := g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: "reset"}); return err },
			func() error { return g.users.Delete(ctx, uid("alice")) },
		} {
			secret := g.issue(userdb.Token{Purpose: "login"})
			must(t, g.raw.Del(ctx, aliceTokens).Err())
			must(t, g.raw.Set(ctx, aliceTokens, "text", 0).Err())
			g.wantVoid("a token in a record of another type", "login", secret)
			must(t, do())
		}
		if left := g.keysUnder("~/token/"); len(left) > 0 {
			t.Errorf("records of tokens are still there: %q", left)
		}
	})
}

// TestTokensAreInSlotOfEntry checks that the tokens of an entry are stored in its cluster slot, in
// every namespace. They must not be copied, listed or reported as damage, and must be deleted with
// the entry.
func TestTokensAreInSlotOfEntry(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		db := s.open(userdb.Options{})
		secrets := map[string]string{}
		for _, path := range []string{"", "acme", "acme/eu+_1"} {
			view, err := db.In(parseNamespace(t, path))
			must(t, err)
			s.views[parseNamespace(t, path)] = view
			users := typeOf(t, view, "user")
			for _, uid := range []string{"a b", "é{x}", "~"} {
				_, err := users.Create(ctx, userdb.NewEntry{UID: uid})
				must(t, err)
				secrets[path+" "+uid], err = users.Issue(ctx, hints.UID(uid), userdb.Token{Purpose: "p"})
				must(t, err)
				prk, err := recordkey.PRK("user", "uid", uid)
				must(t, err)
				entry := prk.In(parseNamespace(t, path)).String()
				record := parseNamespace(t, path).String() + "~/token/{" + entry + "}"
				if n := s.raw.Exists(ctx, record).Val(); n != 1 {
					t.Errorf("the record %s does not exist", record)
				}
				if strings.HasPrefix(s.url, "redis+cluster:") && s.raw.ClusterKeySlot(ctx, record).Val() != s.raw.ClusterKeySlot(ctx, entry).Val() {
					t.Errorf("%s is not in the slot of %s", record, entry)
				}
			}
			for key, err := range inspect.Keys(ctx, view, "*") {
				if must(t, err); strings.Contains(key, "token") {
					t.Errorf("Keys lists a record of tokens: %s", key)
				}
			}
		}
		_, err := migrate.CopyNamespace(ctx, db, parseNamespace(t, "acme"), parseNamespace(t, "copy"))
		must(t, err)
		for _, k := range s.keys(ctx) {
			if strings.HasPrefix(k, "~copy/") && strings.Contains(k, "/token/") {
				t.Errorf("a record of tokens was copied: %s", k)
			}
		}
		copied, err := db.In(parseNamespace(t, "copy"))
		must(t, err)
		s.views[parseNamespace(t, "copy")] = copied
		users := typeOf(t, copied, "user")
		_, _, err = users.Redeem(ctx, "p", secrets["acme ~"])
		wantErr(t, "a token of the original in a copy", err, userdb.ErrNotFound)
		secret, err := users.Issue(ctx, hints.UID("~"), userdb.Token{Purpose: "p"})
		must(t, err)
		_, _, err = users.Redeem(ctx, "p", secret)
		must(t, err)
		_, err = migrate.DropNamespace(ctx, db, parseNamespace(t, "acme"))
		must(t, err)
		for _, path := range []string{"acme", "acme/eu+_1"} {
			delete(s.views, parseNamespace(t, path))
		}
		if n, err := inspect.RemoveKeys(ctx, db, "user/uid:*"); n != 3 || err != nil {
			t.Errorf("removed %d entries, %v; want 3", n, err)
		}
		for _, k := range s.keys(ctx) {
			if strings.Contains(k, "~/token/") && !strings.HasPrefix(k, "~copy/") {
				t.Errorf("a record of tokens is still there: %s", k)
			}
		}
	})
}
