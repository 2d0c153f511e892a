package userdb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// changed is wideSchema with a change of its type user.
func changed(change func(*schema.Type)) schema.Schema {
	s := wideSchema(schema.FoldCasefold)
	t := s.Types["user"]
	change(&t)
	s.Types["user"] = t
	return s
}

// schemaChanges are schemas that differ from wideSchema, and what of that cannot be gone by.
var schemaChanges = []struct {
	name   string
	schema schema.Schema
	words  []string // of the refusal; none: a program with the schema goes on
}{
	{"the same", changed(func(*schema.Type) {}), nil},
	{"a new plain field", changed(func(t *schema.Type) { t.Fields["city"] = schema.Field{} }), nil},
	{"another password policy", changed(func(t *schema.Type) { t.Password = &schema.Password{Min: 20} }), nil},
	{"another plain tertiary record", changed(func(t *schema.Type) { t.Tertiary["log"] = schema.Tertiary{Kind: "list"} }), nil},
	{"a secondary field less", changed(func(t *schema.Type) { delete(t.Fields, "nick") }), nil},
	{"an index less", changed(func(t *schema.Type) { t.Fields["job"] = schema.Field{} }), nil},
	{"tags without an index", changed(func(t *schema.Type) { t.Tertiary["tags"] = schema.Tertiary{Kind: "set"} }), nil},
	{"another codec", changed(func(t *schema.Type) { t.Fields["rating"] = schema.Field{} }), []string{"codec of field rating: stored json; here text"}},
	{
		"another rule", changed(func(t *schema.Type) { t.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Kind: "nickname"} }),
		[]string{"kind of field name: stored none; here nickname"},
	},
	{
		"a new secondary field", changed(func(t *schema.Type) { t.Fields["phone"] = schema.Field{Role: schema.RoleSecondary} }),
		[]string{"field phone: role secondary: not stored"},
	},
	{"another fold", changed(func(t *schema.Type) { t.Fold = schema.FoldExact }), []string{"fold", "stored casefold", "here exact"}},
	{
		"a new index", changed(func(t *schema.Type) {
			t.Fields["age"] = schema.Field{Role: schema.RoleIndexed, Codec: schema.CodecNumber}
		}),
		[]string{"field age: role indexed: not stored"},
	},
	{"another primary field", changed(func(t *schema.Type) { t.Primary = "number" }), []string{"primary field", "number"}},
}

// writes are the verbs that write, on an entry u named n.
func writes(t *testing.T, users *userdb.Type) map[string]func() error {
	t.Helper()
	ctx := t.Context()
	return map[string]func() error{
		"create": func() error {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "new", Facets: schema.Texts("name", "new")})
			return err
		},
		"update": func() error {
			_, err := users.Update(ctx, hints.Field("name", "n"), func(e *userdb.Entry) error { e.Put("x", schema.Text("y")); return nil })
			return err
		},
		"delete": func() error { return users.Delete(ctx, hints.Field("name", "n")) },
		"set password": func() error {
			return errOf(users.SetPassword(ctx, hints.Field("name", "n"), "correct horse battery staple"))
		},
		"add a tag": func() error {
			_, err := users.Tags(hints.Field("name", "n")).Add(ctx, "t")
			return err
		},
		"append a note": func() error {
			_, err := users.List(hints.Field("name", "n"), "notes").Append(ctx, "t")
			return err
		},
	}
}

