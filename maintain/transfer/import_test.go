package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// A site is a store under test, with helpers.
type site struct{ *testdb.Site }

func newSite(s *testdb.Site) *site { return &site{s} }

var eachEngine = testdb.Each(testdb.EachEngine, newSite)

// Under returns the same store with another schema.
func (s *site) Under(t *testing.T, sch schema.Schema) *site { return newSite(s.Site.Under(t, sch)) }

// fullSchema returns a schema with a field of every role and a tertiary record of every kind.
func fullSchema() schema.Schema {
	s := testdb.DefaultSchema()
	user := s.Types["user"]
	user.Fields["score"] = schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}
	for name, kind := range map[string]string{"ranks": "zset", "settings": "hash", "bio": "string", "friends": "set"} {
		user.Tertiary[name] = schema.Tertiary{Kind: kind}
	}
	user.Password = &schema.Password{}
	return s
}

// export returns the lines of an export, sorted.
func (s *site) export(t testdb.Tester, o transfer.ExportOptions) string {
	t.Helper()
	var b bytes.Buffer
	o.Unreadable = func(err error) { t.Errorf("export: %v", err) }
	if _, err := transfer.Export(s.Ctx, s.DB, &b, o); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// A measuringEngine records the largest number of bytes of tertiary records that one call of Read
// returned.
type measuringEngine struct {
	store.Engine
	most int
}

func (e *measuringEngine) Read(ctx context.Context, reads []store.EntryRead) ([]store.Entry, error) {
	entries, err := e.Engine.Read(ctx, reads)
	size := 0
	for _, entry := range entries {
		for _, part := range entry.Parts {
			for _, v := range part.Values {
				size += len(v)
			}
		}
	}
	e.most = max(e.most, size)
	return entries, err
}

// TestExportOfLargeEntries checks that an export does not hold many large entries at a time.
func TestExportOfLargeEntries(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		const entries, items = 12, 20
		typ, item := s.Type(t, "user"), strings.Repeat("x", 60<<10)
		for i := range entries {
			uid := fmt.Sprint("large", i)
			if _, err := typ.Create(s.Ctx, userdb.NewEntry{UID: uid}); err != nil {
				t.Fatal(err)
			}
			if _, err := typ.List(hints.UID(uid), "notes").Append(s.Ctx, slices.Repeat([]string{item}, items)...); err != nil {
				t.Fatal(err)
			}
		}
		e := &measuringEngine{}
		s.Edit(t, func(c *view.Config) { e.Engine, c.Engine = c.Engine, e })
		if n := strings.Count(s.export(t, transfer.ExportOptions{}), "\n"); n != entries {
			t.Errorf("%d entries were exported, want %d", n, entries)
		}
		if e.most < items*len(item) || e.most > 8<<20 {
			t.Errorf("the export read %d bytes at once, want at least the %d of one entry and at most 8 MiB", e.most, items*len(item))
		}
	})
}

// counts returns a report with only its fields Read, Created, Updated, Skipped and Refused.
func counts(r transfer.Report) transfer.Report {
	return transfer.Report{Read: r.Read, Created: r.Created, Updated: r.Updated, Skipped: r.Skipped, Refused: r.Refused}
}

// importText imports a text and checks the report. If want sets no other fields than counts keeps,
// importText compares only those.
func (s *site) importText(t testdb.Tester, in string, o transfer.ImportOptions, want transfer.Report) {
	t.Helper()
	if o.Refused == nil && want.Refused == 0 {
		o.Refused = func(line int64, reason string) { t.Errorf("line %d: %s", line, reason) }
	}
	got, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), o)
	if want == counts(want) {
		got = counts(got)
	}
	if err != nil || got != want {
		t.Errorf("import: got %+v, %v; want %+v", got, err, want)
	}
}

func created(n int64) transfer.Report { return transfer.Report{Read: n, Created: n} }

