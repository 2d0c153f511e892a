package transfer_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// severalSchema returns a schema in which two fields may have several values.
func severalSchema(fold schema.Fold, kind string, role schema.Role) schema.Schema {
	return schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid", Fold: fold, Fields: map[string]schema.Field{
		"email": {Role: schema.RoleSecondary, Kind: "email", Many: 4},
		"alias": {Role: schema.RoleSecondary | role, Kind: kind, Many: 100},
		"name":  {Role: schema.RoleSecondary},
		"job":   {},
	}}}}
}

// records returns the fields of a user's record, without its revision and the positions of further
// values, and the keys of all secondary values.
func (s *site) records(t testdb.Tester, uid string) (fields map[string]string, keys []string) {
	t.Helper()
	fields = s.Raw.HGetAll(s.Ctx, s.Key("user/uid:"+recordkey.Escape(uid))).Val()
	delete(fields, store.FieldRev)
	for name, text := range fields {
		if store.IsFurther(name) {
			f, _ := store.ParseFurther(name, text)
			f.Position = 0
			fields[name] = f.Text()
		}
	}
	keys = s.Raw.Keys(s.Ctx, s.Key("user/*/~prk*")).Val()
	slices.Sort(keys)
	return fields, keys
}

// requireSound fails the test if a check finds anything but secondary fields without a value.
func (s *site) requireSound(t testdb.Tester) {
	t.Helper()
	found := slices.DeleteFunc(s.Check(t, check.Options{}), func(problem string) bool {
		return strings.HasPrefix(problem, "field_missing ")
	})
	testdb.Same(t, "check", found, nil)
}

// TestSeveralRoundTrip checks that an import accepts every export and restores the same records,
// whatever the values, their order, verification and labels are.
func TestSeveralRoundTrip(t *testing.T) {
	values := map[string]*rapid.Generator[string]{
		"email": rapid.Custom(func(t *rapid.T) string {
			local := rapid.SampledFrom([]string{"ada", "Ada", "a.b", `"a b"`, `"x;y"`, "o'neil", "a+b", "ä"}).Draw(t, "local")
			domain := rapid.SampledFrom([]string{"x.org", "X.org", "work.example", "straße.de", "xn--strae-oqa.de", "x。org"}).Draw(t, "domain")
			return rapid.SampledFrom([]string{"", " "}).Draw(t, "space") + local + "@" + domain
		}),
		"alias": rapid.Custom(func(t *rapid.T) string {
			if rapid.Bool().Draw(t, "any") {
				return rapid.StringN(1, 6, -1).Draw(t, "text")
			}
			return rapid.SampledFrom([]string{
				"one, two", "p;q", "k=v", "a+b", `"quoted"`, "Ab", "aB", " Ab ", "x\xffy", "https://x.org/Ä", "https://X.org/%C3%84", "a-b", "line\nbreak",
			}).Draw(t, "value")
		}),
	}
	for _, sch := range []schema.Schema{
		severalSchema(schema.FoldCasefold, "", 0), severalSchema(schema.FoldExact, "", 0), severalSchema(schema.FoldCasefold, "url", schema.RoleIndexed),
		severalSchema(schema.FoldExact, "url", schema.RoleIndexed), severalSchema(schema.FoldCasefold, "username", schema.RoleOrdered),
		severalSchema(schema.FoldExact, "nickname", 0),
	} {
		open := func() *site {
			return newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, sch))
		}
		from, to := open(), open()
		rapid.Check(t, func(t *rapid.T) {
			for _, s := range []*site{from, to} {
				s.Raw.FlushDB(s.Ctx)
			}
			users := from.Type(t, "user")
			n := userdb.NewEntry{UID: "u", Values: map[string][]string{}}
			for _, field := range []string{"alias", "email"} {
				n.Values[field] = rapid.SliceOfN(values[field], 0, 4).Draw(t, field)
			}
			if _, err := users.Create(from.Ctx, n); err != nil {
				if !errors.Is(err, userdb.ErrInvalid) {
					t.Fatal(err)
				}
				return // the entry breaks a rule
			}
			for range rapid.IntRange(0, 4).Draw(t, "edits") {
				field := rapid.SampledFrom([]string{"alias", "email"}).Draw(t, "field")
				text := values[field].Draw(t, "text")
				edit := rapid.SampledFrom([]func(*userdb.Entry){
					func(e *userdb.Entry) { e.AddText(field, text) },
					func(e *userdb.Entry) { e.PutFirst(field, text) },
					func(e *userdb.Entry) {
						if texts := e.Texts(field); len(texts) > 0 {
							e.DropText(field, rapid.SampledFrom(texts).Draw(t, "of"))
						}
					},
				}).Draw(t, "edit")
				_, err := users.Update(from.Ctx, hints.UID("u"), func(e *userdb.Entry) error { edit(e); return nil })
				if err != nil && !errors.Is(err, userdb.ErrInvalid) {
					t.Fatal(err)
				}
				for name, text := range from.Raw.HGetAll(from.Ctx, "user/uid:u").Val() {
					if !store.IsFurther(name) {
						continue
					}
					f, _ := store.ParseFurther(name, text)
					f.Verified = rapid.Int64Range(0, 1).Draw(t, "verified") * 1_700_000_000
					f.Label = rapid.SampledFrom([]string{"", "work", "at home", "ä;"}).Draw(t, "label")
					from.Do(t, "HSET", "user/uid:u", name, f.Text())
				}
			}
			text := from.export(t, transfer.ExportOptions{})
			to.importText(t, text, transfer.ImportOptions{}, created(1))
			if again := to.export(t, transfer.ExportOptions{}); again != text {
				t.Errorf("the import is exported as\n%s\nwant\n%s", again, text)
			}
			fields, keys := from.records(t, "u")
			gotFields, gotKeys := to.records(t, "u")
			if !maps.Equal(gotFields, fields) || !slices.Equal(gotKeys, keys) {
				t.Errorf("%s is imported as\n%q\n%q\nwant\n%q\n%q", text, gotFields, gotKeys, fields, keys)
			}
			for _, s := range []*site{from, to} {
				s.requireSound(t)
			}
		})
	}
}

