package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

var (
	firstPepper  = []byte("the first pepper, 16+")
	secondPepper = []byte("the second pepper, 16+")
)

// bcryptOf returns a bcrypt hash of the given variant and cost.
func bcryptOf(t *testing.T, variant string, cost int, secret string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(secret), cost)
	must(t, err)
	return "$2" + variant + string(hash[3:])
}

// hashWith returns the hash that a store with these peppers computes for a password, at the cost of
// the tests.
func hashWith(t *testing.T, pw string, peppers ...[]byte) string {
	t.Helper()
	h, err := password.New(password.Options{Peppers: peppers})
	must(t, err)
	hash, err := h.Hash(pw)
	must(t, err)
	return hash
}

// An importedHash is a hash that is stored for alice before she logs in: one from another program,
// or one of the store's own.
type importedHash struct {
	name, hash, password string
	renewed              string // the reason why a login replaces it, or "" if it stays
}

// importedHashes returns hashes to log in with, for a store with these peppers.
func importedHashes(t *testing.T, peppers [][]byte) []importedHash {
	otherCost := "cost"
	if len(peppers) > 0 {
		otherCost = "pepper"
	}
	all := []importedHash{
		{"another cost and $2y$", bcryptOf(t, "y", 5, "correct horse"), "correct horse", otherCost},
		{"argon2id", "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "password", "algorithm"},
		{"scrypt", "$scrypt$ln=4,r=8,p=2$MDEyMzQ1Njc4OWFiY2RlZg$JYH3qqqHOmC1SgODc5iBofe43ODbjU4oo0Dz1jY/A94", "correct horse", "algorithm"},
		{"PBKDF2", "$pbkdf2-sha256$1000$MDEyMzQ1Njc4OWFiY2RlZg$Kfxd4gVEVJAUWyEM9/KuB1B0aQFq.qVyrFi44QnyZ4k", "pässwörd", "algorithm"},
		{"sha-crypt", "$6$saltsalt$hRM5XZ86KXEw9UOmjigeVqFgULtFB2sgpC9lXQDfMib3Zgw7mEiUvBJI2EplzfAqxL5Vvwp2scFtv/uamSo5z0", "correct horse", "algorithm"},
		{"Django", "pbkdf2_sha256$1000$CDOra4DGmpOn4JkK6bGoVK$UWlk2LJTPF1ceNE4E1o5HImGoQprH+VKzQ5prmlq7ik=", "pässwörd", "algorithm"},
		{"Django's bcrypt", "bcrypt_sha256$$2b$04$kVoWw8/e7GuaTuZ1Xegzi.a7HoNiYM0gUN3chXWiwfLGyd8VoXKKW", "correct horse", "algorithm"},
		{"ASP.NET Identity", "AQAAAAIAAAAyAAAAEOMwvh3+FZxqkdMBz2ekgGhwQ4B6pZWND6zgESBuWiHw", "my password", "algorithm"},
		{"phpass", "$P$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0", "test12345", "algorithm"},
		{"WordPress", "$wp$2y$04$0okG6Anxf.mFH2.bedhlmOvQGxKFT5oy/rccztbTCRV5La3kZWzBe", `it's "so" \ here`, "algorithm"},
		{
			"Firebase", "$firebase-scrypt$ln=4,r=4,p=1$pg4iNNNHBri/Kgc" +
				"$H7tvHyHxUiEY4SBPByp71cXjlrNp3oGWoFw1XutOp8t7NLaX4LST9fWFtz9L7W24z0S1cY5zyXhtn1MQNsxENA", "correct horse", "algorithm",
		},
		{"the original's encoding", bcryptOf(t, "a", 4, "p\xe4ssw\xf6rd"), "pässwörd", "encoding"},
		{"the original's encoding, beyond Latin-1", bcryptOf(t, "a", 4, "\x65\xe5\x67\x2c"), "日本", "encoding"},
	}
	if len(peppers) == 0 {
		return append(all,
			importedHash{"another cost", bcryptOf(t, "a", 5, "correct horse"), "correct horse", "cost"},
			importedHash{"the store's own", hashWith(t, "correct horse"), "correct horse", ""},
			importedHash{"the store's own, not ASCII", hashWith(t, "pässwörd"), "pässwörd", ""})
	}
	return append(all,
		importedHash{"without pepper", hashWith(t, "correct horse"), "correct horse", "pepper"},
		importedHash{"with the second pepper", hashWith(t, "correct horse", peppers[1]), "correct horse", "pepper"},
		importedHash{"the store's own", hashWith(t, "correct horse", peppers...), "correct horse", ""})
}

// TestRenewal checks that the first successful login replaces a hash that the store would make
// differently today, and changes nothing else.
func TestRenewal(t *testing.T) {
	for name, peppers := range map[string][][]byte{"no pepper": nil, "two peppers": {firstPepper, secondPepper}} {
		t.Run(name, func(t *testing.T) {
			o := loginOptions()
			o.Peppers = peppers
			eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
				secret, err := g.users.Issue(t.Context(), uid("alice"), userdb.Token{Purpose: "reset"})
				must(t, err)
				changed := g.storedField("alice", "~passwd")
				for _, i := range importedHashes(t, peppers) {
					if i.renewed == "encoding" { // only if the password was never set by this store
						must(t, g.raw.HDel(t.Context(), "user/uid:alice", "~passwd").Err())
					}
					g.wantRenewal(i, peppers)
					if i.renewed == "encoding" {
						g.storeField("alice", "~passwd", changed)
					}
				}
				if got := g.storedField("alice", "~passwd"); got != changed || got == "" {
					t.Errorf("after logins the time of the change is %q, want %q as before", got, changed)
				}
				_, _, err = g.users.Redeem(t.Context(), "reset", secret)
				if err != nil {
					t.Errorf("a token after these logins: %v", err)
				}
			})
		})
	}
}

