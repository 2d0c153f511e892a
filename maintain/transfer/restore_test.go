package transfer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// noteType returns a type whose entries have no identifiers.
func noteType() schema.Type {
	return schema.Type{Primary: "id", Fold: schema.FoldExact, Fields: map[string]schema.Field{"text": {}}}
}

// beginSession starts a session of a user and returns its secret.
func (s *site) beginSession(t *testing.T, uid string) string {
	t.Helper()
	users := s.Type(t, "user")
	e, err := users.Find(s.Ctx, hints.UID(uid))
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := users.StartSession(s.Ctx, e, userdb.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// hasSession reports whether a session is still valid.
func (s *site) hasSession(t *testing.T, secret string) bool {
	t.Helper()
	_, _, err := s.Type(t, "user").Session(s.Ctx, secret)
	return err == nil
}

// TestImportKeepsNewerPasswords imports a table again and again, while its accounts are in use. It
// checks that a password set here stays, that an unchanged account keeps its sessions, and that a
// password that was changed at the source is imported.
func TestImportKeepsNewerPasswords(t *testing.T) {
	const old, fresh = "Sommerhaus-2024", "Winterhaus-2025"
	delta := sample(t, "field/delta.csv")
	clear := "uid,email,clear_password\nm1,m1@example.com," + old + "\nm2,m2@example.com," + old + "\n"
	update := transfer.ImportOptions{CSV: true, OnDuplicate: transfer.DuplicateUpdate}
	for name, in := range map[string]string{"hashes": delta, "clear passwords": clear} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s.importText(t, in, transfer.ImportOptions{CSV: true}, created(2))
				s.requireLogin(t, "m1@example.com", old, true)
				session := s.beginSession(t, "m1")
				if _, err := s.Type(t, "user").SetPassword(s.Ctx, hints.UID("m2"), fresh); err != nil {
					t.Fatal(err)
				}
				dry := update
				dry.DryRun = true
				for _, o := range []transfer.ImportOptions{dry, update, update} {
					s.importText(t, in, o, transfer.Report{Read: 2, Skipped: 2, PasswordKept: 1})
					s.requireLogin(t, "m1@example.com", old, true)
					s.requireLogin(t, "m2@example.com", fresh, true)
					s.requireLogin(t, "m2@example.com", old, false)
					if !s.hasSession(t, session) {
						t.Error("the session of an unchanged account ended")
					}
				}
				later := "uid,password,password_changed\nm2,$2y$05$abcdefghijklmnopqrstuuxglPpnRcUsOY9v566GLoWy42/7hJY4i,2999-01-01\n"
				s.importText(t, later, update, transfer.Report{Read: 1, Updated: 1})
				s.requireLogin(t, "m2@example.com", old, true)
				s.requireLogin(t, "m2@example.com", fresh, false)

				changed := "uid,clear_password\nm1," + fresh + "\n"
				s.importText(t, changed, update, transfer.Report{Read: 1, Updated: 1})
				s.requireLogin(t, "m1@example.com", fresh, true)
				if s.hasSession(t, session) {
					t.Error("the session of an account whose password was changed goes on")
				}
			})
		})
	}
}

// TestBackupKeepsPasswordOrigins checks that imports recognize passwords that were set here even
// after a backup was restored.
func TestBackupKeepsPasswordOrigins(t *testing.T) {
	const old, fresh = "Sommerhaus-2024", "Winterhaus-2025"
	delta := sample(t, "field/delta.csv")
	eachEngine(t, func(t *testing.T, s *site) {
		s.importText(t, delta, transfer.ImportOptions{CSV: true}, created(2))
		s.requireLogin(t, "m1@example.com", old, true)
		if _, err := s.Type(t, "user").SetPassword(s.Ctx, hints.UID("m2"), fresh); err != nil {
			t.Fatal(err)
		}
		backup := s.export(t, transfer.ExportOptions{Secrets: true})
		to := s.subNamespace(t, "copy")
		to.importText(t, backup, transfer.ImportOptions{}, created(2))
		if got := to.export(t, transfer.ExportOptions{Secrets: true}); got != backup {
			t.Errorf("the copy is\n%s\nwant\n%s", got, backup)
		}
		to.importText(t, delta, transfer.ImportOptions{CSV: true, OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 2, Skipped: 2, PasswordKept: 1})
		to.requireLogin(t, "m2@example.com", fresh, true)
	})
}

