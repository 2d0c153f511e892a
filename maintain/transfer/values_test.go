package transfer_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// TestValuesRoundTrip checks that an export has all values of a field with several, and that an
// import restores them, for new and for existing entries.
func TestValuesRoundTrip(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		const values = `"values":{"email":["v@x.org",{"value":"V@work.org","verified":"2024-01-02T03:04:05Z","label":"at work"},"v@y.org"]}`
		line := `{"type":"user","facets":{"uid":"v","name":"vera","email":"v@x.org"},` + values + `}` + "\n"
		importLine := func(text string) error {
			t.Helper()
			refused := ""
			o := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate, Refused: func(_ int64, reason string) { refused = reason }}
			_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(text), o)
			if err == nil && refused != "" {
				err = errors.New(refused)
			}
			return err
		}
		requireTexts := func(why string, want ...string) userdb.Entry {
			t.Helper()
			e, err := s.Type(t, "user").Find(s.Ctx, hints.UID("v"))
			if err != nil || !slices.Equal(e.Texts("email"), want) {
				t.Errorf("%s: got %q, %v; want %q", why, e.Texts("email"), err, want)
			}
			return e
		}
		if err := importLine(line); err != nil {
			t.Fatal(err)
		}
		e := requireTexts("imported", "v@x.org", "V@work.org", "v@y.org")
		if e.Verified("email") || !e.VerifiedText("email", "v@work.org") || e.VerifiedText("email", "v@y.org") {
			t.Error("want only v@work.org verified")
		}
		var out bytes.Buffer
		if _, err := transfer.Export(s.Ctx, s.DB, &out, transfer.ExportOptions{}); err != nil || !strings.Contains(out.String(), values) || strings.Contains(out.String(), "~") {
			t.Errorf("exported %s, %v; want %s and no own field", out.String(), err, values)
		}
		before := s.Raw.HGetAll(s.Ctx, s.Key("user/uid:v")).Val()
		if err := importLine(out.String()); err != nil {
			t.Error(err)
		}
		if after := s.Raw.HGetAll(s.Ctx, s.Key("user/uid:v")).Val(); after["~rev"] != before["~rev"] {
			t.Errorf("the export, imported again, changed the entry from %q to %q", before, after)
		}

		if err := importLine(strings.Replace(line, ","+values, "", 1)); err != nil {
			t.Error(err)
		}
		requireTexts("without values", "v@x.org", "V@work.org", "v@y.org")
		if err := importLine(strings.Replace(line, values, `"values":{"email":["v@x.org","v@z.org"]}`, 1)); err != nil {
			t.Error(err)
		}
		requireTexts("other values", "v@x.org", "v@z.org")
		for _, bad := range []string{
			`"values":{"email":["a@x.org","b@x.org"]}`, `"values":{"email":["v@x.org","V@x.org"]}`, `"values":{"email":"v@x.org"}`,
			`"values":{"name":["vera","v"]}`, `"values":{"email":["v@x.org",{"values":"b@x.org"}]}`, `"values":{"email":["v@x.org",{"value":"b@x.org","verified":"soon"}]}`,
			`"values":{"email":["v@x.org",1]}`, `"values":["v@x.org"]`, `"values":{"email":["v@x.org","b@x.org","c@x.org","d@x.org","e@x.org"]}`,
		} {
			if err := importLine(strings.Replace(line, values, bad, 1)); err == nil {
				t.Errorf("%s was accepted", bad)
			}
		}
	})
}

// TestFirstValueRoundTrip checks that an import stores the verification and label of the first
// value, and that an export has them.
func TestFirstValueRoundTrip(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, value := range []string{
			`{"value":"v@x.org","label":"at work"}`, `{"value":"v@x.org","unverified":true}`, `{"value":"v@x.org","label":"at work","unverified":true}`,
		} {
			for _, more := range []string{"", `,"v@y.org"`} {
				line := `{"type":"user","facets":{"email":"v@x.org","uid":"v"},"values":{"email":[` + value + more + `]}}` + "\n"
				if _, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(line), transfer.ImportOptions{}); err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				if _, err := transfer.Export(s.Ctx, s.DB, &out, transfer.ExportOptions{}); err != nil || out.String() != line {
					t.Errorf("exported %s, %v; want %s", out.String(), err, line)
				}
				r := store.Record{Fields: s.Raw.HGetAll(s.Ctx, s.Key("user/uid:v")).Val()}
				if strings.Contains(value, "unverified") != r.FacetUnverified("email") {
					t.Errorf("%s: got the entry %q, want its email unverified only if the value says so", value, r.Fields)
				}
				if err := s.Type(t, "user").Delete(s.Ctx, hints.UID("v")); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
