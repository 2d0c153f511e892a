package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// An obstacle keeps the owner of an account from logging in.
type obstacle struct {
	name    string
	put     func(g *loginSite, uid string)  // puts the obstacle in place
	isShown func(s userdb.LoginStatus) bool // reports whether a status shows the obstacle
}

var obstacles = []obstacle{
	{"disabled", func(g *loginSite, uid string) {
		must(g.t, g.users.Disable(g.t.Context(), hints.UID(uid)))
	}, func(s userdb.LoginStatus) bool { return s.Disabled }},
	{"no password", func(g *loginSite, uid string) {
		g.setHash(uid, "")
	}, func(s userdb.LoginStatus) bool { return s.Password == userdb.PasswordNone }},
	{"an unknown hash", func(g *loginSite, uid string) {
		g.setHash(uid, "$nosuch$hash")
	}, func(s userdb.LoginStatus) bool { return s.Password == userdb.PasswordUnusable }},
	{"too many guesses", func(g *loginSite, uid string) {
		for range 12 {
			_, err := g.users.Login(g.t.Context(), uid+" name", wrongPassword, userdb.Attempt{})
			if !errors.Is(err, userdb.ErrLogin) && !errors.Is(err, userdb.ErrTooManyAttempts) {
				g.t.Fatal(err)
			}
		}
	}, func(s userdb.LoginStatus) bool { return s.Wait > 0 }},
	{"no identifier", func(g *loginSite, uid string) {
		_, err := g.users.Update(g.t.Context(), hints.UID(uid), func(e *userdb.Entry) error { e.Drop("name"); return nil })
		must(g.t, err)
	}, func(s userdb.LoginStatus) bool { return s.Identifiers == 0 }},
}

// setHash writes a password hash directly to Redis. If hash is "", it removes the password.
func (g *loginSite) setHash(uid, hash string) {
	g.t.Helper()
	prk, err := recordkey.PRK("user", "uid", uid)
	must(g.t, err)
	must(g.t, g.raw.HDel(context.Background(), prk.String(), "password").Err())
	if hash != "" {
		must(g.t, g.raw.HSet(context.Background(), prk.String(), "password", hash).Err())
	}
}

// TestLoginStatus checks, for every obstacle and every pair of them, that LoginStatus agrees with
// the answer of Login to the right password.
func TestLoginStatus(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		n := 0
		for i := -1; i < len(obstacles); i++ {
			for j := i; j < len(obstacles); j++ {
				if i == j && i >= 0 {
					continue
				}
				var chosen []obstacle
				for _, k := range []int{i, j} {
					if k >= 0 {
						chosen = append(chosen, obstacles[k])
					}
				}
				n++
				g.checkLoginStatus(fmt.Sprintf("status%d", n), chosen)
			}
		}
		if _, err := g.users.LoginStatus(t.Context(), hints.UID("nobody")); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("an unknown account: got %v, want ErrNotFound", err)
		}
	})
}

