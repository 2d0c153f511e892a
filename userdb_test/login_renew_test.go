package userdb_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

var (
	firstPepper  = []byte("the first pepper, 16+")
	secondPepper = []byte("the second pepper, 16+")
)

// bcryptOf is a hash of another variant or cost than a type's own.
func bcryptOf(t *testing.T, variant string, cost int, secret string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(secret), cost)
	must(t, err)
	return "$2" + variant + string(hash[3:])
}

// hashed is a hash of the cost of these tests, as a store with these peppers makes it.
func hashed(t *testing.T, pw string, peppers ...[]byte) string {
	t.Helper()
	h, err := password.New(password.Options{Peppers: peppers})
	must(t, err)
	hash, err := h.Hash(pw)
	must(t, err)
	return hash
}

// An imported hash is one that a store did not make as it makes them now.
type imported struct {
	name, hash, password string
	renewed              string // the reason; "": it stays
}

// imports are such hashes for a store whose peppers are these.
func imports(t *testing.T, peppers [][]byte) []imported {
	all := []imported{
		{"$2b$", bcryptOf(t, "b", 4, "correct horse"), "correct horse", "algorithm"},
		{"$2y$", bcryptOf(t, "y", 4, "correct horse"), "correct horse", "algorithm"},
		{"argon2id", "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "password", "algorithm"},
		{"scrypt", "$scrypt$ln=4,r=8,p=2$MDEyMzQ1Njc4OWFiY2RlZg$JYH3qqqHOmC1SgODc5iBofe43ODbjU4oo0Dz1jY/A94", "correct horse", "algorithm"},
		{"PBKDF2", "$pbkdf2-sha256$1000$MDEyMzQ1Njc4OWFiY2RlZg$Kfxd4gVEVJAUWyEM9/KuB1B0aQFq.qVyrFi44QnyZ4k", "pässwörd", "algorithm"},
		{"sha-crypt", "$6$saltsalt$hRM5XZ86KXEw9UOmjigeVqFgULtFB2sgpC9lXQDfMib3Zgw7mEiUvBJI2EplzfAqxL5Vvwp2scFtv/uamSo5z0", "correct horse", "algorithm"},
		{"the original's bytes", bcryptOf(t, "a", 4, "p\xe4ssw\xf6rd"), "pässwörd", "encoding"},
		{"the original's bytes beyond Latin-1", bcryptOf(t, "a", 4, "\x65\xe5\x67\x2c"), "日本", "encoding"},
	}
	if len(peppers) == 0 {
		return append(all,
			imported{"another cost", bcryptOf(t, "a", 5, "correct horse"), "correct horse", "cost"},
			imported{"as it is made", hashed(t, "correct horse"), "correct horse", ""},
			imported{"as it is made, not ASCII", hashed(t, "pässwörd"), "pässwörd", ""})
	}
	return append(all,
		imported{"without pepper", hashed(t, "correct horse"), "correct horse", "pepper"},
		imported{"with the second pepper", hashed(t, "correct horse", peppers[1]), "correct horse", "pepper"},
		imported{"as it is made", hashed(t, "correct horse", peppers...), "correct horse", ""})
}

// TestRenewal: after the first good login a hash is as the store makes it, and nothing else has changed.
func TestRenewal(t *testing.T) {
	for name, peppers := range map[string][][]byte{"no pepper": nil, "two peppers": {firstPepper, secondPepper}} {
		t.Run(name, func(t *testing.T) {
			o := gateOptions()
			o.Peppers = peppers
			eachGate(t, o, func(t *testing.T, g *gate) {
				secret, err := g.users.Issue(t.Context(), uid("alice"), userdb.Token{Purpose: "reset"})
				must(t, err)
				changed := g.stored("alice", "~passwd")
				for _, i := range imports(t, peppers) {
					if i.renewed == "encoding" { // only where the password was never set here
						must(t, g.raw.HDel(t.Context(), "user/uid:alice", "~passwd").Err())
					}
					g.wantRenewal(i, peppers)
					if i.renewed == "encoding" {
						g.store("alice", "~passwd", changed)
					}
				}
				if got := g.stored("alice", "~passwd"); got != changed || got == "" {
					t.Errorf("the password was changed at %q, and at %q after renewals", changed, got)
				}
				_, _, err = g.users.Redeem(t.Context(), "reset", secret)
				if err != nil {
					t.Errorf("a token after renewals: %v", err)
				}
			})
		})
	}
}

func (g *gate) wantRenewal(i imported, peppers [][]byte) {
	g.t.Helper()
	g.store("alice", "password", i.hash)
	if err := g.in("alice", i.password+"x", "home"); err == nil || g.stored("alice", "password") != i.hash {
		g.t.Errorf("%s: a wrong password: %v, and the hash is %v", i.name, err, g.stored("alice", "password") == i.hash)
	}
	g.told()
	if err := g.in("alice", i.password, "home"); err != nil {
		g.t.Errorf("%s: %v", i.name, err)
		return
	}
	want := "login user/uid:alice origin:home"
	if i.renewed != "" {
		want += " renewed:" + i.renewed
	}
	if told := g.told(); len(told) != 1 || brief(told[0]) != want {
		g.t.Errorf("%s: events %v, want %q", i.name, told, want)
	}
	now := g.stored("alice", "password")
	prefix := "$2a$04$"
	if len(peppers) > 0 {
		prefix = "p"
	}
	if (now != i.hash) != (i.renewed != "") || !strings.HasPrefix(now, prefix) || !strings.Contains(now, "$2a$04$") {
		g.t.Errorf("%s: renewed for %q, the hash begins with %.8s, changed: %v", i.name, i.renewed, now, now != i.hash)
	}
	must(g.t, g.in("alice", i.password, "home"))
	if g.stored("alice", "password") != now {
		g.t.Errorf("%s: renewed twice", i.name)
	}
}

// TestTwins: of a password that was set here there are none. Of one that only the original has set, those with the same
// bytes are let in, as it did, but where these are plain ASCII, or else text, the hash stays the owner's.
func TestTwins(t *testing.T) {
	for _, tt := range []struct{ name, owners, twin string }{
		{"ASCII", "abcdefgh12", "慢捤敦杨ㄲ"},
		{"ASCII in part", "pass &word", "pass…word"},
		{"UTF-8", "ääääääää", "쎤쎤쎤쎤쎤쎤쎤쎤"},
		{"garbled", "ääääääää", "Ã¤Ã¤Ã¤Ã¤Ã¤Ã¤Ã¤Ã¤"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
				must(t, g.users.SetPassword(t.Context(), uid("alice"), tt.owners))
				wantErr(t, "the twin of a password that was set", g.in("alice", tt.twin, ""), userdb.ErrLogin)
				g.add("bob", tt.owners)
				wantErr(t, "the twin of a password of a new entry", g.in("bob", tt.twin, ""), userdb.ErrLogin)
				must(t, g.raw.HDel(t.Context(), "user/uid:alice", "~passwd").Err())
				g.store("alice", "password", bcryptOf(t, "a", 5, tt.owners))
				hash := g.stored("alice", "password")
				must(t, g.in("alice", tt.twin, ""))
				if g.stored("alice", "password") != hash {
					t.Error("the twin has replaced the hash")
				}
				must(t, g.in("alice", tt.owners, ""))
			})
		})
	}
}

