package userdb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A profile is a struct as an application may declare it.
type profile struct {
	UID   string          `json:"uid"   userdb:"uid,primary"`
	Rev   userdb.Revision `json:"rev"   userdb:"~rev"`
	Email string          `json:"email" userdb:"email,secondary,kind=email"`
	Name  *string         `json:"name"  userdb:"name,secondary"`
	Job   string          `json:"job"   userdb:"job,indexed"`
	work
}

type work struct {
	Age    *int64           `userdb:"age,ordered"`
	Serial uint64           `userdb:"serial,indexed"`
	Score  float64          `userdb:"score"`
	Active bool             `userdb:"active"`
	Since  time.Time        `userdb:"since"`
	Prefs  map[string]int64 `userdb:"prefs"`
	Notes  []string         `userdb:"notes"`
}

// profileSchema returns the schema that profile's struct tags declare. It adds a field and a
// tertiary record that profile does not have.
func profileSchema(t testingT) schema.Schema {
	typ, err := schema.From[profile]()
	must(t, err)
	typ.Fields["city"] = schema.Field{}
	typ.Tertiary = map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}}
	typ.Password = &schema.Password{}
	return schema.Schema{Types: map[string]schema.Type{"user": typ}}
}

// typedUsers opens the store and returns its type user and the typed view of it.
func (s *site) typedUsers() (*userdb.Type, *userdb.Typed[profile]) {
	s.t.Helper()
	users := typeOf(s.t, s.open(userdb.Options{Schema: profileSchema(s.t)}), "user")
	profiles, err := userdb.Of[profile](users)
	must(s.t, err)
	return users, profiles
}

// alice returns a profile in which every field but Rev is set.
func alice() profile {
	return profile{UID: "alice", Email: "alice@example.com", Name: new("Alice"), Job: "the job of alice", work: work{
		Age: new(int64(math.MinInt64)), Serial: math.MaxUint64, Score: 0.1, Active: true, Since: time.UnixMilli(1_700_000_000_123).UTC(),
		Prefs: map[string]int64{"a": math.MaxInt64}, Notes: []string{"<a note>"},
	}}
}

// sameProfile checks that two profiles are equal, except for their revisions.
func sameProfile(t testingT, what string, got, want profile) {
	t.Helper()
	got.Rev, want.Rev = userdb.Revision{}, userdb.Revision{}
	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("%s: got  %s\nwant %s", what, g, w)
	}
}

// TestTypedMethods checks Create, Find, Page and Save of a typed view.
func TestTypedMethods(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, profiles := s.typedUsers()
		made, err := profiles.Create(t.Context(), alice())
		must(t, err)
		sameProfile(t, "Create", made, alice())
		e, err := users.Find(t.Context(), hints.Any("alice"))
		if err != nil || e.Rev() != made.Rev.String() || e.Rev() == "" || made.Rev.Entry().String() != e.String() {
			t.Errorf("Create returned %v, but the store has %v, %v; want the same", made.Rev.Entry(), e, err)
		}
		if got := e.Text("age") + e.Text("serial") + e.Text("prefs"); got != `-922337203685477580818446744073709551615{"a":9223372036854775807}` {
			t.Errorf("whole numbers are written as %s, want all their digits", got)
		}
		for _, h := range []hints.Hint{hints.UID("alice"), hints.Any("ALICE"), hints.Field("email", "alice@EXAMPLE.com")} {
			got, err := profiles.Find(t.Context(), h)
			must(t, err)
			sameProfile(t, "Find", got, alice())
		}
		got, err := profiles.Find(t.Context(), hints.Any("nobody"))
		wantErr(t, "Find", err, userdb.ErrNotFound)
		sameProfile(t, "Find of an unknown entry", got, profile{})

		serial, err := schema.Decode(schema.CodecNumber, "18446744073709551615")
		must(t, err)
		page, err := profiles.Page(t.Context(), userdb.Query{Where: schema.Facets{"serial": serial}})
		if err != nil || len(page.Entries) != 1 {
			t.Errorf("Page by a large number: got %+v, %v; want one entry", page, err)
		}

		_, err = profiles.Create(t.Context(), profile{Email: "ALICE@example.com"})
		wantField(t, "Create", err, userdb.ErrDuplicate, "email")
		bare, err := profiles.Create(t.Context(), profile{})
		fields := []string{"active", "score", "serial", "uid"}
		if e := bare.Rev.Entry(); err != nil || len(bare.UID) != 12 || !slices.Equal(slices.Collect(e.Fields()), fields) {
			t.Errorf("Create of a zero struct: got %v, %v; want the fields %q", e, err, fields)
		}
		must(t, users.Delete(t.Context(), hints.UID(made.UID)))
		made.Job = "gone"
		_, err = profiles.Save(t.Context(), made)
		wantErr(t, "Save", err, userdb.ErrNotFound)
	})
}