// TestExactValues checks that values are stored without the white space around them even under the
// fold exact.
func TestExactValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, severalSchema(schema.FoldExact, "", 0))
		const line = `{"type":"user","facets":{"uid":"u"},"values":{"email":[" A@x.org",{"value":" B@x.org ","verified":"2024-01-02T03:04:05Z","label":"work"}]}}`
		s.importText(t, line, transfer.ImportOptions{}, created(1))
		fields, _ := s.records(t, "u")
		for name, want := range map[string]string{"email": "A@x.org", "~also:email:B@x.org": "0 1704164645 work"} {
			if fields[name] != want {
				t.Errorf("%s is %q, want %q in %q", name, fields[name], want, fields)
			}
		}
		s.requireSound(t)
	})
}

// TestExportOfDamagedValues checks that an import accepts the export of an entry whose values
// another program or a crash has damaged.
func TestExportOfDamagedValues(t *testing.T) {
	for _, tt := range []struct {
		what   string
		damage []string
		want   []string
	}{
		{"a further value that repeats the first", []string{"HSET", "user/uid:u", "email", "B@x.org"}, []string{"B@x.org", "c@x.org"}},
		{"no first value", []string{"HDEL", "user/uid:u", "email"}, []string{"b@x.org", "c@x.org"}},
		{"a time beyond all calendars", []string{"HSET", "user/uid:u", "~also:email:b@x.org", "1 999999999999999 -"}, []string{"a@x.org", "b@x.org", "c@x.org"}},
		{"another canonical form", []string{"HSET", "user/uid:u", "~also:email:OLD", "3 - - c@X.org"}, []string{"a@x.org", "b@x.org", "c@x.org"}},
		{"another canonical form alone", []string{"HSET", "user/uid:u", "~also:email:OLD", "3 - - Old@x.org"}, []string{"a@x.org", "b@x.org", "c@x.org", "Old@x.org"}},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			n := userdb.NewEntry{UID: "u", Values: map[string][]string{"email": {"a@x.org", "b@x.org", "c@x.org"}}}
			if _, err := s.Type(t, "user").Create(s.Ctx, n); err != nil {
				t.Fatal(err)
			}
			s.Do(t, tt.damage...)
			to := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
			to.importText(t, s.export(t, transfer.ExportOptions{}), transfer.ImportOptions{}, created(1))
			e, err := to.Type(t, "user").Find(s.Ctx, hints.UID("u"))
			if err != nil || !slices.Equal(e.Texts("email"), tt.want) {
				t.Errorf("%s: got %q, %v; want %q", tt.what, e.Texts("email"), err, tt.want)
			}
		})
	}
}

