package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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
				if listed := slices.Contains(interests, interest); listed != (n == 1) {
					t.Errorf("%s: %d entries are listed with the interest %s; want the entry listed: %t", what, n, interest, listed)
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

		// Save a change of the set alone, and then a copy that was read without its sets.
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
			t.Errorf("got the page %v, want one entry with three interests", page.Entries)
		}
		none, err := fans.Update(ctx, hints.UID("ann"), set("Ann"))
		want("emptied", none, err)
		stored("emptied")
	})
}

// TestTypedSetsNotRead checks that Save never replaces a set that was not read, and that it knows
// which sets were read.
func TestTypedSetsNotRead(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), typeOf(t, s.open(userdb.Options{Schema: fanSchema(t)}), "user")
		fans := must1(userdb.Of[fan](users))(t)
		created := must1(fans.Create(ctx, fan{UID: "ann", Name: "Ann"}))(t)
		created.Interests = []string{"go", "chess"}
		must(t, errOf(fans.Save(ctx, created)))
		unread := must1(fans.FromEntry(must1(users.Find(ctx, hints.UID("ann")))(t)))(t)
		for _, members := range [][]string{{"jazz"}, {}} {
			unread.Interests = members
			wantField(t, "saving a set that was not read", errOf(fans.Save(ctx, unread)), userdb.ErrInvalid, "interests")
		}
		must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: "bob", Facets: schema.Texts("name", "Bob")})))
		for e, err := range users.All(ctx, userdb.Query{WithSets: []string{"interests"}}) {
			must(t, err)
			listed := must1(fans.FromEntry(e))(t)
			listed.Interests = append(listed.Interests, "jazz")
			must(t, errOf(fans.Save(ctx, listed)))
		}
		for uid, want := range map[string][]string{"ann": {"chess", "go", "jazz"}, "bob": {"jazz"}} {
			if got := must1(fans.Find(ctx, hints.UID(uid)))(t).Interests; !slices.Equal(got, want) {
				t.Errorf("%s has the interests %q, want %q", uid, got, want)
			}
		}
	})
}

// TestTypedSetsChanged checks that saving a struct does not restore members that a method of Set
// has removed since the struct was read. That method does not change the revision.
func TestTypedSetsChanged(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), typeOf(t, s.open(userdb.Options{Schema: fanSchema(t)}), "user")
		fans := must1(userdb.Of[fan](users))(t)
		ann, interests := hints.UID("ann"), users.Set(hints.UID("ann"), "interests")
		read := must1(fans.Create(ctx, fan{UID: "ann", Name: "Ann", Interests: []string{"chess", "go"}}))(t)
		remove := func(member string) { t.Helper(); must(t, errOf(interests.Remove(ctx, member))) }
		stored := func(want ...string) {
			t.Helper()
			if got := must1(interests.Members(ctx))(t); !slices.Equal(got, want) {
				t.Errorf("got the interests %q, want %q", got, want)
			}
		}
		remove("go")
		changed := read
		changed.Interests = []string{"chess", "go", "jazz"}
		if _, err := fans.Save(ctx, changed); !errors.Is(err, userdb.ErrConflict) {
			t.Errorf("Save after the set has changed: got %v, want ErrConflict", err)
		}
		stored("chess")
		read.Name = "Anna"
		must(t, errOf(fans.Save(ctx, read)))
		stored("chess")

		calls := 0
		updated, err := fans.Update(ctx, ann, func(f *fan) error {
			if calls++; calls == 1 {
				remove("chess")
			}
			f.Interests = append(f.Interests, "jazz")
			return nil
		})
		if must(t, err); calls != 2 || !slices.Equal(updated.Interests, []string{"jazz"}) {
			t.Errorf("Update called f %d times and returned the interests %q; want 2 times and jazz", calls, updated.Interests)
		}
		stored("jazz")
		calls = 0
		_, err = fans.Update(ctx, ann, func(*fan) error { calls++; return userdb.ErrConflict })
		if !errors.Is(err, userdb.ErrConflict) || calls != 1 {
			t.Errorf("an ErrConflict of f: got %v after %d calls, want it after 1", err, calls)
		}
		updated.Interests = nil
		must(t, users.Delete(ctx, ann))
		if _, err := fans.Save(ctx, updated); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("Save after the entry was deleted: got %v, want ErrNotFound", err)
		}
	})
}