// TestTypedWritesWhatChanged checks that Save and Update send only the facets that changed, and
// keep all others, including those that the struct does not have.
func TestTypedWritesWhatChanged(t *testing.T) {
	methods := map[string]func(ctx context.Context, profiles *userdb.Typed[profile], mine profile, edit func(*profile) error) (profile, error){
		"Save": func(ctx context.Context, profiles *userdb.Typed[profile], mine profile, edit func(*profile) error) (profile, error) {
			if err := edit(&mine); err != nil {
				return mine, err
			}
			return profiles.Save(ctx, mine)
		},
		"Update": func(ctx context.Context, profiles *userdb.Typed[profile], mine profile, edit func(*profile) error) (profile, error) {
			return profiles.Update(ctx, hints.UID(mine.UID), edit)
		},
	}
	eachStore(t, func(t *testing.T, s *site) {
		users, profiles := s.typedUsers()
		mine, err := profiles.Create(t.Context(), alice())
		must(t, err)
		e := mine.Rev.Entry()
		e.Put("city", schema.Text("the city of alice"))
		day, err := schema.Decode(schema.CodecDate, "2023-11-14") // in the form of another program
		must(t, err)
		e.Put("since", day)
		_, err = users.Save(t.Context(), e)
		must(t, err)
		for name, method := range methods {
			mine, err := profiles.Find(t.Context(), hints.UID("alice"))
			must(t, err)
			var saved profile
			sent := s.sentArgs(func() {
				saved, err = method(t.Context(), profiles, mine, func(a *profile) error {
					a.Score++
					a.Notes = append(a.Notes, name)
					return nil
				})
			})
			must(t, err)
			for _, unchanged := range []string{"the job of alice", "the city of alice", "alice@example.com", "18446744073709551615", "2023-11-14"} {
				if strings.Contains(sent, unchanged) {
					t.Errorf("%s sends %s again", name, unchanged)
				}
			}
			if !strings.Contains(sent, "notes") || !strings.Contains(sent, "score") || saved.Rev.String() == mine.Rev.String() {
				t.Errorf("%s sends %q, revision %v; want notes and score, and another revision", name, sent, saved.Rev)
			}
			mine.Score, mine.Notes = mine.Score+1, append(mine.Notes, name)
			sameProfile(t, name, saved, mine)
			if e := saved.Rev.Entry(); e.Text("city") != "the city of alice" || e.Text("since") != "2023-11-14" {
				t.Errorf("%s changed other facets: %v", name, e)
			}
			same, err := method(t.Context(), profiles, saved, func(a *profile) error {
				// A date has neither a time zone nor microseconds.
				a.Since = a.Since.In(time.FixedZone("", 3600)).Add(time.Microsecond)
				return nil
			})
			if err != nil || same.Rev.String() != saved.Rev.String() {
				t.Errorf("%s without a change: got revision %v, %v; want %v", name, same.Rev, err, saved.Rev)
			}
		}
	})
}

// sentArgs returns the words of all commands that do sends, without the first three of each, which
// may include the source of a script.
func (s *site) sentArgs(do func()) string {
	var mu sync.Mutex
	var b strings.Builder
	s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		mu.Lock()
		for _, cmd := range cmds {
			for _, arg := range cmd.Args()[min(3, len(cmd.Args())):] {
				fmt.Fprintln(&b, argument(arg))
			}
		}
		mu.Unlock()
		return send()
	})
	defer s.tap.set(nil)
	do()
	mu.Lock()
	defer mu.Unlock()
	return b.String()
}

