package transfer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// requireLogin checks whether an identifier and a password log in.
func (s *site) requireLogin(t *testing.T, identifier, password string, want bool) {
	t.Helper()
	_, err := s.Type(t, "user").Login(s.Ctx, identifier, password, userdb.Attempt{})
	if (err == nil) != want || err != nil && !errors.Is(err, userdb.ErrLogin) {
		t.Errorf("login as %s with %.20q: got %v, want it to succeed: %v", identifier, password, err, want)
	}
}

// hashOf returns the password hash of the user with the email.
func (s *site) hashOf(t *testing.T, email string) string {
	t.Helper()
	hash, err := transfer.PasswordHash(s.Ctx, s.DB, "user", hints.Field("email", email))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// TestImportLongPasswords checks that owners of passwords over 72 bytes can log in until they set
// another password, if their product passed all bytes to bcrypt.
func TestImportLongPasswords(t *testing.T) {
	for email, long := range map[string]string{
		"anna@example.com": "correct horse battery staple and a long tail that goes on and on until eighty chars!!",
		"bert@example.com": strings.Repeat("ä", 40),
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s.importText(t, sample(t, "field/long.csv"), transfer.ImportOptions{CSV: true}, created(2))
			before := s.hashOf(t, email)
			s.requireLogin(t, email, long, true)
			s.requireLogin(t, email, long[:72], true)
			s.requireLogin(t, email, long[:71], false)
			if after := s.hashOf(t, email); after != before {
				t.Errorf("the hash became %s, want %s as imported", after, before)
			}
			fresh := strings.Repeat("a new one ", 8)[:72]
			if _, err := s.Type(t, "user").SetPassword(s.Ctx, hints.Field("email", email), fresh); err != nil {
				t.Fatal(err)
			}
			s.requireLogin(t, email, fresh, true)
			s.requireLogin(t, email, fresh+"x", false)
			s.requireLogin(t, email, long, false)
		})
	}
}

// TestImportIsNotOriginal checks that an imported hash is not compared in the lossy encoding of
// CoffeeNode UserDB, in which 慢捤敦杨ㄲ has the same bytes as abcdefgh12. That must be so before and
// after a login has replaced the hash.
func TestImportIsNotOriginal(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		in := sample(t, "field/twin.csv")
		email, _, _ := strings.Cut(strings.Split(in, "\n")[1], ",")
		s.importText(t, in, transfer.ImportOptions{CSV: true}, created(2))
		s.requireLogin(t, email, "慢捤敦杨ㄲ", false)
		s.requireLogin(t, email, "abcdefgh12", true)
		s.requireLogin(t, email, "慢捤敦杨ㄲ", false)
	})
}

// TestImportPrepared checks hashes of products that change a password before they hash it.
func TestImportPrepared(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(sample(t, "field/prehashed.csv")), "\n")
	for i, o := range []transfer.ImportOptions{
		{Prepared: "sha256-hex"}, {Prepared: "md5-hex"}, {Prepared: "append", Pepper: strings.Repeat("c0ffee", 8)},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			o.CSV = true
			email, _, _ := strings.Cut(rows[i+1], ",")
			s.importText(t, rows[0]+"\n"+rows[i+1]+"\n", o, created(1))
			s.requireLogin(t, email, "Sommerhaus-2024", true)
			if hash := s.hashOf(t, email); !strings.HasPrefix(hash, "$2a$") {
				t.Errorf("after a login the hash is %s, want one of our own", hash)
			}
			s.requireLogin(t, email, "Sommerhaus-2024", true)
			s.requireLogin(t, email, "Sommerhaus-2025", false)
		})
	}
	eachEngine(t, func(t *testing.T, s *site) {
		_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(rows[0]), transfer.ImportOptions{CSV: true, Prepared: "md6-hex"})
		if !errors.Is(err, transfer.ErrInput) {
			t.Errorf("an unknown form: got %v, want ErrInput", err)
		}
	})
}

