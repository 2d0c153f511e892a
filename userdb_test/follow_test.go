package userdb_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// program opens the store again, as another program with its own schema does.
func (s *site) program(sc schema.Schema) *userdb.DB {
	s.t.Helper()
	return s.open(userdb.Options{Schema: sc})
}

// storedType returns the type user of the stored schema.
func (s *site) storedType(t *testing.T) schema.Type {
	t.Helper()
	sc, err := migrate.StoredSchema(t.Context(), s.first)
	must(t, err)
	return sc.Types["user"]
}

// TestProgramsExtendSchema opens the store with sixteen programs at once. Half of them add one
// field to the schema, the other half add another field and a list. In the end, the stored schema
// must have all additions, and each program must still refuse to write fields that it does not
// declare.
func TestProgramsExtendSchema(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		add(t, s.wide(), "u", "name", "n")
		city := wideSchemaWith(func(t *schema.Type) {
			t.Fields["city"], t.Open = schema.Field{Codec: schema.CodecNumber}, false
		})
		log := wideSchemaWith(func(t *schema.Type) {
			t.Fields["street"] = schema.Field{}
			t.Tertiary["log"], t.Open = schema.Tertiary{Kind: "list"}, false
		})
		dbs := make([]*userdb.DB, 16)
		for i, err := range runConcurrently(len(dbs), func(i int) (err error) {
			sc := []schema.Schema{city, log}[i%2]
			if !s.has(manyClients) {
				dbs[i], err = s.first.With(sc)
				return err
			}
			dbs[i], err = userdb.Open(t.Context(), s.url, userdb.Options{Schema: sc})
			return err
		}) {
			must(t, err)
			if s.has(manyClients) {
				defer dbs[i].Close()
			}
		}
		for i, db := range dbs {
			users := typeOf(t, db, "user")
			mine, other := []string{"city", "street"}[i%2], []string{"street", "city"}[i%2]
			write := func(field string) error {
				_, err := users.Update(t.Context(), hints.UID("u"), func(e *userdb.Entry) error {
					if field == "city" {
						e.Put("city", schema.Number(float64(i)))
					} else {
						e.Put("street", schema.Text("s"+itoa(i)))
					}
					return nil
				})
				return err
			}
			must(t, write(mine))
			err := write(other)
			wantField(t, "writing an undeclared field", err, userdb.ErrInvalid, other)
		}
		stored := s.storedType(t)
		_, hasCity := stored.Fields["city"]
		_, hasStreet := stored.Fields["street"]
		_, hasLog := stored.Tertiary["log"]
		if !hasCity || !hasStreet || !hasLog || !stored.Fields["job"].Role.Has(schema.RoleIndexed) || !stored.Open {
			t.Errorf("the stored schema is not the union of all schemas: %+v", stored)
		}
		e, err := typeOf(t, dbs[1], "user").Find(t.Context(), hints.UID("u"))
		if city, _ := e.Get("city"); err != nil || city != schema.Number(14) {
			t.Errorf("a program that does not declare the field reads it as %v, %v; want 14", city, err)
		}
	})
}

// TestSchemaRefuse checks that, with SchemaRefuse, Open fails for a program that declares more than
// the stored schema, and stores nothing.
func TestSchemaRefuse(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		if !s.has(manyClients) {
			t.Skip("the store can be opened only once")
		}
		add(t, s.wide(), "u", "name", "n")
		s.wantUnchanged("opening with SchemaRefuse", func() {
			more := wideSchemaWith(func(t *schema.Type) { t.Fields["city"] = schema.Field{} })
			_, err := s.tryOpen(userdb.Options{Schema: more, OnSchema: userdb.SchemaRefuse})
			wantErr(t, "a schema with another field", err, userdb.ErrSchemaMismatch, "field city: not stored")
			less := wideSchemaWith(func(t *schema.Type) { delete(t.Fields, "nick") })
			_, err = s.tryOpen(userdb.Options{Schema: less, OnSchema: userdb.SchemaRefuse})
			must(t, err)
		})
	})
}