// TestSchemaChanges opens a store by another schema than it was written by. Where that cannot be gone by, Open says so, and
// nothing is written: the error names the difference and the command that mends it.
func TestSchemaChanges(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		for _, c := range schemaChanges {
			t.Run(c.name, func(t *testing.T) {
				s.wipeIfOpen()
				users := s.wide() // on a cluster, an older handle would not look at the schema again for 5 s
				add(t, users, "u", "name", "N", "job", "j")
				if c.words != nil && s.has(manyClients) {
					_, err := s.tryOpen(userdb.Options{Schema: c.schema})
					wantErr(t, "open", err, userdb.ErrSchemaMismatch, append(c.words, "userdb schema apply")...)
				}
				other := typeOf(t, s.open(userdb.Options{Schema: c.schema, OnSchema: userdb.SchemaLater}), "user")
				if _, err := other.Find(t.Context(), hints.Field("name", "n")); err != nil && !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("reading: %v", err)
				}
				if c.words != nil {
					s.unchanged("another schema", func() { refusedBySchema(t, other, c.words) })
					return
				}
				for name, write := range writes(t, other) {
					if name == "delete" {
						continue
					}
					if err := write(); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				s.inspect(t)
			})
		}
	})
}

// refusedBySchema wants every verb that reaches its record refused; one that does not find it writes nothing.
func refusedBySchema(t *testing.T, users *userdb.Type, words []string) {
	t.Helper()
	for name, write := range writes(t, users) {
		err := write()
		if name != "create" && errors.Is(err, userdb.ErrNotFound) {
			continue
		}
		wantErr(t, name, err, userdb.ErrSchemaMismatch, append(words, "userdb schema apply")...)
	}
}

// TestSchemaIsStoredByTheFirstWrite wants no record after any read, and the schema after a write.
func TestSchemaIsStoredByTheFirstWrite(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		s.unchanged("reading", func() {
			_, err := users.Find(ctx, hints.Any("x"))
			wantErr(t, "find", err, userdb.ErrNotFound)
			_, err = users.Tags(hints.UID("x")).Members(ctx)
			wantErr(t, "members", err, userdb.ErrNotFound)
			wantErr(t, "delete", users.Delete(ctx, hints.UID("x")), userdb.ErrNotFound)
			if n, err := users.Count(ctx, userdb.Query{}); n.Entries != 0 || err != nil {
				t.Errorf("count: %v, %v", n, err)
			}
		})
		add(t, users, "u", "name", "n")
		records := s.dump(ctx)
		stored := records["~/schema/user"]
		if stored.fields["fingerprint"] != view.Of(s.first).ByName["user"].Guard.Fingerprint || !strings.Contains(stored.fields["schema"], `"uid"`) {
			t.Errorf("stored: %v", stored)
		}
		if _, early := records["~/schema/order"]; early {
			t.Error("the schema of a type is stored before its first write")
		}
	})
}

// TestSchemaOfOriginalData writes to entries that no stored schema describes: only a schema by which
// they were written may.
func TestSchemaOfOriginalData(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		exact := typeOf(t, s.open(userdb.Options{Schema: wideSchema(schema.FoldExact)}), "user")
		folded := typeOf(t, s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)}), "user")
		ctx := t.Context()
		must(t, s.raw.HSet(ctx, "user/uid:u", "~isa", "user", "~prk", "user/uid:u", "uid", "u", "name", "n").Err())
		must(t, s.raw.Set(ctx, "user/name:n/~prk", "user/uid:u", 0).Err())
		s.unchanged("casefold", func() {
			for name, write := range writes(t, folded) {
				wantErr(t, name, write(), userdb.ErrSchemaMismatch, `fold "exact"`, "userdb schema apply")
			}
			if e, err := folded.Find(ctx, hints.Any("N")); err != nil || e.UID() != "u" {
				t.Errorf("reading: %v, %v", e, err)
			}
		})
		for name, write := range writes(t, exact) {
			if name == "delete" {
				continue
			}
			if err := write(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.inspect(t)
		must(t, exact.Delete(ctx, hints.UID("new")))
		wantErr(t, "casefold later", writes(t, folded)["create"](), userdb.ErrSchemaMismatch, "stored exact", "here casefold")
	})
}