// subNamespace returns another namespace of the same store.
func (s *site) subNamespace(t *testing.T, name string) *site {
	t.Helper()
	ns := testdb.Must(s.NS.Sub(name))
	db, err := s.DB.In(ns)
	if err != nil {
		t.Fatal(err)
	}
	return newSite(&testdb.Site{Ctx: s.Ctx, Raw: s.Raw, NS: ns, DB: db})
}

// populate creates n entries, each with tertiary records of several kinds. It disables the second
// one.
func (s *site) populate(t *testing.T, n int) {
	t.Helper()
	typ := s.Type(t, "user")
	for i := range n {
		s.User(t, i)
		h := hints.UID(fmt.Sprintf("u%d", i))
		_, err := typ.Update(s.Ctx, h, func(e *userdb.Entry) error {
			e.Put("score", schema.Number(float64(i)))
			e.Put("motto", schema.Text("a \"line\"\n<&>\x00 \u2028"))
			return nil
		})
		for _, step := range []error{
			err, typ.SortedSet(h, "ranks").Put(s.Ctx, 1.5, "x"), typ.Hash(h, "settings").Put(s.Ctx, "color", "red"),
			typ.String(h, "bio").Put(s.Ctx, "b\xffyte"),
		} {
			if step != nil {
				t.Fatal(step)
			}
		}
	}
	if n > 1 {
		if err := typ.Disable(s.Ctx, hints.UID("u1")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRoundTrip checks that an export of imported entries equals the export that was imported, and
// that their passwords work if it has secrets.
func TestRoundTrip(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.populate(t, 25)
		for _, secrets := range []bool{false, true} {
			want := s.export(t, transfer.ExportOptions{Secrets: secrets})
			if got := strings.Contains(want, "$2a$"); got != secrets {
				t.Errorf("hashes in the export: got %v, want %v", got, secrets)
			}
			to := s.subNamespace(t, fmt.Sprint("secrets ", secrets))
			to.importText(t, want, transfer.ImportOptions{}, created(25))
			to.importText(t, want, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}, transfer.Report{Read: 25, Updated: 25})
			if got := to.export(t, transfer.ExportOptions{Secrets: secrets}); got != want {
				t.Errorf("after the import:\n%s\nwant\n%s", got, want)
			}
			testdb.Same(t, "check", to.Check(t, check.Options{}), nil)
		}
		to := s.subNamespace(t, "secrets true")
		if _, err := to.Type(t, "user").Login(s.Ctx, "u3@x.org", "correct horse u3", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
		if _, err := to.Type(t, "user").Login(s.Ctx, "u1@x.org", "correct horse u1", userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
			t.Errorf("login of a disabled entry: got %v, want ErrLogin", err)
		}
		only := s.export(t, transfer.ExportOptions{Only: hints.Any("u7@x.org"), Type: "user"})
		if strings.Count(only, "\n") != 1 || !strings.Contains(only, `"uid":"u7"`) || !strings.Contains(only, `"tertiary":{`) {
			t.Errorf("export of one entry: got %s, want u7 with its tertiary records", only)
		}
	})
}

func TestImportDuplicates(t *testing.T) {
	const in = `{"type":"user","facets":{"uid":"a","name":"Ann","email":"ann@x.org"},"tertiary":{"tags":{"kind":"set","value":["new"]}}}
{"facets":{"uid":"b","name":"ANN"}}
{"facets":{"name":"cid","email":"cid@x.org","job":"Cook"}}
{"facets":{"uid":"d","name":"dan"}}
`
	for _, tt := range []struct {
		on            string
		first, second transfer.Report
		email         string // of the entry a, after the second import
		reasons       string
	}{
		{transfer.DuplicateFail, transfer.Report{Read: 4, Created: 3, Refused: 1}, transfer.Report{Read: 4, Refused: 4}, "old@x.org", "2 taken: name|1 taken: uid|2 taken: name|3 taken: email|4 taken: uid"},
		{transfer.DuplicateSkip, transfer.Report{Read: 4, Created: 3, Refused: 1}, transfer.Report{Read: 4, Skipped: 3, Refused: 1}, "old@x.org", "2 taken: name|2 taken: name"},
		{transfer.DuplicateUpdate, transfer.Report{Read: 4, Created: 3, Refused: 1}, transfer.Report{Read: 4, Updated: 1, Skipped: 2, Refused: 1}, "ann@x.org", "2 taken: name|2 taken: name"},
	} {
		t.Run(tt.on, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.Under(t, fullSchema())
				var reasons []string
				o := transfer.ImportOptions{OnDuplicate: tt.on, Refused: func(line int64, reason string) { reasons = append(reasons, fmt.Sprint(line, " ", reason)) }}
				s.importText(t, in, o, tt.first)
				typ := s.Type(t, "user")
				if _, err := typ.Update(s.Ctx, hints.UID("a"), func(e *userdb.Entry) error { e.Put("email", schema.Text("old@x.org")); return nil }); err != nil {
					t.Fatal(err)
				}
				if _, err := typ.Tags(hints.UID("a")).Add(s.Ctx, "old"); err != nil {
					t.Fatal(err)
				}
				s.importText(t, in, o, tt.second)
				e, err := typ.Find(s.Ctx, hints.UID("a"))
				if err != nil || e.Text("email") != tt.email {
					t.Errorf("the email of a is %s, %v; want %s", e.Text("email"), err, tt.email)
				}
				tags, _ := typ.Tags(hints.UID("a")).Members(s.Ctx)
				if want := map[bool]string{true: "new", false: "new old"}[tt.on == transfer.DuplicateUpdate]; strings.Join(tags, " ") != want {
					t.Errorf("got the tags %q, want %q", tags, want)
				}
				if got := strings.Join(reasons, "|"); got != tt.reasons {
					t.Errorf("got the reasons %q, want %q", got, tt.reasons)
				}
				testdb.Same(t, "check", s.Check(t, check.Options{}), []string{"field_missing user/uid:d"})
			})
		})
	}
}