// TestWritesMaintainUndeclaredFields writes with a program that lacks some declarations of the
// stored schema. Its writes must keep the values, indexes, order and tertiary records of those
// declarations correct.
func TestWritesMaintainUndeclaredFields(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		rich := wideSchemaWith(func(t *schema.Type) {
			t.Fields["age"] = schema.Field{Codec: schema.CodecNumber, Role: schema.RoleOrdered}
		})
		newer := typeOf(t, s.program(rich), "user")
		s.views[view.Of(s.first).NS] = s.first
		for _, uid := range []string{"u", "v"} {
			_, err := newer.Create(t.Context(), userdb.NewEntry{UID: uid, Tags: []string{"t"}, Facets: schema.Facets{
				"nick": schema.Text("N" + uid), "job": schema.Text("j"), "age": schema.Number(3),
			}})
			must(t, err)
		}
		poor := wideSchemaWith(func(t *schema.Type) {
			t.Fields = map[string]schema.Field{
				"name": {Role: schema.RoleSecondary}, "job": {}, "rating": {Codec: schema.CodecJSON},
			}
			t.Tertiary = map[string]schema.Tertiary{"tags": {Kind: "set"}}
		})
		older := typeOf(t, s.program(poor), "user")
		_, err := older.Update(t.Context(), hints.UID("u"), func(e *userdb.Entry) error {
			e.Put("job", schema.Text("k"))
			e.Drop("age")
			e.Drop("nick")
			return nil
		})
		must(t, err)
		must(t, errOf(older.Tags(hints.UID("u")).Add(t.Context(), "x")))
		must(t, errOf(older.Tags(hints.UID("v")).Remove(t.Context(), "t")))
		s.inspect(t)
		_, err = newer.Create(t.Context(), userdb.NewEntry{UID: "w", Facets: schema.Texts("nick", "NU")})
		must(t, err) // the value is free again
		must(t, older.Delete(t.Context(), hints.UID("v")))
		must(t, errOf(older.SetPassword(t.Context(), hints.UID("u"), "correct horse battery staple")))
		for tag, want := range map[string]int64{"x": 1, "t": 1} {
			if n, err := newer.Count(t.Context(), userdb.Query{Tags: []string{tag}}); err != nil || n.Entries != want {
				t.Errorf("count by tag %s: %v, %v; want %d", tag, n, err, want)
			}
		}
		s.inspect(t)
	})
}

func errOf[T any](_ T, err error) error { return err }

// TestSchemaExtendedMeanwhile extends the stored schema while a program runs. Its next write,
// whatever the method, must notice the change and succeed.
func TestSchemaExtendedMeanwhile(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.wide()
		add(t, users, "u", "name", "n")
		if strings.HasPrefix(s.url, "redis+cluster:") {
			t.Skip("on a cluster a program may use the schema that it read up to 5 s ago; see internal/store/cluster")
		}
		stored := s.storedType(t)
		for name, write := range writeMethods(t, users) {
			if name == "delete" { // the last, because the others need the entry
				continue
			}
			stored.Fields["f"+name[:3]] = schema.Field{}
			s.storeSchema(t, stored)
			if err := write(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		stored.Fields["fdel"] = schema.Field{}
		s.storeSchema(t, stored)
		must(t, users.Delete(t.Context(), hints.UID("u")))
	})
}

// storeSchema stores a new schema of type user, as another program that extends it does.
func (s *site) storeSchema(t *testing.T, to schema.Type) {
	t.Helper()
	v := view.Of(s.first)
	key := v.ByName["user"].Guard.Key.String()
	db, err := s.first.With(schema.Schema{Types: map[string]schema.Type{"user": to}})
	must(t, err)
	_, err = view.Of(db).Follow(t.Context(), view.StoreExtension, "user")
	must(t, err)
	found, err := store.Hashes(t.Context(), v.Engine, []string{key})
	must(t, err)
	if found[0].Fields["fingerprint"] == v.ByName["user"].Guard.Fingerprint {
		t.Fatal("the stored schema has not changed")
	}
}