// TestBackupKeepsUnproven checks that a restored backup keeps the mark of self-registered entries
// whose address nobody has verified.
func TestBackupKeepsUnproven(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		_, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "a", Facets: schema.Texts("email", "a@example.com"), SelfRegistered: true})
		if err != nil {
			t.Fatal(err)
		}
		backup := s.export(t, transfer.ExportOptions{})
		to := s.subNamespace(t, "copy")
		to.importText(t, backup, transfer.ImportOptions{}, created(1))
		e, err := to.Type(t, "user").Find(s.Ctx, hints.UID("a"))
		if err != nil || !e.Unproven() || to.export(t, transfer.ExportOptions{}) != backup {
			t.Errorf("got the copy %v, unproven %v, error %v; want it unproven and equal", e, e.Unproven(), err)
		}
		update := strings.Replace(backup, `,"unproven":true`, "", 1)
		to.importText(t, update, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 1, Skipped: 1})
		if e, err := to.Type(t, "user").Find(s.Ctx, hints.UID("a")); err != nil || !e.Unproven() {
			t.Errorf("after an update: got unproven %v, error %v; want it still unproven", e.Unproven(), err)
		}
	})
}

// TestUpdateOfUnproven checks that an import changes no account that somebody registered without
// verifying its address, unless the line says that the account is unproven or only disables it.
func TestUpdateOfUnproven(t *testing.T) {
	const tags, ofAddress = `,"tertiary":{"tags":{"kind":"set","value":["staff"]}}`, `"facets":{"email":"a@example.com"}`
	refused, updated := transfer.Report{Read: 1, Refused: 1}, transfer.Report{Read: 1, Updated: 1}
	for _, tt := range []struct {
		name, line string
		want       transfer.Report
	}{
		{"tags", `{"type":"user",` + ofAddress + tags + `}`, refused},
		{"tags, by the UID", `{"type":"user","facets":{"uid":"a"}` + tags + `}`, refused},
		{"a facet", `{"type":"user","facets":{"email":"a@example.com","job":"baker"}}`, refused},
		{"a verified address", `{"type":"user",` + ofAddress + `,"verified":["email"]}`, refused},
		{"a password", `{"type":"user",` + ofAddress + `,"clear_password":"a long enough password"}`, refused},
		{"disabled", `{"type":"user",` + ofAddress + `,"disabled":true}`, updated},
		{"nothing new", `{"type":"user",` + ofAddress + `}`, transfer.Report{Read: 1, Skipped: 1}},
		{"tags of an unproven account", `{"type":"user","unproven":true,` + ofAddress + tags + `}`, updated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				users := s.Type(t, "user")
				if _, err := users.Create(s.Ctx, userdb.NewEntry{UID: "a", Facets: schema.Texts("email", "a@example.com"), SelfRegistered: true}); err != nil {
					t.Fatal(err)
				}
				for _, dryRun := range []bool{true, false} {
					s.importText(t, tt.line, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate, DryRun: dryRun}, tt.want)
				}
				got, err := users.Tags(hints.UID("a")).Members(s.Ctx)
				if want := strings.Contains(tt.line, tags) && tt.want == updated; err != nil || len(got) > 0 != want {
					t.Errorf("got the tags %q, error %v; want some: %v", got, err, want)
				}
			})
		})
	}
}

