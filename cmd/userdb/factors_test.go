package main

import (
	"encoding/base32"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// enrolAlice gives Alice of the store in USERDB_STORE an authenticator app and returns the recovery
// codes. The file beside the store holds the key.
func enrolAlice(t *testing.T) []string {
	t.Helper()
	file := strings.TrimPrefix(os.Getenv("USERDB_STORE"), "file:") + ".keys"
	must(t, os.WriteFile(file, []byte("# of tests\n"+strings.Repeat("ab", 21)+"A=\n"), 0o600))
	keys, err := (&session{}).readKeys(os.Getenv("USERDB_STORE"))
	must(t, err)
	db, err := userdb.Open(t.Context(), os.Getenv("USERDB_STORE"), userdb.Options{Keys: keys, OnSchema: userdb.SchemaDeferred})
	must(t, err)
	defer db.Close()
	users, err := db.Type("user")
	must(t, err)
	return addApp(t, users, "Alice")
}

// addApp adds an authenticator app to the entry with a name, and returns the recovery codes.
func addApp(t *testing.T, typ *userdb.Type, name string) []string {
	t.Helper()
	e, err := typ.Find(t.Context(), hints.Any(name))
	must(t, err)
	_, secret, err := typ.StartSession(t.Context(), e, userdb.SessionOptions{})
	must(t, err)
	app, err := typ.EnrolTOTP(t.Context(), secret, userdb.TOTPOptions{Name: "phone"})
	must(t, err)
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(app.Secret)
	must(t, err)
	c, err := typ.ConfirmTOTP(t.Context(), secret, app.ID, totp.Code(raw, totp.Step(time.Now())), userdb.SessionOptions{})
	must(t, err)
	return c.RecoveryCodes
}

// TestLoginWithCode checks that an entry with a second factor can sign in at a terminal and in a
// script, but not without a code. It also checks the errors for unusable files of keys.
func TestLoginWithCode(t *testing.T) {
	runLines(t, []string{"get Alice"}, func() {
		codes := enrolAlice(t)
		if got := runCommand(nil, good+"\n", "login", "--password-stdin", "--", "Alice"); got.code != 5 || got.out != "" || !strings.Contains(got.err, "second factor") {
			t.Errorf("a password alone: %+v, want exit 5", got)
		}
		script := []string{"login", "--code-stdin", "--session", "--json", "--", "Alice"}
		for _, tt := range []struct {
			code string
			want int
		}{{"123-wrong", 5}, {codes[0], 0}, {codes[0], 5}, {strings.ToUpper(codes[1]), 0}} {
			got := runCommand(nil, good+"\n"+tt.code+"\n", script...)
			if got.code != tt.want || (tt.want == 0) != strings.Contains(got.out, "~session") || strings.Contains(got.err, tt.code) {
				t.Errorf("in a script: %+v, want exit %d", got, tt.want)
			}
		}
		typing := &typist{answers: []string{good, codes[2]}}
		if got := runCommand(typing.ask, "", "login", "--", "Alice"); got.code != 0 || !strings.Contains(got.out, "Alice") {
			t.Errorf("at a terminal: %+v, want exit 0", got)
		}
		list := runCommand(nil, "", "factor", "list", "Alice", "--json")
		if !strings.Contains(list.out, `"name":"phone"`) || !strings.Contains(list.out, `"unused":7`) {
			t.Errorf("the factors are %+v, want the app phone and 7 unused recovery codes", list)
		}
		t.Setenv("USERDB_KEY_FILE", "other.keys")
		for text, want := range map[string]string{"": "has no key", "x\n": "not 32 bytes", strings.Repeat("x", 16<<10+1): "over"} {
			must(t, os.WriteFile("other.keys", []byte(text), 0o600))
			if got := runCommand(nil, "", "get", "Alice"); got.code != 2 || !strings.Contains(got.err, want) {
				t.Errorf("a file of keys with %.10q: %+v, want exit 2 and %q", text, got, want)
			}
		}
		must(t, os.Chmod("other.keys", 0o644))
		if got := runCommand(nil, "", "get", "Alice"); got.code != 2 || !strings.Contains(got.err, "others may read") {
			t.Errorf("a file of keys that others may read: %+v, want exit 2", got)
		}
		must(t, os.Remove("other.keys"))
		if got := runCommand(nil, "", "get", "Alice"); got.code != 2 {
			t.Errorf("no file of keys: %+v, want exit 2", got)
		}
		t.Setenv("USERDB_KEY_FILE", "")
	})
}

// TestRedeemWithFactor checks that redeeming a token of an entry with a second factor prints the
// value that was bound to the token, which nobody can read afterwards, but not the entry.
func TestRedeemWithFactor(t *testing.T) {
	runLines(t, []string{"get Alice"}, func() {
		enrolAlice(t)
		for _, tt := range []struct{ value, format, out string }{
			{"", "", ""},
			{"the cart", "", "  ~value  the cart\n"},
			{"the cart", "--json", `{"~value":"the cart"}` + "\n"},
		} {
			issued := runCommand(nil, "", "token", "issue", "Alice", "--purpose", "x", "--value", tt.value)
			args := strings.Fields("token redeem - --purpose x " + tt.format)
			got := runCommand(nil, strings.TrimSpace(issued.out)+"\n", args...)
			if got.code != 5 || got.out != tt.out || !strings.Contains(got.err, "the change was made") {
				t.Errorf("token redeem of %q %s: got %+v, want exit 5 and %q", tt.value, tt.format, got, tt.out)
			}
		}
	})
}

// TestOperatorFactors checks the links with which operators add second factors, the removal of
// these factors, the events of both, and that 'factor rotate-keys' also encrypts the secrets of
// operators with the new key.
func TestOperatorFactors(t *testing.T) {
	runLines(t, []string{"get Alice"}, func() {
		enrolAlice(t)
		runCommand(nil, good+"\n", "operator", "add", "Olga", "--password-stdin")
		for _, tt := range []struct {
			args string
			want int
			text string
		}{
			{"operator enrol olga --json", 0, `"link":"http://127.0.0.1:8470/console/enrol?token=`},
			{"operator enrol olga --url https://x.example/console/", 0, "https://x.example/console/enrol?token="},
			{"operator enrol nobody", 3, "operator nobody"},
			{"operator enrol olga --url x.example", 2, "want the address of the console"},
			{"operator unenrol olga", 2, "add --yes"},
			{"operator unenrol olga --yes", 0, "removed the second factors of olga"},
			{"operator list --json", 0, `"two_steps":false`},
		} {
			if got := runCommand(nil, "", strings.Fields(tt.args)...); got.code != tt.want || !strings.Contains(got.out+got.err, tt.text) {
				t.Errorf("%s: %+v, want exit %d and %q", tt.args, got, tt.want, tt.text)
			}
		}
		keys, err := (&session{}).readKeys(os.Getenv("USERDB_STORE"))
		must(t, err)
		db, err := userdb.Open(t.Context(), os.Getenv("USERDB_STORE"), userdb.Options{Keys: keys, OnSchema: userdb.SchemaDeferred})
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		addApp(t, operators, "olga")
		must(t, db.Close())

		file := strings.TrimPrefix(os.Getenv("USERDB_STORE"), "file:") + ".keys"
		must(t, os.WriteFile(file, []byte(strings.Repeat("cd", 21)+"A=\n"+strings.Repeat("ab", 21)+"A=\n"), 0o600))
		for _, tt := range []struct {
			args string
			want int
			text string
		}{
			{"factor rotate-keys --type user", 0, "encrypted 2 secrets"},
			{"factor rotate-keys", 0, "encrypted 2 secrets"},
			{"operator list --json", 0, `"two_steps":true`},
			{"operator list", 0, "two steps"},
			{"operator enrol olga", 4, "has a second factor already"},
			{"operator unenrol OLGA --yes", 0, "removed the second factors of OLGA"},
			{"operator list --json", 0, `"two_steps":false`},
			{"events --json", 0, `"kind":"operator_factor_link"`},
			{"events --json", 0, `"kind":"operator_factor_remove"`},
		} {
			if got := runCommand(nil, "", strings.Fields(tt.args)...); got.code != tt.want || !strings.Contains(got.out+got.err, tt.text) {
				t.Errorf("%s: %+v, want exit %d and %q", tt.args, got, tt.want, tt.text)
			}
		}
	})
}

// TestFactorKeysMissing checks that a service does not start, and makes no new key, if the key that
// encrypted the second factors of its store is missing, and that it does both once the factors are
// removed with the command that its error names.
func TestFactorKeysMissing(t *testing.T) {
	runLines(t, []string{"get Alice"}, func() {
		enrolAlice(t)
		file := strings.TrimPrefix(os.Getenv("USERDB_STORE"), "file:") + ".keys"
		right, err := os.ReadFile(file)
		must(t, err)
		// This fails, but only after the keys were checked and made.
		const serve = "serve --listen 127.0.0.1:0 --operators-factor --console=false --passkey-rp x.example --passkey-origin https://x.example"
		for _, tt := range []struct{ what, keys, args, want string }{
			{"the right key", string(right), serve, "--operators-factor is for the console"},
			{"another key", strings.Repeat("cd", 21) + "A=\n", serve, "none of the keys in "},
			{"another key", strings.Repeat("cd", 21) + "A=\n", "factor rotate-keys", "none of the keys in "},
			{"no file", "", serve, "with their key is missing: bring it back"},
			{"no file", "", "factor rotate-keys", "with their key is missing: bring it back"},
		} {
			_ = os.Remove(file)
			if tt.keys != "" {
				must(t, os.WriteFile(file, []byte(tt.keys), 0o600))
			}
			got := runCommand(nil, "", strings.Fields(tt.args)...)
			if got.code != 2 || !strings.Contains(got.err, tt.want) {
				t.Errorf("%s, %s: %+v, want exit 2 and %q", tt.what, tt.args, got, tt.want)
			}
			if text, _ := os.ReadFile(file); string(text) != tt.keys {
				t.Errorf("%s, %s: the file of keys was written", tt.what, tt.args)
			}
		}
		for _, tt := range []struct {
			args string
			want int
			text string
		}{
			{"factor list Alice", 0, "phone"},
			{serve, 2, "'userdb factor remove-lost'"},
			{"factor remove-lost", 2, "would remove 2 second factors of 1 entry and keep 0: every factor counts as lost, because there is no " + file + "; add --yes"},
			{"factor remove-lost --type usre", 2, "no such type: usre"},
			{"factor rotate-keys --type usre", 2, "with their key is missing"},
			{"factor remove-lost --namespace other --yes", 0, "removed 0 second factors"},
			{"factor remove-lost --yes", 0, "removed 2 second factors of 1 entry and kept 0: every factor counts as lost"},
			{"factor remove-lost", 0, "removed 0 second factors of 0 entries and kept 0\n"},
			{"factor rotate-keys --type usre", 2, "no such type: usre"},
		} {
			if got := runCommand(nil, "", strings.Fields(tt.args)...); got.code != tt.want || !strings.Contains(got.out+got.err, tt.text) {
				t.Errorf("%s without the key: %+v, want exit %d and %q", tt.args, got, tt.want, tt.text)
			}
		}
		if got := runCommand(nil, "", strings.Fields(serve)...); !strings.Contains(got.err, "made "+file) || !strings.Contains(got.err, "is for the console") {
			t.Errorf("after the factors were removed: %+v, want a new file of keys", got)
		}
	})
}

// TestRemoveLostFactors checks that factors whose key is given are kept, that the removal of an
// operator's lost factors is recorded, and that the command fails for a store in memory if no file
// of keys is given.
func TestRemoveLostFactors(t *testing.T) {
	runLines(t, []string{"get Alice"}, func() {
		enrolAlice(t)
		url := os.Getenv("USERDB_STORE")
		runCommand(nil, good+"\n", "operator", "add", "Olga", "--password-stdin")
		db, err := userdb.Open(t.Context(), url, userdb.Options{Keys: [][]byte{[]byte(strings.Repeat("x", 32))}, OnSchema: userdb.SchemaDeferred})
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		addApp(t, operators, "olga")
		must(t, db.Close())
		file := strings.TrimPrefix(url, "file:") + ".keys"
		for _, tt := range []struct{ args, text string }{
			{"factor remove-lost --type user --yes", "removed 0 second factors of 0 entries and kept 2\n"},
			{"operator list --json", `"two_steps":true`},
			{"factor remove-lost --yes", "removed 2 second factors of 1 entry and kept 2: no key in " + file + " decrypts them\n"},
			{"operator list --json", `"two_steps":false`},
			{"events --json", `"kind":"operator_factor_remove"`},
			{"factor list Alice --json", `"name":"phone"`},
		} {
			if got := runCommand(nil, "", strings.Fields(tt.args)...); got.code != 0 || !strings.Contains(got.out, tt.text) {
				t.Errorf("%s: %+v, want exit 0 and %q", tt.args, got, tt.text)
			}
		}
	})
	t.Setenv("USERDB_STORE", "memory:")
	if got := runCommand(nil, "", "factor", "remove-lost", "--yes"); got.code != 2 || !strings.Contains(got.err, "if none is left, with a new one") {
		t.Errorf("without a file of keys: %+v, want exit 2", got)
	}
}

// TestOperatorsFactorStays checks that a service without --operators-factor prints a note if an
// earlier service required second factors and no other one has ended that since.
func TestOperatorsFactorStays(t *testing.T) {
	runLines(t, []string{"get Alice"}, func() {
		enrolAlice(t)
		// It fails, but only after the flag has taken effect.
		const serve = "serve --listen 127.0.0.1:0 --metrics x"
		const note = "operators need a second factor"
		for _, tt := range []struct {
			flag  string
			noted bool
		}{{"", false}, {" --operators-factor", false}, {"", true}, {" --operators-factor=false", false}, {"", false}} {
			got := runCommand(nil, "", strings.Fields(serve+tt.flag)...)
			if got.code != 2 || !strings.Contains(got.err, "--metrics") || strings.Contains(got.err, note) != tt.noted {
				t.Errorf("serve%s: %+v, want exit 2 and the note: %v", tt.flag, got, tt.noted)
			}
		}
		if got := runCommand(nil, "", strings.Fields(serve+" --operators-factor=maybe")...); got.code != 2 || strings.Contains(got.err, "--metrics: ") {
			t.Errorf("a value that is not a boolean: %+v, want exit 2", got)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