// wantRenewal stores a hash for alice. It checks that a wrong password leaves it, and that a login
// with the right one replaces it exactly if it is to be renewed.
func (g *loginSite) wantRenewal(i importedHash, peppers [][]byte) {
	g.t.Helper()
	g.storeField("alice", "password", i.hash)
	if err := g.logIn("alice", i.password+"x", "home"); err == nil || g.storedField("alice", "password") != i.hash {
		g.t.Errorf("%s: a wrong password: got %v, the hash is unchanged: %v; want an error, true",
			i.name, err, g.storedField("alice", "password") == i.hash)
	}
	g.takeEvents()
	if err := g.logIn("alice", i.password, "home"); err != nil {
		g.t.Errorf("%s: %v", i.name, err)
		return
	}
	want := "login user/uid:alice origin:home"
	if i.renewed != "" {
		want += " renewed:" + i.renewed
	}
	if events := g.takeEvents(); len(events) != 1 || describeEvent(events[0]) != want {
		g.t.Errorf("%s: events %v, want %q", i.name, events, want)
	}
	now := g.storedField("alice", "password")
	prefix := "$2a$04$"
	if len(peppers) > 0 {
		prefix = "p"
	}
	if (now != i.hash) != (i.renewed != "") || !strings.HasPrefix(now, prefix) || !strings.Contains(now, "$2a$04$") {
		g.t.Errorf("%s: want renewed %q, but the hash begins with %.8s, changed: %v", i.name, i.renewed, now, now != i.hash)
	}
	must(g.t, g.logIn("alice", i.password, "home"))
	if g.storedField("alice", "password") != now {
		g.t.Errorf("%s: the hash was replaced twice", i.name)
	}
}

// TestImportedBcryptStays checks that a login with an imported bcrypt hash of the type's cost
// computes one hash and keeps the stored one, whichever variant of bcrypt wrote it. A password that
// bcrypt cut at 72 bytes must still be accepted.
func TestImportedBcryptStays(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		long := strings.Repeat("correct horse ", 6)
		for _, variant := range []string{"a", "b", "y"} {
			for _, secret := range []string{"correct horse", long} {
				hash := bcryptOf(t, variant, 4, secret[:min(len(secret), 72)])
				g.storeField("alice", "password", hash)
				g.storeField("alice", store.FieldImported, store.ImportMark(hash))
				own, other := g.countHashes(func() { must(t, g.logIn("alice", secret, "home")) })
				if own != 1 || other != 0 {
					t.Errorf("$2%s$, %d bytes: %d and %d hashes, want one", variant, len(secret), own, other)
				}
				if g.storedField("alice", "password") != hash {
					t.Errorf("$2%s$, %d bytes: the hash was replaced", variant, len(secret))
				}
			}
		}
	})
}