// TestBackupKeepsLostValues exports values that a repair moved out of their fields, and imports
// them again, into new and into existing entries.
func TestBackupKeepsLostValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		with := `{"type":"user","facets":{"name":"Ann","uid":"a","~lost:name":"two words!","~lost:name:2":"x"}}` + "\n"
		s.importText(t, with, transfer.ImportOptions{}, created(1))
		if got := s.export(t, transfer.ExportOptions{}); got != with {
			t.Errorf("exported\n%s\nwant\n%s", got, with)
		}
		without := `{"type":"user","facets":{"name":"Ann","uid":"a"}}` + "\n"
		to := s.subNamespace(t, "copy")
		to.importText(t, without, transfer.ImportOptions{}, created(1))
		update := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}
		to.importText(t, with, update, transfer.Report{Read: 1, Updated: 1})
		to.importText(t, with, update, transfer.Report{Read: 1, Skipped: 1})
		if got := to.export(t, transfer.ExportOptions{}); got != with {
			t.Errorf("exported\n%s\nwant\n%s", got, with)
		}
		for _, tt := range []struct{ facets, want string }{
			{`{"uid":"b","~lost:name":"` + strings.Repeat("x", schema.MaxFacet+1) + `"}`, "~lost:name: "},
			{`{"uid":"b","~lost:name":{}}`, "~lost:name: cannot be read as text"},
			{`{"uid":"b","~lose:name":"x"}`, "~lose:name: "},
			{`{"uid":"b"},"wire":{"~lost:x":"/w=="}`, "~lost:x: not UTF-8"},
			{`{"uid":"b","~lost:x":"y"},"wire":{"~lost:x":"YQ=="}`, `two values for "~lost:x"`},
		} {
			var reason string
			o := transfer.ImportOptions{Refused: func(_ int64, text string) { reason = text }}
			s.importText(t, `{"facets":`+tt.facets+"}", o, transfer.Report{Read: 1, Refused: 1})
			if !strings.Contains(reason, tt.want) {
				t.Errorf("%.60s: refused because %q, want %q", tt.facets, reason, tt.want)
			}
		}
	})
}

// TestIgnoreOfProducts checks that Ignore leaves out every name that it lists, and that a name that
// cannot be left out is refused.
func TestIgnoreOfProducts(t *testing.T) {
	for _, tt := range []struct {
		from, ignore, in, want string
	}{
		{"keycloak", "credentials", sample(t, "field/kc_new.json"), "6 without a password"},
		{"keycloak", "enabled", `{"id":"1","username":"ann","enabled":false}`, `{"name":"ann","uid":"1"}}`},
		{"keycloak", "emailVerified", `{"id":"1","username":"ann","email":"a@x.org","emailVerified":true}`, `"uid":"1"}}`},
		{"keycloak", "username", `{"id":"1","username":"ann","email":"a@x.org"}`, `{"email":"a@x.org","uid":"1"}}`},
		{"keycloak", "requiredActions", `{"id":"1","username":"ann","requiredActions":["UPDATE_PASSWORD"]}`, "1 without a password, which each owner sets with a token\n{"},
		{"auth0", "custom_password_hash", sample(t, "field/a0_weak.json"), "1 without a password"},
		{"auth0", "identifiers", `{"user_id":"1","username":"ann","identifiers":[{"type":"email","value":"a@x.org"}]}`, `{"name":"ann","uid":"1"}}`},
		{"auth0", "blocked", `{"user_id":"1","username":"ann","blocked":true}`, `"uid":"1"}}`},
		{"django", "password", sample(t, "field/dj_weak.json"), "2 without a password"},
		{"django", "is_active", `{"model":"auth.user","pk":1,"fields":{"username":"ann","password":"","is_active":false}}`, `"uid":"1"}}`},
		{"firebase", "passwordHash", sample(t, "field/fb_emulator.json"), "1 without a password"},
		{"firebase", "disabled", `{"localId":"1","email":"a@x.org","disabled":true}`, `"uid":"1"}}`},
		{"firebase", "localId", "", `"localId" cannot be ignored: every account of firebase needs it`},
		{"django", "fields", "", `"fields" cannot be ignored`},
		{"django", "*", "", "name what to ignore"},
		{"django", "pasword", sample(t, "field/dj_weak.json"), `it has nothing called "pasword", which the options map or ignore`},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), transfer.ImportOptions{
				From: tt.from, Ignore: []string{tt.ignore}, Refused: func(_ int64, reason string) { t.Errorf("%s, %s: %s", tt.from, tt.ignore, reason) },
			})
			got := strings.Join(report.Notes(), "\n") + "\n" + s.export(t, transfer.ExportOptions{})
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("%s, %s: got %s, want %s", tt.from, tt.ignore, got, tt.want)
			}
		})
	}
}

