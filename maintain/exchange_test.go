package maintain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// full is a schema with one of everything.
func full() schema.Schema {
	s := house()
	user := s.Types["user"]
	user.Fields["score"] = schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}
	for name, kind := range map[string]string{"ranks": "zset", "settings": "hash", "bio": "string", "friends": "set"} {
		user.Tertiary[name] = schema.Tertiary{Kind: kind}
	}
	user.Password = &schema.Password{}
	return s
}

// export returns the lines of an export, sorted.
func (s *site) export(t tester, o maintain.ExportOptions) string {
	t.Helper()
	var b bytes.Buffer
	o.Unreadable = func(err error) { t.Errorf("export: %v", err) }
	if _, err := maintain.Export(s.ctx, s.db, &b, o); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// bring imports an input, and wants a report.
func (s *site) bring(t tester, in string, o maintain.ImportOptions, want maintain.Report) {
	t.Helper()
	if o.Refused == nil && want.Refused == 0 {
		o.Refused = func(line int64, reason string) { t.Errorf("line %d: %s", line, reason) }
	}
	got, err := maintain.Import(s.ctx, s.db, strings.NewReader(in), o)
	if err != nil || got != want {
		t.Errorf("import: %+v, %v; want %+v", got, err, want)
	}
}

func created(n int64) maintain.Report { return maintain.Report{Read: n, Created: n} }

// other is another namespace of the same store.
func (s *site) other(t *testing.T, name string) *site {
	t.Helper()
	ns := must(s.ns.Sub(name))
	db, err := s.db.In(ns)
	if err != nil {
		t.Fatal(err)
	}
	return &site{ctx: s.ctx, raw: s.raw, ns: ns, db: db}
}

// crowd makes entries with one of everything.
func (s *site) crowd(t *testing.T, n int) {
	t.Helper()
	typ := s.typ(t, "user")
	for i := range n {
		s.user(t, i)
		h := hints.UID(fmt.Sprintf("u%d", i))
		_, err := typ.Update(s.ctx, h, func(e *userdb.Entry) error {
			e.Put("score", schema.Number(float64(i)))
			e.Put("motto", schema.Text("a \"line\"\n<&>\x00 \u2028"))
			return nil
		})
		for _, step := range []error{
			err, typ.SortedSet(h, "ranks").Put(s.ctx, 1.5, "x"), typ.Hash(h, "settings").Put(s.ctx, "color", "red"),
			typ.String(h, "bio").Put(s.ctx, "b\xffyte"),
		} {
			if step != nil {
				t.Fatal(step)
			}
		}
	}
	if n > 1 {
		if err := typ.Disable(s.ctx, hints.UID("u1")); err != nil {
			t.Fatal(err)
		}
	}
}

// What was exported and imported is exported as it was, and login works there.
func TestRoundTrip(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.under(t, full())
		s.crowd(t, 25)
		for _, secrets := range []bool{false, true} {
			want := s.export(t, maintain.ExportOptions{Secrets: secrets})
			if got := strings.Contains(want, "$2a$"); got != secrets {
				t.Errorf("hashes in the export: %v, want %v", got, secrets)
			}
			to := s.other(t, fmt.Sprint("secrets ", secrets))
			to.bring(t, want, maintain.ImportOptions{}, created(25))
			to.bring(t, want, maintain.ImportOptions{OnDuplicate: maintain.DuplicateUpdate}, maintain.Report{Read: 25, Updated: 25})
			if got := to.export(t, maintain.ExportOptions{Secrets: secrets}); got != want {
				t.Errorf("after the import:\n%s\nwant\n%s", got, want)
			}
			same(t, "check", to.check(t, maintain.CheckOptions{}), nil)
		}
		to := s.other(t, "secrets true")
		if _, err := to.typ(t, "user").Login(s.ctx, "u3@x.org", "correct horse u3", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
		if _, err := to.typ(t, "user").Login(s.ctx, "u1@x.org", "correct horse u1", userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
			t.Errorf("login of a disabled entry: %v", err)
		}
		only := s.export(t, maintain.ExportOptions{Only: hints.Any("u7@x.org"), Type: "user"})
		if strings.Count(only, "\n") != 1 || !strings.Contains(only, `"uid":"u7"`) || !strings.Contains(only, `"tertiary":{`) {
			t.Errorf("one entry: %s", only)
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
		first, second maintain.Report
		ann           string
		reasons       string
	}{
		{maintain.DuplicateFail, maintain.Report{Read: 4, Created: 3, Refused: 1}, maintain.Report{Read: 4, Refused: 4}, "old@x.org", "2 taken: name|1 taken: uid|2 taken: name|3 taken: email|4 taken: uid"},
		{maintain.DuplicateSkip, maintain.Report{Read: 4, Created: 3, Skipped: 1}, maintain.Report{Read: 4, Skipped: 4}, "old@x.org", ""},
		{maintain.DuplicateUpdate, maintain.Report{Read: 4, Created: 3, Refused: 1}, maintain.Report{Read: 4, Updated: 1, Skipped: 2, Refused: 1}, "ann@x.org", "2 taken: name|2 taken: name"},
	} {
		t.Run(tt.on, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.under(t, full())
				var reasons []string
				o := maintain.ImportOptions{OnDuplicate: tt.on, Refused: func(line int64, reason string) { reasons = append(reasons, fmt.Sprint(line, " ", reason)) }}
				s.bring(t, in, o, tt.first)
				typ := s.typ(t, "user")
				if _, err := typ.Update(s.ctx, hints.UID("a"), func(e *userdb.Entry) error { e.Put("email", schema.Text("old@x.org")); return nil }); err != nil {
					t.Fatal(err)
				}
				if _, err := typ.Tags(hints.UID("a")).Add(s.ctx, "old"); err != nil {
					t.Fatal(err)
				}
				s.bring(t, in, o, tt.second)
				e, err := typ.Find(s.ctx, hints.UID("a"))
				if err != nil || e.Text("email") != tt.ann {
					t.Errorf("ann has %s, %v; want %s", e.Text("email"), err, tt.ann)
				}
				tags, _ := typ.Tags(hints.UID("a")).Members(s.ctx)
				if want := map[bool]string{true: "new", false: "new old"}[tt.on == maintain.DuplicateUpdate]; strings.Join(tags, " ") != want {
					t.Errorf("tags %q, want %q", tags, want)
				}
				if got := strings.Join(reasons, "|"); got != tt.reasons {
					t.Errorf("reasons %q, want %q", got, tt.reasons)
				}
				same(t, "check", s.check(t, maintain.CheckOptions{}), []string{"field_missing user/uid:d"})
			})
		})
	}
}

