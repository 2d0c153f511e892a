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

// wideSchemaWith returns a wideSchema with a change to its type user.
func wideSchemaWith(change func(*schema.Type)) schema.Schema {
	s := wideSchema(schema.FoldCasefold)
	t := s.Types["user"]
	change(&t)
	s.Types["user"] = t
	return s
}

// schemaChanges lists schemas to use while wideSchema is stored.
var schemaChanges = []struct {
	name   string
	schema schema.Schema
	words  []string // what the error must contain; none if the store must accept the schema
}{
	{"the same", wideSchemaWith(func(*schema.Type) {}), nil},
	{"a new plain field", wideSchemaWith(func(t *schema.Type) { t.Fields["city"] = schema.Field{} }), nil},
	{"another password policy", wideSchemaWith(func(t *schema.Type) { t.Password = &schema.Password{Min: 20} }), nil},
	{"another plain tertiary record", wideSchemaWith(func(t *schema.Type) { t.Tertiary["log"] = schema.Tertiary{Kind: "list"} }), nil},
	{"without a secondary field", wideSchemaWith(func(t *schema.Type) { delete(t.Fields, "nick") }), nil},
	{"without an index", wideSchemaWith(func(t *schema.Type) { t.Fields["job"] = schema.Field{} }), nil},
	{"tags without an index", wideSchemaWith(func(t *schema.Type) { t.Tertiary["tags"] = schema.Tertiary{Kind: "set"} }), nil},
	{
		"another codec", wideSchemaWith(func(t *schema.Type) { t.Fields["rating"] = schema.Field{} }),
		[]string{"codec of field rating: stored json; here text"},
	},
	{
		"another rule", wideSchemaWith(func(t *schema.Type) { t.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Kind: "nickname"} }),
		[]string{"kind of field name: stored none; here nickname"},
	},
	{
		"a new secondary field", wideSchemaWith(func(t *schema.Type) { t.Fields["phone"] = schema.Field{Role: schema.RoleSecondary} }),
		[]string{"field phone: role secondary: not stored"},
	},
	{"another fold", wideSchemaWith(func(t *schema.Type) { t.Fold = schema.FoldExact }), []string{"fold", "stored casefold", "here exact"}},
	{
		"a new index", wideSchemaWith(func(t *schema.Type) {
			t.Fields["age"] = schema.Field{Role: schema.RoleIndexed, Codec: schema.CodecNumber}
		}),
		[]string{"field age: role indexed: not stored"},
	},
	{"another primary field", wideSchemaWith(func(t *schema.Type) { t.Primary = "number" }), []string{"primary field", "number"}},
}

// changedSchema returns the schema with the given name in schemaChanges.
func changedSchema(t *testing.T, name string) schema.Schema {
	t.Helper()
	for _, c := range schemaChanges {
		if c.name == name {
			return c.schema
		}
	}
	t.Fatalf("schemaChanges lacks %q", name)
	return schema.Schema{}
}

