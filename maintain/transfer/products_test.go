package transfer_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/userdb"
)

func sample(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestImportProducts imports an export of each product. Afterwards each account must be able to log
// in with its password. The samples follow the documentation that testdata/README.md names.
func TestImportProducts(t *testing.T) {
	const secret = "correct horse battery staple"
	for _, tt := range []struct {
		from, file, params string
		logins             map[string]string // by identifier
		export             string
	}{
		{
			"auth0", "auth0.ndjson", "",
			map[string]string{"ann": secret, "ann@example.com": secret, "ben@example.com": secret},
			`{"type":"user","facets":{"email":"ann@example.com","name":"ann","uid":"5dea9f9c82dd7c0e76e4ec93"},"password_changed":"2023-12-06T18:36:12.412Z","verified":["email"]}
{"type":"user","facets":{"email":"ben@example.com","uid":"ben-17"},"password_changed":"2023-12-07T18:36:12.412Z"}`,
		},
		{
			"django", "django.json", "",
			map[string]string{"ann": secret, "ann@example.com": secret},
			`{"type":"user","facets":{"added":"2023-11-20T10:00:00.000Z","email":"ann@example.com","name":"ann","uid":"1"}}
{"type":"user","facets":{"added":"2023-11-21T09:00:00.500Z","name":"ben","uid":"2"},"disabled":"2026-11-20T12:00:00.000Z"}`,
		},
		{
			"firebase", "firebase.json", "firebase-params.txt",
			map[string]string{"user1@example.com": "user1password"},
			`{"type":"user","facets":{"added":"2023-11-14T22:13:20.000Z","email":"user1@example.com","uid":"4sKDoBHEqgOcrwTYtyjTyXLn9zq1"},"verified":["email"]}
{"type":"user","facets":{"added":"2023-11-14T22:13:20.001Z","email":"federated@example.com","uid":"bKDoBHEqgOcrwTYtyjTyXLn9zq2"},"disabled":"2026-11-20T12:00:00.000Z","verified":["email"]}`,
		},
		{
			"keycloak", "keycloak.json", "",
			map[string]string{"ann": secret, "ben": secret, "dan@example.com": secret},
			`{"type":"user","facets":{"added":"2023-11-14T22:13:20.123Z","email":"ann@example.com","name":"ann","uid":"0d2f3c1e-5b7a-4a52-9a40-3e6f6f6a1c01"},"password_changed":"2023-11-14T22:13:20.000Z","verified":["email"]}
{"type":"user","facets":{"added":"2023-11-14T22:13:21.123Z","email":"ben@example.com","name":"ben","uid":"0d2f3c1e-5b7a-4a52-9a40-3e6f6f6a1c02"},"password_changed":"2023-11-14T22:13:20.000Z"}
{"type":"user","facets":{"added":"2023-11-14T22:13:22.123Z","name":"cid","uid":"0d2f3c1e-5b7a-4a52-9a40-3e6f6f6a1c03"},"password_changed":"2023-11-14T22:13:20.000Z","disabled":"2026-11-20T12:00:00.000Z"}
{"type":"user","facets":{"added":"2023-11-14T22:13:23.123Z","email":"dan@example.com","name":"dan","uid":"0d2f3c1e-5b7a-4a52-9a40-3e6f6f6a1c04"},"password_changed":"2023-11-14T22:13:23.123Z"}
{"type":"user","facets":{"added":"2023-11-14T22:13:24.123Z","name":"eve","uid":"0d2f3c1e-5b7a-4a52-9a40-3e6f6f6a1c05"}}`,
		},
	} {
		t.Run(tt.from, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s.stopClock(t)
				o := transfer.ImportOptions{From: tt.from}
				if tt.params != "" {
					o.FromParams = sample(t, tt.params)
				}
				s.importText(t, sample(t, tt.file), o, created(int64(strings.Count(tt.export, "\n")+1)))
				if got := strings.TrimSpace(s.export(t, transfer.ExportOptions{})); got != tt.export {
					t.Errorf("exported\n%s\nwant\n%s", got, tt.export)
				}
				for identifier, password := range tt.logins {
					if _, err := s.Type(t, "user").Login(s.Ctx, identifier, password, userdb.Attempt{}); err != nil {
						t.Errorf("login as %s: %v", identifier, err)
					}
					if _, err := s.Type(t, "user").Login(s.Ctx, identifier, password+"!", userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
						t.Errorf("login as %s with a wrong password: got %v, want ErrLogin", identifier, err)
					}
				}
				// The logins above do not include the disabled account. It keeps its password.
				if tt.from == "keycloak" {
					if err := s.Type(t, "user").Enable(s.Ctx, hints.Field("name", "cid")); err != nil {
						t.Error(err)
					}
					if _, err := s.Type(t, "user").Login(s.Ctx, "cid", secret, userdb.Attempt{}); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// TestImportProductRejects checks that a product's names can be mapped or ignored, and that rejects
// can be imported again.
func TestImportProductRejects(t *testing.T) {
	const in = `[{"model":"auth.user","pk":1,"fields":{"username":"ann@example.com","email":"ann@example.com","password":"!","nick":"Annie"}},

 {"model":"auth.group","pk":2,"fields":{"name":"staff"}},
 {"model":"auth.user","pk":3,"fields":{"username":"ben","email":"","password":"sha1$ab$0123456789012345678901234567890123456789","nick":"Benny"}}]`
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		var rejects bytes.Buffer
		want := transfer.Report{Read: 3, Created: 1, Refused: 2, NoPassword: 1, NameLeftOut: 1}
		s.importText(t, in, transfer.ImportOptions{From: "django", Rejects: &rejects}, want)
		text := rejects.String()
		for _, want := range []string{
			`"line":3,"reason":"not an account as dumpdata writes it`, `"line":4,"reason":"password: `,
			`; userdb import --without-password imports the account without it"`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the rejects lack %s:\n%s", want, text)
			}
		}
		o := transfer.ImportOptions{
			From: "django", Map: map[string]string{"nick": "name"}, Ignore: []string{"username"}, WithoutPassword: true, Rejects: &rejects,
		}
		s.importText(t, text, o, transfer.Report{Read: 2, Created: 1, Refused: 1, NoPassword: 1})
		if got, want := s.export(t, transfer.ExportOptions{}), `{"type":"user","facets":{"email":"ann@example.com","uid":"1"}}
{"type":"user","facets":{"name":"Benny","uid":"3"}}
`; got != want {
			t.Errorf("exported %s, want %s", got, want)
		}
		o.Map = map[string]string{"nick": "nmae"}
		_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o)
		requireColumnError(t, err, transfer.ColumnError{Line: 1, Name: "nick", As: "nmae", Reason: `type "user" has no such field; did you mean "name"?`})
	})
}

// TestImportProductErrors checks that an export that ends too early, continues after its end or
// does not fit the options leads to an error, and that the accounts before the error are read.
func TestImportProductErrors(t *testing.T) {
	const one = `{"localId":"1","email":"a@x.org"}`
	for _, tt := range []struct {
		in    string
		o     transfer.ImportOptions
		read  int64
		error string // empty for none
	}{
		{"", transfer.ImportOptions{From: "firebase"}, 0, ""},
		{"[]", transfer.ImportOptions{From: "firebase"}, 0, ""},
		{`{"users":[]}`, transfer.ImportOptions{From: "firebase"}, 0, ""},
		{`{"version":[1],"users":[` + one + `],"more":{"users":[1]}}`, transfer.ImportOptions{From: "firebase"}, 1, ""},
		{one, transfer.ImportOptions{From: "firebase"}, 1, ""},
		{one + "\n" + strings.Replace(one, "1", "2", 1) + "\n", transfer.ImportOptions{From: "firebase", OnDuplicate: transfer.DuplicateSkip}, 2, ""},
		{"[" + one, transfer.ImportOptions{From: "firebase"}, 1, "line 1 and everything after it were not read"},
		{"[" + one + ",", transfer.ImportOptions{From: "firebase"}, 1, "were not read"},
		{`{"users":[` + one + `]`, transfer.ImportOptions{From: "firebase"}, 1, "were not read"},
		{"[" + one + "]\n[" + one + "]", transfer.ImportOptions{From: "firebase"}, 1, "there is more after the list of accounts"},
		{`{"users":[` + one + `],"users":[` + one + `]}`, transfer.ImportOptions{From: "firebase"}, 1, "users appears twice"},
		{"[" + one, transfer.ImportOptions{From: "firebase"}, 1, "the list of accounts does not end"},
		{`{"users":{}}`, transfer.ImportOptions{From: "firebase"}, 0, "users is not a list"},
		{"17", transfer.ImportOptions{From: "firebase"}, 0, "neither a list of accounts nor an object"},
		{"[" + one + ",\n{]", transfer.ImportOptions{From: "firebase"}, 1, "line 1 and"},
		{"[]", transfer.ImportOptions{From: "myspace"}, 0, "cannot read exports of \"myspace\"; want one of auth0, django, firebase, keycloak"},
		{"[]", transfer.ImportOptions{From: "django", FromParams: "x"}, 0, "no parameters"},
		{"[]", transfer.ImportOptions{From: "django", CSV: true}, 0, "an export of django is JSON"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, fullSchema())
			tt.o.DryRun = true
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), tt.o)
			if report.Read != tt.read || (tt.error == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), tt.error) || !errors.Is(err, transfer.ErrInput)) {
				t.Errorf("%s: got %+v, %v; want %d accounts read and the error %q", tt.in, report, err, tt.read, tt.error)
			}
		})
	}
}