// Lines that say nothing, or what may not be, are refused with the reason, the others go in; the rejects
// can be imported when they are mended.
func TestImportRejects(t *testing.T) {
	const in = `{"facets":{"name":"good","email":"g@x.org"},"clear_password":"correct horse"}

not json
{"facets":{"name":"bad@name"}}
{"facets":{"name":"x"},"password":"plain"}
{"facets":{"name":"y"},"unknown":1}
{"type":"robot","facets":{}}
{"facets":{"name":"z","age":"old"}}
{"facets":{"name":"w"},"tertiary":{"tags":{"kind":"list","value":["a"]}}}
{"facets":{"name":"v"},"tertiary":{"tags":{"kind":"set","value":{}}}}
{"facets":{"uid":""}}
{"facets":{"name":"u"}} {}
{"facets":{"name":"t"},"disabled":"yes"}`
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.under(t, full())
		var rejects bytes.Buffer
		s.bring(t, in, maintain.ImportOptions{Rejects: &rejects}, maintain.Report{Read: 12, Created: 1, Refused: 11})
		golden(t, "testdata/rejects.golden", rejects.String())
		if _, err := s.typ(t, "user").Login(s.ctx, "good", "correct horse", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
		mended := strings.ReplaceAll(rejects.String(), `"bad@name"`, `"better name"`)
		var again bytes.Buffer
		s.bring(t, mended, maintain.ImportOptions{Rejects: &again}, maintain.Report{Read: 11, Created: 1, Refused: 10})
		if n := strings.Count(again.String(), "~rejected"); n != 10 {
			t.Errorf("%d reasons in\n%s", n, again.String())
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
		s = s.under(t, full())
		var rejects bytes.Buffer
		s.bring(t, in, maintain.ImportOptions{CSV: true, Rejects: &rejects}, maintain.Report{Read: 6, Created: 3, Refused: 3})
		golden(t, "testdata/rejects_csv.golden", rejects.String())
		typ := s.typ(t, "user")
		if _, err := typ.Login(s.ctx, `Ann, "the" first`, "correct horse", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
		tags, err := typ.Tags(hints.Any("ben")).Members(s.ctx)
		if err != nil || !slices.Equal(tags, []string{"two words"}) {
			t.Errorf("tags %q, %v", tags, err)
		}
		mended := strings.ReplaceAll(rejects.String(), "old", "44")
		s.bring(t, mended, maintain.ImportOptions{CSV: true, Refused: func(int64, string) {}}, maintain.Report{Read: 3, Created: 1, Refused: 2})
	})
}

func TestImportDryRun(t *testing.T) {
	endless := strings.Repeat("endless ", 10)
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.under(t, full())
		s.user(t, 1)
		before := s.export(t, maintain.ExportOptions{Secrets: true})
		const in = `{"facets":{"uid":"u1"}}
{"facets":{"name":"NAME OF U1"}}
{"facets":{"uid":"x","name":"new"}}
{"facets":{"uid":"y","email":"new@x.org","name":"New"}}
`
		clear := `{"facets":{"name":"open"},"clear_password":"correct horse"}
{"facets":{"name":"brief"},"clear_password":"brief"}
{"facets":{"name":"endless"},"clear_password":"` + endless + `"}
`
		s.bring(t, clear, maintain.ImportOptions{DryRun: true, Refused: func(int64, string) {}}, maintain.Report{Read: 3, Created: 1, Refused: 2})
		s.bring(t, in, maintain.ImportOptions{DryRun: true, Refused: func(int64, string) {}}, maintain.Report{Read: 4, Created: 1, Refused: 3})
		s.bring(t, in, maintain.ImportOptions{DryRun: true, OnDuplicate: "skip"}, maintain.Report{Read: 4, Created: 1, Skipped: 3})
		if got := s.export(t, maintain.ExportOptions{Secrets: true}); got != before {
			t.Errorf("a dry run wrote: %s", got)
		}
	})
}