// TestTwins logs in with twins: passwords that the npm package coffeenode-userdb, the original,
// could not tell from the owner's, because both have the same bytes in its encoding. If this store
// set the password, the twin must be refused. If the original set it, the twin must be accepted, as
// the original accepted it, but must not replace the hash.
func TestTwins(t *testing.T) {
	for _, tt := range []struct{ name, owners, twin string }{
		{"ASCII", "abcdefgh12", "慢捤敦杨ㄲ"},
		{"ASCII in part", "pass &word", "pass…word"},
		{"UTF-8", "ääääääää", "쎤쎤쎤쎤쎤쎤쎤쎤"},
		{"garbled", "ääääääää", "Ã¤Ã¤Ã¤Ã¤Ã¤Ã¤Ã¤Ã¤"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
				must(t, errOf(g.users.SetPassword(t.Context(), uid("alice"), tt.owners)))
				wantErr(t, "the twin of a password that was set", g.logIn("alice", tt.twin, ""), userdb.ErrLogin)
				g.add("bob", tt.owners)
				wantErr(t, "the twin of a password of a new entry", g.logIn("bob", tt.twin, ""), userdb.ErrLogin)
				must(t, g.raw.HDel(t.Context(), "user/uid:alice", "~passwd").Err())
				g.storeField("alice", "password", bcryptOf(t, "a", 5, tt.owners))
				hash := g.storedField("alice", "password")
				must(t, g.logIn("alice", tt.twin, ""))
				if g.storedField("alice", "password") != hash {
					t.Error("the twin has replaced the hash")
				}
				must(t, g.logIn("alice", tt.owners, ""))
			})
		})
	}
}

// TestConcurrentRenewals makes concurrent logins that replace the hash while another writer updates
// the entry. All must succeed, and the update must not be lost.
func TestConcurrentRenewals(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for round := range 10 {
			g.storeField("alice", "password", "bcrypt$"+bcryptOf(t, "b", 4, "correct horse"))
			job := fmt.Sprint("job ", round)
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					e, err := g.users.Login(t.Context(), "alice", "correct horse", userdb.Attempt{})
					if err != nil || e.UID() != "alice" {
						t.Errorf("a concurrent login: got %v, %v; want alice", e, err)
					}
				})
			}
			wg.Go(func() {
				_, err := g.users.Update(t.Context(), uid("alice"), putText("job", job))
				must(t, err)
			})
			wg.Wait()
			must(t, g.logIn("alice", "correct horse", "home"))
			if got := g.storedField("alice", "job"); got != job || !strings.HasPrefix(g.storedField("alice", "password"), "$2a$") {
				t.Errorf("round %d: job %q, want %q; hash %.4s", round, got, job, g.storedField("alice", "password"))
			}
		}
	})
}

// TestRenewalKeepsNewPassword sets a password during logins that replace the hash. The new password
// must stay.
func TestRenewalKeepsNewPassword(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for round := range 10 {
			g.storeField("alice", "password", "bcrypt$"+bcryptOf(t, "b", 4, "correct horse"))
			next := fmt.Sprint("another password ", round)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { _ = g.logIn("alice", "correct horse", "home") })
			}
			wg.Go(func() { must(t, errOf(g.users.SetPassword(t.Context(), uid("alice"), next))) })
			wg.Wait()
			wantErr(t, "the old password", g.logIn("alice", "correct horse", "home"), userdb.ErrLogin)
			must(t, g.logIn("alice", next, "home"))
		}
	})
}

// TestFailedRenewal checks that a login succeeds even if its new hash cannot be written, and that
// the log reports the failure.
func TestFailedRenewal(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		hash := "bcrypt$" + bcryptOf(t, "b", 4, "correct horse")
		g.storeField("alice", "password", hash)
		g.refuse("$2a$04$")
		must(t, g.logIn("alice", "correct horse", ""))
		g.tap.set(nil)
		if g.storedField("alice", "password") != hash {
			t.Error("the hash was replaced, although the write was refused")
		}
		if log := g.log(); !strings.Contains(log, "cannot replace a password hash") || strings.Contains(log, hash) {
			t.Errorf("got the log %s, want the failed replacement without the hash", log)
		}
		if events := g.takeEvents(); len(events) != 1 || describeEvent(events[0]) != "login user/uid:alice" {
			t.Errorf("got events %v, want one login that renewed nothing", events)
		}
	})
}

