package userdb_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// aliceTokens is the key of alice's tokens.
const aliceTokens = "~/token/{user/uid:alice}"

func (g *loginSite) issue(tk userdb.Token) string {
	g.t.Helper()
	secret, err := g.users.Issue(g.t.Context(), uid("alice"), tk)
	if err != nil {
		g.t.Fatalf("issuing %+v: %v", tk, err)
	}
	return secret
}

// wantRedeem checks that a token is valid for alice, once.
func (g *loginSite) wantRedeem(purpose, secret, value string) {
	g.t.Helper()
	e, tk, err := g.users.Redeem(g.t.Context(), purpose, secret)
	if err != nil || e.UID() != "alice" || tk.Purpose != purpose || tk.Value != value {
		g.t.Errorf("redeeming for %s: got %v, %+v, %v; want alice and the value %q", purpose, e, tk, err, value)
	}
	g.wantVoid("a second time", purpose, secret)
}

// wantVoid checks that a token is refused exactly like one that never existed.
func (g *loginSite) wantVoid(why, purpose, secret string) {
	g.t.Helper()
	e, tk, err := g.users.Redeem(g.t.Context(), purpose, secret)
	if err != userdb.ErrNotFound || e.UID() != "" || tk != (userdb.Token{}) { // not even wrapped
		g.t.Errorf("%s: got %v, %+v, %v; want exactly ErrNotFound", why, e, tk, err)
	}
}

// TestTokens checks that a token is valid once and only for its purpose, and that Redeem returns
// the token's value.
func TestTokens(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for _, tk := range []userdb.Token{
			{Purpose: "reset"},
			{Purpose: "verify", Value: "alice@example.com"},
			{Purpose: "sign in", Value: "anything\x00 at all \xff", Lifetime: 30 * 24 * time.Hour},
			{Purpose: "Ümläut:1", Value: strings.Repeat("v", 4<<10)},
		} {
			secret := g.issue(tk)
			g.wantVoid("another purpose", tk.Purpose+"s", secret)
			g.wantVoid("another secret", tk.Purpose, secret[1:])
			g.wantVoid("another secret", tk.Purpose, strings.ToUpper(secret))
			g.wantRedeem(tk.Purpose, secret, tk.Value)
		}
		// The boundary between purpose and secret must count: moving a letter across it must not
		// give a valid token.
		g.wantVoid("a letter moved to the purpose", "resetA", g.issue(userdb.Token{Purpose: "reset"}))
		for _, junk := range []string{"", "x", strings.Repeat("a", 32), strings.Repeat("A", 10_000), "~/token/user/x", "\xff"} {
			g.wantVoid("junk", "reset", junk)
			g.wantVoid("junk for junk", junk, junk)
		}
		if left := g.keysUnder("~/token/"); len(left) != 1 {
			t.Errorf("records of tokens: got %q, want one for the token that was not redeemed", left)
		}
	})
}

// TestTokenSecrets checks that a secret has 160 random bits and the UID, and that Redis stores only
// a hash of it.
func TestTokenSecrets(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		seen := map[string]bool{}
		for range 20 {
			secret := g.issue(userdb.Token{Purpose: "reset", Value: "v"})
			bytes, err := base64.RawURLEncoding.DecodeString(secret)
			if err != nil || len(bytes) != 20+len("alice") || string(bytes[20:]) != "alice" || secret[0] == '-' || seen[secret] {
				t.Errorf("got secret %q, want 20 random bytes and the UID, new and in base64", secret)
			}
			seen[secret] = true
		}
		for k, r := range g.dump(t.Context()) {
			for secret := range seen {
				if strings.Contains(k+r.String(), secret) {
					t.Errorf("%s holds a secret", k)
				}
			}
		}
	})
}

