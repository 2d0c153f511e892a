package userdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// export returns the lines of an export, sorted.
func export(t *testing.T, db *userdb.DB) string {
	t.Helper()
	var b bytes.Buffer
	_, err := transfer.Export(t.Context(), db, &b, transfer.ExportOptions{
		Secrets: true, Unreadable: func(err error) { t.Errorf("export: %v", err) },
	})
	must(t, err)
	lines := strings.SplitAfter(b.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestExportImport exports entries with tertiary records of every kind. It imports them into an
// empty namespace, and again after the copies have changed. Each time, an export of the copies must
// equal the first export.
func TestExportImport(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		sc := wideSchema(schema.FoldCasefold)
		from := s.open(userdb.Options{Schema: sc})
		typ := typeOf(t, from, "user")
		for i := range 8 {
			uid := fmt.Sprintf("u%d", i)
			_, err := typ.Create(t.Context(), userdb.NewEntry{
				UID: uid, Tags: []string{"all", uid},
				Facets: schema.Texts("email", uid+"@x.org", "name", "Name "+uid, "job", "cook"), Password: "correct horse " + uid,
			})
			must(t, err)
			h := hints.UID(uid)
			_, err = typ.List(h, "notes").Append(t.Context(), "b", "a", "b")
			must(t, err)
			must(t, typ.SortedSet(h, "scores").Put(t.Context(), float64(i), "m"))
			must(t, typ.Hash(h, "settings").Put(t.Context(), "k", uid))
			must(t, typ.String(h, "bio").Put(t.Context(), uid))
		}
		want := export(t, from)
		to := s.open(userdb.Options{Schema: sc, Namespace: parseNamespace(t, "copy")})
		importLines := func(what, text string, on string, want transfer.Report) {
			t.Helper()
			got, err := transfer.Import(t.Context(), to, strings.NewReader(text), transfer.ImportOptions{OnDuplicate: on})
			if err != nil || got != want {
				t.Errorf("%s: got %+v, %v; want %+v", what, got, err, want)
			}
		}
		importLines("into an empty namespace", want, "", transfer.Report{Read: 8, Created: 8})
		if got := export(t, to); got != want {
			t.Errorf("the export of the copies is\n%s\nwant\n%s", got, want)
		}
		importLines("a second time", want, "", transfer.Report{Read: 8, Refused: 8})
		copied := typeOf(t, to, "user")
		h := hints.UID("u3")
		_, err := copied.Tags(h).Add(t.Context(), "gone")
		must(t, err)
		_, err = copied.List(h, "notes").Append(t.Context(), "gone")
		must(t, err)
		_, err = copied.Update(t.Context(), h, putText("job", "gone"))
		must(t, err)
		importLines("over changed copies", want, transfer.DuplicateUpdate, transfer.Report{Read: 8, Updated: 8})
		if got := export(t, to); got != want {
			t.Errorf("the export of the updated copies is\n%s\nwant\n%s", got, want)
		}
		if has, err := copied.Tags(h).Has(t.Context(), "gone"); has || err != nil {
			t.Errorf("the entry has a tag that the import removes: %v, %v; want false", has, err)
		}
		for e, err := range copied.All(t.Context(), userdb.Query{Tags: []string{"gone"}}) {
			t.Errorf("a query by a tag that the import removes found %v, %v", e, err)
		}
		if _, err := copied.Login(t.Context(), "u5@x.org", "correct horse u5", userdb.Attempt{}); err != nil {
			t.Error(err)
		}
	})
}

// TestImportCollisions imports groups of lines that want the same value. One line of each group
// must get it, and all others must be refused.
func TestImportCollisions(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
		var in strings.Builder
		for i := range 60 {
			fmt.Fprintf(&in, `{"facets":{"uid":"u%d","%s":"Value %d"}}`+"\n", i, []string{"name", "email", "nick"}[i%3], i%20)
		}
		got, err := transfer.Import(t.Context(), db, strings.NewReader(in.String()), transfer.ImportOptions{})
		if want := (transfer.Report{Read: 60, Created: 20, Refused: 40, NoPassword: 20}); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

// TestImportMismatch checks that an import under a schema other than the stored one fails with
// ErrSchemaMismatch.
func TestImportMismatch(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		add(t, s.wide(), "u1", "name", "ann")
		other, err := s.first.With(schema.User())
		must(t, err)
		_, err = transfer.Import(t.Context(), other, strings.NewReader(`{"facets":{"name":"ben"}}`), transfer.ImportOptions{})
		wantErr(t, "import", err, userdb.ErrSchemaMismatch)
		if errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("import: got %v, want only ErrSchemaMismatch", err)
		}
	})
}

// TestMoveToCluster copies all records of one server to a cluster, as a migration tool does. The
// records must be the same, and values must stay unique in later writes.
func TestMoveToCluster(t *testing.T) {
	one, ctx := serverSite(t), t.Context()
	t.Cleanup(one.check)
	users := one.wide()
	for i := range 50 {
		_, err := users.Create(ctx, userdb.NewEntry{
			UID: fmt.Sprint("u", i), Tags: []string{"a", "b"},
			Facets: schema.Texts("name", fmt.Sprint("Name ", i), "email", fmt.Sprint("e", i), "job", "cook"),
		})
		must(t, err)
	}
	must(t, users.Delete(ctx, hints.UID("u49")))
	six := clusterSite(t)
	t.Cleanup(six.check)
	moved := six.wide()
	six.copyFrom(ctx, one)
	if diff := diffRecords(one.records(ctx), six.records(ctx)); diff != "" {
		t.Fatalf("the records differ:\n%s", diff)
	}
	six.inspect(t)
	_, err := moved.Create(ctx, userdb.NewEntry{Facets: schema.Texts("nick", "NAME 1")})
	wantField(t, "taking a name that another entry has", err, userdb.ErrDuplicate, "nick")
	for i := range 49 {
		_, err := moved.Update(ctx, hints.Any(fmt.Sprint("name ", i)), func(e *userdb.Entry) error {
			e.Put("name", schema.Text(fmt.Sprint("e", i))) // the entry's own e-mail
			e.Put("email", schema.Text(fmt.Sprint("name ", i)))
			return nil
		})
		must(t, err)
	}
	must(t, moved.Delete(ctx, hints.UID("u7")))
	if _, err := moved.Find(ctx, hints.Any("e7")); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("finding a deleted entry: got %v, want ErrNotFound", err)
	}
	add(t, moved, "u49", "name", "Name 49")
}

// copyFrom copies all records of another site to s, with DUMP and RESTORE.
func (s *site) copyFrom(ctx context.Context, from *site) {
	s.t.Helper()
	for _, k := range from.keys(ctx) {
		dump, err := from.raw.Dump(ctx, k).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		must(s.t, err)
		life, err := from.raw.PTTL(ctx, k).Result()
		must(s.t, err)
		must(s.t, s.raw.RestoreReplace(ctx, k, max(life, 0), dump).Err())
	}
}

func (s *site) records(ctx context.Context) map[string]string { return formatRecords(s.dump(ctx), "") }