// TestPepperedPasswords checks that a store with a pepper takes passwords of up to 1,024 bytes.
func TestPepperedPasswords(t *testing.T) {
	o := loginOptions()
	o.Peppers = [][]byte{firstPepper}
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		long := strings.Repeat("correct horse ", 80)[:1024]
		must(t, errOf(g.users.SetPassword(t.Context(), uid("alice"), long)))
		must(t, g.logIn("alice", long, ""))
		wantErr(t, "one byte less", g.logIn("alice", long[:1023], ""), userdb.ErrLogin)
		wantErr(t, "cut at 72", g.logIn("alice", long[:72], ""), userdb.ErrLogin)
		wantErr(t, "1025 bytes", errOf(g.users.SetPassword(t.Context(), uid("alice"), long+"x")), password.ErrPolicy, "over 1024 bytes")
		hash := g.storedField("alice", "password")
		if len(hash) != 64 || hash[0] != 'p' {
			t.Errorf("the hash has %d bytes and begins with %.1q, want 64 and p", len(hash), hash)
		}
	})
}

// A concurrentChange is made to alice during her login. It contains the error that the login must
// return.
type concurrentChange struct {
	name string
	do   func(g *loginSite) error
	want error
}

const nextPassword = "brand new horse"

var concurrentChanges = []concurrentChange{
	{"set a new password", func(g *loginSite) error { return errOf(g.users.SetPassword(g.t.Context(), uid("alice"), nextPassword)) }, userdb.ErrLogin},
	{"set the same password", func(g *loginSite) error {
		return errOf(g.users.SetPassword(g.t.Context(), uid("alice"), alicePassword))
	}, nil},
	{"disabled", func(g *loginSite) error { return g.users.Disable(g.t.Context(), uid("alice")) }, userdb.ErrLogin},
	{"disabled and enabled", func(g *loginSite) error {
		return errors.Join(g.users.Disable(g.t.Context(), uid("alice")), g.users.Enable(g.t.Context(), uid("alice")))
	}, nil},
	{"deleted", func(g *loginSite) error { return g.users.Delete(g.t.Context(), uid("alice")) }, userdb.ErrLogin},
	{"created again", func(g *loginSite) error { return g.recreate("alice", alicePassword) }, nil},
	{"created again with another password", func(g *loginSite) error { return g.recreate("alice", nextPassword) }, userdb.ErrLogin},
	{"another facet", func(g *loginSite) error { return g.putFacet("job", "cook") }, nil},
}

// nameChanges lists changes after which alice no longer has her name.
var nameChanges = []concurrentChange{
	{"created again with another name", func(g *loginSite) error { return g.recreate("bob", alicePassword) }, userdb.ErrLogin},
	{"renamed", func(g *loginSite) error { return g.putFacet("name", "bob") }, userdb.ErrLogin},
}

// externalChanges lists changes by a program that does not know ~rev.
var externalChanges = []concurrentChange{
	{"another password", func(g *loginSite) error {
		g.storeField("alice", "password", hashWith(g.t, "brand new horse"))
		return nil
	}, userdb.ErrLogin},
	{"no password", func(g *loginSite) error { return g.raw.HDel(g.t.Context(), "user/uid:alice", "password").Err() }, userdb.ErrLogin},
	{"renewed", func(g *loginSite) error { g.storeField("alice", "password", hashWith(g.t, alicePassword)); return nil }, nil},
	{"another facet", func(g *loginSite) error { g.storeField("alice", "job", "cook"); return nil }, nil},
}

// recreate deletes alice and creates another entry with her UID.
func (g *loginSite) recreate(name, password string) error {
	if err := g.users.Delete(g.t.Context(), uid("alice")); err != nil {
		return err
	}
	_, err := g.users.Create(g.t.Context(), userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", name), Password: password})
	return err
}

// putFacet changes a facet of alice.
func (g *loginSite) putFacet(field, text string) error {
	_, err := g.users.Update(g.t.Context(), uid("alice"), putText(field, text))
	return err
}

// beforeCommand calls do once, before the next round trip that contains a text. It returns a flag
// that is set when do is called.
func (g *loginSite) beforeCommand(text string, do func()) (done *atomic.Bool) {
	g.t.Helper()
	g.needs(interleaves)
	done = &atomic.Bool{}
	g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if strings.Contains(wordsOf(cmds[0]), text) && done.CompareAndSwap(false, true) {
			do()
		}
		return send()
	})
	return done
}