// TestTokenRules checks that invalid tokens cannot be issued.
func TestTokenRules(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for _, tt := range []struct {
			token userdb.Token
			field string
		}{
			{userdb.Token{}, "purpose"},
			{userdb.Token{Purpose: strings.Repeat("p", 257)}, "purpose"},
			{userdb.Token{Purpose: "p", Value: strings.Repeat("v", 4<<10+1)}, "value"},
			{userdb.Token{Purpose: "p", Field: "~isa"}, "field"},
			{userdb.Token{Purpose: "p", Field: "password"}, "field"},
			{userdb.Token{Purpose: "p", Field: "job"}, "job"},
			{userdb.Token{Purpose: "p", Lifetime: -time.Second}, "life"},
			{userdb.Token{Purpose: "p", Lifetime: time.Microsecond}, "life"},
			{userdb.Token{Purpose: "p", Lifetime: 30*24*time.Hour + 1}, "life"},
			{userdb.Token{Purpose: "change:email", Value: "no address"}, "email"},
			{userdb.Token{Purpose: "change:email"}, "email"},
			{userdb.Token{Purpose: "change:uid", Value: "bob"}, "purpose"},
			{userdb.Token{Purpose: "change:job", Value: "cook"}, "purpose"},
			{userdb.Token{Purpose: "change:password", Value: "x"}, "purpose"},
			{userdb.Token{Purpose: "change:~isa", Value: "x"}, "purpose"},
			{userdb.Token{Purpose: "change:", Value: "x"}, "purpose"},
		} {
			_, err := g.users.Issue(t.Context(), uid("alice"), tt.token)
			wantField(t, fmt.Sprintf("%.40q", tt.token.Purpose), err, userdb.ErrInvalid, tt.field)
		}
		_, err := g.users.Issue(t.Context(), uid("nobody"), userdb.Token{Purpose: "p"})
		wantErr(t, "for nobody", err, userdb.ErrNotFound)
		for _, n := range []int{200, 201} {
			long := strings.Repeat("u", n)
			_, err := g.users.Create(t.Context(), userdb.NewEntry{UID: long})
			must(t, err)
			_, err = g.users.Issue(t.Context(), uid(long), userdb.Token{Purpose: "p"})
			if (err == nil) != (n == 200) {
				t.Errorf("Issue for a UID of %d bytes: got %v, want an error only beyond 200 bytes", n, err)
			}
			must(t, g.users.Delete(t.Context(), uid(long)))
		}
		if left := g.keysUnder("~/token/"); len(left) != 0 {
			t.Errorf("records of tokens are still there: %q", left)
		}
	})
}

// voidingMethods lists the methods that make all tokens of an entry void.
var voidingMethods = []struct {
	name string
	do   func(ctx context.Context, users *userdb.Type) error
}{
	{"set password", func(ctx context.Context, users *userdb.Type) error {
		return errOf(users.SetPassword(ctx, uid("alice"), "brand new horse"))
	}},
	{"change password", func(ctx context.Context, users *userdb.Type) error {
		return errOf(users.ChangePassword(ctx, uid("alice"), alicePassword, "brand new horse", userdb.Attempt{}))
	}},
	{"delete", func(ctx context.Context, users *userdb.Type) error { return users.Delete(ctx, uid("alice")) }},
	{"delete and create", func(ctx context.Context, users *userdb.Type) error {
		if err := users.Delete(ctx, uid("alice")); err != nil {
			return err
		}
		_, err := users.Create(ctx, userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", "alice"), Password: alicePassword})
		return err
	}},
	{"disable", func(ctx context.Context, users *userdb.Type) error { return users.Disable(ctx, uid("alice")) }},
	{"disable and enable", func(ctx context.Context, users *userdb.Type) error {
		return errors.Join(users.Disable(ctx, uid("alice")), users.Enable(ctx, uid("alice")))
	}},
}

// TestVoidTokens checks that each of voidingMethods voids all tokens that were issued before it,
// and none that are issued after it.
func TestVoidTokens(t *testing.T) {
	for _, v := range voidingMethods {
		t.Run(v.name, func(t *testing.T) {
			eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
				old := []string{g.issue(userdb.Token{Purpose: "reset"}), g.issue(userdb.Token{Purpose: "reset"})}
				change := g.issue(userdb.Token{Purpose: "change:email", Value: "new@example.com"})
				must(t, v.do(t.Context(), g.users))
				if left := g.keysUnder("~/token/"); len(left) > 0 || g.storedField("alice", "~tokens") != "" {
					t.Errorf("records of tokens are still there: %q", left)
				}
				if g.storedField("alice", "~isa") != "" && g.storedField("alice", "~disabled") == "" {
					g.wantRedeem("reset", g.issue(userdb.Token{Purpose: "reset"}), "")
				}
				for _, secret := range old {
					g.wantVoid("an older token", "reset", secret)
				}
				g.wantVoid("an older change", "change:email", change)
				if ok, _ := g.users.Exists(t.Context(), hints.Field("email", "new@example.com")); ok {
					t.Error("the void token changed the address")
				}
			})
		})
	}
}

