package userdb_test

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// plainUser returns the schema that was built in before its fields were ordered.
func plainUser() schema.Schema {
	s := schema.User()
	for name, f := range s.Types["user"].Fields {
		f.Role &^= schema.RoleOrdered
		s.Types["user"].Fields[name] = f
	}
	return s
}

// inOrder returns the UIDs of the users in the order of their names.
func inOrder(t *testing.T, users *userdb.Type) (uids []string, err error) {
	t.Helper()
	for e, err := range users.All(t.Context(), userdb.Query{Order: "name"}) {
		if err != nil {
			return uids, err
		}
		uids = append(uids, e.UID())
	}
	return uids, nil
}

func wantInOrder(t *testing.T, what string, users *userdb.Type, want ...string) {
	t.Helper()
	if got, err := inOrder(t, users); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s, listed by name: got %q, %v; want %q", what, got, err, want)
	}
}

// TestBuiltinFollowsStored lets a program without a schema open the store of an older program. The
// program must follow the stored schema, and must not change it. After a migration it must follow
// the new one.
func TestBuiltinFollowsStored(t *testing.T) {
	older := func() schema.Schema {
		s := plainUser()
		s.Types["firm"] = schema.Type{Primary: "id", Fields: map[string]schema.Field{"code": {Role: schema.RoleSecondary}}}
		s.Types["user"].Fields["city"] = schema.Field{Role: schema.RoleIndexed}
		return s
	}
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(soonApplied)
		db := s.open(userdb.Options{Schema: older()})
		old := typeOf(t, db, "user")
		add(t, old, "b", "name", "Berta", "city", "Bonn")
		add(t, typeOf(t, db, "firm"), "f", "code", "x")
		for _, how := range []userdb.OnSchema{userdb.SchemaExtend, userdb.SchemaRefuse, userdb.SchemaDeferred} {
			s.wantUnchanged("opening and reading", func() {
				users := typeOf(t, s.open(userdb.Options{OnSchema: how}), "user")
				if _, err := inOrder(t, users); err == nil {
					t.Errorf("%v: listed by a field that is not ordered in the store", how)
				}
				if e, err := users.Find(t.Context(), hints.Any("BERTA")); err != nil || e.Text("city") != "Bonn" {
					t.Errorf("%v: found %v, %v; want the city Bonn", how, e, err)
				}
				if n, err := users.Count(t.Context(), userdb.Query{Where: schema.Texts("city", "Bonn")}); err != nil || n.Entries != 1 {
					t.Errorf("%v: counted %v, %v by an index that the built-in schema lacks; want 1", how, n, err)
				}
			})
		}
		db = s.open(userdb.Options{ApplySchema: migrate.AtOpen})
		users := typeOf(t, db, "user")
		add(t, users, "a", "name", "Anton", "email", "anton@example.com")
		_, err := users.Update(t.Context(), hints.UID("b"), putText("city", "Ulm"))
		must(t, err)
		if s.has(manyClients) { // other stores are opened once, before the type firm was declared
			add(t, typeOf(t, db, "firm"), "g", "code", "y")
			if stored := db.Schema().Types["user"]; len(stored.Ordered()) > 0 {
				t.Errorf("ordered fields: %q, want none", stored.Ordered())
			}
		}
		add(t, old, "c", "name", "Caesar", "city", "Köln")
		wantErr(t, "create", errOf(users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "CAESAR")})), userdb.ErrDuplicate)

		next := older()
		next.Types["user"].Fields["name"] = schema.User().Types["user"].Fields["name"]
		plan, err := migrate.Plan(t.Context(), db, next)
		must(t, err)
		must(t, plan.Apply(t.Context(), nil))
		wantInOrder(t, "after the change", typeOf(t, s.open(userdb.Options{}), "user"), "a", "b", "c")
		s.inspect(t)
	})
}

// TestBuiltinIsStored lets a program without a schema create the store. Programs with the older
// built-in schema must go on working, and keep the store's ordered indexes correct.
func TestBuiltinIsStored(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.users()
		add(t, users, "b", "name", "Berta", "email", "berta@example.com")
		old := typeOf(t, s.open(userdb.Options{Schema: plainUser()}), "user")
		add(t, old, "a", "name", "Anton")
		_, err := old.Update(t.Context(), hints.UID("b"), putText("name", "Zora"))
		must(t, err)
		add(t, users, "c", "name", "Caesar")
		wantInOrder(t, "the program that made the store", users, "a", "c", "b")
		wantInOrder(t, "another program", typeOf(t, s.open(userdb.Options{}), "user"), "a", "c", "b")
		first, last := schema.Text("b"), schema.Text("y")
		page, err := users.Page(t.Context(), userdb.Query{Order: "name", GTE: &first, LT: &last, Limit: 5})
		if err != nil || len(page.Entries) != 1 || page.Entries[0].UID() != "c" {
			t.Errorf("page of names from b to y: got %v, %v; want c", page, err)
		}
		for _, field := range []string{"email", "added"} {
			if page, err := users.Page(t.Context(), userdb.Query{Order: field, Limit: 5}); err != nil || len(page.Entries) != 3 {
				t.Errorf("page by %s: got %v, %v; want 3 entries", field, page, err)
			}
		}
	})
}