// TestImportRejects checks that invalid lines are refused with a reason while the other ones are
// imported, and that corrected rejects can be imported.
func TestImportRejects(t *testing.T) {
	const in = `{"facets":{"name":"good","email":"g@x.org"},"clear_password":"correct horse"}

not json
{"facets":{"name":"bad@name"}}
{"facets":{"name":"x"},"password":"plain"}
{"type":"robot","facets":{}}
{"facets":{"name":"z","age":"old"}}
{"facets":{"name":"w"},"tertiary":{"tags":{"kind":"list","value":["a"]}}}
{"facets":{"name":"v"},"tertiary":{"tags":{"kind":"set","value":{}}}}
{"facets":{"uid":""}}
{"facets":{"name":"u"}} {}
{"facets":{"name":"t"},"disabled":"maybe"}`
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		var rejects bytes.Buffer
		s.importText(t, in, transfer.ImportOptions{Rejects: &rejects}, transfer.Report{Read: 11, Created: 1, Refused: 10})
		testdb.Golden(t, "testdata/rejects.golden", rejects.String())
		if _, err := s.Type(t, "user").Login(s.Ctx, "good", "correct horse", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
		corrected := strings.ReplaceAll(rejects.String(), `"bad@name"`, `"better name"`)
		var again bytes.Buffer
		s.importText(t, corrected, transfer.ImportOptions{Rejects: &again}, transfer.Report{Read: 10, Created: 1, Refused: 9})
		if n := strings.Count(again.String(), "~rejected"); n != 9 {
			t.Errorf("got %d reasons, want 9, in\n%s", n, again.String())
		}
	})
}