// TestTokenOfLostValue replaces an entry's address in Redis, as another program may. A token that
// was sent to the old address must be void until the entry has that address again.
func TestTokenOfLostValue(t *testing.T) {
	eachLoginSite(t, manyLogins(), func(t *testing.T, g *loginSite) {
		secret := g.issue(userdb.Token{Purpose: "reset", Field: "email"})
		address := g.storedField("alice", "email")
		g.storeField("alice", "email", "other@example.com")
		g.wantVoid("the entry has another address", "reset", secret)
		g.storeField("alice", "email", address)
		g.wantRedeem("reset", secret, "")
	})
}

// TestTokenVoidedDuringRedeem makes a token void after Redeem has read the entry. Redeem must not
// make the token's change.
func TestTokenVoidedDuringRedeem(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(interleaves)
		secret := g.issue(userdb.Token{Purpose: "change:email", Value: "new@example.com"})
		var once sync.Once
		g.tap.set(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
			err := send()
			if strings.HasPrefix(wordsOf(cmds[0]), "hgetall user/uid:alice") {
				once.Do(func() {
					g.tap.set(nil)
					must(t, errOf(g.users.SetPassword(ctx, uid("alice"), "brand new horse")))
				})
			}
			return err
		})
		g.wantVoid("meanwhile", "change:email", secret)
		once.Do(func() { t.Error("no change was made meanwhile") })
		if ok, _ := g.users.Exists(t.Context(), hints.Field("email", "new@example.com")); ok {
			t.Error("the void token changed the address")
		}
	})
}

// TestTokensStayValid checks that failed logins, a login and other changes leave tokens valid.
func TestTokensStayValid(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		first := g.issue(userdb.Token{Purpose: "reset"})
		second := g.issue(userdb.Token{Purpose: "verify", Value: "v"})
		g.failLogins(3, "alice", "")
		must(t, g.logIn("alice", alicePassword, ""))
		_, err := g.users.Update(t.Context(), uid("alice"), putText("name", "Alicia"))
		must(t, err)
		g.wantRedeem("verify", second, "v")
		g.wantRedeem("reset", first, "")
	})
}

// TestTokensOfStrangers checks that the many tokens of a visitor who keeps asking push out only
// older tokens that visitors asked for, and not the link of an operator or a change of the owner's
// address.
func TestTokensOfStrangers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, h := t.Context(), hints.UID("ann")
		users := typeOf(t, s.open(userdb.Options{}), "user")
		must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann", "email", "ann@x.org")})))
		link, err := users.Issue(ctx, h, userdb.Token{Purpose: "reset"})
		must(t, err)
		change, err := users.Issue(ctx, h, userdb.Token{Purpose: userdb.PurposeChange + "email", Value: "new@x.org"})
		must(t, err)
		var asked []string
		for i := range 40 {
			secret, _, err := users.IssueFor(ctx, h, "email", userdb.Token{Purpose: []string{"reset", "verify"}[i%2]})
			must(t, err)
			asked = append(asked, secret)
		}
		for i, secret := range asked {
			_, _, err := users.Peek(ctx, []string{"reset", "verify"}[i%2], secret)
			if stays := i >= len(asked)-14; stays != (err == nil) {
				t.Errorf("token %d of %d: got error %v, want it to be valid: %v", i, len(asked), err, stays)
			}
		}
		for purpose, secret := range map[string]string{"reset": link, userdb.PurposeChange + "email": change} {
			if _, _, err := users.Peek(ctx, purpose, secret); err != nil {
				t.Errorf("the older token for %s: got error %v, want it to be valid", purpose, err)
			}
		}
	})
}

// TestTokenLifetime checks that a token expires, and that Redis drops the record when the last
// token of an entry has expired.
func TestTokenLifetime(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		hour := g.issue(userdb.Token{Purpose: "p"})
		short := g.issue(userdb.Token{Purpose: "q", Lifetime: time.Minute})
		life, err := g.raw.PTTL(t.Context(), aliceTokens).Result()
		must(t, err)
		if life > time.Hour || life < 59*time.Minute {
			t.Errorf("the record lives for %v, want an hour", life)
		}
		g.advance(time.Minute - time.Millisecond)
		_, _, err = g.users.Peek(t.Context(), "q", short)
		must(t, err)
		g.advance(time.Millisecond)
		g.wantVoid("an expired token", "q", short)
		g.wantRedeem("p", hour, "")
		if left := g.keysUnder("~/token/"); len(left) > 0 || g.storedField("alice", "~tokens") != "" {
			t.Errorf("records of tokens are still there: %q, but all tokens are redeemed or expired", left)
		}
		g.issue(userdb.Token{Purpose: "p", Lifetime: 30 * time.Millisecond})
		eventually(t, "the record of expired tokens is dropped", func() bool { return len(g.keysUnder("~/token/")) == 0 })
	})
}