// TestIgnoreRest checks that "*" leaves out all names that are not mapped.
func TestIgnoreRest(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		o := transfer.ImportOptions{Map: map[string]string{"id": "uid", "mail": "email"}, Ignore: []string{"*"}}
		s.importText(t, `{"id":"1","mail":"a@x.org","aud":{"x":1},"password":"x"}`, o, created(1))
		o.CSV = true
		s.importText(t, "id,mail,aud,password\n2,b@x.org,y,x\n", o, created(1))
		want := `{"type":"user","facets":{"email":"a@x.org","uid":"1"}}
{"type":"user","facets":{"email":"b@x.org","uid":"2"}}
`
		if got := s.export(t, transfer.ExportOptions{}); got != want {
			t.Errorf("exported\n%s\nwant\n%s", got, want)
		}
	})
}

// uids returns the UIDs of the users for which matches returns true, sorted.
func (s *site) uids(t *testing.T, matches func(userdb.Entry) bool) string {
	t.Helper()
	var found []string
	for e, err := range s.Type(t, "user").All(s.Ctx, userdb.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if matches(e) {
			found = append(found, e.UID())
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// TestImportDisabledForms checks the texts by which databases and spreadsheets mark disabled
// accounts.
func TestImportDisabledForms(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		o        transfer.ImportOptions
		disabled string
		refused  []string
	}{
		{
			"disabled", sample(t, "field/disabledcol.csv"),
			transfer.ImportOptions{CSV: true},
			"f0 f2 f4 f6",
			[]string{"9 disabled: the word NULL, which means no value only by request (userdb import --null NULL)"},
		},
		{
			"is_active", sample(t, "field/flags.csv"),
			transfer.ImportOptions{CSV: true, Map: map[string]string{"is_active": "!disabled"}},
			"f1 f3 f5 f8", nil,
		},
		{
			"banned_until and deleted_at", "uid,email,banned_until,deleted_at\n1,a@x.org,,\n2,b@x.org,2124-01-02T03:04:05Z,\n3,c@x.org,2024-01-02T03:04:05Z,\n4,d@x.org,,2024-05-02\n5,e@x.org,infinity,\n",
			transfer.ImportOptions{CSV: true, Map: map[string]string{"banned_until": "disabled_until", "deleted_at": "disabled"}},
			"2 4 5", nil,
		},
		{
			"flat JSON", `{"id":"1","email":"a@x.org","active":false}` + "\n" + `{"id":"2","email":"b@x.org","active":1}` + "\n" + `{"id":"3","email":"c@x.org","active":null}`,
			transfer.ImportOptions{Map: map[string]string{"id": "uid", "email": "email", "active": "!disabled"}},
			"1", nil,
		},
		{
			"lines of an export", `{"facets":{"uid":"1"},"disabled":true}` + "\n" + `{"facets":{"uid":"2"},"disabled":0}` + "\n" + `{"facets":{"uid":"3"},"disabled":["x"]}`,
			transfer.ImportOptions{},
			"1",
			[]string{`3 "disabled" has the wrong JSON type`},
		},
		{
			"a mapped name of a product", `[{"model":"auth.user","pk":1,"fields":{"username":"ann","password":"","is_active":true}}]`,
			transfer.ImportOptions{From: "django", Map: map[string]string{"is_active": "disabled"}},
			"1", nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				var refused []string
				tt.o.Refused = func(line int64, reason string) { refused = append(refused, fmt.Sprint(line, " ", reason)) }
				if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), tt.o); err != nil {
					t.Fatal(err)
				}
				testdb.Same(t, "refused", refused, tt.refused)
				if got := s.uids(t, userdb.Entry.Disabled); got != tt.disabled {
					t.Errorf("disabled: got %s, want %s", got, tt.disabled)
				}
			})
		})
	}
}

