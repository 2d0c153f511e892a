package userdb_test

import (
	"fmt"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A trip is a verb on the entry u (name n, e-mail e, job j, tags a and b) and what it costs.
type trip struct {
	verb string
	want int64 // round trips, of a server that knows the scripts
	do   func(t *testing.T, users *userdb.Type) error
}

// trips documents what the verbs cost on one server.
var trips = []trip{
	{"find by UID", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Find(t.Context(), hints.UID("u"))
		return err
	}},
	{"find by field", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Find(t.Context(), hints.Field("name", "N"))
		return err
	}},
	{"find by *", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Find(t.Context(), hints.Any("N"))
		return err
	}},
	{"find by two facets", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Find(t.Context(), hints.Facets(schema.Texts("name", "n", "email", "e")))
		return err
	}},
	{"find nobody by *", 1, func(t *testing.T, users *userdb.Type) error {
		there, err := users.Exists(t.Context(), hints.Any("nobody"))
		if there {
			return userdb.ErrDuplicate
		}
		return err
	}},
	{"find all of 256", 1, func(t *testing.T, users *userdb.Type) error { return findAll(t, users, 256) }},
	{"find all of 257", 2, func(t *testing.T, users *userdb.Type) error { return findAll(t, users, 257) }},
	{"create", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "m", "email", "f")})
		return err
	}},
	{"create with an index and tags", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "m", "job", "j"), Tags: []string{"a", "b"}})
		return err
	}},
	{"create a duplicate", 3, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "n", "email", "e")})
		if err == nil {
			return userdb.ErrNotFound
		}
		return nil
	}},
	{"update", 2, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Update(t.Context(), hints.Any("n"), func(e *userdb.Entry) error { e.Put("name", schema.Text("m")); return nil })
		return err
	}},
	{"update without a change", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Update(t.Context(), hints.UID("u"), func(*userdb.Entry) error { return nil })
		return err
	}},
	{"update an indexed facet", 2, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Update(t.Context(), hints.UID("u"), func(e *userdb.Entry) error { e.Put("job", schema.Text("k")); return nil })
		return err
	}},
	{"delete", 3, func(t *testing.T, users *userdb.Type) error {
		return users.Delete(t.Context(), hints.Any("n"))
	}},
	{"add tags by UID", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Tags(hints.UID("u")).Add(t.Context(), "c", "d")
		return err
	}},
	{"add tags by *", 2, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Tags(hints.Any("n")).Add(t.Context(), "c", "d")
		return err
	}},
	{"read tags by UID", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Tags(hints.UID("u")).Members(t.Context())
		return err
	}},
	{"list all of few", 2, func(t *testing.T, users *userdb.Type) error { return listAll(t, users, userdb.Query{}) }},
	{"list by index", 3, func(t *testing.T, users *userdb.Type) error {
		return listAll(t, users, userdb.Query{Where: schema.Texts("job", "j")})
	}},
	{"list by two tags", 4, func(t *testing.T, users *userdb.Type) error {
		return listAll(t, users, userdb.Query{Has: []string{"a", "b"}})
	}},
	{"count few", 2, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Count(t.Context())
		return err
	}},
}

// TestTripsOfVerbs counts the round trips of every verb.
func TestTripsOfVerbs(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(oneScript)
		for _, c := range trips {
			var err error
			var got int64
			for range 2 { // the first time, the server learns the scripts
				s.wipeIfOpen()
				users := s.wide()
				first(t, users)
				got = s.tap.count(func() { err = c.do(t, users) })
			}
			if err != nil || got != c.want {
				t.Errorf("%s: %d round trips, %v; want %d", c.verb, got, err, c.want)
			}
		}
	})
}

// first makes the entry u.
func first(t *testing.T, users *userdb.Type) {
	t.Helper()
	_, err := users.Create(t.Context(), userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n", "email", "e", "job", "j"), Tags: []string{"a", "b"}})
	must(t, err)
}

func findAll(t *testing.T, users *userdb.Type, n int) error {
	hs := make([]hints.Hint, n)
	for i := range hs {
		hs[i] = []hints.Hint{hints.UID("u"), hints.Any("n"), hints.Field("email", "e")}[i%3]
	}
	got := 0
	for e, err := range users.FindAll(t.Context(), hs...) {
		if err != nil || e.UID() != "u" {
			return fmt.Errorf("%d: %v, %w", got, e, err)
		}
		got++
	}
	if got != n {
		return fmt.Errorf("%d answers to %d hints", got, n)
	}
	return nil
}

func listAll(t *testing.T, users *userdb.Type, q userdb.Query) error {
	n := 0
	for _, err := range users.All(t.Context(), q) {
		if err != nil {
			return err
		}
		n++
	}
	if n != 1 {
		return fmt.Errorf("%d entries", n)
	}
	return nil
}

// TestForgottenScripts lets the server forget all scripts between the verbs, as a new one has none.
func TestForgottenScripts(t *testing.T) {
	s := startServer(t)
	users := lossyStore(t, s)
	before, err := users.Find(t.Context(), hints.UID("u"))
	must(t, err)
	for name, verb := range everyVerb(s.first, users, before) {
		s.wipe()
		must(t, s.raw.ScriptFlush(t.Context()).Err())
		lossyStore(t, s)
		must(t, s.raw.ScriptFlush(t.Context()).Err())
		err := verb(t.Context())
		if name == "exhaustive" || name == "login" || name == "save" {
			continue // nobody is sought; a wrong password; an entry that was replaced
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.wipe()
}