// writeMethods returns methods that write, by name. Most of them write to the entry with name n.
func writeMethods(t *testing.T, users *userdb.Type) map[string]func() error {
	t.Helper()
	ctx := t.Context()
	return map[string]func() error{
		"create": func() error {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "new", Facets: schema.Texts("name", "new")})
			return err
		},
		"update": func() error {
			_, err := users.Update(ctx, hints.Field("name", "n"), putText("x", "y"))
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

// TestSchemaChanges opens a store with each of schemaChanges. If the schema does not agree with the
// stored one, Open must fail in stores that several programs can have open, and writes after an
// Open with SchemaDeferred must fail in all stores. The errors must name the difference and the
// command that resolves it.
func TestSchemaChanges(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		for _, c := range schemaChanges {
			t.Run(c.name, func(t *testing.T) {
				s.wipeIfOpen()
				// On a cluster, a program that has the store open would not read the schema again
				// for 5 s.
				users := s.wide()
				add(t, users, "u", "name", "N", "job", "j")
				if c.words != nil && s.has(manyClients) {
					_, err := s.tryOpen(userdb.Options{Schema: c.schema})
					wantErr(t, "open", err, userdb.ErrSchemaMismatch, append(c.words, "userdb schema apply")...)
				}
				other := typeOf(t, s.open(userdb.Options{Schema: c.schema, OnSchema: userdb.SchemaDeferred}), "user")
				if _, err := other.Find(t.Context(), hints.Field("name", "n")); err != nil && !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("reading: %v", err)
				}
				if c.words != nil {
					s.wantUnchanged("another schema", func() { wantSchemaRefusal(t, other, c.words) })
					return
				}
				for name, write := range writeMethods(t, other) {
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

// wantSchemaRefusal checks that each of writeMethods is refused or finds no entry.
func wantSchemaRefusal(t *testing.T, users *userdb.Type, words []string) {
	t.Helper()
	for name, write := range writeMethods(t, users) {
		err := write()
		if name != "create" && errors.Is(err, userdb.ErrNotFound) {
			continue
		}
		wantErr(t, name, err, userdb.ErrSchemaMismatch, append(words, "userdb schema apply")...)
	}
}

// TestSchemaIsStoredByTheFirstWrite checks that reads store nothing, and that the first write
// stores the schema of its type.
func TestSchemaIsStoredByTheFirstWrite(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		s.wantUnchanged("reading", func() {
			_, err := users.Find(ctx, hints.Any("x"))
			wantErr(t, "find", err, userdb.ErrNotFound)
			_, err = users.Tags(hints.UID("x")).Members(ctx)
			wantErr(t, "members", err, userdb.ErrNotFound)
			wantErr(t, "delete", users.Delete(ctx, hints.UID("x")), userdb.ErrNotFound)
			if n, err := users.Count(ctx, userdb.Query{}); n.Entries != 0 || err != nil {
				t.Errorf("count: got %v, %v; want 0", n, err)
			}
		})
		add(t, users, "u", "name", "n")
		records := s.dump(ctx)
		stored := records["~/schema/user"]
		if stored.fields["fingerprint"] != view.Of(s.first).ByName["user"].Guard.Fingerprint || !strings.Contains(stored.fields["schema"], `"uid"`) {
			t.Errorf("the stored schema is %v, want that of the type", stored)
		}
		if _, early := records["~/schema/order"]; early {
			t.Error("the schema of a type is stored before its first write")
		}
	})
}

// TestSchemaOfOriginalData writes to a store whose entries have no stored schema. Only a schema
// that fits them may write.
func TestSchemaOfOriginalData(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		exact := typeOf(t, s.open(userdb.Options{Schema: wideSchema(schema.FoldExact)}), "user")
		folded := typeOf(t, s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)}), "user")
		ctx := t.Context()
		must(t, s.raw.HSet(ctx, "user/uid:u", "~isa", "user", "~prk", "user/uid:u", "uid", "u", "name", "n").Err())
		must(t, s.raw.Set(ctx, "user/name:n/~prk", "user/uid:u", 0).Err())
		s.wantUnchanged("casefold", func() {
			for name, write := range writeMethods(t, folded) {
				wantErr(t, name, write(), userdb.ErrSchemaMismatch, `fold "exact"`, "userdb schema apply")
			}
			if e, err := folded.Find(ctx, hints.Any("N")); err != nil || e.UID() != "u" {
				t.Errorf("reading: got %v, %v; want u", e, err)
			}
		})
		for name, write := range writeMethods(t, exact) {
			if name == "delete" {
				continue
			}
			if err := write(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.inspect(t)
		must(t, exact.Delete(ctx, hints.UID("new")))
		wantErr(t, "casefold after exact", writeMethods(t, folded)["create"](), userdb.ErrSchemaMismatch, "stored exact", "here casefold")
	})
}

// TestOrderOfOriginalData counts and writes under a schema with ordered fields in a store whose
// entries have no stored schema, so that no index holds them. Count must count all entries, and
// Create must be refused.
func TestOrderOfOriginalData(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		open := func(fold schema.Fold) *userdb.Type {
			return typeOf(t, s.open(userdb.Options{Schema: schema.Schema{Types: map[string]schema.Type{"user": {
				Primary: "uid", Fold: fold, Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary | schema.RoleOrdered}},
			}}}}), "user")
		}
		all, ctx := []*userdb.Type{open(schema.FoldExact), open(schema.FoldCasefold)}, t.Context()
		must(t, s.raw.HSet(ctx, "user/uid:u", "~isa", "user", "~prk", "user/uid:u", "uid", "u", "name", "n").Err())
		must(t, s.raw.Set(ctx, "user/name:n/~prk", "user/uid:u", 0).Err())
		s.wantUnchanged("ordered", func() {
			for _, users := range all {
				if total, err := users.Count(ctx, userdb.Query{}); err != nil || total.Entries != 1 {
					t.Errorf("counted %d, %v; want 1", total.Entries, err)
				}
				_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "m")})
				wantErr(t, "create", err, userdb.ErrSchemaMismatch, "without ordered fields", "userdb schema apply")
			}
		})
		for _, key := range []string{"user/uid:u", "user/name:n/~prk"} {
			must(t, s.raw.Del(ctx, key).Err())
		}
	})
}