// TestImportReportsWhatIsMissing checks the counts of accounts with missing parts, in an import and
// in its dry run.
func TestImportReportsWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		o        transfer.ImportOptions
		want     transfer.Report
	}{
		{
			"Keycloak's admin API", sample(t, "field/kc_api.json"),
			transfer.ImportOptions{From: "keycloak"},
			transfer.Report{Read: 1, Created: 1, NoPassword: 1},
		},
		{
			"Auth0's management API", sample(t, "field/a0_mgmt.ndjson"),
			transfer.ImportOptions{From: "auth0"},
			transfer.Report{Read: 3, Created: 1, Refused: 2, NoPassword: 1},
		},
		{
			"Auth0's management API, also without an identifier", sample(t, "field/a0_mgmt.ndjson"),
			transfer.ImportOptions{From: "auth0", WithoutIdentifier: true},
			transfer.Report{Read: 3, Created: 2, Refused: 1, NoPassword: 2, NoIdentifier: 1},
		},
		{"no identifiers", sample(t, "field/noid.csv"), transfer.ImportOptions{CSV: true}, transfer.Report{Read: 2, Refused: 2}},
		{
			"no identifiers, with WithoutIdentifier", sample(t, "field/noid.csv"),
			transfer.ImportOptions{CSV: true, WithoutIdentifier: true},
			transfer.Report{Read: 2, Created: 2, NoIdentifier: 2},
		},
		{"no identifier in an export", `{"facets":{"job":"cook"}}`, transfer.ImportOptions{}, transfer.Report{Read: 1, Created: 1, NoPassword: 1, NoIdentifier: 1}},
		{"a type without identifiers", `{"type":"note","facets":{"text":"x"}}`, transfer.ImportOptions{}, transfer.Report{Read: 1, Created: 1}},
		{"an empty clear password", "name,clear_password\nann,\n", transfer.ImportOptions{CSV: true}, transfer.Report{Read: 1, Created: 1, NoPassword: 1}},
		{
			"Keycloak", sample(t, "field/kc_new.json"),
			transfer.ImportOptions{From: "keycloak"},
			transfer.Report{Read: 6, Created: 6, NoPassword: 1, RequiredAction: 1},
		},
		{
			"second factors", `{"id":"1","username":"ann","totp":true}` + "\n" +
				`{"id":"2","username":"ben","credentials":[{"type":"webauthn","secretData":"{}","credentialData":"{}"}]}` + "\n" +
				`{"id":"3","username":"cid","totp":false,"credentials":[],"requiredActions":["CONFIGURE_TOTP"]}`,
			transfer.ImportOptions{From: "keycloak"},
			transfer.Report{Read: 3, Created: 3, NoPassword: 3, SecondFactor: 2, RequiredAction: 1},
		},
		{
			"second factors of Auth0 and Firebase", `{"user_id":"1","email":"a@x.org","multifactor":["guardian"]}` + "\n" +
				`{"user_id":"2","email":"b@x.org","mfa_factors":[ ]}`,
			transfer.ImportOptions{From: "auth0"},
			transfer.Report{Read: 2, Created: 2, NoPassword: 2, SecondFactor: 1},
		},
		{
			"names that are addresses", "uid,name,email\n1,ann@example.com,Ann@example.com\n2,,b@x.org\n3,cid@example.com,\n4,http://x,d@x.org\n",
			transfer.ImportOptions{CSV: true},
			transfer.Report{Read: 4, Created: 3, Refused: 1, NoPassword: 3, NameLeftOut: 2},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				sch := fullSchema()
				sch.Types["note"] = noteType()
				s = s.Under(t, sch)
				for _, dry := range []bool{true, false} {
					o := tt.o
					o.DryRun, o.Refused = dry, func(int64, string) {}
					if got, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), o); err != nil || got != tt.want {
						t.Errorf("dry run %v: got %+v, %v; want %+v", dry, got, err, tt.want)
					}
				}
			})
		})
	}
}

// TestImportLeavesOutOwnAddress checks that a user name is left out if it is the account's own
// address, even if the rules allow it, and is kept if it is another person's address.
func TestImportLeavesOutOwnAddress(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		sch := fullSchema()
		sch.Types["user"].Fields["name"] = schema.Field{Role: schema.RoleSecondary}
		s = s.Under(t, sch)
		const in = "uid,name,email\n1,ANN@x.org,ann@x.org\n2,cid@x.org,ben@x.org\n3,dan@x.org,\n"
		s.importText(t, in, transfer.ImportOptions{CSV: true}, transfer.Report{Read: 3, Created: 3, NoPassword: 3, NameLeftOut: 1})
		want := `{"type":"user","facets":{"email":"ann@x.org","uid":"1"}}
{"type":"user","facets":{"email":"ben@x.org","name":"cid@x.org","uid":"2"}}
{"type":"user","facets":{"name":"dan@x.org","uid":"3"}}
`
		if got := s.export(t, transfer.ExportOptions{}); got != want {
			t.Errorf("exported\n%s\nwant\n%s", got, want)
		}
	})
}

func TestReportNotes(t *testing.T) {
	if notes := (transfer.Report{Read: 3, Created: 3}).Notes(); notes != nil {
		t.Errorf("got the notes %q, want none", notes)
	}
	got := strings.Join(transfer.Report{NoPassword: 2, SecondFactor: 1}.Notes(), "|")
	if want := "2 without a password, which each owner sets with a token|1 with a second factor, which was left out"; got != want {
		t.Errorf("got the notes %q, want %q", got, want)
	}
}