// TestRenewalHarmsNobody: logins at the same time all succeed, and what else changes stays.
func TestRenewalHarmsNobody(t *testing.T) {
	eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
		for round := range 10 {
			g.store("alice", "password", bcryptOf(t, "b", 4, "correct horse"))
			job := fmt.Sprint("job ", round)
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					e, err := g.users.Login(t.Context(), "alice", "correct horse", userdb.Attempt{})
					if err != nil || e.UID() != "alice" {
						t.Errorf("a login beside others: %v, %v", e, err)
					}
				})
			}
			wg.Go(func() {
				_, err := g.users.Update(t.Context(), uid("alice"), func(e *userdb.Entry) error {
					e.Put("job", schema.Text(job))
					return nil
				})
				must(t, err)
			})
			wg.Wait()
			must(t, g.in("alice", "correct horse", "home"))
			if got := g.stored("alice", "job"); got != job || !strings.HasPrefix(g.stored("alice", "password"), "$2a$") {
				t.Errorf("round %d: job %q, want %q; hash %.4s", round, got, job, g.stored("alice", "password"))
			}
		}
	})
}

// TestRenewalNeverBringsAnOldPasswordBack: a password that is set meanwhile stays.
func TestRenewalNeverBringsAnOldPasswordBack(t *testing.T) {
	eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
		for round := range 10 {
			g.store("alice", "password", bcryptOf(t, "b", 4, "correct horse"))
			next := fmt.Sprint("another password ", round)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { _ = g.in("alice", "correct horse", "home") })
			}
			wg.Go(func() { must(t, g.users.SetPassword(t.Context(), uid("alice"), next)) })
			wg.Wait()
			wantErr(t, "the old password", g.in("alice", "correct horse", "home"), userdb.ErrLogin)
			must(t, g.in("alice", next, "home"))
		}
	})
}

// TestRenewalThatFails lets the owner in all the same, and tells the operator.
func TestRenewalThatFails(t *testing.T) {
	eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
		hash := bcryptOf(t, "b", 4, "correct horse")
		g.store("alice", "password", hash)
		g.refuse("$2a$04$")
		must(t, g.in("alice", "correct horse", ""))
		g.tap.set(nil)
		if g.stored("alice", "password") != hash {
			t.Error("the hash is renewed, although the entry cannot be written")
		}
		if log := g.log(); !strings.Contains(log, "a hash is not renewed") || strings.Contains(log, hash) {
			t.Errorf("log: %s", log)
		}
		if told := g.told(); len(told) != 1 || brief(told[0]) != "login user/uid:alice" {
			t.Errorf("events: %v", told)
		}
	})
}

// TestPepperedPasswords are those that only a pepper makes possible.
func TestPepperedPasswords(t *testing.T) {
	o := gateOptions()
	o.Peppers = [][]byte{firstPepper}
	eachGate(t, o, func(t *testing.T, g *gate) {
		long := strings.Repeat("correct horse ", 80)[:1024]
		must(t, g.users.SetPassword(t.Context(), uid("alice"), long))
		must(t, g.in("alice", long, ""))
		wantErr(t, "one byte less", g.in("alice", long[:1023], ""), userdb.ErrLogin)
		wantErr(t, "cut at 72", g.in("alice", long[:72], ""), userdb.ErrLogin)
		wantErr(t, "1025 bytes", g.users.SetPassword(t.Context(), uid("alice"), long+"x"), password.ErrPolicy, "over 1024 bytes")
		hash := g.stored("alice", "password")
		if len(hash) != 64 || hash[0] != 'p' {
			t.Errorf("stored: %d bytes beginning with %.1q", len(hash), hash)
		}
	})
}
