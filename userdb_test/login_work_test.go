package userdb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// passwordForms lists kinds of passwords, and the number of hashes that a check of each computes.
var passwordForms = []struct {
	name, password string
	hashes         uint64
}{
	{"ASCII", wrongPassword, 1},
	{"not ASCII", "pässwörd falsch", 3},
	{"beyond the BMP", "p😀ssword falsch", 3},
	{"empty", "", 1},
	{"72 bytes", strings.Repeat("w", 72), 1},
	{"over 72 bytes", strings.Repeat("w", 73), 1},
	{"the right one and more than 72 bytes", alicePassword + strings.Repeat("x", 60), 1},
	{"long, not ASCII", strings.Repeat("ü", 4000), 3},
	{"not UTF-8", "pass\xff\xfeword", 3},
	{"with NUL", "pass\x00word", 1},
}

// failingLogins lists identifiers for which logins fail. The first two are alice's, and fail only
// with a wrong password. The others also fail with alice's password.
var failingLogins = []struct{ name, identifier string }{
	{"wrong password", "alice"},
	{"wrong password, by another identifier", "alice@example.com"},
	{"unknown", "nobody"},
	{"unknown address", "nobody@example.com"},
	{"no password", "bare"},
	{"disabled", "banned"},
	{"deleted", "gone"},
	{"empty", ""},
	{"blank", " "},
	{"too long", strings.Repeat("n", 5000)},
	{"a record key", "user/uid:alice"},
	{"a UID", "0123456789ab"},
	{"JSON", `["user","name","alice"]`},
	{"a glob", "*"},
	{"not UTF-8", "al\xffice"},
	{"an MD5 hash", "md5"},
	{"a $2x$ bcrypt hash", "faulty"},
	{"a hash with an unknown pepper", "peppered"},
	{"a password field that is not a hash", "junk"},
}

func (g *loginSite) addFailingLogins() {
	g.t.Helper()
	for _, name := range []string{"bare", "banned", "gone", "md5", "faulty", "peppered", "junk"} {
		password := alicePassword
		if name == "bare" {
			password = ""
		}
		g.add(name, password)
	}
	must(g.t, g.users.Disable(g.t.Context(), uid("banned")))
	must(g.t, g.users.Delete(g.t.Context(), uid("gone")))
	g.storeField("md5", "password", "$1$saltsalt$qjXMvbEw8oaL.CzflDtaK/")
	hash := g.storedField("alice", "password")
	g.storeField("faulty", "password", "$2x$"+hash[4:])
	g.storeField("peppered", "password", "pAbC"+hash)
	g.storeField("junk", "password", "junk")
}

// TestSameAnswerSameWork checks that every login that fails gets the same error, and that the
// number of hashes depends only on the kind of the password, not on the account.
func TestSameAnswerSameWork(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.addFailingLogins()
		for _, form := range passwordForms {
			for _, who := range failingLogins {
				var err error
				own, other := g.countHashes(func() { err = g.logIn(who.identifier, form.password, "") })
				if err == nil || err != userdb.ErrLogin { // not even wrapped
					t.Errorf("%s, %s: got %v, want exactly ErrLogin", who.name, form.name, err)
				}
				if own != form.hashes || other != 0 {
					t.Errorf("%s, %s: %d hashes of the type's cost and %d others, want %d and 0", who.name, form.name, own, other, form.hashes)
				}
			}
			g.advance(25 * time.Hour)
		}
	})
}

// TestRightPasswordOfUnusableAccounts tries alice's password with identifiers that cannot log in.
// Every login must get the same error and cost one hash, as a successful login does.
func TestRightPasswordOfUnusableAccounts(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.addFailingLogins()
		for _, who := range failingLogins[2:] {
			var err error
			own, other := g.countHashes(func() { err = g.logIn(who.identifier, alicePassword, "") })
			if err != userdb.ErrLogin || own != 1 || other != 0 { // not even wrapped
				t.Errorf("%s: %v after %d and %d hashes, want ErrLogin after 1 and 0", who.name, err, own, other)
			}
		}
		own, other := g.countHashes(func() { must(t, g.logIn("alice", alicePassword, "")) })
		if own != 1 || other != 0 {
			t.Errorf("a successful login computed %d and %d hashes, want 1 and 0", own, other)
		}
	})
}

// TestRightPasswordOfDisabled checks that the right password of a disabled entry counts as a
// failure. Otherwise the waits would reveal that it is right.
func TestRightPasswordOfDisabled(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		must(t, g.users.Disable(t.Context(), uid("alice")))
		for range freeFailures {
			wantErr(t, "disabled", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
		}
		if wait, err := waitOf(g.logIn("alice", alicePassword, "")); wait == 0 {
			t.Errorf("after %d right passwords of a disabled entry: got error %v, want a wait", freeFailures, err)
		}
	})
}