// TestTypedRefusals checks which changes Save, Update and Create refuse, and that nothing is
// written.
func TestTypedRefusals(t *testing.T) {
	errStop := errors.New("stop")
	eachStore(t, func(t *testing.T, s *site) {
		users, profiles := s.typedUsers()
		mine, err := profiles.Create(t.Context(), alice())
		must(t, err)
		theirs := mine
		theirs.Job = "theirs"
		theirs, err = profiles.Save(t.Context(), theirs)
		must(t, err)

		mine.Job = "mine"
		_, err = profiles.Save(t.Context(), mine)
		wantErr(t, "Save after another change", err, userdb.ErrConflict)
		mine.Job = alice().Job
		_, err = profiles.Save(t.Context(), mine)
		wantErr(t, "Save without a change, after another change", err, userdb.ErrConflict)

		for what, edit := range map[string]func(*profile){
			"uid":   func(a *profile) { a.UID = "other" },
			"score": func(a *profile) { a.Score = math.NaN() },
			"since": func(a *profile) { a.Since = time.Unix(math.MaxInt64/2, 0) },
			"email": func(a *profile) { a.Email = "no address" },
			"job":   func(a *profile) { a.Job = "\xff" },
			"name":  func(a *profile) { a.Name = new("") },
			"notes": func(a *profile) { a.Notes = []string{"\xff"} },
			"~rev":  func(a *profile) { a.Rev = userdb.Revision{} },
			"prefs": func(a *profile) { a.Prefs = map[string]int64{strings.Repeat("x", 64<<10): 1} },
		} {
			bad := theirs
			edit(&bad)
			_, err := profiles.Save(t.Context(), bad)
			wantField(t, "Save of "+what, err, userdb.ErrInvalid, what)
			if what == "~rev" { // Update does not need it
				continue
			}
			_, err = profiles.Update(t.Context(), hints.UID("alice"), func(a *profile) error {
				edit(a)
				return nil
			})
			wantField(t, "Update of "+what, err, userdb.ErrInvalid, what)
			bad.UID = "another"
			_, err = profiles.Create(t.Context(), bad)
			all, want := problemsOf(err), what // the address and the name are also taken
			if what == "uid" {
				want = "email taken"
			}
			if !slices.ContainsFunc(all, func(one string) bool { return strings.HasPrefix(one, want) }) {
				t.Errorf("Create of %s: got problems %q, want one that begins with %q", what, all, want)
			}
		}
		_, err = profiles.Update(t.Context(), hints.UID("alice"), func(a *profile) error { a.Job = "x"; return errStop })
		wantErr(t, "Update", err, errStop)
		now, err := users.Find(t.Context(), hints.UID("alice"))
		if err != nil || now.Rev() != theirs.Rev.String() {
			t.Errorf("a refused change was written: got %v, %v; want revision %v", now, err, theirs.Rev)
		}
	})
}

// TestTypedRevisionFromJSON checks that a struct from JSON cannot be saved, but that Update can
// compare its revision.
func TestTypedRevisionFromJSON(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		_, profiles := s.typedUsers()
		mine, err := profiles.Create(t.Context(), alice())
		must(t, err)
		text, err := json.Marshal(mine)
		must(t, err)
		var form profile
		must(t, json.Unmarshal(text, &form))
		if form.Rev.String() != mine.Rev.String() || form.Rev.Entry().Key().IsValid() {
			t.Errorf("the revision from JSON is %v, want %v without an entry", form.Rev, mine.Rev)
		}
		_, err = profiles.Save(t.Context(), form)
		wantField(t, "Save", err, userdb.ErrInvalid, "~rev")
		edit := func(a *profile) error {
			if a.Rev.String() != form.Rev.String() {
				return userdb.ErrConflict
			}
			a.Job = "edited"
			return nil
		}
		saved, err := profiles.Update(t.Context(), hints.UID(form.UID), edit)
		if err != nil || saved.Job != "edited" {
			t.Errorf("Update: got %+v, %v; want job edited", saved, err)
		}
		_, err = profiles.Update(t.Context(), hints.UID(form.UID), edit)
		wantErr(t, "Update of a form that is out of date", err, userdb.ErrConflict)
	})
}

// TestTypedNoUpdateIsLost makes many concurrent updates of one facet. All must be kept.
func TestTypedNoUpdateIsLost(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		_, profiles := s.typedUsers()
		_, err := profiles.Create(t.Context(), alice())
		must(t, err)
		n := 8
		for _, err := range runConcurrently(n, func(i int) error {
			_, err := profiles.Update(t.Context(), hints.UID("alice"), func(a *profile) error {
				a.Prefs[fmt.Sprint("p", i)] = int64(i)
				return nil
			})
			return err
		}) {
			must(t, err)
		}
		got, err := profiles.Find(t.Context(), hints.UID("alice"))
		if err != nil || len(got.Prefs) != n+1 {
			t.Errorf("%d of %d updates were kept, want all: %v, %v", len(got.Prefs)-1, n, got.Prefs, err)
		}
	})
}