// TestHiddenValues checks that setting the values of a field keeps the values that are stored in
// the canonical form of another schema.
func TestHiddenValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		n := userdb.NewEntry{UID: "u", Values: map[string][]string{"email": {"a@x.org", "b@x.org"}}}
		if _, err := s.Type(t, "user").Create(s.Ctx, n); err != nil {
			t.Fatal(err)
		}
		s.Do(t, "HSET", "user/uid:u", "~also:email:OLD", "3 - - Old@x.org")
		e, err := s.Type(t, "user").Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error {
			e.SetTexts("email", "b@x.org", "c@x.org")
			return nil
		})
		if err != nil || !slices.Equal(e.Texts("email"), []string{"b@x.org", "c@x.org"}) {
			t.Errorf("got %q, %v; want b@x.org and c@x.org", e.Texts("email"), err)
		}
		if fields, _ := s.records(t, "u"); fields["~also:email:OLD"] != "0 - - Old@x.org" {
			t.Errorf("the hidden value is gone: %q", fields)
		}
	})
}

// TestFirstValue checks that an import takes over the verification and the label of the first
// value, and never makes a verified value unverified.
func TestFirstValue(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		line := func(first string) string {
			return `{"type":"user","facets":{"uid":"u"},"values":{"email":[` + first + `,"b@x.org"]}}`
		}
		require := func(label string, verified bool) {
			t.Helper()
			fields, _ := s.records(t, "u")
			r := store.Record{Fields: fields}
			if got := fields[store.FieldVerified("email")] == store.Verified("a@x.org"); got != verified || r.Label("email") != label {
				t.Errorf("got verified %v, label %q; want %v, %q", got, r.Label("email"), verified, label)
			}
		}
		update := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}
		s.importText(t, line(`{"value":"a@x.org","unverified":true,"label":"home"}`), update, created(1))
		require("home", false)
		s.importText(t, line(`{"value":"a@x.org","verified":"2024-01-02T03:04:05Z"}`), update, transfer.Report{Read: 1, Updated: 1})
		require("home", true)
		s.importText(t, line(`{"value":"a@x.org","unverified":true,"label":"work"}`), update, transfer.Report{Read: 1, Updated: 1})
		require("work", true)
		s.importText(t, line(`"a@x.org"`), update, transfer.Report{Read: 1, Skipped: 1})
		s.importText(t, line(`"a@x.org"`), transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate, Ignore: []string{"email"}}, transfer.Report{Read: 1, Skipped: 1})
		require("work", true)
	})
}

// TestValuesNames checks that Map and Ignore apply to fields with several values, and that an
// undeclared field refuses the whole input.
func TestValuesNames(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		const text = `{"type":"user","facets":{"uid":"u"},"values":{"mail":["a@x.org","b@x.org"]}}`
		_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(text), transfer.ImportOptions{})
		if unknown, ok := errors.AsType[*transfer.ColumnError](err); !ok || unknown.Name != "mail" || unknown.Line != 1 {
			t.Errorf("an unknown field: got %v, want a ColumnError for mail in line 1", err)
		}
		s.importText(t, text, transfer.ImportOptions{Ignore: []string{"mail"}, DryRun: true}, created(1))
		s.importText(t, text, transfer.ImportOptions{Map: map[string]string{"mail": "email"}}, created(1))
		if e, err := s.Type(t, "user").Find(s.Ctx, hints.Field("email", "b@x.org")); err != nil || e.UID() != "u" {
			t.Error(e, err)
		}
	})
}