// TestSchemaAmongWriters lets writers with two schemas begin at once in an empty store. All writers
// of one schema must succeed, and all others must be refused.
func TestSchemaAmongWriters(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		one := s.wide()
		other := typeOf(t, s.open(userdb.Options{Schema: changedSchema(t, "another fold")}), "user")
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
			t.Errorf("writers that succeeded, by schema: got %v, want 16 of one and none of the other", done)
		}
		if done[1] > 0 {
			s.views[view.Of(s.first).NS] = s.opened[len(s.opened)-1]
			if !s.has(manyClients) {
				db, err := s.view(changedSchema(t, "another fold"), view.Of(s.first).NS)
				must(t, err)
				s.views[view.Of(s.first).NS] = db
			}
		}
	})
}

// TestFindExhaustive looks for values in a field that the schema no longer declares. Only
// FindExhaustive must find them, even if they consist of glob characters.
func TestFindExhaustive(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.wide(), t.Context()
		for i, nick := range []string{"Old Nick", "[a-z]*?", "x"} {
			add(t, users, "u"+itoa(i), "nick", nick)
		}
		db := s.open(userdb.Options{Schema: changedSchema(t, "without a secondary field"), OnSchema: userdb.SchemaDeferred})
		// Otherwise db would use the stored schema, which has the field.
		view.Of(db).ByName["user"].SetCompared()
		less := typeOf(t, db, "user")
		for i, value := range []string{"OLD nick", "[A-Z]*?", "x"} {
			_, err := less.Find(ctx, hints.Any(value))
			wantErr(t, "find "+value, err, userdb.ErrNotFound)
			e, err := less.FindExhaustive(ctx, hints.Any(value))
			if err != nil || e.UID() != "u"+itoa(i) {
				t.Errorf("exhaustive %s: got %v, %v; want u%d", value, e, err, i)
			}
		}
		for _, value := range []string{"y", "*", "old", "[a-z]*"} {
			_, err := less.FindExhaustive(ctx, hints.Any(value))
			wantErr(t, "exhaustive "+value, err, userdb.ErrNotFound)
		}
	})
}

// TestClosedTypes checks that entries can get only the facets that their type declares. Undeclared
// facets that an entry already has must be kept and returned, and may be dropped but not changed.
func TestClosedTypes(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := typeOf(t, s.open(userdb.Options{Schema: schema.User()}), "user"), t.Context()
		wide := wideSchema(schema.FoldCasefold)
		wide.Types["user"] = schema.User().Types["user"]
		open := wide.Types["user"]
		open.Open = true
		wide.Types["user"] = open
		s.wantUnchanged("an undeclared facet", func() {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("emial", "a@x.org")})
			wantField(t, "create", err, userdb.ErrInvalid, "emial")
			wantErr(t, "create", err, userdb.ErrInvalid, `did you mean "email"?`)
			if refused, ok := errors.AsType[*userdb.FieldError](err); !ok || refused.Rule != "undeclared" {
				t.Errorf("got the error %+v, want rule undeclared", refused)
			}
		})
		older := typeOf(t, s.open(userdb.Options{Schema: wide}), "user")
		add(t, older, "u", "name", "N", "city", "Bonn")
		set := func(field, value string) error {
			_, err := users.Update(ctx, hints.UID("u"), putText(field, value))
			return err
		}
		must(t, set("name", "M"))
		must(t, set("city", "Bonn"))
		wantField(t, "update", set("city", "Ulm"), userdb.ErrInvalid, "city")
		e, err := users.Find(ctx, hints.UID("u"))
		if err != nil || e.Text("city") != "Bonn" || e.Text("name") != "M" {
			t.Errorf("got %v, %v; want name M and city Bonn", e, err)
		}
		e.Put("shoes", schema.Text("44"))
		_, err = users.Save(ctx, e)
		wantField(t, "save", err, userdb.ErrInvalid, "shoes")
		_, err = users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Drop("city"); return nil })
		must(t, err)
		s.inspect(t)
	})
}