// TestSchemaAmongWriters lets writers with two schemas begin at once in an empty store: those of one
// are refused, and all that is written is of the other.
func TestSchemaAmongWriters(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		one := s.wide()
		other := typeOf(t, s.open(userdb.Options{Schema: schemaChanges[10].schema}), "user")
		errs := runConcurrently(32, func(i int) error {
			users := []*userdb.Type{one, other}[i%2]
			_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "Name "+itoa(i))})
			return err
		})
		done := [2]int{}
		for i, err := range errs {
			if err == nil {
				done[i%2]++
			} else {
				wantErr(t, "create", err, userdb.ErrSchemaMismatch)
			}
		}
		if done != [2]int{16, 0} && done != [2]int{0, 16} {
			t.Errorf("writers of two schemas were let in: %v", done)
		}
		if done[1] > 0 {
			s.views[view.Of(s.first).NS] = s.opened[len(s.opened)-1]
			if !s.has(manyClients) {
				db, err := s.view(schemaChanges[10].schema, view.Of(s.first).NS)
				must(t, err)
				s.views[view.Of(s.first).NS] = db
			}
		}
	})
}

// TestExhaustive looks for a value under a field that the schema does not declare any more: only an
// exhaustive search finds it, and that as well where the value is full of glob characters.
func TestExhaustive(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		for i, nick := range []string{"Old Nick", "[a-z]*?", "x"} {
			add(t, users, "u"+itoa(i), "nick", nick)
		}
		db := s.open(userdb.Options{Schema: schemaChanges[4].schema, OnSchema: userdb.SchemaLater})
		view.Of(db).ByName["user"].SetCompared() // or it would go by the stored schema, which has the field
		less := typeOf(t, db, "user")
		for i, value := range []string{"OLD nick", "[A-Z]*?", "x"} {
			_, err := less.Find(ctx, hints.Any(value))
			wantErr(t, "find "+value, err, userdb.ErrNotFound)
			e, err := less.FindExhaustive(ctx, hints.Any(value))
			if err != nil || e.UID() != "u"+itoa(i) {
				t.Errorf("%s: got %v, %v", value, e, err)
			}
		}
		for _, value := range []string{"y", "*", "old", "[a-z]*"} {
			_, err := less.FindExhaustive(ctx, hints.Any(value))
			wantErr(t, "exhaustive "+value, err, userdb.ErrNotFound)
		}
	})
}

// TestClosedTypes: entries take the facets that their type declares. What one already holds besides is kept and shown, and
// may be unset, but not changed.
func TestClosedTypes(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.users(), t.Context()
		wide := wideSchema(schema.FoldCasefold)
		wide.Types["user"] = schema.User().Types["user"]
		open := wide.Types["user"]
		open.Open = true
		wide.Types["user"] = open
		s.unchanged("an undeclared facet", func() {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("emial", "a@x.org")})
			wantField(t, "create", err, userdb.ErrInvalid, "emial")
			wantErr(t, "create", err, userdb.ErrInvalid, `did you mean "email"?`)
			if refused, is := errors.AsType[*userdb.FieldError](err); !is || refused.Rule != "undeclared" {
				t.Errorf("the rule: %+v", refused)
			}
		})
		older := typeOf(t, s.open(userdb.Options{Schema: wide}), "user")
		add(t, older, "u", "name", "N", "city", "Bonn")
		set := func(field, value string) error {
			_, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Put(field, schema.Text(value)); return nil })
			return err
		}
		must(t, set("name", "M"))
		must(t, set("city", "Bonn"))
		wantField(t, "update", set("city", "Ulm"), userdb.ErrInvalid, "city")
		e, err := users.Find(ctx, hints.UID("u"))
		if err != nil || e.Text("city") != "Bonn" || e.Text("name") != "M" {
			t.Errorf("%v, %v", e, err)
		}
		e.Put("shoes", schema.Text("44"))
		_, err = users.Save(ctx, e)
		wantField(t, "save", err, userdb.ErrInvalid, "shoes")
		_, err = users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Drop("city"); return nil })
		must(t, err)
		s.inspect(t)
	})
}