// TestSetMembers checks that the entries that Save and Update return keep their sets, and that a
// set is checked together with everything else.
func TestSetMembers(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		var mu sync.Mutex
		var fields []string // of the last update
		sc := fanSchema(t)
		user := sc.Types["user"]
		user.Open, sc.Types["user"] = true, user
		users := typeOf(t, s.open(userdb.Options{Schema: sc, OnEvent: func(_ context.Context, e userdb.Event) {
			mu.Lock()
			defer mu.Unlock()
			fields = e.Fields
		}}), "user")
		must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: "bob", Facets: schema.Texts("name", "Bob")})))
		must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann"), Tags: []string{"a", "b"}})))
		want := func(what string, e userdb.Entry, err error, tags ...string) {
			t.Helper()
			if must(t, err); !slices.Equal(e.Members("tags"), tags) {
				t.Errorf("%s: got the tags %q, want %q", what, e.Members("tags"), tags)
			}
			if got := e.Members("interests"); got != nil {
				t.Errorf("%s: got %#v for a set without members, want nil", what, got)
			}
		}
		page, err := users.Page(ctx, userdb.Query{Where: schema.Texts("name", "Ann"), WithSets: []string{"tags", "interests"}})
		must(t, err)
		e := page.Entries[0]
		want("read", e, nil, "a", "b")
		e.Put("name", schema.Text("Anna"))
		e, err = users.Save(ctx, e)
		want("saved", e, err, "a", "b")
		e.SetMembers("tags", "c", "b")
		e.SetMembers("interests", []string{}...)
		e, err = users.Save(ctx, e)
		want("saved with other tags", e, err, "b", "c")
		// Another writer has stored a facet that has the name of the set.
		must(t, s.raw.HSet(ctx, e.Key().String(), "tags", "x").Err())
		e, err = users.Update(ctx, hints.UID("ann"), func(e *userdb.Entry) error {
			e.Drop("tags")
			e.SetMembers("tags", "d")
			return nil
		})
		want("updated", e, err, "d")
		mu.Lock()
		if !slices.Equal(fields, []string{"tags"}) {
			t.Errorf("the event names the fields %q, want tags once", fields)
		}
		mu.Unlock()

		wrong := func(e *userdb.Entry) error {
			e.Put("name", schema.Text("Bob"))
			e.SetMembers("interests", "")
			return nil
		}
		problems := func(what string, err error, want ...string) {
			t.Helper()
			if got := problemsOf(err); !slices.Equal(got, want) {
				t.Errorf("%s: got the problems %q, want %q", what, got, want)
			}
		}
		_ = wrong(&e)
		problems("check", users.Check(ctx, e), "interests key", "name taken")
		problems("save", errOf(users.Save(ctx, e)), "interests key", "name taken")
		problems("update", errOf(users.Update(ctx, hints.UID("ann"), wrong)), "interests key", "name taken")

		// The sets of one change count together.
		many := make([]string, 10_000)
		for i := range many {
			many[i] = strconv.Itoa(i)
		}
		sets := map[string][]string{"interests": many[:6000], "tags": many[:4001]}
		problems("create with many members", errOf(users.Create(ctx, userdb.NewEntry{UID: "cleo", Sets: sets})), "tags max")
		problems("update to many members", errOf(users.Update(ctx, hints.UID("ann"), func(e *userdb.Entry) error {
			e.SetMembers("interests", sets["interests"]...)
			e.SetMembers("tags", sets["tags"]...)
			return nil
		})), "tags max")
	})
}

// TestNewEntrySets checks that a set that the schema does not declare is refused before anything is
// done for the password, and that a printed NewEntry names its sets, but not their members.
func TestNewEntrySets(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: fanSchema(t)})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	n := userdb.NewEntry{RequirePassword: true, Sets: map[string][]string{"friends": {"bob"}}}
	if _, err := typeOf(t, db, "user").Create(t.Context(), n); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("got %v, want ErrSchema", err)
	}
	if got := fmt.Sprint(n); !strings.Contains(got, `"sets":["friends"]`) || strings.Contains(got, "bob") {
		t.Errorf("printed as %s, want the names of its sets", got)
	}
}

// TestTypedSetsOf checks which struct fields From and Of refuse for tertiary sets.
func TestTypedSetsOf(t *testing.T) {
	typ := fanSchema(t).Types["user"]
	if got := typ.Tertiary; len(got) != 2 || got["tags"] != (schema.Tertiary{Kind: "set"}) || got["interests"] != (schema.Tertiary{Kind: "set", Indexed: true}) {
		t.Errorf("From declares %v, want the sets tags and, indexed, interests", got)
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
