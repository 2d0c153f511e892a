package userdb_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// linkOptions returns options with a field for links.
func linkOptions() userdb.Options {
	o := factorOptions()
	o.Schema.Types["user"].Fields["links"] = schema.Field{Role: schema.RoleSecondary, Many: 3, Typed: new(false)}
	return o
}

func linkOf(identity string) userdb.Link {
	return userdb.Link{Field: "links", Identity: identity, Label: "op"}
}

// sessionOf begins a session of an entry that has no second factor.
func (g *loginSite) sessionOf(name string) string {
	g.t.Helper()
	e, err := g.users.Find(g.t.Context(), uid(name))
	must(g.t, err)
	_, secret, err := g.users.StartSession(g.t.Context(), e, userdb.SessionOptions{})
	must(g.t, err)
	return secret
}

// link links an identity to an entry that has no second factor.
func (g *loginSite) link(name, identity string) error {
	g.t.Helper()
	_, err := g.users.LinkIdentity(g.t.Context(), g.sessionOf(name), linkOf(identity))
	return err
}

// wantLinked checks that a link signs in to the entry whose UID is name, or to none if name is "".
func (g *loginSite) wantLinked(what, identity, name string) {
	g.t.Helper()
	e, err := g.users.LoginLinked(g.t.Context(), linkOf(identity), userdb.Attempt{})
	if name == "" && !errors.Is(err, userdb.ErrNotFound) || name != "" && (err != nil || e.UID() != name) {
		g.t.Errorf("%s: the link signs in to %q, %v; want %q", what, e.UID(), err, name)
	}
}

// TestLinks checks that links sign in only to the entry that has them, and that removing a link
// ends the sessions that began with it.
func TestLinks(t *testing.T) {
	eachLoginSite(t, linkOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.add("bob", alicePassword)
		g.wantLinked("before", "i", "")
		must(t, g.link("alice", "i"))
		must(t, g.link("alice", "i"))
		g.wantLinked("after", "i", "alice")
		wantErr(t, "a link of somebody else", g.link("bob", "i"), userdb.ErrDuplicate)
		must(t, g.link("bob", "ii"))
		g.wantLinked("with another one", "i", "alice")
		must(t, g.link("alice", "k"))
		must(t, g.link("alice", "l"))
		wantErr(t, "too many links", g.link("alice", "m"), userdb.ErrInvalid)

		e, err := g.users.LoginLinked(ctx, linkOf("i"), userdb.Attempt{})
		must(t, err)
		_, other, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		mine := g.sessionOf("alice")
		g.advance(9 * time.Minute)
		_, s, secret, err := g.users.UnlinkIdentity(ctx, mine, linkOf("i"), userdb.UnlinkOptions{})
		must(t, err)
		if g.clock().Sub(s.Verified) < 9*time.Minute {
			t.Errorf("the session after the link was removed was verified at %v, want at least nine minutes before %v", s.Verified, g.clock())
		}
		g.wantLinked("after it was removed", "i", "")
		g.wantEnded("a session that the link began", other)
		if _, _, err := g.users.StartSession(ctx, e, userdb.SessionOptions{}); !errors.Is(err, userdb.ErrConflict) {
			t.Errorf("a login that was under way: got error %v, want ErrConflict", err)
		}
		if _, now, err := g.users.Session(ctx, secret); err != nil || now.ID != s.ID || now.Level() != 1 {
			t.Errorf("the new session is %+v, %v; want the ID %s and level 1", now, err, s.ID)
		}
		_, _, _, err = g.users.UnlinkIdentity(ctx, secret, linkOf("i"), userdb.UnlinkOptions{})
		wantErr(t, "removing it again", err, userdb.ErrNotFound)

		must(t, g.users.Disable(ctx, uid("alice")))
		_, err = g.users.LoginLinked(ctx, linkOf("k"), userdb.Attempt{})
		wantErr(t, "a disabled entry", err, userdb.ErrLogin)
		must(t, g.users.Delete(ctx, uid("alice")))
		g.add("alice", alicePassword)
		g.wantLinked("after the entry was created again", "k", "")
		must(t, g.link("bob", "k"))
		g.wantLinked("linked to somebody else", "k", "bob")
	})
}

// TestWhoLinks checks who may link and unlink: the owner of a session that was verified within the
// last ten minutes, on level 2 if the entry has a second factor.
func TestWhoLinks(t *testing.T) {
	eachLoginSite(t, linkOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		both := func(what, secret string, want error) {
			t.Helper()
			_, err := g.users.LinkIdentity(ctx, secret, linkOf("j"))
			wantErr(t, "linking with "+what, err, want)
			_, _, _, err = g.users.UnlinkIdentity(ctx, secret, linkOf("i"), userdb.UnlinkOptions{})
			wantErr(t, "unlinking with "+what, err, want)
		}
		must(t, g.link("alice", "i"))
		old := g.sessionOf("alice")
		ended := g.sessionOf("alice")
		must(t, g.users.EndSession(ctx, ended))
		both("a session that has ended", ended, userdb.ErrNotFound)
		both("no session", "", userdb.ErrNotFound)
		g.advance(10*time.Minute + time.Second)
		both("an old session", old, userdb.ErrNotVerified)
		if _, _, err := g.users.VerifySession(ctx, old, alicePassword, userdb.Attempt{}); err != nil {
			t.Fatal(err)
		}
		_, err := g.users.LinkIdentity(ctx, old, linkOf("j"))
		must(t, err)

		_, secret := g.enrolIn(old)
		_, err = g.users.LoginLinked(ctx, linkOf("i"), userdb.Attempt{})
		wantFactor(t, "a link of an entry with a second factor", err, true, false)
		if _, err = g.users.LinkIdentity(ctx, secret, linkOf("k")); err != nil {
			t.Error(err)
		}
		g.advance(10*time.Minute + time.Second)
		both("an old session of level 2", secret, userdb.ErrNotVerified)
		if _, _, err := g.users.VerifySession(ctx, secret, alicePassword, userdb.Attempt{}); err != nil {
			t.Fatal(err)
		}
		both("a session whose first step alone was taken again", secret, userdb.ErrNotVerified)

		for _, l := range []userdb.Link{{Field: "email", Identity: "i"}, {Field: "nothing", Identity: "i"}, {Field: "links"}, {Field: "links", Identity: "I"}} {
			_, err := g.users.LinkIdentity(ctx, secret, l)
			wantErr(t, "linking with an invalid link", err, userdb.ErrInvalid)
			_, err = g.users.LoginLinked(ctx, l, userdb.Attempt{})
			wantErr(t, "login with an invalid link", err, userdb.ErrInvalid)
		}
	})
}