// TestLowerCost checks that a login computes more rounds if the stored hash has a lower cost, so
// that raising the cost does not reveal which accounts exist.
func TestLowerCost(t *testing.T) {
	o := loginOptions()
	o.Schema = schema.User()
	o.Schema.Types["user"].Password.Cost = 14
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		hashes := map[string]string{
			"alice": bcryptOf(t, "a", 4, alicePassword), "bob": bcryptOf(t, "b", 5, alicePassword), "carol": bcryptOf(t, "a", 6, alicePassword),
			"dave": bcryptOf(t, "a", 4, "p\xe4ssw\xf6rd"),
		}
		for name, hash := range hashes {
			if name != "alice" {
				g.add(name, alicePassword)
			}
			g.storeField(name, "password", hash)
			must(t, g.raw.HDel(t.Context(), "user/uid:"+name, "~passwd").Err())
		}
		hashes["nobody"] = ""
		for _, form := range passwordForms {
			for name := range hashes {
				var err error
				own, other := g.countHashes(func() { err = g.logIn(name, form.password, "") })
				if err != userdb.ErrLogin || own != form.hashes || other != 0 {
					t.Errorf("%s, %s: %v after %d hashes and %d others, want ErrLogin after %d", name, form.name, err, own, other, form.hashes)
				}
			}
			g.advance(25 * time.Hour)
		}
		must(t, g.users.Disable(t.Context(), uid("bob")))
		for name, want := range map[string]uint64{"alice": 2, "carol": 1, "bob": 1, "nobody": 1} {
			if own, _ := g.countHashes(func() { _ = g.logIn(name, alicePassword, "") }); own != want {
				t.Errorf("the right password of %s cost %d hashes, want %d", name, own, want)
			}
		}
	})
}

// TestWorkOfImportedHash checks that a hash of a higher cost or another algorithm costs a different
// amount of work until a login replaces it.
func TestWorkOfImportedHash(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.storeField("alice", "password", "$5$rounds=1000$saltsalt$R6e4P8ccT9iMqkYg7Z8YtpId/lfsIfnuPkp8WXposU8")
		for _, tt := range []struct {
			what, password string
			own, other     uint64
		}{
			{"wrong", wrongPassword, 0, 1},
			// The original wrote no hash of this kind, so its encoding is not tried.
			{"not ASCII", "pässwörd", 0, 2},
			{"right, and replaced", "correct horse", 1, 1},
			{"right again", "correct horse", 1, 0},
			{"wrong again", wrongPassword, 1, 0},
			{"wrong, of a higher cost", wrongPassword, 2, 0},
			{"right, of a higher cost, and replaced", "correct horse", 3, 0},
			{"right again", "correct horse", 1, 0},
		} {
			if tt.what == "wrong, of a higher cost" {
				g.storeField("alice", "password", bcryptOf(t, "a", 5, "correct horse"))
			}
			own, other := g.countHashes(func() { _ = g.logIn("alice", tt.password, "") })
			if own != tt.own || other != tt.other {
				t.Errorf("%s: %d and %d hashes, want %d and %d", tt.what, own, other, tt.own, tt.other)
			}
		}
	})
}

// TestRoundTrips counts the round trips of logins. A single one counts the attempt for both the
// account and the origin.
func TestRoundTrips(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(oneScript)
		must(t, g.logIn("alice", alicePassword, "home"))
		for _, tt := range []struct {
			what, identifier, password string
			want                       int64
		}{
			{"a successful login", "alice", alicePassword, 5},
			{"a wrong password", "alice", wrongPassword, 3},
			{"an unknown identifier", "nobody", wrongPassword, 3},
		} {
			if got := g.tap.count(func() { _ = g.logIn(tt.identifier, tt.password, "home") }); got != tt.want {
				t.Errorf("%s: %d round trips, want %d", tt.what, got, tt.want)
			}
		}
		g.exhaust("alice", "")
		var wait time.Duration
		got := g.tap.count(func() { wait, _ = waitOf(g.logIn("alice", wrongPassword, "")) })
		if got != 2 || wait == 0 {
			t.Errorf("a refused attempt: %d round trips, wait %v; want 2 and a wait", got, wait)
		}
	})
}

// TestClosedStore checks that a closed store refuses logins.
func TestClosedStore(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(manyClients)
		db, err := userdb.Open(t.Context(), g.url, userdb.Options{})
		must(t, err)
		users := typeOf(t, db, "user")
		_, err = users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
		must(t, err)
		must(t, db.Close())
		must(t, db.Close())
		_, err = users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
		wantErr(t, "login", err, userdb.ErrUnavailable)
	})
}