// TestDryRunOfValues checks that a dry run and the import find the same duplicates among further
// values.
func TestDryRunOfValues(t *testing.T) {
	const entry = `{"type":"user","facets":{"uid":"%s"},"values":{"email":["%s","%s"]}}`
	line := func(uid, first, further string) string { return fmt.Sprintf(entry, uid, first, further) }
	for _, tt := range []struct{ what, mode, text string }{
		{"a further value of the line before", transfer.DuplicateFail, line("1", "a@x.org", "b@x.org") + "\n" + line("2", "c@x.org", "B@x.org")},
		{"the first value of the line before", transfer.DuplicateFail, line("1", "a@x.org", "b@x.org") + "\n" + line("2", "c@x.org", "A@x.org")},
		{"a further value of an entry", transfer.DuplicateFail, line("1", "a@x.org", "old2@x.org")},
		{"an update with a further value of another entry", transfer.DuplicateUpdate, line("other", "other@x.org", "old2@x.org")},
		{"an update with its own values in another order", transfer.DuplicateUpdate, line("old", "old2@x.org", "old@x.org")},
		{"an update with a further value of the line before", transfer.DuplicateUpdate, line("old", "old@x.org", "a@x.org") + "\n" + line("other", "other@x.org", "a@x.org")},
		{"a value that the line before adds to another entry", transfer.DuplicateUpdate, line("1", "a@x.org", "b@x.org") + "\n" + line("1", "a@x.org", "c@x.org") + "\n" + line("2", "d@x.org", "c@x.org")},
		{"the same value in two fields", transfer.DuplicateFail, `{"type":"user","facets":{"uid":"1","name":"a@x.org"},"values":{"email":["b@x.org","a@x.org"]}}`},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, severalSchema(schema.FoldCasefold, "", 0))
			for _, n := range []userdb.NewEntry{
				{UID: "old", Values: map[string][]string{"email": {"old@x.org", "old2@x.org"}}}, {UID: "other", Facets: schema.Texts("email", "other@x.org")},
			} {
				if _, err := s.Type(t, "user").Create(s.Ctx, n); err != nil {
					t.Fatal(err)
				}
			}
			run := func(dry bool) (report transfer.Report, refused []string) {
				o := transfer.ImportOptions{OnDuplicate: tt.mode, DryRun: dry, Refused: func(line int64, reason string) {
					refused = append(refused, fmt.Sprint(line, " ", reason))
				}}
				report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.text), o)
				if err != nil {
					t.Fatal(err)
				}
				return report, refused
			}
			simulated, reasons := run(true)
			report, refused := run(false)
			if counts(simulated) != counts(report) || !slices.Equal(reasons, refused) {
				t.Errorf("%s: the dry run says %+v %q, the import %+v %q", tt.what, simulated, reasons, report, refused)
			}
		})
	}
}

// TestTrialOfFurtherValue checks with which of several addresses a trial succeeds, and that a login
// after the import succeeds with the same ones.
func TestTrialOfFurtherValue(t *testing.T) {
	const text = `{"type":"user","facets":{"uid":"u","email":"a@x.org"},"clear_password":"correct horse battery",` +
		`"values":{"email":["a@x.org","b@x.org",{"value":"c@x.org","verified":"2024-01-02T03:04:05Z"}]}}`
	eachEngine(t, func(t *testing.T, s *site) {
		trial := func(identifier string) *transfer.Trial {
			return &transfer.Trial{Identifier: identifier, Password: "correct horse battery"}
		}
		want := map[string]bool{"A@x.org": true, "b@x.org": false, "c@X.org": true}
		for identifier, ok := range want {
			try := trial(identifier)
			s.importText(t, text, transfer.ImportOptions{DryRun: true, Trial: try}, created(1))
			if try.Line != 1 || try.OK != ok || !ok && try.Reason != "nobody can log in with a further address that is not verified" {
				t.Errorf("trial of %s: got %+v, want OK %v", identifier, try, ok)
			}
		}
		s.importText(t, text, transfer.ImportOptions{}, created(1))
		for identifier, ok := range want {
			s.requireLogin(t, identifier, "correct horse battery", ok)
		}
	})
}