// checkLoginStatus creates an entry with some obstacles, and compares its LoginStatus with the
// answer of Login.
func (g *loginSite) checkLoginStatus(uid string, chosen []obstacle) {
	g.t.Helper()
	ctx := g.t.Context()
	_, err := g.users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", uid+" name"), Password: alicePassword})
	must(g.t, err)
	// Guesses come first: they count for the entry only while it has the identifier.
	slices.SortStableFunc(chosen, func(a, b obstacle) int {
		first := func(o obstacle) int {
			if o.name == "too many guesses" {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
	var names []string
	for _, o := range chosen {
		o.put(g, uid)
		names = append(names, o.name)
	}
	s, err := g.users.LoginStatus(ctx, hints.UID(uid))
	must(g.t, err)
	for _, o := range chosen {
		// The unknown hash is stored last, so the status does not say that there is no password.
		replaced := o.name == "no password" && slices.Contains(names, "an unknown hash")
		if want := slices.Contains(names, o.name) && !replaced; o.isShown(s) != want {
			g.t.Errorf("%q: LoginStatus shows %s: %v, want %v, in %+v", names, o.name, !want, want, s)
		}
	}
	_, err = g.users.Login(ctx, uid+" name", alicePassword, userdb.Attempt{Origin: "192.0.2.1"})
	var wait *userdb.WaitError
	switch {
	case s.CanLogIn():
		if err != nil {
			g.t.Errorf("%q: CanLogIn is true, but Login returns %v", names, err)
		}
	case errors.As(err, &wait):
		if s.Wait == 0 || wait.Wait > s.Wait || s.Wait-wait.Wait > time.Minute {
			g.t.Errorf("%q: Login says to wait %v, LoginStatus says %v; want LoginStatus to say the same or up to a minute more", names, wait.Wait, s.Wait)
		}
	case !errors.Is(err, userdb.ErrLogin):
		g.t.Errorf("%q: Login returns %v, want ErrLogin or a wait", names, err)
	case s.Wait > 0 && s.Identifiers > 0:
		g.t.Errorf("%q: Login checks the password, but LoginStatus says to wait %v", names, s.Wait)
	}
	if s.CanLogIn() != (len(chosen) == 0) {
		g.t.Errorf("%q: got CanLogIn %v, want %v", names, s.CanLogIn(), len(chosen) == 0)
	}
}

// TestLoginStatusDetails checks that LoginStatus returns the familiar origins, the last login and
// the valid tokens.
func TestLoginStatusDetails(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx, alice := t.Context(), hints.UID("alice")
		for _, origin := range []string{"192.0.2.1", "192.0.2.2"} {
			_, err := g.users.Login(ctx, "alice", alicePassword, userdb.Attempt{Origin: origin})
			must(t, err)
			g.advance(time.Minute)
		}
		_, _ = g.users.Login(ctx, "alice", wrongPassword, userdb.Attempt{Origin: "192.0.2.1"})
		_, err := g.users.Issue(ctx, alice, userdb.Token{Purpose: "reset", Field: "name"})
		must(t, err)
		_, err = g.users.Issue(ctx, alice, userdb.Token{Purpose: "change:email", Value: "a@example.com", Lifetime: 2 * time.Hour})
		must(t, err)
		s, err := g.users.LoginStatus(ctx, alice)
		must(t, err)
		ago := g.clock().Sub(s.LastLogin)
		if len(s.Familiar) != 2 || s.Familiar[0].Remaining != 8 || s.Familiar[1].Remaining != 7 || ago.Round(time.Second) != time.Minute {
			t.Errorf("got origins %+v and the last login %v ago; want two with 8 and 7 attempts, and a minute", s.Familiar, ago)
		}
		var tokens []string
		for _, tk := range s.Tokens {
			tokens = append(tokens, fmt.Sprint(tk.Purpose, " ", tk.Field, " ", tk.Expires.Sub(g.clock()).Round(time.Minute)))
		}
		if !slices.Equal(tokens, []string{"change:email email 2h0m0s", "reset name 1h0m0s"}) {
			t.Errorf("got tokens %q, want change:email and reset", tokens)
		}
		g.advance(time.Hour + time.Minute)
		if s, err = g.users.LoginStatus(ctx, alice); err != nil || len(s.Tokens) != 1 {
			t.Errorf("an hour later: got tokens %+v, %v; want one", s.Tokens, err)
		}
		must(t, g.users.Disable(ctx, alice))
		if s, err = g.users.LoginStatus(ctx, alice); err != nil || len(s.Tokens) != 0 {
			t.Errorf("a disabled account: got tokens %+v, %v; want none", s.Tokens, err)
		}
	})
}

// TestClaims checks that Claims returns the stored records of a value.
func TestClaims(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{})
		users := typeOf(t, db, "user")
		_, err := users.Create(t.Context(), userdb.NewEntry{UID: "u1", Facets: schema.Texts("name", "Alice", "email", "alice@example.com")})
		must(t, err)
		for value, want := range map[string]string{
			"ＡＬＩＣＥ":             "name user/name:alice/~prk user/uid:u1",
			"alice@EXAMPLE.com": "email user/email:alice@example.com/~prk user/uid:u1",
			"bob":               "", "": "",
		} {
			claims, err := inspect.Claims(t.Context(), db, "user", value)
			must(t, err)
			got := ""
			for _, c := range claims {
				got += c.Field + " " + c.Record + " " + c.Holds
			}
			if got != want {
				t.Errorf("claims of %q: got %q, want %q", value, got, want)
			}
		}
		if _, err := inspect.Claims(t.Context(), db, "nosuch", "x"); err == nil {
			t.Error("claims of a type that does not exist: got no error")
		}
	})
}
