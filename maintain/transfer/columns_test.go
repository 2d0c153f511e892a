package transfer_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func requireColumnError(t *testing.T, err error, want transfer.ColumnError) {
	t.Helper()
	if unknown, ok := errors.AsType[*transfer.ColumnError](err); !ok || *unknown != want || !errors.Is(err, transfer.ErrInput) {
		t.Errorf("got error %v, want %v", err, &want)
	}
}

// userFields and firmFields end the message about an undeclared name if no field has a similar
// name.
const (
	userFields = "; it has uid, active, added, age, email, job, motto, name, rating, score, and 'userdb schema add' adds others"
	firmFields = "; it has id, name, and 'userdb schema add' adds others"
)

// TestImportUnknownNames checks that an input with an undeclared name is refused before anything is
// written. A dry run of an input that cannot be read twice reads the lines before the name.
func TestImportUnknownNames(t *testing.T) {
	good := `{"facets":{"uid":"1","name":"Ann"}}` + "\n"
	for _, tt := range []struct {
		name, in string
		csv      bool
		line     int64
		column   string
		reason   string
		before   int64 // lines read before the error if the input is read once
	}{
		{"an undeclared column", "Email,Name,Password\na@x.org,Ann,secret word\n", true, 1, "Email", `type "user" has no such field; did you mean "email"?`, 0},
		{"a column of clear passwords", "email,name,Password\na@x.org,Ann,secret word\n", true, 1, "Password", `type "user" has no such field; did you mean "password"?`, 0},
		{"an undeclared column without rows", "name,shoes", true, 1, "shoes", `type "user" has no such field` + userFields, 0},
		{"an undeclared column after blank lines", "\ufeff\n\nname,shoes\nAnn,44\n", true, 3, "shoes", `type "user" has no such field` + userFields, 0},
		{"a column that only another type declares", "~isa,id,email\nuser,,a@x.org\nfirm,f1,\nfirm,f2,b@x.org\n", true, 4, "email", `type "firm" has no such field` + firmFields, 2},
		{"an undeclared facet", good + good[:10] + `{"emial":"a@x.org"}}`, false, 2, "emial", `type "user" has no such field; did you mean "email"?`, 1},
		{"an unknown key", strings.Repeat(good, 3) + `{"facet":{}}`, false, 4, "facet", `no line of an export has such a key; did you mean "facets"?`, 3},
		{"an entry whose facets are not under facets", `{"email":"a@x.org"}`, false, 1, "email", `a line of JSON has the facets of an entry under "facets"`, 0},
		{
			"an undeclared tertiary record", `{"facets":{"uid":"1"},"tertiary":{"tgas":{"kind":"set","value":["a"]}}}`, false, 1, "tgas",
			`type "user" has no such tertiary record; did you mean "tags"?`, 0,
		},
		{"an undeclared facet after a refused line", "no JSON\n" + `{"facets":{"Name":"Ann"}}`, false, 2, "Name", `type "user" has no such field; did you mean "name"?`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.Under(t, fullSchema())
				for _, o := range []transfer.ImportOptions{{CSV: tt.csv}, {CSV: tt.csv, DryRun: true}} {
					report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), o)
					requireColumnError(t, err, transfer.ColumnError{Line: tt.line, Name: tt.column, Reason: tt.reason})
					if text := s.export(t, transfer.ExportOptions{}); report != (transfer.Report{}) || text != "" {
						t.Errorf("dry run %v: got report %+v and entries %s, want nothing imported", o.DryRun, report, text)
					}
				}
				o := transfer.ImportOptions{CSV: tt.csv, OnDuplicate: transfer.DuplicateSkip, DryRun: true}
				report, err := transfer.Import(s.Ctx, s.DB, io.MultiReader(strings.NewReader(tt.in)), o)
				unknown, ok := errors.AsType[*transfer.ColumnError](err)
				if !ok || unknown.Line != tt.line || report.Read != tt.before {
					t.Errorf("read once: got %+v, %v; want %d lines read, error in line %d", report, err, tt.before, tt.line)
				}
				rest := strings.Join(strings.SplitAfter(tt.in, "\n")[tt.line-1:], "")
				if readErr, ok := errors.AsType[*transfer.ReadError](err); ok && readErr.Offset != int64(len(tt.in)-len(rest)) {
					t.Errorf("read once: the error is at byte %d, want %d", readErr.Offset, len(tt.in)-len(rest))
				}
			})
		})
	}
}