// TestImportDoesNotEnable checks that no form of "not disabled" enables an account that was
// disabled here.
func TestImportDoesNotEnable(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.User(t, 1)
		if err := s.Type(t, "user").Disable(s.Ctx, hints.UID("u1")); err != nil {
			t.Fatal(err)
		}
		for column, cell := range map[string]string{"disabled": "f", "!disabled": "t", "disabled_until": "2001-01-01", "~disabled": "false"} {
			in := "uid," + column + "\nu1," + cell + "\n"
			s.importText(t, in, transfer.ImportOptions{CSV: true, OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 1, Skipped: 1})
		}
		if got := s.uids(t, userdb.Entry.Disabled); got != "u1" {
			t.Errorf("disabled: got %q, want u1", got)
		}
	})
}

// TestImportVerified checks that verified addresses stay verified, whatever the form of the input.
func TestImportVerified(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		o    transfer.ImportOptions
		want string
	}{
		"Keycloak": {
			`{"id":"1","username":"ann","email":"a@x.org","emailVerified":true}` + "\n" + `{"id":"2","username":"ben","email":"b@x.org","emailVerified":false}` + "\n" +
				`{"id":"3","username":"cid","emailVerified":true}`,
			transfer.ImportOptions{From: "keycloak"},
			"1",
		},
		"Firebase": {`{"localId":"1","email":"a@x.org","emailVerified":true}` + "\n" + `{"localId":"2","email":"b@x.org"}`, transfer.ImportOptions{From: "firebase"}, "1"},
		"Auth0": {
			`{"user_id":"1","email":"a@x.org","email_verified":true}` + "\n" + `{"user_id":"2","identifiers":[{"type":"email","value":"b@x.org","verified":true}]}` + "\n" +
				`{"user_id":"3","identifiers":[{"type":"email","value":"c@x.org","verified":false}]}`,
			transfer.ImportOptions{From: "auth0"},
			"1 2",
		},
		"CSV": {
			"uid,email,verified:email\n1,a@x.org,t\n2,b@x.org,f\n3,c@x.org,2024-01-02\n4,d@x.org,\n", transfer.ImportOptions{CSV: true}, "1 3",
		},
		"a mapped column": {
			"uid,email,email_confirmed_at\n1,a@x.org,2024-01-02T03:04:05Z\n2,b@x.org,\n",
			transfer.ImportOptions{CSV: true, Map: map[string]string{"email_confirmed_at": "verified:email"}},
			"1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				for _, on := range []string{transfer.DuplicateFail, transfer.DuplicateUpdate} {
					tt.o.OnDuplicate = on
					if report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), tt.o); err != nil || report.Refused > 0 {
						t.Fatalf("%s: got %+v, %v; want nothing refused", on, report, err)
					}
					if got := s.uids(t, func(e userdb.Entry) bool { return e.Verified("email") }); got != tt.want {
						t.Errorf("%s: verified: got %s, want %s", on, got, tt.want)
					}
				}
			})
		})
	}
	eachEngine(t, func(t *testing.T, s *site) {
		for _, o := range []transfer.ImportOptions{
			{CSV: true}, {CSV: true, Map: map[string]string{"verified:emial": "verified:emial"}},
		} {
			_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader("uid,verified:emial\n1,t\n"), o)
			if err == nil || !strings.Contains(err.Error(), `no type has the field "emial"`) {
				t.Errorf("an unknown field: got %v, want an error that names it", err)
			}
		}
	})
}