// TestBuiltinAmongOthers starts programs with the older built-in schema and programs without a
// schema at once in an empty store. None may be refused, and all must follow the schema of the
// first one that wrote.
func TestBuiltinAmongOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.first = s.open(userdb.Options{OnSchema: userdb.SchemaDeferred})
		programs := []*userdb.Type{typeOf(t, s.first, "user")}
		for i := range 5 {
			o := userdb.Options{}
			if i%2 == 0 {
				o.Schema = plainUser()
			}
			programs = append(programs, typeOf(t, s.open(o), "user"))
		}
		const writes = 30
		errs := runConcurrently(writes, func(i int) error {
			_, err := programs[i%len(programs)].Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "Name "+itoa(i))})
			return err
		})
		for i, err := range errs {
			if err != nil {
				t.Errorf("program %d: %v", i%len(programs), err)
			}
		}
		stored, err := migrate.StoredSchema(t.Context(), s.first)
		must(t, err)
		last := typeOf(t, s.open(userdb.Options{}), "user")
		uids, err := inOrder(t, last)
		if ordered := len(stored.Types["user"].Ordered()) > 0; ordered != (err == nil) || ordered && len(uids) != writes {
			t.Errorf("the stored schema orders names: %v; got %d of %d entries by name, %v; want all, or an error if it does not",
				ordered, len(uids), writes, err)
		}
	})
}

// TestBuiltinReopens lets programs open the same file one after another. Each must find the entries
// of those before it.
func TestBuiltinReopens(t *testing.T) {
	url := "file:" + filepath.Join(t.TempDir(), "db")
	for i, o := range []userdb.Options{{Schema: plainUser()}, {}, {Schema: plainUser()}, {History: true}} {
		db, err := userdb.Open(t.Context(), url, o)
		if err != nil {
			t.Fatalf("program %d: %v", i, err)
		}
		users := typeOf(t, db, "user")
		add(t, users, "u"+itoa(i), "name", "Name "+itoa(i), "email", "n"+itoa(i)+"@example.com")
		if n, err := users.Count(t.Context(), userdb.Query{}); err != nil || n.Entries != int64(i+1) {
			t.Errorf("program %d counts %v, %v; want %d", i, n, err, i+1)
		}
		must(t, db.Close())
	}
}

// TestBuiltinBesideUnreadableType lets a program without a schema open a store in which the schema
// of another type cannot be read. The program must work, and its log must name the type.
func TestBuiltinBesideUnreadableType(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(manyClients) // stores without it are opened only once
		declared := plainUser()
		declared.Types["firm"] = schema.Type{Primary: "id"}
		db := s.open(userdb.Options{Schema: declared})
		add(t, typeOf(t, db, "user"), "a", "name", "Anna")
		add(t, typeOf(t, db, "firm"), "f")
		const key = "~/schema/firm"
		stored := s.raw.HGet(t.Context(), key, store.FieldSchema).Val()
		for _, spoiled := range []string{"{", strings.Replace(stored, "id", "no", 1)} {
			s.command("HSET", key, store.FieldSchema, spoiled)
			var log bytes.Buffer
			opened := s.open(userdb.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if e, err := typeOf(t, opened, "user").Find(t.Context(), hints.Any("anna")); err != nil || e.UID() != "a" {
				t.Errorf("with the schema %q: found %v, %v; want a", spoiled, e, err)
			}
			if !strings.Contains(log.String(), "a type is left out: ") || !strings.Contains(log.String(), "firm") {
				t.Errorf("with the schema %q: the log is %q, want that firm is left out", spoiled, log.String())
			}
			if _, err := opened.Type("firm"); err == nil {
				t.Errorf("with the schema %q: the type firm is declared", spoiled)
			}
			var lines bytes.Buffer
			report, err := transfer.Export(t.Context(), opened, &lines, transfer.ExportOptions{})
			if wantErr(t, "an export without the type", err, userdb.ErrCorrupt, "firm"); report.Read != 1 || !strings.Contains(lines.String(), "Anna") {
				t.Errorf("with the schema %q: exported %+v: %s; want only the entry Anna", spoiled, report, &lines)
			}
		}
		s.command("HSET", key, store.FieldSchema, stored)

		stored = s.raw.HGet(t.Context(), "~/schema/user", store.FieldSchema).Val()
		s.command("HSET", "~/schema/user", store.FieldSchema, "{")
		_, err := s.tryOpen(userdb.Options{})
		wantErr(t, "open with an unreadable schema of the type user", err, userdb.ErrCorrupt, "user")
		s.command("HSET", "~/schema/user", store.FieldSchema, stored)
	})
}