// TestImportProductAccounts checks which UIDs accounts get, and for which reasons others are
// refused, such as those that could merge two people into one or belong to nobody.
func TestImportProductAccounts(t *testing.T) {
	for _, tt := range []struct {
		from, in string
		want     string // the UID of the imported entry, or the reason why the account is refused
	}{
		{"auth0", `{"user_id":"auth0|1"}`, "1"},
		{"auth0", `{"user_id":"google-oauth2|1"}`, "google-oauth2|1"},
		{"auth0", `{"user_id":"1","identifiers":[{"type":"email","value":"a@x.org"},{"type":"email","value":"b@x.org"}]}`, "1"},
		{"auth0", `{"user_id":"1","identifiers":["a@x.org"]}`, "its identifiers are not those of an export"},
		{"auth0", `{"user_id":"1","blocked":"maybe"}`, "blocked is neither true nor false"},
		{"auth0", `{"user_id":"1","custom_password_hash":{"algorithm":"md5","hash":{"value":"0123"}}}`, `its password has the unsupported algorithm "md5"`},
		{"auth0", `{"email":"a@x.org"}`, "not an account of this product: it has no user_id"},
		{"auth0", `{}`, "not an account of this product: it has no user_id"},
		{"auth0", `null`, "not an account of this product: it has no user_id"},
		{"auth0", `{"user_id":"1","~uid":"2"}`, "1"},
		{"auth0", `{"user_id":"1","user_id":"2"}`, `"user_id" appears twice`},
		{"auth0", `{"user_id":"auth0|google-oauth2|1"}`, "auth0|google-oauth2|1"},
		{"auth0", `{"user_id":"1","custom_password_hash":{"algorithm":"bcrypt","hash":"x"}}`, "hash: not a JSON object as in an export"},
		{"auth0", `{"user_id":"1","custom_password_hash":{"algorithm":"bcrypt"}}`, `its password has no hash, or the unsupported encoding "utf8"`},
		{
			"auth0", `{"user_id":"1","custom_password_hash":{"algorithm":"bcrypt","password":{"encoding":"utf16le"},"hash":{"value":"x"}}}`,
			`its password has no hash, or the unsupported encoding "utf16le"`,
		},
		{"firebase", `{"localId":"b` + "\xff" + `"}`, "not UTF-8"},
		{"firebase", `{"localId":"b\ud800"}`, "half a surrogate pair in a string"},
		{"firebase", `{"localId":"b\ud83d\ude00"}`, "b\U0001f600"},
		{"keycloak", `{"id":"1","realm":"shop","username":"x"}`, "not an account but a realm or a part of one: export it with --users same_file and --realm"},
		{"keycloak", `{"id":"1"}`, "not an account but a realm or a part of one: export it with --users same_file and --realm"},
		{"firebase", `{"user_id":"1"}`, "not an account of this product: it has no localId"},
		{"firebase", `{"localId":"1","createdAt":"99999999999999999"}`, "invalid value: added: cannot be read as date: a number that is neither seconds nor milliseconds since 1970, or is before 1990"},
		{"firebase", `{"localId":"1","passwordHash":"AAAA"}`, "its password has no salt"},
		{"firebase", `{"localId":"1","passwordHash":"fakeHash:salt=fakeSaltx:password=y","salt":"fakeSaltx"}`, "its password comes from the emulator, which does not hash passwords"},
		{"keycloak", `{"id":"1","username":"ann","enabled":"false"}`, "1"},
		{"keycloak", `{"id":"1","username":"ann","enabled":0}`, "1"},
		{"keycloak", `{"id":"1","username":"ann","enabled":2}`, "enabled is neither true nor false"},
		{"keycloak", `{"id":"1","username":"service-account-api","serviceAccountClientId":"api"}`, "it is the service account of a client, not of a person"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, fullSchema())
			got := ""
			o := transfer.ImportOptions{From: tt.from, WithoutIdentifier: true, Refused: func(_ int64, why string) {
				got = strings.TrimSuffix(why, "; userdb import --without-password imports the account without it")
			}}
			if tt.from == "firebase" {
				o.FromParams = sample(t, "firebase-params.txt")
			}
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader("["+tt.in+"]"), o)
			if e, found := s.Type(t, "user").Find(s.Ctx, hints.UID(tt.want)); found == nil {
				got = e.UID()
			}
			if err != nil || report.Read != 1 || got != tt.want {
				t.Errorf("%.200s: got %s, %+v, %v; want %s", tt.in, got, report, err, tt.want)
			}
		})
	}
}

