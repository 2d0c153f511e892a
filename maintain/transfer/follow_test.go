package transfer_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A triggerReader produces 2*at lines of input. Before it returns line number at, it calls do.
type triggerReader struct {
	lines, at int
	do        func()
}

func (s *triggerReader) Read(p []byte) (int, error) {
	if s.lines++; s.lines == s.at {
		s.do()
	}
	if s.lines > 2*s.at {
		return 0, io.EOF
	}
	return copy(p, fmt.Sprintf(`{"facets":{"uid":"i%d","name":"Name %d","job":"Job %d"}}`+"\n", s.lines, s.lines, s.lines%7)), nil
}

// TestImportSchemaChange adds an index while an import runs. The import must continue, and all its
// entries must be in the index.
func TestImportSchemaChange(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		from := schema.User()
		to := schema.User()
		to.Types["user"].Fields["job"] = schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered}
		db := testdb.Must(s.DB.With(from))
		input := &triggerReader{at: 1500, do: func() {
			plan := testdb.Must(migrate.Plan(s.Ctx, db, to))
			if err := plan.Apply(s.Ctx, nil); err != nil {
				t.Errorf("applying: %v", err)
			}
		}}
		var refused strings.Builder
		r, err := transfer.Import(s.Ctx, db, input, transfer.ImportOptions{Rejects: &refused})
		if err != nil || r.Created != 3000 || r.Refused != 0 {
			t.Fatalf("got %+v, %v; want 3000 created and none refused; refused: %.300s", r, err, refused.String())
		}
		s.DB = testdb.Must(s.DB.With(to))
		for _, p := range s.Check(t, check.Options{}) {
			if !strings.HasPrefix(p, "field_missing ") {
				t.Errorf("a check found %s, want only missing fields", p)
			}
		}
		n, err := s.Type(t, "user").Count(s.Ctx, userdb.Query{Where: schema.Texts("job", "Job 3")})
		if err != nil || n.Entries < 400 {
			t.Errorf("entries in the index: got %+v, %v; want at least 400", n, err)
		}
	})
}

// TestExportStoredSchema checks that an export includes tertiary records that only the stored
// schema declares.
func TestExportStoredSchema(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		db := testdb.Must(s.DB.With(schema.User()))
		_, err := testdb.Must(db.Type("user")).Create(s.Ctx, userdb.NewEntry{UID: "u", Tags: []string{"staff"}, Facets: schema.Texts("name", "Erin")})
		if err != nil {
			t.Fatal(err)
		}
		less := schema.User()
		user := less.Types["user"]
		user.Tertiary = nil
		less.Types["user"] = user
		var out strings.Builder
		_, err = transfer.Export(s.Ctx, testdb.Must(s.DB.With(less)), &out, transfer.ExportOptions{})
		if err != nil || !strings.Contains(out.String(), `"staff"`) {
			t.Errorf("exported %s, want the tag staff; error %v", out.String(), err)
		}
	})
}