// TestTypedUnconfirmed checks that a change that no replica confirmed is returned together with the
// error.
func TestTypedUnconfirmed(t *testing.T) {
	s := startServer(t)
	db := s.open(userdb.Options{Schema: profileSchema(t), Replicas: 1, ReplicaTimeout: time.Millisecond})
	profiles, err := userdb.Of[profile](typeOf(t, db, "user"))
	must(t, err)
	mine, err := profiles.Create(t.Context(), alice())
	wantErr(t, "Create", err, userdb.ErrUnconfirmed)
	sameProfile(t, "Create", mine, alice())
	mine.Job = "another"
	mine, err = profiles.Save(t.Context(), mine)
	wantErr(t, "Save", err, userdb.ErrUnconfirmed)
	if mine.Job != "another" {
		t.Errorf("Save returns job %q, want another", mine.Job)
	}
}

// TestTypedListings lists entries that fit into the struct, and one that does not. Only that one
// may cause an error, and pages must go on after it.
func TestTypedListings(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, profiles := s.typedUsers()
		for i := range 5 {
			_, err := profiles.Create(t.Context(), profile{UID: fmt.Sprint("u", i), Job: "cook", work: work{Age: new(int64(i))}})
			must(t, err)
		}
		_, err := users.Update(t.Context(), hints.UID("u2"), func(e *userdb.Entry) error {
			e.Put("age", schema.Number(2.5))
			e.Put("name", schema.Text("Misfit"))
			return nil
		})
		must(t, err)
		misfit, err := profiles.Find(t.Context(), hints.UID("u2"))
		wantField(t, "Find", err, userdb.ErrUnmarshal, "age")
		sameProfile(t, "Find of an entry that does not fit", misfit, profile{})
		wantErr(t, "Find", err, userdb.ErrUnmarshal, "profile.work.Age (*int64)")
		_, err = profiles.Update(t.Context(), hints.UID("u2"), func(*profile) error { return nil })
		wantField(t, "Update", err, userdb.ErrUnmarshal, "age")

		uids, unfit := []string{}, 0
		for a, err := range profiles.All(t.Context(), userdb.Query{Where: schema.Texts("job", "cook"), Order: "age"}) {
			if errors.Is(err, userdb.ErrUnmarshal) {
				unfit++
				continue
			}
			must(t, err)
			uids = append(uids, a.UID)
		}
		if got := strings.Join(uids, " "); got != "u0 u1 u3 u4" || unfit != 1 {
			t.Errorf("All yields %s and %d that do not fit, want u0 u1 u3 u4 and one", got, unfit)
		}
		for range profiles.All(t.Context(), userdb.Query{}) {
			break
		}
		page, err := profiles.Page(t.Context(), userdb.Query{Order: "age", Limit: 2})
		if err != nil || len(page.Entries) != 2 || page.Entries[1].UID != "u1" || page.Prev != "" {
			t.Errorf("the first page is %+v, %v; want u0 and u1, and no page before it", page, err)
		}
		page, err = profiles.Page(t.Context(), userdb.Query{Order: "age", Limit: 2, After: page.Next})
		if len(page.Entries) != 1 || page.Entries[0].UID != "u3" || page.Entries[0].Name != nil || page.Next == "" || page.Prev == "" {
			t.Errorf("the second page is %+v, want only u3, and pages before and after it", page)
		}
		wantField(t, "Page", err, userdb.ErrUnmarshal, "age")
		_, err = profiles.Page(t.Context(), userdb.Query{After: "nonsense"})
		wantErr(t, "Page", err, userdb.ErrCursor)
		for _, err := range profiles.All(t.Context(), userdb.Query{After: "nonsense"}) {
			wantErr(t, "All", err, userdb.ErrCursor)
		}
	})
}