// TestImportTooManyMembers checks that lines whose records have more members than the schema allows
// are refused, and reported with the right line numbers.
func TestImportTooManyMembers(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		sch := fullSchema()
		for _, name := range []string{"tags", "notes", "settings", "ranks"} {
			r := sch.Types["user"].Tertiary[name]
			r.Max = 2
			sch.Types["user"].Tertiary[name] = r
		}
		var refused []string
		o := transfer.ImportOptions{Refused: func(line int64, reason string) { refused = append(refused, fmt.Sprint(line, " ", reason)) }}
		lines := []string{
			`{"type":"user","facets":{"uid":"a"},"tertiary":{"tags":{"kind":"set","value":["x","y","x"]}}}`,
			`{"type":"user","facets":{"uid":"b"},"tertiary":{"tags":{"kind":"set","value":["x","y","z"]}}}`,
			`{"type":"user","facets":{"uid":"c"},"tertiary":{"notes":{"kind":"list","value":["x","x","x"]}}}`,
			`{"type":"user","facets":{"uid":"d"},"tertiary":{"settings":{"kind":"hash","value":{"x":"1","y":"2","z":"3"}}}}`,
			`{"type":"user","facets":{"uid":"e"},"tertiary":{"ranks":{"kind":"zset","value":[["x",1],["y",2],["z",3]]}}}`,
		}
		s.Under(t, sch).importText(t, strings.Join(lines, "\n"), o, transfer.Report{Read: 5, Created: 1, Refused: 4})
		slices.Sort(refused)
		for i, name := range []string{"tags", "notes", "settings", "ranks"} {
			if i >= len(refused) || !strings.HasPrefix(refused[i], fmt.Sprint(i+2)) || !strings.Contains(refused[i], name) || !strings.Contains(refused[i], "over 2 members") {
				t.Errorf("refused: got %q, want line %d for %s", refused, i+2, name)
			}
		}
	})
}

func TestImportCSV(t *testing.T) {
	const in = "\ufeffuid,name,email,age,tags,clear_password,~isa,settings\r\n" +
		"1,\"Ann, \"\"the\"\" first\",ann@x.org,41,go c++,correct horse,,\"{\"\"a\"\":\"\"b\"\"}\"\r\n" +
		",Ben,,,\"[\"\"two words\"\"]\",,user,\r\n" +
		"3,Cid,,old,,,,\n" +
		"4,Dan\n" +
		"5,\"x\"y,,,,,,\n" +
		"6,Eve,,,,,,\n"
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		var rejects bytes.Buffer
		s.importText(t, in, transfer.ImportOptions{CSV: true, Rejects: &rejects}, transfer.Report{Read: 6, Created: 3, Refused: 3})
		testdb.Golden(t, "testdata/rejects_csv.golden", rejects.String())
		typ := s.Type(t, "user")
		if _, err := typ.Login(s.Ctx, `Ann, "the" first`, "correct horse", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
		tags, err := typ.Tags(hints.Any("ben")).Members(s.Ctx)
		if err != nil || !slices.Equal(tags, []string{"two words"}) {
			t.Errorf("ben has the tags %q, %v; want only two words", tags, err)
		}
		corrected := strings.ReplaceAll(rejects.String(), "old", "44")
		s.importText(t, corrected, transfer.ImportOptions{CSV: true, Refused: func(int64, string) {}}, transfer.Report{Read: 3, Created: 1, Refused: 2})
	})
}

func TestImportDryRun(t *testing.T) {
	endless := strings.Repeat("endless ", 10)
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.User(t, 1)
		before := s.export(t, transfer.ExportOptions{Secrets: true})
		const in = `{"facets":{"uid":"u1"}}
{"facets":{"name":"NAME OF U1"}}
{"facets":{"uid":"x","name":"new"}}
{"facets":{"uid":"y","email":"new@x.org","name":"New"}}
`
		clear := `{"facets":{"name":"open"},"clear_password":"correct horse"}
{"facets":{"name":"brief"},"clear_password":"brief"}
{"facets":{"name":"endless"},"clear_password":"` + endless + `"}
`
		s.importText(t, clear, transfer.ImportOptions{DryRun: true, Refused: func(int64, string) {}}, transfer.Report{Read: 3, Created: 1, Refused: 2})
		s.importText(t, in, transfer.ImportOptions{DryRun: true, Refused: func(int64, string) {}}, transfer.Report{Read: 4, Created: 1, Refused: 3})
		s.importText(t, in, transfer.ImportOptions{DryRun: true, OnDuplicate: "skip", Refused: func(int64, string) {}}, transfer.Report{Read: 4, Created: 1, Skipped: 2, Refused: 1})
		if got := s.export(t, transfer.ExportOptions{Secrets: true}); got != before {
			t.Errorf("a dry run wrote: %s", got)
		}
	})
}