// TestSplit checks the reading of cells with several values.
func TestSplit(t *testing.T) {
	many := strings.Repeat("a;", 1001)
	for _, tt := range []struct {
		cell string
		char rune
		want []string
		err  string
	}{
		{"a@x.org", ';', []string{"a@x.org"}, ""},
		{"a@x.org; b@x.org ;;c@x.org;", ';', []string{"a@x.org", "b@x.org", "c@x.org"}, ""},
		{" ;; ", ';', nil, ""},
		{"a@x.org,b@x.org", ',', []string{"a@x.org", "b@x.org"}, ""},
		{"a@x.org  b@x.org", ' ', []string{"a@x.org", "b@x.org"}, ""},
		{"a@x.org\t\tb@x.org", '\t', []string{"a@x.org", "b@x.org"}, ""},
		{"a@x.org\r\nb@x.org\n", '\n', []string{"a@x.org", "b@x.org"}, ""},
		{`"""a;b""@x.org";c@x.org`, ';', []string{`"a;b"@x.org`, "c@x.org"}, ""},
		{`"a;b"@x.org`, ';', nil, "email: a quote in one of its values"},
		{`"a@x.org`, ';', nil, "email: a quote in one of its values"},
		{"a@x.org;b@x.org;c@x.org;d@x.org;e@x.org", ';', nil, "email: over 4 values"},
		{"a@x.org;b", ';', nil, "email: value 2: "},
		{"a@x.org;A@x.org", ';', nil, "email: values 1 and 2 are the same"},
		{many, ';', nil, "email: over 1000 separators"},
	} {
		eachEngine(t, func(t *testing.T, s *site) {
			refused := ""
			o := transfer.ImportOptions{CSV: true, WithoutIdentifier: true, Split: map[string]rune{"email": tt.char}, Refused: func(_ int64, reason string) { refused = reason }}
			text := "uid,E-Mail\nu,\"" + strings.ReplaceAll(tt.cell, `"`, `""`) + "\"\n"
			o.Map = map[string]string{"E-Mail": "email"}
			if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(text), o); err != nil {
				t.Fatal(err)
			}
			var got []string
			if e, err := s.Type(t, "user").Find(s.Ctx, hints.UID("u")); err == nil {
				got = e.Texts("email")
			}
			if !slices.Equal(got, tt.want) || !strings.Contains(refused, tt.err) || tt.err == "" && refused != "" {
				t.Errorf("%.40q: %q, %q; want %q, %q", tt.cell, got, refused, tt.want, tt.err)
			}
		})
	}
}

// TestSplitOptions checks that an import refuses to split columns that cannot be split.
func TestSplitOptions(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, tt := range []struct {
			text  string
			csv   bool
			split map[string]rune
			want  string
		}{
			{"uid,email\nu,a@x.org\n", true, map[string]rune{"name": ';'}, `no column "name" to split`},
			{"uid,name\nu,a;b\n", true, map[string]rune{"name": ';'}, `the cells of "name" cannot be split: it takes one value, unless the schema says "many"`},
			{"uid,email\nu,a@x.org\n", true, map[string]rune{"email": '"'}, "must be neither a quote nor a carriage return"},
			{`{"facets":{"email":"a@x.org"}}`, false, map[string]rune{"email": ';'}, `only cells of CSV are split; in JSON, "values" has all values of a field`},
		} {
			_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.text), transfer.ImportOptions{CSV: tt.csv, Split: tt.split})
			if !errors.Is(err, transfer.ErrInput) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q %v: got %v, want %s", tt.text, tt.split, err, tt.want)
			}
		}
		o := transfer.ImportOptions{CSV: true, Split: map[string]rune{"email": ';'}}
		var saved transfer.ImportState
		o.Save = func(state transfer.ImportState) error { saved = state; return nil }
		const text = "uid,email\nu,a@x.org;b@x.org\n"
		s.importText(t, text, o, created(1))
		if o.Resume, o.Split = saved, map[string]rune{"email": ','}; saved.Lines != 1 {
			t.Fatalf("got the state %+v, want one line", saved)
		}
		if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(text), o); !errors.Is(err, transfer.ErrInput) {
			t.Errorf("resumed with another separator: got %v, want ErrInput", err)
		}
	})
}

// TestHundredValues checks a field with the largest number of values.
func TestHundredValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, severalSchema(schema.FoldCasefold, "", 0))
		var texts []string
		for i := range 100 {
			texts = append(texts, fmt.Sprintf("Alias %d, of; k=v + more", i))
		}
		var quoted []string
		for _, text := range texts {
			quoted = append(quoted, `""`+text+`""`)
		}
		o := transfer.ImportOptions{CSV: true, Split: map[string]rune{"alias": ';'}}
		s.importText(t, "uid,alias\nu,\""+strings.Join(quoted, ";")+"\"\n", o, created(1))
		e, err := s.Type(t, "user").Find(s.Ctx, hints.Field("alias", texts[99]))
		if err != nil || !slices.Equal(e.Texts("alias"), texts) {
			t.Errorf("got %d values, %v; want the 100 of the cell", len(e.Texts("alias")), err)
		}
		o.Refused = func(_ int64, reason string) {
			if reason != "invalid value: alias: over 100 values" {
				t.Error(reason)
			}
		}
		s.importText(t, "uid,alias\nv,\""+strings.Join(quoted, ";")+";more\"\n", o, transfer.Report{Read: 1, Refused: 1})
	})
}