// TestApplySchema starts several programs at once that add roles to a field. Each must find all
// entries by the new index as soon as it is open, and a program without the roles must keep
// working.
func TestApplySchema(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(soonApplied)
		if !s.has(manyClients) {
			t.Skip("the store can be opened only once")
		}
		old := s.wide()
		for i := range 40 {
			add(t, old, "u"+itoa(i), "city", "Bonn")
			add(t, old, "k"+itoa(i), "city", "Köln") // nobody changes these
		}
		more := wideSchemaWith(func(t *schema.Type) { t.Fields["city"] = schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered} })
		_, err := s.tryOpen(userdb.Options{Schema: more})
		wantErr(t, "without ApplySchema", err, userdb.ErrSchemaMismatch, "field city: role indexed: not stored")
		ctx, stop := context.WithCancel(t.Context())
		running := make(chan error)
		go func() {
			for i := 0; ; i++ {
				_, err := old.Update(ctx, hints.UID("u"+itoa(i%40)), func(e *userdb.Entry) error {
					e.Put("city", schema.Text([]string{"Bonn", "Ulm"}[i/40%2]))
					return nil
				})
				if err != nil {
					if ctx.Err() != nil {
						err = nil
					}
					running <- err
					return
				}
			}
		}()
		for i, err := range runConcurrently(4, func(int) error {
			db, err := userdb.Open(t.Context(), s.url, userdb.Options{Schema: more, ApplySchema: migrate.AtOpen})
			if err != nil {
				return err
			}
			defer db.Close()
			users, err := db.Type("user")
			if err != nil {
				return err
			}
			n, err := users.Count(t.Context(), userdb.Query{Where: schema.Texts("city", "Köln")})
			if err == nil && n.Entries != 40 {
				t.Errorf("the index has %d entries, want 40", n.Entries)
			}
			return err
		}) {
			if err != nil {
				t.Errorf("program %d: %v", i, err)
			}
		}
		stop()
		must(t, <-running)
		if n := s.raw.Exists(t.Context(), "~/applying").Val(); n > 0 {
			t.Error("the lease of the schema change was not released")
		}
		s.views[view.Of(s.first).NS] = s.open(userdb.Options{Schema: more})
	})
}

// TestEarlierFingerprint opens a database of an earlier version of this library, which computed the
// fingerprint of a schema differently. Programs must accept that fingerprint, and must be able to
// extend the schema.
func TestEarlierFingerprint(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		add(t, s.wide(), "u", "name", "n")
		earlier := wideSchema(schema.FoldCasefold).Types["user"].Fingerprint()
		must(t, s.raw.HSet(t.Context(), "~/schema/user", "fingerprint", earlier).Err())
		fingerprint := func() string { return s.raw.HGet(t.Context(), "~/schema/user", "fingerprint").Val() }
		same := s.program(wideSchema(schema.FoldCasefold))
		add(t, typeOf(t, same, "user"), "v", "name", "m")
		if got := fingerprint(); got != earlier {
			t.Errorf("a program with the same schema stored the fingerprint %s, want %s unchanged", got, earlier)
		}
		s.inspect(t)
		more := s.program(wideSchemaWith(func(t *schema.Type) { t.Fields["city"] = schema.Field{} }))
		add(t, typeOf(t, more, "user"), "w", "name", "o", "city", "Bonn")
		if got := fingerprint(); got == earlier {
			t.Error("a program that extends the schema stored no new fingerprint")
		}
		s.inspect(t)
	})
}

// TestProgramBuildingIgnored checks that a Building in a program's own schema is ignored. A schema
// has one if it was printed to a file while indexes were being built.
func TestProgramBuildingIgnored(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		add(t, s.wide(), "u", "job", "cook")
		printed := wideSchemaWith(func(t *schema.Type) {
			t.Building = &schema.Building{ID: "x", What: map[string][]string{"job": {"indexed"}}}
		})
		n, err := typeOf(t, s.program(printed), "user").Count(t.Context(), userdb.Query{Where: schema.Texts("job", "cook")})
		if err != nil || n.Entries != 1 {
			t.Errorf("count by the index: %+v, %v; want 1", n, err)
		}
	})
}

// TestWriteAfterStoreEmptied removes all records while a program is open that has only read so far,
// and that declares more than the stored schema did. The program must be able to make the first
// write to the empty store.
func TestWriteAfterStoreEmptied(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		add(t, s.wide(), "u", "name", "n")
		more := wideSchemaWith(func(t *schema.Type) { t.Fields["city"] = schema.Field{} })
		db, err := s.first.With(more)
		must(t, err)
		_, err = typeOf(t, db, "user").Find(t.Context(), hints.Field("name", "n"))
		must(t, err)
		keys := s.raw.Keys(t.Context(), "*").Val()
		for _, k := range keys {
			s.raw.Del(t.Context(), k)
		}
		add(t, typeOf(t, db, "user"), "v", "name", "n")
		if s.raw.HGet(t.Context(), "~/schema/user", "fingerprint").Val() == "" {
			t.Error("no fingerprint was stored")
		}
		_, err = s.tryOpen(userdb.Options{Schema: more})
		must(t, err)
	})
}