// An import that is cut off anywhere goes on where it was, and imports nothing twice: also without UIDs
// and identifiers, and when what was done last was not noted.
func TestImportResume(t *testing.T) {
	var in strings.Builder
	const n = 2500
	for i := range n {
		fmt.Fprintf(&in, `{"facets":{"motto":"number %d"}}`+"\n", i)
	}
	errCut := errors.New("cut off")
	for _, forget := range []bool{false, true} {
		eachEngine(t, func(t *testing.T, s *site) {
			s = s.under(t, full())
			var state, noted maintain.ImportState
			cut := maintain.ImportOptions{Save: func(st maintain.ImportState) error {
				noted = state
				if state = st; st.Lines >= 2000 {
					return errCut
				}
				return nil
			}}
			if _, err := maintain.Import(s.ctx, s.db, strings.NewReader(in.String()), cut); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			if forget {
				state = noted
			}
			other := maintain.ImportOptions{Resume: state}
			if _, err := maintain.Import(s.ctx, s.db, strings.NewReader(strings.Replace(in.String(), "number 7", "number 8", 1)), other); !errors.Is(err, maintain.ErrInput) {
				t.Errorf("another input: %v", err)
			}
			s.bring(t, in.String(), maintain.ImportOptions{Resume: state}, created(n))
			if got, err := s.typ(t, "user").Count(s.ctx); got != n || err != nil {
				t.Errorf("%d entries, %v; want %d", got, err, n)
			}
		})
	}
}

// An import that somebody interrupts finishes what it has begun, and says how far it came.
func TestImportInterrupted(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.under(t, full())
		ctx, cancel := context.WithCancel(s.ctx)
		in := strings.Repeat(`{"facets":{"motto":"x"}}`+"\n", 5000)
		report, err := maintain.Import(ctx, s.db, strings.NewReader(in), maintain.ImportOptions{Save: func(maintain.ImportState) error { cancel(); return nil }})
		got, cerr := s.typ(t, "user").Count(s.ctx)
		if !errors.Is(err, context.Canceled) || cerr != nil || got != report.Created || got == 0 || got == 5000 {
			t.Errorf("%d entries, %+v, %v, %v", got, report, err, cerr)
		}
	})
}

// What is left of an entry that is no more does not come into one that is imported.
func TestImportOverLeftovers(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.under(t, full())
		s.do(t, "RPUSH", "user/uid:x/notes", "left")
		s.bring(t, `{"facets":{"uid":"x"},"tertiary":{"notes":{"kind":"list","value":["new"]}}}`, maintain.ImportOptions{}, created(1))
		notes, err := s.typ(t, "user").List(hints.UID("x"), "notes").Items(s.ctx, 0, -1)
		if err != nil || !slices.Equal(notes, []string{"new"}) {
			t.Errorf("notes %q, %v", notes, err)
		}
	})
}

// What somebody else stored and no input may say, a JSON value with a member twice, goes through an export as it is.
func TestRoundTripOfRepeatedMembers(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.under(t, full())
		s.user(t, 1)
		s.do(t, "HSET", "user/uid:u1", "rating", `{"a":1,"a":2}`)
		want := s.export(t, maintain.ExportOptions{})
		if !strings.Contains(want, `"wire":{"rating":"eyJhIjoxLCJhIjoyfQ=="}`) {
			t.Errorf("export: %s", want)
		}
		to := s.other(t, "copy")
		to.bring(t, want, maintain.ImportOptions{}, created(1))
		if got := to.export(t, maintain.ExportOptions{}); got != want {
			t.Errorf("after the import:\n%s\nwant\n%s", got, want)
		}
		to.bring(t, `{"facets":{"uid":"u2","rating":{"a":1,"a":2}}}`, maintain.ImportOptions{Refused: func(int64, string) {}}, maintain.Report{Read: 1, Refused: 1})
	})
}