// TestImportMaps checks that columns are renamed, left out, or kept even if the schema does not
// declare them.
func TestImportMaps(t *testing.T) {
	open := fullSchema()
	user := open.Types["user"]
	user.Open = true
	open.Types["user"] = user
	for _, tt := range []struct {
		name, in string
		o        transfer.ImportOptions
		schema   schema.Schema
		want     string // an export, or part of an error
	}{
		{
			"CSV", "Id,E-Mail,shoes,Hash\n1,A@x.org,44,\n",
			transfer.ImportOptions{CSV: true, Map: map[string]string{"Id": "uid", "E-Mail": "email", "Hash": "password"}, Ignore: []string{"shoes"}},
			fullSchema(),
			`{"type":"user","facets":{"email":"A@x.org","uid":"1"}}`,
		},
		{
			"JSON", `{"facets":{"Id":"1","E-Mail":"A@x.org","shoes":44}}`,
			transfer.ImportOptions{Map: map[string]string{"Id": "uid", "E-Mail": "email"}, Ignore: []string{"shoes"}},
			fullSchema(),
			`{"type":"user","facets":{"email":"A@x.org","uid":"1"}}`,
		},
		{"two columns with one name", "a,name\nx,y\n", transfer.ImportOptions{CSV: true, Map: map[string]string{"a": "name"}}, fullSchema(), `two columns are mapped to "name"`},
		{"an ignored column that does not exist", "name\ny\n", transfer.ImportOptions{CSV: true, Ignore: []string{"nmae"}}, fullSchema(), `it has nothing called "nmae", which the options map or ignore`},
		{
			"an undeclared column in the second line of a header", "name,\"the\nage\",shoes\nAnn,41,44\n",
			transfer.ImportOptions{CSV: true, Ignore: []string{"the\nage"}},
			fullSchema(), `line 2: "shoes": type "user" has no such field`,
		},
		{"a column mapped to an undeclared name", "a\ny\n", transfer.ImportOptions{CSV: true, Map: map[string]string{"a": "nmae"}}, fullSchema(), `line 1: "a" as "nmae": type "user" has no such field; did you mean "name"?`},
		{
			"flat JSON", `{"Id":"1","email":"A@x.org","shoes":44}`,
			transfer.ImportOptions{
				Map: map[string]string{"Id": "uid", "email": "email"}, Ignore: []string{"shoes"},
			},
			fullSchema(),
			`{"type":"user","facets":{"email":"A@x.org","uid":"1"}}`,
		},
		{
			"keys mapped to names that are not facets", `{"facets":{"uid":"1","kind":"user","locked":true}}`,
			transfer.ImportOptions{Type: "firm", Map: map[string]string{"kind": "~isa", "locked": "~disabled"}},
			fullSchema(),
			`{"type":"user","facets":{"uid":"1"},"disabled":"2026-11-20T12:00:00.000Z"}`,
		},
		{
			"a type from a column", "kind,uid,email\nuser,1,a@x.org\n",
			transfer.ImportOptions{CSV: true, Type: "firm", Map: map[string]string{"kind": "~isa"}},
			fullSchema(),
			`{"type":"user","facets":{"email":"a@x.org","uid":"1"}}`,
		},
		{
			"an ignored type", "~isa,uid,email\nfirm,1,a@x.org\n",
			transfer.ImportOptions{CSV: true, Ignore: []string{"~isa"}},
			fullSchema(),
			`{"type":"user","facets":{"email":"a@x.org","uid":"1"}}`,
		},
		{
			"an ignored tertiary record", `{"facets":{"uid":"1"},"tertiary":{"tgas":{"kind":"set","value":["a"]}}}`,
			transfer.ImportOptions{Ignore: []string{"tgas"}},
			fullSchema(), `{"type":"user","facets":{"uid":"1"}}`,
		},
		{"a byte order mark", "\ufeff\"uid\",email\n1,a@x.org\n", transfer.ImportOptions{CSV: true}, fullSchema(), `{"type":"user","facets":{"email":"a@x.org","uid":"1"}}`},
		{"a byte order mark before JSON", "\ufeff" + `{"facets":{"uid":"1"}}`, transfer.ImportOptions{}, fullSchema(), `{"type":"user","facets":{"uid":"1"}}`},
		{"a mapped name that the input does not have", `{"facets":{"uid":"1"}}`, transfer.ImportOptions{Map: map[string]string{"mial": "email"}}, fullSchema(), `it has nothing called "mial"`},
		{
			"a column both mapped and ignored", "a\ny\n",
			transfer.ImportOptions{CSV: true, Map: map[string]string{"a": "name"}, Ignore: []string{"a"}},
			fullSchema(),
			`"a" is both mapped and ignored`,
		},
		{"a column mapped to the store's own field", "a\ny\n", transfer.ImportOptions{CSV: true, Map: map[string]string{"a": "~prk"}}, fullSchema(), `"a" cannot become "~prk"`},
		{"Extra with a type that is not open", "uid,shoes\n1,44\n", transfer.ImportOptions{CSV: true, Extra: true}, fullSchema(), `"shoes": type "user" has no such field`},
		{"an open type without Extra", "uid,shoes\n1,44\n", transfer.ImportOptions{CSV: true}, open, `"shoes": type "user" has no such field`},
		{"an open type with Extra", "uid,email,shoes\n1,a@x.org,44\n", transfer.ImportOptions{CSV: true, Extra: true}, open, `{"type":"user","facets":{"email":"a@x.org","shoes":"44","uid":"1"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.Under(t, tt.schema)
				s.stopClock(t)
				_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(tt.in), tt.o)
				got := strings.TrimSpace(s.export(t, transfer.ExportOptions{}))
				if err != nil {
					got += err.Error()
				}
				if !strings.Contains(got, tt.want) || err == nil && got != tt.want {
					t.Errorf("got %s\nwant %s", got, tt.want)
				}
			})
		})
	}
}

// TestImportDuplicateNames checks that a line with two values for one name is refused.
func TestImportDuplicateNames(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		for _, tt := range []struct {
			in      string
			mapping map[string]string
		}{
			{`{"facets":{"uid":"1","mail":"a@x.org","email":"b@x.org"}}`, map[string]string{"mail": "email"}},
			{`{"facets":{"id":"1","uid":"2"}}`, map[string]string{"id": "uid"}},
			{`{"password":"$2y$04$abcdefghijklmnopqrstuu5wRN6Ky2YOSZ/yXjJ6Bd1gbXIk1xWDW","facets":{"uid":"1","hash":"x"}}`, map[string]string{"hash": "password"}},
			{`{"facets":{"uid":"1","email":"a@x.org"},"wire":{"email":"YkB4Lm9yZw=="}}`, nil},
			{`{"tertiary":{"tags":{"kind":"set","value":["a"]},"groups":{"kind":"set","value":["b"]}}}`, map[string]string{"groups": "tags"}},
			{`{"uid":"1","facets":{"uid":"2"}}`, map[string]string{"uid": "uid"}},
		} {
			var reason string
			o := transfer.ImportOptions{Map: tt.mapping, Refused: func(_ int64, why string) { reason = why }}
			report, err := transfer.Import(s.Ctx, s.DB, io.MultiReader(strings.NewReader(tt.in)), o)
			if err != nil || report.Refused != 1 || !strings.HasPrefix(reason, "two values for") {
				t.Errorf("%s: got %+v, the reason %q and error %v; want one line refused for two values", tt.in, report, reason, err)
			}
		}
	})
}

// TestImportHalfSurrogates checks that strings with half a surrogate pair are refused, so that
// different strings never become the same identifier.
func TestImportHalfSurrogates(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		for in, want := range map[string]string{
			`{"facets":{"uid":"c\ud800"}}`:        "half a surrogate pair",
			`{"facets":{"uid":"c\udbff\\udc00"}}`: "half a surrogate pair",
			`{"facets":{"uid":"\udc00x"}}`:        "half a surrogate pair",
			`{"facets":{"name\ud800":"x"}}`:       "half a surrogate pair",
			`{"facets":{"uid":null}}`:             "it is empty",
			`{"facets":{"uid":"c\\ud800"}}`:       "",
			`{"facets":{"uid":"d\ud83d\ude00"}}`:  "",
		} {
			reason := ""
			o := transfer.ImportOptions{Refused: func(_ int64, why string) { reason = why }, DryRun: true}
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o)
			if err != nil || (report.Refused == 1) != (want != "") || !strings.Contains(reason, want) {
				t.Errorf("%s: got %+v, the reason %q and error %v; want the reason %q", in, report, reason, err, want)
			}
		}
	})
}

// TestImportMapsKeys checks that the keys of a line that are not among its facets can be mapped and
// ignored.
func TestImportMapsKeys(t *testing.T) {
	const in = `{"type":"firm","password":"$2y$04$x","facets":{"uid":"1"},"locked":true,"secret":"correct horse battery"}`
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		o := transfer.ImportOptions{
			Map:    map[string]string{"locked": "~disabled", "secret": "clear_password"},
			Ignore: []string{"type", "password"},
		}
		for _, r := range []io.Reader{strings.NewReader(in), io.MultiReader(strings.NewReader(in))} {
			report, err := transfer.Import(s.Ctx, s.DB, r, transfer.ImportOptions{Map: o.Map, Ignore: o.Ignore, DryRun: true})
			if err != nil || counts(report) != created(1) {
				t.Errorf("dry run: got %+v, %v; want one entry created", report, err)
			}
		}
		s.importText(t, in, o, created(1))
		if err := s.Type(t, "user").Enable(s.Ctx, hints.UID("1")); err != nil {
			t.Error(err)
		}
		if _, err := s.Type(t, "user").ChangePassword(s.Ctx, hints.UID("1"), "correct horse battery", "staple battery horse", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
		o.Map = map[string]string{"nosuch": "email"}
		o.Ignore = []string{"type", "password", "locked", "secret"}
		o.OnDuplicate = transfer.DuplicateSkip
		_, err := transfer.Import(s.Ctx, s.DB, io.MultiReader(strings.NewReader(in)), o)
		if !errors.Is(err, transfer.ErrInput) || !strings.Contains(err.Error(), `it has nothing called "nosuch"`) {
			t.Errorf("a map of an unknown column, read once: got %v, want ErrInput", err)
		}
	})
}

// TestImportResumeOptions checks that an import resumes only with the same options and in the same
// store.
func TestImportResumeOptions(t *testing.T) {
	const in = "uid,mail\n1,a@x.org\n2,b@x.org\n"
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		original := transfer.ImportOptions{CSV: true, Map: map[string]string{"mail": "email"}}
		o := original
		var state transfer.ImportState
		o.Save = func(now transfer.ImportState) error { state = now; return nil }
		s.importText(t, in, o, created(2))
		for name, change := range map[string]func(*transfer.ImportOptions){
			"type":    func(o *transfer.ImportOptions) { o.Type = "firm" },
			"form":    func(o *transfer.ImportOptions) { o.CSV = false },
			"product": func(o *transfer.ImportOptions) { o.CSV, o.From = false, "django" },
			"mapping": func(o *transfer.ImportOptions) { o.Map = map[string]string{"mail": "name"} },
			"ignored": func(o *transfer.ImportOptions) { o.Map, o.Ignore = nil, []string{"mail"} },
		} {
			o := original
			o.Resume = state
			change(&o)
			if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o); !errors.Is(err, transfer.ErrInput) || !strings.Contains(err.Error(), "was started") {
				t.Errorf("another %s: got %v, want ErrInput", name, err)
			}
		}
		o = original
		o.Resume = state
		s.importText(t, in, o, created(2))
		s.Do(t, "DEL", "~/secret") // simulates another store
		if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o); !errors.Is(err, transfer.ErrInput) || !strings.Contains(err.Error(), "started in another store") {
			t.Errorf("another store: got %v, want ErrInput", err)
		}
	})
}
