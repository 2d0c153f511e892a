package transfer_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// spaciousSchema returns the schema of fullSchema with enough further fields for an entry of 1 MiB.
func spaciousSchema() schema.Schema {
	s := fullSchema()
	for i := range 20 {
		s.Types["user"].Fields[fmt.Sprintf("f%02d", i)] = schema.Field{}
	}
	return s
}

// facetsLine returns a line of an import with the given facets.
func facetsLine(facets map[string]string) string {
	text, _ := json.Marshal(map[string]any{"facets": facets})
	return string(text) + "\n"
}

// TestLostValuesCount adds lost values to an entry, line by line and import by import. They must
// count in its size, so that the entry never becomes much larger than 1 MiB.
func TestLostValuesCount(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.importText(t, facetsLine(map[string]string{"uid": "a", "name": "Ann"}), transfer.ImportOptions{}, created(1))
		update := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}
		for half := range 2 {
			var lines strings.Builder
			for i := range 10 {
				lines.WriteString(facetsLine(map[string]string{"uid": "a", fmt.Sprintf("~lost:%d:%d", half, i): strings.Repeat("x", schema.MaxFacet)}))
			}
			report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(lines.String()), update)
			if err != nil || report.Refused != []int64{0, 4}[half] {
				t.Errorf("import %d: got %+v, %v; want %d refused", half, report, err, []int64{0, 4}[half])
			}
		}
		if size := len(s.export(t, transfer.ExportOptions{})); size < validate.MaxEntry || size > validate.MaxEntry+70<<10 {
			t.Errorf("the export of the entry has %d bytes, want %d to %d", size, validate.MaxEntry, validate.MaxEntry+70<<10)
		}
		users, uid := s.Type(t, "user"), hints.UID("a")
		if _, err := users.SetPassword(s.Ctx, uid, "Sommerhaus-2024"); err != nil {
			t.Error(err)
		}
		if err := users.Delete(s.Ctx, uid); err != nil {
			t.Error(err)
		}
	})
}

// TestRoundTripOfLargestEntry exports an entry of 1 MiB with a lost value, tags and other tertiary
// records, and imports it again.
func TestRoundTripOfLargestEntry(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, spaciousSchema())
		facets := map[string]string{"uid": "a", "name": "ann", "email": "a@b.de", "~lost:name": "bob"}
		left := validate.MaxEntry - len("uid"+"a"+"name"+"ann"+"email"+"a@b.de")
		for i := 0; left > 0; i++ {
			field := fmt.Sprintf("f%02d", i)
			facets[field] = strings.Repeat("\x01", min(schema.MaxFacet, left-len(field)))
			left -= len(field) + len(facets[field])
		}
		many := make([]string, schema.DefaultMax)
		for i := range many {
			many[i] = fmt.Sprint("t", i)
		}
		text, _ := json.Marshal(map[string]any{"facets": facets, "tertiary": map[string]any{
			"tags":     map[string]any{"kind": "set", "value": many},
			"bio":      map[string]any{"kind": "string", "value": strings.Repeat("ü", 1000)},
			"settings": map[string]any{"kind": "hash", "value": map[string]string{"a": "b", "ä": "\t"}},
			"ranks":    map[string]any{"kind": "zset", "value": [][2]any{{"a", 1}, {"b", "-inf"}}},
		}, "verified": []string{"name"}})
		s.importText(t, string(text), transfer.ImportOptions{}, created(1))
		backup := s.export(t, transfer.ExportOptions{Secrets: true})
		to := s.subNamespace(t, "copy")
		to.importText(t, backup, transfer.ImportOptions{}, created(1))
		update := transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}
		to.importText(t, backup, update, transfer.Report{Read: 1, Updated: 1})
		if got := to.export(t, transfer.ExportOptions{Secrets: true}); got != backup {
			t.Errorf("the copy has %d bytes, not %d, or differs", len(got), len(backup))
		}
		testdb.Same(t, "check of the copy", to.Check(t, check.Options{}), nil)
	})
}

// TestImportMarkForm checks that a line can store only well-formed texts as the mark of an import.
func TestImportMarkForm(t *testing.T) {
	const hash = "$2y$05$abcdefghijklmnopqrstuuxglPpnRcUsOY9v566GLoWy42/7hJY4i"
	eachEngine(t, func(t *testing.T, s *site) {
		for i, tt := range []struct {
			mark string
			ok   bool
		}{
			{"", true},
			{"clear", true},
			{"AbCdEfGhIj-_", true},
			{"AbCdEfGhIj-", false},
			{"AbCdEfGhIj+/", false},
			{"AbCdEfGhIj-_A", false},
			{strings.Repeat("x", 1<<20), false},
		} {
			mark, _ := json.Marshal(tt.mark)
			want := transfer.Report{Read: 1, Refused: 1}
			if tt.ok {
				want = created(1)
			}
			s.importText(t, fmt.Sprintf(`{"facets":{"uid":"u%d","name":"n%d"},"password":"%s","imported":%s}`, i, i, hash, mark), transfer.ImportOptions{}, want)
		}
	})
}