// TestTrial checks the result of a trial of one account in a dry run.
func TestTrial(t *testing.T) {
	in := "uid,email,name,password,clear_password,disabled\n" +
		"1,anna@example.com,Anna,$2y$05$abcdefghijklmnopqrstuuBPv9YvLj96w2JnLiboGeXujWjL/kLUK,,\n" +
		"2,ben@example.com,,,correct horse,\n" +
		"3,cid@example.com,,,correct horse,yes\n" +
		"4,dan@example.com,,,,\n" +
		"5,eve@example.com,,md5$x,,\n" +
		"6,anna@example.com,Other,,,\n"
	const long = "correct horse battery staple and a long tail that goes on and on until eighty chars!!"
	for _, tt := range []struct {
		trial transfer.Trial
		want  string
	}{
		{transfer.Trial{Identifier: "Anna@Example.com", Password: long}, "2 true "},
		{transfer.Trial{Identifier: "ANNA", Password: long}, "2 true "},
		{transfer.Trial{Identifier: "anna", Password: long[1:]}, "2 false the password is wrong"},
		{transfer.Trial{Identifier: "ben@example.com", Password: "correct horse"}, "3 true "},
		{transfer.Trial{Identifier: "ben@example.com", Password: "correct"}, "3 false the password is wrong"},
		{transfer.Trial{Identifier: "cid@example.com", Password: "correct horse"}, "4 false the account is disabled"},
		{transfer.Trial{Identifier: "dan@example.com", Password: ""}, "5 false the account has no password"},
		{transfer.Trial{Identifier: "eve@example.com", Password: "x"}, "6 false the line would be refused: password: stored hash is not usable: too weak: MD5, with a salt or without; a clear password goes into clear_password; userdb import --without-password imports the account without it"},
		{transfer.Trial{Identifier: "other", Password: "x"}, "7 false the line would be refused: taken: email"},
		{transfer.Trial{Identifier: "nobody", Password: "x"}, "0 false "},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			trial := tt.trial
			o := transfer.ImportOptions{CSV: true, DryRun: true, Trial: &trial}
			if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(trial.Line, " ", trial.OK, " ", trial.Reason); got != tt.want {
				t.Errorf("%s: got %s, want %s", trial.Identifier, got, tt.want)
			}
			o.DryRun = false
			if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o); !errors.Is(err, transfer.ErrInput) {
				t.Errorf("an import with a trial: got %v, want ErrInput", err)
			}
		})
	}
}

// TestXenForo imports credentials of XenForo: bcrypt and phpass in a serialized PHP array or in
// JSON. The vectors are those of Openwall's crypt_blowfish and phpass.
func TestXenForo(t *testing.T) {
	const bcrypt, phpass = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "$P$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0"
	for _, tt := range []struct{ data, password, refused string }{
		{`a:1:{s:4:"hash";s:60:"` + bcrypt + `";}`, "U*U", ""},
		{`a:1:{s:4:"hash";s:34:"` + phpass + `";}`, "test12345", ""},
		{`{"hash":"` + strings.ReplaceAll(bcrypt, "/", `\/`) + `"}`, "U*U", ""},
		{`a:0:{}`, "", ""},
		{`a:1:{s:4:"hash";s:61:"` + bcrypt + `";}`, "U*U", "XenForo's hash, but malformed or with a single round, which is too weak"},
		{`a:3:{s:4:"hash";s:64:"` + strings.Repeat("0f", 32) + `";s:4:"salt";s:2:"ab";s:8:"hashFunc";s:6:"sha256";}`, "", "XenForo's hash, but malformed or with a single round, which is too weak"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, fullSchema())
			in := `"uid","email","password"` + "\n" + `"1","ann@x.org","` + strings.ReplaceAll(tt.data, `"`, `""`) + `"` + "\n"
			reason := s.importOne(t, in, transfer.ImportOptions{CSV: true})
			if tt.refused == "" && !strings.HasPrefix(reason, "{") || !strings.Contains(reason, tt.refused) {
				t.Errorf("%s: got %s, want the reason %q", tt.data, reason, tt.refused)
			}
			if tt.password != "" && tt.refused == "" {
				s.requireLogin(t, "ann@x.org", tt.password, true)
			}
		})
	}
}

// TestPasswordAfterApostrophe checks that a clear password may be a number after an apostrophe.
// Other columns of a table refuse such a value.
func TestPasswordAfterApostrophe(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.importText(t, "name,clear_password\nAnn,'2719 4466-80\n", transfer.ImportOptions{CSV: true}, created(1))
		s.requireLogin(t, "Ann", "'2719 4466-80", true)
		s.requireLogin(t, "Ann", "2719 4466-80", false)
	})
}