// TestImportResume interrupts an import and resumes it. No entry may be imported twice, even
// without UIDs and identifiers, or if the last state was not saved.
func TestImportResume(t *testing.T) {
	var in strings.Builder
	const n = 2500
	for i := range n {
		fmt.Fprintf(&in, `{"facets":{"motto":"number %d"}}`+"\n", i)
	}
	errCut := errors.New("cut off")
	for _, forget := range []bool{false, true} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.Under(t, fullSchema())
			var state, previous transfer.ImportState
			cut := transfer.ImportOptions{Save: func(st transfer.ImportState) error {
				previous = state
				if state = st; st.Lines >= 2000 {
					return errCut
				}
				return nil
			}}
			if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in.String()), cut); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			if forget {
				state = previous
			}
			other := transfer.ImportOptions{Resume: state}
			if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(strings.Replace(in.String(), "number 7", "number 8", 1)), other); !errors.Is(err, transfer.ErrInput) {
				t.Errorf("resuming with another input: got %v, want ErrInput", err)
			}
			s.importText(t, in.String(), transfer.ImportOptions{Resume: state}, created(n))
			if got, err := s.Type(t, "user").Count(s.Ctx, userdb.Query{}); got.Entries != n || err != nil {
				t.Errorf("got %v entries, %v; want %v", got, err, n)
			}
		})
	}
}

// TestImportInterrupted checks that a canceled import finishes the started batch and reports the
// lines that are done.
func TestImportInterrupted(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		ctx, cancel := context.WithCancel(s.Ctx)
		in := strings.Repeat(`{"facets":{"motto":"x"}}`+"\n", 5000)
		report, err := transfer.Import(ctx, s.DB, strings.NewReader(in), transfer.ImportOptions{Save: func(transfer.ImportState) error { cancel(); return nil }})
		got, cerr := s.Type(t, "user").Count(s.Ctx, userdb.Query{})
		if !errors.Is(err, context.Canceled) || cerr != nil || got.Entries != report.Created || got.Entries == 0 || got.Entries == 5000 {
			t.Errorf("got %v entries (%v), report %+v, error %v; want some of the 5000 entries, and context.Canceled", got, cerr, report, err)
		}
	})
}

// TestImportOverLeftovers checks that leftovers of a deleted entry do not become part of an
// imported entry.
func TestImportOverLeftovers(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.Do(t, "RPUSH", "user/uid:x/notes", "left")
		s.importText(t, `{"facets":{"uid":"x"},"tertiary":{"notes":{"kind":"list","value":["new"]}}}`, transfer.ImportOptions{}, created(1))
		notes, err := s.Type(t, "user").List(hints.UID("x"), "notes").Items(s.Ctx, 0, -1)
		if err != nil || !slices.Equal(notes, []string{"new"}) {
			t.Errorf("the notes are %q, %v; want only new", notes, err)
		}
	})
}

// TestRoundTripOfRepeatedMembers checks that an export and its import preserve a JSON value with a
// duplicate member, which another program stored. An import refuses such a value among the facets.
func TestRoundTripOfRepeatedMembers(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		s.User(t, 1)
		s.Do(t, "HSET", "user/uid:u1", "rating", `{"a":1,"a":2}`)
		want := s.export(t, transfer.ExportOptions{})
		if !strings.Contains(want, `"wire":{"rating":"eyJhIjoxLCJhIjoyfQ=="}`) {
			t.Errorf("exported %s, want the rating in base64 under wire", want)
		}
		to := s.subNamespace(t, "copy")
		to.importText(t, want, transfer.ImportOptions{}, created(1))
		if got := to.export(t, transfer.ExportOptions{}); got != want {
			t.Errorf("after the import:\n%s\nwant\n%s", got, want)
		}
		to.importText(t, `{"facets":{"uid":"u2","rating":{"a":1,"a":2}}}`, transfer.ImportOptions{Refused: func(int64, string) {}}, transfer.Report{Read: 1, Refused: 1})
	})
}