// TestLastLink checks that the last link of an entry without a password cannot be removed, not even
// by concurrent callers, because it is the last way to sign in.
func TestLastLink(t *testing.T) {
	eachLoginSite(t, linkOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.add("bob", "")
		must(t, g.link("bob", "i"))
		unlink := func(identity string, o userdb.UnlinkOptions) error {
			_, _, _, err := g.users.UnlinkIdentity(ctx, g.sessionOf("bob"), linkOf(identity), o)
			return err
		}
		wantLast := func(what string, err error) {
			t.Helper()
			if refused, ok := errors.AsType[*userdb.FieldError](err); !ok || refused.Rule != "last" {
				t.Errorf("%s: got error %v, want one with the rule last", what, err)
			}
		}
		wantLast("the only link", unlink("i", userdb.UnlinkOptions{Labels: []string{"op"}}))
		must(t, g.link("bob", "k"))
		wantLast("beside a link whose label is not in Labels", unlink("i", userdb.UnlinkOptions{Labels: []string{"another"}}))
		must(t, unlink("i", userdb.UnlinkOptions{Labels: []string{"another", "op"}}))
		g.wantLinked("what was removed", "i", "")

		for range 5 {
			// One of the links exists already. Adding it again is not an error.
			must(t, g.link("bob", "i"))
			must(t, g.link("bob", "k"))
			secret := g.sessionOf("bob")
			var wg sync.WaitGroup
			for _, identity := range []string{"i", "k"} {
				wg.Go(func() {
					_, _, _, _ = g.users.UnlinkIdentity(ctx, secret, linkOf(identity), userdb.UnlinkOptions{Labels: []string{"op"}})
				})
			}
			wg.Wait()
			e, err := g.users.Find(ctx, uid("bob"))
			if err != nil || len(e.Texts("links")) == 0 {
				t.Fatalf("nothing is left of the links: %v, %v", e, err)
			}
		}
		must(t, errOf(g.users.SetPassword(ctx, uid("bob"), "another horse")))
		must(t, g.link("bob", "i"))
		must(t, unlink("i", userdb.UnlinkOptions{}))
	})
}

// TestParallelLinks checks that only one of two owners gets an identity that both link at the same
// time.
func TestParallelLinks(t *testing.T) {
	eachLoginSite(t, linkOptions(), func(t *testing.T, g *loginSite) {
		g.add("bob", alicePassword)
		secrets := map[string]string{"alice": g.sessionOf("alice"), "bob": g.sessionOf("bob")}
		for _, identity := range []string{"i", "j", "k"} {
			var wg sync.WaitGroup
			var won atomic.Value
			var n atomic.Int32
			for name, secret := range secrets {
				wg.Go(func() {
					switch _, err := g.users.LinkIdentity(t.Context(), secret, linkOf(identity)); {
					case err == nil:
						n.Add(1)
						won.Store(name)
					case !errors.Is(err, userdb.ErrDuplicate):
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n.Load() != 1 {
				t.Fatalf("%d owners got %s, want one", n.Load(), identity)
			}
			g.wantLinked("after the race", identity, won.Load().(string))
		}
	})
}

// TestSpend checks that only one of many callers spends a hash, and that the record of it expires.
func TestSpend(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		sum := sha256.Sum256([]byte("x"))
		hash := hex.EncodeToString(sum[:])
		var n atomic.Int32
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				switch err := g.users.Spend(ctx, hash, time.Minute); {
				case err == nil:
					n.Add(1)
				case !errors.Is(err, userdb.ErrNotFound):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n.Load() != 1 {
			t.Errorf("%d callers spent the hash, want one", n.Load())
		}
		if left := g.raw.PTTL(ctx, "~/spent/"+hash).Val(); left <= 0 || left > time.Minute {
			t.Errorf("the record of the spent hash expires in %v, want at most a minute", left)
		}
		for _, bad := range []string{"", "x", hash[1:], hash + "00", "X" + hash[1:]} {
			wantErr(t, "a bad hash", g.users.Spend(ctx, bad, time.Minute), userdb.ErrInvalid)
		}
		wantErr(t, "a bad life", g.users.Spend(ctx, hash, 25*time.Hour), userdb.ErrInvalid)
	})
}