// TestQueryDuringSchemaChange queries by an index that a change of the schema is about to add. The
// query must fail with ErrIndexBuilding during the change, and succeed after it.
func TestQueryDuringSchemaChange(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		add(t, s.wide(), "u", "name", "n", "city", "Bonn")
		next := wideSchemaWith(func(t *schema.Type) { t.Fields["city"] = schema.Field{Role: schema.RoleIndexed} })
		db, err := s.first.With(next)
		must(t, err)
		v := view.Of(db)
		g := v.ByName["user"].Guard
		was := s.raw.HGet(t.Context(), "~/schema/user", "fingerprint").Val()
		must(t, s.raw.HSet(t.Context(), "~/schema/user", "fingerprint", "~"+was+">", "next", g.JSON).Err())
		q := userdb.Query{Where: schema.Texts("city", "Bonn")}
		if _, err := typeOf(t, db, "user").Count(t.Context(), q); !errors.Is(err, userdb.ErrIndexBuilding) {
			t.Errorf("count during the change: got %v, want ErrIndexBuilding", err)
		}
		must(t, s.raw.HSet(t.Context(), "~/schema/user", "fingerprint", g.Fingerprint, "schema", g.JSON).Err())
		must(t, s.raw.HDel(t.Context(), "~/schema/user", "next").Err())
		must(t, s.raw.SAdd(t.Context(), "user/city:Bonn/~prks", "user/uid:u").Err())
		n, err := typeOf(t, db, "user").Count(t.Context(), q)
		if err != nil || n.Entries != 1 {
			t.Errorf("count after the change: %v, %v; want 1", n, err)
		}
		s.views[view.Of(s.first).NS] = db
	})
}

// TestIndexOfUnstoredSet declares an indexed set that the stored schema lacks. Entries may already
// have such sets, because earlier versions did not store their declaration. So the index counts as
// incomplete until Options.ApplySchema has built it.
func TestIndexOfUnstoredSet(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(soonApplied)
		if !s.has(manyClients) {
			t.Skip("the store can be opened only once")
		}
		plain := wideSchemaWith(func(t *schema.Type) { t.Tertiary["log2"] = schema.Tertiary{Kind: "set"} })
		add(t, typeOf(t, s.program(plain), "user"), "u", "name", "n")
		must(t, errOf(typeOf(t, s.program(plain), "user").Set(hints.UID("u"), "log2").Add(t.Context(), "x")))
		// An earlier version stored a schema without the set.
		earlier, err := s.first.With(wideSchema(schema.FoldCasefold))
		must(t, err)
		g := view.Of(earlier).ByName["user"].Guard
		must(t, s.raw.HSet(t.Context(), "~/schema/user", "fingerprint", g.Fingerprint, "schema", g.JSON).Err())
		withIndex := wideSchemaWith(func(t *schema.Type) { t.Tertiary["log2"] = schema.Tertiary{Kind: "set", Indexed: true} })
		_, err = s.tryOpen(userdb.Options{Schema: withIndex})
		if !errors.Is(err, userdb.ErrSchemaMismatch) {
			t.Errorf("opening with an incomplete index: got %v, want ErrSchemaMismatch", err)
		}
		db, err := s.tryOpen(userdb.Options{Schema: withIndex, ApplySchema: migrate.AtOpen})
		must(t, err)
		s.views[view.Of(s.first).NS] = db
	})
}

// TestApplyKeepsPolicy checks that a program that applies a new role when it opens the store does
// not change the stored password policy and reserved values.
func TestApplyKeepsPolicy(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(soonApplied)
		if !s.has(manyClients) {
			t.Skip("the store can be opened only once")
		}
		strict := wideSchemaWith(func(t *schema.Type) {
			t.Password = &schema.Password{Cost: 5, Min: 20}
			t.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Reserved: []string{"root"}}
		})
		add(t, typeOf(t, s.program(strict), "user"), "u", "name", "n")
		more := wideSchemaWith(func(t *schema.Type) {
			t.Password = &schema.Password{Cost: 4, Min: 1}
			t.Fields["name"] = schema.Field{Role: schema.RoleSecondary | schema.RoleOrdered}
		})
		db, err := s.tryOpen(userdb.Options{Schema: more, ApplySchema: migrate.AtOpen})
		must(t, err)
		s.views[view.Of(s.first).NS] = db
		stored := s.storedType(t)
		if p := stored.Policy(); p.Min != 20 || p.Cost != 5 {
			t.Errorf("the stored password policy is %+v, want a minimum of 20 and cost 5", p)
		}
		if name := stored.Fields["name"]; len(name.Reserved) != 1 || !name.Role.Has(schema.RoleOrdered) {
			t.Errorf("the stored field is %+v, want one reserved value and the role ordered", name)
		}
	})
}