// TestTypedAndOtherMethods converts structs with NewEntry for methods that take entries, and
// converts the results back with FromEntry.
func TestTypedAndOtherMethods(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, profiles := s.typedUsers()
		n, err := profiles.NewEntry(alice())
		must(t, err)
		n.Password, n.Tags = "correct horse", []string{"admin"}
		_, err = users.Create(t.Context(), n)
		must(t, err)
		e, err := users.Login(t.Context(), "alice", "correct horse", userdb.Attempt{})
		must(t, err)
		e.Put("city", schema.Text("Berlin"))
		e.Drop("job")
		e.Put("score", schema.Number(3))
		a, err := profiles.FromEntry(e)
		if err != nil || a.Job != "" || a.Score != 3 {
			t.Errorf("FromEntry returns %+v, %v; want no job and score 3", a, err)
		}
		a.Score, a.Active = 4, false
		a, err = profiles.Save(t.Context(), a)
		got := a.Rev.Entry()
		if err != nil || got.Text("city") != "Berlin" || got.Text("job") != "" || got.Text("score") != "4" || got.Text("active") != "false" {
			t.Errorf("Save returns %v, %v; want city Berlin, no job, score 4 and not active", got, err)
		}
		if _, err := users.Login(t.Context(), "alice", "correct horse", userdb.Attempt{}); err != nil {
			t.Errorf("Login after Save: %v", err)
		}
		_, err = profiles.FromEntry(userdb.Entry{})
		wantErr(t, "FromEntry of the zero Entry", err, userdb.ErrInvalid)
	})
}

// TestTypedAfterExport checks that an entry is the same after an export and an import. Whole
// numbers beyond JavaScript's precision keep all digits.
func TestTypedAfterExport(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, profiles := s.typedUsers()
		_, err := profiles.Create(t.Context(), alice())
		must(t, err)
		var lines bytes.Buffer
		_, err = transfer.Export(t.Context(), s.first, &lines, transfer.ExportOptions{})
		must(t, err)
		must(t, users.Delete(t.Context(), hints.UID("alice")))
		_, err = transfer.Import(t.Context(), s.first, &lines, transfer.ImportOptions{})
		must(t, err)
		got, err := profiles.Find(t.Context(), hints.UID("alice"))
		must(t, err)
		sameProfile(t, "after export and import", got, alice())
	})
}

// TestTypedRoundTrips checks that Find and Save take as many round trips with structs as with
// entries.
func TestTypedRoundTrips(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, profiles := s.typedUsers()
		mine, err := profiles.Create(t.Context(), alice())
		must(t, err)
		e := mine.Rev.Entry()
		count := func(do func() error) int64 { return s.tap.count(func() { must(t, do()) }) }
		finds := count(func() (err error) { _, err = users.Find(t.Context(), hints.UID("alice")); return err })
		e.Put("job", schema.Text("x"))
		saves := count(func() (err error) { _, err = users.Save(t.Context(), e); return err })
		typedFinds := count(func() (err error) { mine, err = profiles.Find(t.Context(), hints.UID("alice")); return err })
		mine.Job = "y"
		typedSaves := count(func() (err error) { _, err = profiles.Save(t.Context(), mine); return err })
		if finds != typedFinds || saves != typedSaves {
			t.Errorf("round trips: Find %d and Save %d with entries, %d and %d with structs; want the same", finds, saves, typedFinds, typedSaves)
		}
	})
}

// TestTypedFromEntryAllocations checks that reading an entry into a struct makes at most three
// allocations: for the struct, its Revision, and the value of its pointer.
func TestTypedFromEntryAllocations(t *testing.T) {
	type plain struct {
		UID   string          `userdb:"uid"`
		Rev   userdb.Revision `userdb:"~rev"`
		Email string          `userdb:"email"`
		Name  *string         `userdb:"name"`
		Age   int64           `userdb:"age"`
		Score float64         `userdb:"score"`
		Since time.Time       `userdb:"since"`
	}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: profileSchema(t)})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	typed, err := userdb.Of[plain](users)
	must(t, err)
	n, err := typed.NewEntry(plain{UID: "a", Email: "a@example.com", Name: new("Al"), Age: 1 << 40, Score: 0.5, Since: time.Now()})
	must(t, err)
	e, err := users.Create(t.Context(), n)
	must(t, err)
	if got := testing.AllocsPerRun(100, func() {
		if v, err := typed.FromEntry(e); err != nil || *v.Name != "Al" {
			t.Error(v, err)
		}
	}); got > 3 {
		t.Errorf("FromEntry makes %g allocations, want at most 3", got)
	}
}