// TestOvertakenRenewal changes the entry while a login replaces the hash. The changed entry must
// decide the result of the login.
func TestOvertakenRenewal(t *testing.T) {
	for _, e := range slices.Concat(concurrentChanges, nameChanges) {
		t.Run(e.name, func(t *testing.T) {
			eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
				g.storeField("alice", "password", "bcrypt$"+bcryptOf(t, "b", 4, alicePassword))
				done := g.beforeCommand("password $2a$", func() { must(t, e.do(g)) })
				got, err := g.users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
				if !done.Load() {
					t.Error("no change was made meanwhile")
				}
				if !errors.Is(err, e.want) || err == nil && got.UID() != "alice" {
					t.Errorf("got %v, %v; want %v", got, err, e.want)
				}
				events := g.takeEvents()
				if last := describeEvent(events[len(events)-1]); err != nil && !strings.HasPrefix(last, "failure") {
					t.Errorf("the last event is %q, want a failure", last)
				}
			})
		})
	}
}

// TestOvertakenByARefusedWrite disables the entry while a login fails to replace the hash. The
// login must be refused.
func TestOvertakenByARefusedWrite(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.storeField("alice", "password", "bcrypt$"+bcryptOf(t, "b", 4, alicePassword))
		g.needs(interleaves)
		once := &atomic.Bool{}
		g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if strings.Contains(wordsOf(cmds[0]), "password $2a$") && once.CompareAndSwap(false, true) {
				must(t, g.users.Disable(t.Context(), uid("alice")))
				err := serverAnswer("OOM refused by the test")
				cmds[0].SetErr(err)
				return err
			}
			return send()
		})
		wantErr(t, "disabled", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
	})
}

// TestOvertakenNewPassword changes the entry just before ChangePassword writes the new hash.
// ChangePassword must fail if the old password would no longer log in, if it was set again, or if
// the entry was created again.
func TestOvertakenNewPassword(t *testing.T) {
	for _, e := range concurrentChanges {
		want := e.want
		if strings.HasPrefix(e.name, "set") || strings.HasPrefix(e.name, "created again") {
			want = userdb.ErrConflict
		}
		t.Run(e.name, func(t *testing.T) {
			eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
				done := g.beforeCommand("password $2a$", func() { must(t, e.do(g)) })
				err := errOf(g.users.ChangePassword(t.Context(), uid("alice"), alicePassword, "battery staple", userdb.Attempt{}))
				if !done.Load() || !errors.Is(err, want) {
					t.Errorf("got %v, want %v; the change was made meanwhile: %v", err, want, done.Load())
				}
			})
		})
	}
}

// TestOvertakenLogin changes the entry after a login has looked it up and before the password is
// checked. The changed entry must decide the result of the login.
func TestOvertakenLogin(t *testing.T) {
	for _, tt := range slices.Concat(concurrentChanges, externalChanges, nameChanges) {
		t.Run(tt.name, func(t *testing.T) {
			eachLoginSite(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *loginSite) {
				begun := g.beforeCheck(func() { must(t, tt.do(g)) })
				e, err := g.users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
				if !begun.Load() {
					t.Error("no change was made meanwhile")
				}
				if !errors.Is(err, tt.want) || err == nil && e.UID() != "alice" {
					t.Errorf("got %v, %v; want %v", e, err, tt.want)
				}
				if err == nil && tt.name == "another facet" && e.Text("job") != "cook" {
					t.Errorf("got %v, want the entry after the change", e)
				}
			})
		})
	}
}

// TestOvertakenOldPassword changes the entry after ChangePassword has read it and before the old
// password is checked. The changed entry must decide whether the old password is right.
func TestOvertakenOldPassword(t *testing.T) {
	for _, tt := range slices.Concat(concurrentChanges, externalChanges) {
		t.Run(tt.name, func(t *testing.T) {
			eachLoginSite(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *loginSite) {
				g.beforeCheck(func() { must(t, tt.do(g)) })
				err := errOf(g.users.ChangePassword(t.Context(), uid("alice"), alicePassword, "battery staple", userdb.Attempt{}))
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if tt.want == nil {
					must(t, g.logIn("alice", "battery staple", ""))
				}
			})
		})
	}
}

// beforeCheck calls do once, after the next login has looked up its account and before the password
// is checked. It returns a flag that is set when do is called.
func (g *loginSite) beforeCheck(do func()) (begun *atomic.Bool) {
	begun = &atomic.Bool{}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onClock = func() {
		if begun.CompareAndSwap(false, true) {
			do()
		}
	}
	return begun
}