// TestImportWithoutPassword checks that an account whose password cannot be used is refused with
// advice, and is imported without its password if the options ask for that.
func TestImportWithoutPassword(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		o    transfer.ImportOptions
		good int64 // accounts with a usable password or none
		all  int64
	}{
		"Auth0":               {sample(t, "field/a0_weak.json"), transfer.ImportOptions{From: "auth0"}, 0, 1},
		"Django":              {sample(t, "field/dj_weak.json"), transfer.ImportOptions{From: "django"}, 1, 2},
		"Firebase's emulator": {sample(t, "field/fb_emulator.json"), transfer.ImportOptions{From: "firebase"}, 0, 1},
		"Keycloak": {
			`{"id":"1","username":"ann","credentials":[{"type":"password","secretData":"{}","credentialData":"{\"algorithm\":\"own\"}"}]}`,
			transfer.ImportOptions{From: "keycloak"},
			0, 1,
		},
		"CSV": {
			"name,password\nann,md5$x$y\nben,!\ncid,*\ndan,!!\neve,!$6$x\nfay,*0123456789012345678901234567890123456789\n", transfer.ImportOptions{CSV: true}, 4, 6,
		},
		"a clear password": {"name,clear_password\nann,short\n", transfer.ImportOptions{CSV: true}, 0, 1},
		"JSON lines":       {`{"facets":{"name":"ann"},"password":"sha1$x"}`, transfer.ImportOptions{}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				o := tt.o
				o.DryRun = true
				o.Refused = func(_ int64, reason string) {
					if !strings.HasSuffix(reason, "; userdb import --without-password imports the account without it") {
						t.Errorf("refused because of %s, want the advice to import it without its password", reason)
					}
				}
				s.importText(t, tt.in, o, transfer.Report{Read: tt.all, Created: tt.good, Refused: tt.all - tt.good})
				o = tt.o
				o.WithoutPassword = true
				s.importText(t, tt.in, o, created(tt.all))
			})
		})
	}
}

// TestDryRunForeseesDuplicates compares the reports of dry runs with those of the imports.
func TestDryRunForeseesDuplicates(t *testing.T) {
	const in = `uid,name,email
a,Ann,ann@x.org
a,Ann,ann@x.org
b,ANN,
,Ann,ann@x.org
,Ann,other@x.org
,Cid,cid@x.org
,Cid,cid@x.org
d,,
e,,ann@x.org
f,ann@x.org,ann@x.org
`
	const separate = `uid,name,email,disabled
a,Ann,ann@x.org,
b,Ben,,t
,Cid,cid@x.org,
d,dan@x.org,dan@x.org,
,,,
`
	for on, in := range map[string]string{transfer.DuplicateFail: in, transfer.DuplicateSkip: in, transfer.DuplicateUpdate: separate} {
		t.Run(on, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				for range 2 {
					var reports [2]transfer.Report
					var refused [2]string
					for i, dry := range []bool{true, false} {
						o := transfer.ImportOptions{CSV: true, OnDuplicate: on, DryRun: dry, Refused: func(line int64, reason string) { refused[i] += fmt.Sprint(line, " ", reason, "\n") }}
						var err error
						if reports[i], err = transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o); err != nil {
							t.Fatal(err)
						}
					}
					if counts(reports[0]) != counts(reports[1]) || refused[0] != refused[1] {
						t.Errorf("the dry run says %+v\n%s\nand the import %+v\n%s", reports[0], refused[0], reports[1], refused[1])
					}
				}
			})
		})
	}
}