// TestTypedRandomProfiles saves random profiles over one another. Save and Find must return the
// saved profile, with nothing of the one before.
func TestTypedRandomProfiles(t *testing.T) {
	drawn := anyProfile()
	eachStore(t, func(t *testing.T, s *site) {
		_, profiles := s.typedUsers()
		mine, err := profiles.Create(t.Context(), profile{UID: "mine"})
		must(t, err)
		rapid.Check(t, func(rt *rapid.T) {
			next := drawn.Draw(rt, "next")
			next.UID, next.Rev = mine.UID, mine.Rev
			saved, err := profiles.Save(t.Context(), next)
			must(rt, err)
			sameProfile(rt, "Save", saved, next)
			mine, err = profiles.Find(t.Context(), hints.UID("mine"))
			must(rt, err)
			sameProfile(rt, "Find", mine, next)
		})
	})
}

func anyProfile() *rapid.Generator[profile] {
	texts := rapid.StringMatching(`[a-zäß 🚀]{0,9}`)
	return rapid.Custom(func(t *rapid.T) profile {
		return profile{
			Email: rapid.SampledFrom([]string{"", "a@example.com", "B@Example.com"}).Draw(t, "email"),
			Name:  rapid.Ptr(rapid.StringMatching(`[A-Z][a-zß]{1,9}`), true).Draw(t, "name"), Job: texts.Draw(t, "job"),
			work: work{
				Age: rapid.Ptr(rapid.Int64(), true).Draw(t, "age"), Serial: rapid.Uint64().Draw(t, "serial"), Score: rapid.Float64().Draw(t, "score"),
				Active: rapid.Bool().Draw(t, "active"), Since: time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "since")).UTC(),
				Prefs: rapid.MapOfN(texts, rapid.Int64(), 0, 3).Draw(t, "prefs"), Notes: rapid.SliceOfN(texts, 0, 3).Draw(t, "notes"),
			},
		}
	})
}

// wantOf checks the error of userdb.Of for a struct; "<nil>" stands for none.
func wantOf[T any](t *testing.T, users *userdb.Type, want string) {
	t.Helper()
	typed, err := userdb.Of[T](users)
	if fmt.Sprint(err) != want || (typed == nil) == (err == nil) || err != nil && !errors.Is(err, schema.ErrSchema) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestTypedOf checks that Of accepts the structs that fit the schema of a type, and no others.
func TestTypedOf(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.users()
		wantOf[struct {
			Name string `userdb:"name"`
		}](t, users, "<nil>")
		wantOf[struct {
			Name string `userdb:"emial"`
		}](t, users, `schema: struct.Name: facet "emial": type "user" has no such field; did you mean "email"?`)
		wantOf[struct {
			Tags []string `userdb:"tags"`
		}](t, users, `schema: struct.Tags: facet "tags": type "user" has a tertiary record of that name, and no such field`)
		wantOf[struct {
			Word string `userdb:"password"`
		}](t, users, `schema: struct.Word: facet "password": the password is not a facet`)
		wantOf[struct {
			Rev string `userdb:"~rev"`
		}](t, users, `schema: struct.Rev: ~rev needs type userdb.Revision, not string`)
		wantOf[struct {
			Added string `userdb:"added"`
		}](t, users, `schema: struct.Added: facet "added" has codec date, which does not support type string`)
		wantOf[struct {
			Job string `userdb:"job,secondary"`
		}](t, users, `schema: struct.Job: the tag declares secondary for facet "job", but the schema does not`)
		wantOf[struct {
			Job string `userdb:"job,omitempty"`
		}](t, users, `schema: struct.Job: tag "job,omitempty": unknown option "omitempty"; want one of indexed, ordered, primary, required, secondary, set, untyped, kind=NAME, many=N`)
		wantOf[profile](t, users, `schema: profile.Job: the tag declares indexed for facet "job", but the schema does not`)
		open := typeOf(t, s.open(userdb.Options{Namespace: parseNamespace(t, "open"), Schema: wideSchema(schema.FoldCasefold)}), "user")
		wantOf[struct {
			Any string `userdb:"anything"`
		}](t, open, "<nil>")
		wantOf[struct {
			Any int `userdb:"anything"`
		}](t, open, `schema: struct.Any: facet "anything" has codec text, which does not support type int`)
	})
}
