package userdb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// TestLostSecretComesBack checks that a running process restores ~/secret if Redis has lost it, and
// uses another secret that it finds in Redis, as after a restored backup. If it finds a damaged
// one, it must keep its own and log one warning.
func TestLostSecretComesBack(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		client := clientOf(g.db)
		counters := func() (n int) {
			for _, key := range g.keys(t.Context()) {
				if strings.Contains(key, "throttle/user/nobody/") {
					n++
				}
			}
			return n
		}
		wantErr(t, "login", g.logIn("nobody", wrongPassword, ""), userdb.ErrLogin)
		first, err := client.Get(t.Context(), "~/secret").Result()
		must(t, err)
		must(t, client.Del(t.Context(), "~/secret").Err())
		g.advance(2 * time.Minute)
		wantErr(t, "login without a secret in the store", g.logIn("nobody", wrongPassword, ""), userdb.ErrLogin)
		if again, err := client.Get(t.Context(), "~/secret").Result(); err != nil || again != first {
			t.Errorf("the secret is now %q, %v; want %q", again, err, first)
		}
		if n := counters(); n != 1 {
			t.Errorf("%d counters for one unknown identifier, want 1", n)
		}
		must(t, client.Set(t.Context(), "~/secret", otherSecret(first), 0).Err())
		g.advance(2 * time.Minute)
		wantErr(t, "login with a restored secret", g.logIn("nobody", wrongPassword, ""), userdb.ErrLogin)
		if n := counters(); n != 2 {
			t.Errorf("%d counters after the secret changed, want 2", n)
		}
		must(t, client.Set(t.Context(), "~/secret", "damaged", 0).Err())
		g.advance(2 * time.Minute)
		for range 2 {
			wantErr(t, "login with a damaged secret", g.logIn("nobody", wrongPassword, ""), userdb.ErrLogin)
		}
		if n := counters(); n != 2 {
			t.Errorf("%d counters with a damaged secret, want 2", n)
		}
		const warning = "the secret of the keyed hashes cannot be read again"
		if n := strings.Count(g.log(), "msg=\""+warning); n != 1 || strings.Contains(g.log(), first[1:]) {
			t.Errorf("%d warnings in the log, want 1 and no secret:\n%s", n, g.log())
		}
		must(t, client.Set(t.Context(), "~/secret", first, 0).Err())
	})
}

// otherSecret returns secret, which is hexadecimal, with another first digit.
func otherSecret(secret string) string {
	if secret[0] == '0' {
		return "1" + secret[1:]
	}
	return "0" + secret[1:]
}

// TestChangedAddressIsTrimmed checks that a token that changes an address stores the address
// without the white space that a visitor entered around it.
func TestChangedAddressIsTrimmed(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		secret := g.issue(userdb.Token{Purpose: "change:email", Value: " new@example.com\t"})
		e, tk, err := g.users.Redeem(t.Context(), "change:email", secret)
		must(t, err)
		if got := e.Text("email"); got != "new@example.com" || tk.Value != got {
			t.Errorf("the address is %q, the token's value %q; want new@example.com for both", got, tk.Value)
		}
	})
}