// TestParallelRedeemers redeems a token twenty times at once. Exactly one call must succeed,
// whether or not the token makes a change.
func TestParallelRedeemers(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for round, tk := range []userdb.Token{
			{Purpose: "reset"}, {Purpose: "verify", Value: "v"}, {Purpose: "change:email", Value: "new@example.com"}, {Purpose: "reset"},
		} {
			secret := g.issue(tk)
			errs := make([]error, 20)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { _, _, errs[i] = g.users.Redeem(t.Context(), tk.Purpose, secret) })
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else if !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("round %d: %v", round, err)
				}
			}
			if won != 1 {
				t.Errorf("round %d: %d of 20 redeemed it, want 1", round, won)
			}
		}
	})
}

// TestChangeOfAddress checks that an address is claimed when its token is redeemed, and not when it
// is issued.
func TestChangeOfAddress(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		const before, after = "alice@example.com", "Alice@New.example"
		isTaken := func(address string) bool {
			found, err := g.users.Exists(t.Context(), hints.Field("email", address))
			must(t, err)
			return found
		}
		first := g.issue(userdb.Token{Purpose: "change:email", Value: after})
		second := g.issue(userdb.Token{Purpose: "change:email", Value: after})
		if !isTaken(before) || isTaken(after) {
			t.Error("the address changed before its token was redeemed")
		}
		e, tk, err := g.users.Redeem(t.Context(), "change:email", first)
		must(t, err)
		if e.Text("email") != after || tk.Value != after || isTaken(before) || !isTaken("alice@new.EXAMPLE") {
			t.Errorf("Redeem returned %v, %+v; want alice with only the address %s", e, tk, after)
		}
		must(t, g.logIn("alice@new.example", alicePassword, ""))
		wantErr(t, "with the old address", g.logIn(before, alicePassword, ""), userdb.ErrLogin)
		g.wantVoid("an older token for the same address", "change:email", second)
		same := g.issue(userdb.Token{Purpose: "change:email", Value: after})
		g.wantRedeem("change:email", same, after) // the address is already the same

		taken := g.issue(userdb.Token{Purpose: "change:email", Value: "bob@example.com"})
		g.add("bob", "")
		_, _, err = g.users.Redeem(t.Context(), "change:email", taken)
		wantField(t, "an address that bob has", err, userdb.ErrDuplicate, "email")
		if !isTaken(after) {
			t.Error("the old address is gone")
		}
		must(t, g.users.Delete(t.Context(), uid("bob")))
		g.wantRedeem("change:email", taken, "bob@example.com") // the refused call did not spend it
	})
}

// TestConcurrentChangesToOneAddress redeems tokens of several accounts for one address at the same
// time. One account must get the address, and all indexes must be right.
func TestConcurrentChangesToOneAddress(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		secrets := map[string]string{}
		for i := range 6 {
			name := fmt.Sprint("user", i)
			g.add(name, "")
			if i == 3 { // at most three tokens an hour are issued for one address
				g.advance(time.Hour + time.Second)
			}
			secret, err := g.users.Issue(t.Context(), uid(name), userdb.Token{Purpose: "change:email", Value: "one@example.com", Lifetime: 3 * time.Hour})
			must(t, err)
			secrets[name] = secret
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []string
		for name, secret := range secrets {
			wg.Go(func() {
				_, _, err := g.users.Redeem(t.Context(), "change:email", secret)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, name)
				} else if !errors.Is(err, userdb.ErrDuplicate) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		e, err := g.users.Find(t.Context(), hints.Field("email", "one@example.com"))
		if err != nil || len(won) != 1 || e.UID() != won[0] {
			t.Errorf("%q succeeded, but %v has the address: %v", won, e, err)
		}
	})
}

// TestTokensOfTypes checks that a token is valid only in its type and namespace.
func TestTokensOfTypes(t *testing.T) {
	o := loginOptions()
	o.Schema = wideSchema(schema.FoldCasefold)
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		secret := g.issue(userdb.Token{Purpose: "p"})
		_, _, err := typeOf(t, g.db, "order").Redeem(t.Context(), "p", secret)
		wantErr(t, "a token of another type", err, userdb.ErrNotFound)
		ns := userdb.Options{Schema: o.Schema, Namespace: parseNamespace(t, "acme")}
		_, _, err = typeOf(t, g.open(ns), "user").Redeem(t.Context(), "p", secret)
		wantErr(t, "a token of another namespace", err, userdb.ErrNotFound)
		g.wantRedeem("p", secret, "")
	})
}