// TestImportFirebaseParams checks that the parameters of a project are either read completely or
// refused before anything is written.
func TestImportFirebaseParams(t *testing.T) {
	good := sample(t, "firebase-params.txt")
	for _, tt := range []struct{ params, want string }{
		{good, ""},
		{strings.ReplaceAll(good, "\n", "\r\n"), ""},
		{`{"base64_signer_key":"` + strings.Repeat("A", 86) + `==","base64_salt_separator":"","rounds":"8","mem_cost":14}`, ""},
		{"hello", "base64_signer_key is missing"},
		{strings.Replace(good, "rounds", "arounds", 1), "rounds is missing"},
		{good + "rounds: 9", "rounds appears twice"},
		{strings.Replace(good, "SCRYPT", "BCRYPT", 1), `the algorithm is "BCRYPT", not SCRYPT`},
		{strings.Replace(good, "rounds: 8", "rounds: eight", 1), "rounds and mem_cost must be whole numbers"},
		{strings.Replace(good, "rounds: 8", "rounds: 0", 1), "rounds is 0; want 1 to 32"},
		{strings.Replace(good, "rounds: 8", "rounds: 33", 1), "rounds is 33; want 1 to 32"},
		{strings.Replace(good, "rounds: 8", "rounds: 32", 1), ""},
		{strings.Replace(good, "mem_cost: 14", "mem_cost: 0", 1), "mem_cost is 0; want 1 to 20"},
		{strings.Replace(good, "mem_cost: 14", "mem_cost: 40", 1), "mem_cost is 40; want 1 to 20"},
		{strings.Replace(good, "mem_cost: 14", "mem_cost: 18", 1), ""},
		{strings.Replace(good, "mem_cost: 14", "mem_cost: 19", 1), "mem_cost 19 and rounds 8 take 512 MiB a login; want at most 256"},
		{strings.Replace(good, "base64_signer_key: ", "base64_signer_key: *", 1), "base64_signer_key is not base64"},
		{strings.Replace(good, "base64_signer_key: ", "base64_signer_key: AAAA, #", 1), "base64_signer_key has 3 bytes; want 16 to 128"},
		{strings.Replace(good, "separator: Bw==", "separator: *", 1), "base64_salt_separator is not base64"},
		{strings.Replace(good, "separator: Bw==", "separator: "+strings.Repeat("A", 160), 1), ""},
		{strings.Replace(good, "separator: Bw==", "separator: "+strings.Repeat("A", 164), 1), "base64_salt_separator has 123 bytes"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader("[]"), transfer.ImportOptions{From: "firebase", FromParams: tt.params})
			if report.Read != 0 || (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !errors.Is(err, transfer.ErrInput)) {
				t.Errorf("%s: got error %v, want %q", tt.params, err, tt.want)
			}
			if errors.Is(err, password.ErrHash) {
				t.Errorf("%s: the error %v is about a hash, but there is none", tt.params, err)
			}
		})
	}
}

// TestImportTwoModels checks that accounts of two models with the same key are not merged.
func TestImportTwoModels(t *testing.T) {
	const in = `[{"model":"auth.user","pk":1,"fields":{"username":"ann","password":"!"}},
{"model":"shop.customer","pk":1,"fields":{"email":"ben@x.org","password":"!"}}]`
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		reason := ""
		o := transfer.ImportOptions{From: "django", OnDuplicate: transfer.DuplicateUpdate, Refused: func(_ int64, why string) { reason = why }}
		s.importText(t, in, o, transfer.Report{Read: 2, Created: 1, Refused: 1})
		if !strings.HasPrefix(reason, `it is of the model "shop.customer", but the accounts before it are of "auth.user"`) {
			t.Errorf("the refusal is %q, want it to name both models", reason)
		}
	})
}
