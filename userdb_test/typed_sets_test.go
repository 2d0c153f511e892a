package userdb_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A fan is a struct with tertiary sets.
type fan struct {
	UID       string          `userdb:"uid,primary"`
	Rev       userdb.Revision `userdb:"~rev"`
	Name      string          `userdb:"name,secondary"`
	Tags      []string        `userdb:"tags,set"`
	Interests []string        `userdb:"interests,set,indexed"`
}

func fanSchema(t testingT) schema.Schema {
	typ, err := schema.From[fan]()
	must(t, err)
	return schema.Schema{Types: map[string]schema.Type{"user": typ}}
}

// TestTypedSets checks that a struct's fields for tertiary sets are read with the entry, and
// written in the same change or not at all.
func TestTypedSets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), typeOf(t, s.open(userdb.Options{Schema: fanSchema(t)}), "user")
		fans, err := userdb.Of[fan](users)
		must(t, err)
		want := func(what string, got fan, err error, interests ...string) {
			t.Helper()
			if must(t, err); !slices.Equal(got.Interests, interests) {
				t.Errorf("%s: got the interests %q, want %q", what, got.Interests, interests)
			}
		}
		stored := func(what string, interests ...string) {
			t.Helper()
			got, err := fans.Find(ctx, hints.UID("ann"))
			want(what+", found again", got, err, interests...)
			members, err := users.Set(hints.UID("ann"), "interests").Members(ctx)
			want(what+", as a set", fan{Interests: members}, err, interests...)
			for _, interest := range []string{"chess", "go", "jazz"} {
				n := 0
				for f, err := range fans.All(ctx, userdb.Query{Has: map[string][]string{"interests": {interest}}}) {
					want(what+", listed", f, err, interests...)
					n++
				}
				if is := slices.Contains(interests, interest); is != (n == 1) {
					t.Errorf("%s: the index of %s has %d entries, want it: %t", what, interest, n, is)
				}
			}
		}
		ann, err := fans.Create(ctx, fan{UID: "ann", Name: "Ann", Interests: []string{"go", "chess", "go"}})
		want("created", ann, err, "chess", "go")
		stored("created", "chess", "go")
		must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: "bob", Facets: schema.Texts("name", "Bob")})))

		set := func(name string, interests ...string) func(*fan) error {
			return func(f *fan) error { f.Name, f.Interests = name, interests; return nil }
		}
		same, err := fans.Update(ctx, hints.UID("ann"), set("Ann", "go", "chess"))
		if want("the same set", same, err, "chess", "go"); same.Rev.String() != ann.Rev.String() {
			t.Error("the same members in another order are a change")
		}
		later, err := fans.Update(ctx, hints.UID("ann"), set("Anna", "jazz", "chess"))
		want("updated", later, err, "chess", "jazz")
		stored("updated", "chess", "jazz")

		// Either all of a change is made or nothing.
		ann.Interests = []string{"go"}
		if _, err := fans.Save(ctx, ann); !errors.Is(err, userdb.ErrConflict) {
			t.Errorf("saving a copy that is out of date: got %v, want ErrConflict", err)
		}
		_, err = fans.Update(ctx, hints.UID("ann"), set("Bob", "go"))
		wantField(t, "a name that is taken", err, userdb.ErrDuplicate, "name")
		_, err = fans.Update(ctx, hints.UID("ann"), set("Anne", ""))
		wantField(t, "a member that is empty", err, userdb.ErrInvalid, "interests")
		stored("refused", "chess", "jazz")
		if f, err := fans.Find(ctx, hints.UID("ann")); err != nil || f.Name != "Anna" {
			t.Errorf("after refused changes the name is %q, %v, want Anna", f.Name, err)
		}

		// The set alone, and a copy that does not know the set.
		later.Interests = append(later.Interests, "go")
		later, err = fans.Save(ctx, later)
		want("saved", later, err, "chess", "go", "jazz")
		e, err := users.Find(ctx, hints.UID("ann"))
		must(t, err)
		unread, err := fans.FromEntry(e)
		want("an entry without its sets", unread, err)
		unread.Name = "Ann"
		must(t, errOf(fans.Save(ctx, unread)))
		stored("saved without the set", "chess", "go", "jazz")
		page, err := fans.Page(ctx, userdb.Query{Where: schema.Texts("name", "ann")})
		if must(t, err); len(page.Entries) != 1 || len(page.Entries[0].Interests) != 3 {
			t.Errorf("got the page %v", page.Entries)
		}
		none, err := fans.Update(ctx, hints.UID("ann"), set("Ann"))
		want("emptied", none, err)
		stored("emptied")
	})
}

// TestTypedSetsOf checks what From and Of refuse of fields for tertiary sets.
func TestTypedSetsOf(t *testing.T) {
	typ := fanSchema(t).Types["user"]
	if got := typ.Tertiary; len(got) != 2 || got["tags"] != (schema.Tertiary{Kind: "set"}) || got["interests"] != (schema.Tertiary{Kind: "set", Indexed: true}) {
		t.Errorf("From declares %v", got)
	}
	type key struct {
		UID string `userdb:"uid,primary"`
	}
	for _, from := range []func() (schema.Type, error){
		schema.From[struct {
			key
			A string `userdb:"a,set"`
		}],
		schema.From[struct {
			key
			A []string `userdb:"a,set,ordered"`
		}],
		schema.From[struct {
			key
			A []string `userdb:"a,set,kind=email"`
		}],
	} {
		if _, err := from(); !errors.Is(err, schema.ErrSchema) {
			t.Errorf("From: got %v, want ErrSchema", err)
		}
	}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: fanSchema(t)})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	users := typeOf(t, db, "user")
	_, notIndexed := userdb.Of[struct {
		A []string `userdb:"tags,set,indexed"`
	}](users)
	_, notDeclared := userdb.Of[struct {
		A []string `userdb:"friends,set"`
	}](users)
	_, facet := userdb.Of[struct {
		A []string `userdb:"name,set"`
	}](users)
	for what, err := range map[string]error{"not indexed": notIndexed, "not declared": notDeclared, "a facet": facet} {
		if !errors.Is(err, schema.ErrSchema) {
			t.Errorf("Of with a set that is %s: got %v, want ErrSchema", what, err)
		}
	}
}
