package userdb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A cost is the number of round trips of a method call. The call acts on the entry u, which has
// name n, e-mail e, job j, and tags a and b.
type cost struct {
	call string
	want int64 // round trips once the server has loaded the scripts
	do   func(t *testing.T, users *userdb.Type) error
}

// costs lists the costs of calls on a single server.
var costs = []cost{
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
	{"find nothing by *", 1, func(t *testing.T, users *userdb.Type) error {
		exists, err := users.Exists(t.Context(), hints.Any("nobody"))
		if exists {
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
		facets := schema.Texts("name", "m", "job", "j")
		_, err := users.Create(t.Context(), userdb.NewEntry{Facets: facets, Tags: []string{"a", "b"}})
		return err
	}},
	{"create a duplicate", 4, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "n", "email", "e")})
		if err == nil {
			return userdb.ErrNotFound
		}
		return nil
	}},
	{"update", 2, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Update(t.Context(), hints.Any("n"), putText("name", "m"))
		return err
	}},
	{"update without a change", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Update(t.Context(), hints.UID("u"), func(*userdb.Entry) error { return nil })
		return err
	}},
	{"update an indexed facet", 2, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Update(t.Context(), hints.UID("u"), putText("job", "k"))
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
	{"list a few entries", 2, func(t *testing.T, users *userdb.Type) error { return listAll(t, users, userdb.Query{}) }},
	{"list by index", 3, func(t *testing.T, users *userdb.Type) error {
		return listAll(t, users, userdb.Query{Where: schema.Texts("job", "j")})
	}},
	{"list by two tags", 4, func(t *testing.T, users *userdb.Type) error {
		return listAll(t, users, userdb.Query{Tags: []string{"a", "b"}})
	}},
	{"count by index", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Count(t.Context(), userdb.Query{Where: schema.Texts("job", "j")})
		return err
	}},
	{"count by tag", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Count(t.Context(), userdb.Query{Tags: []string{"a"}})
		return err
	}},
	{"count a few entries", 1, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Count(t.Context(), userdb.Query{})
		return err
	}},
	{"count a few enabled entries", 2, func(t *testing.T, users *userdb.Type) error {
		_, err := users.Count(t.Context(), userdb.Query{Disabled: new(false)})
		return err
	}},
}

// TestRoundTripsOfCalls counts the round trips of the calls in costs.
func TestRoundTripsOfCalls(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(oneScript)
		for _, c := range costs {
			var err error
			var got int64
			for range 2 { // the first run loads the scripts
				s.wipeIfOpen()
				users := s.wide()
				createU(t, users)
				got = s.tap.count(func() { err = c.do(t, users) })
			}
			want := c.want
			// The scripts of an embedded store cannot call SCAN.
			if c.call == "count a few entries" && !s.has(manyClients) {
				want = 2
			}
			if err != nil || got != want {
				t.Errorf("%s: %d round trips, %v; want %d", c.call, got, err, want)
			}
		}
	})
}

// createU creates the entry u that costs need.
func createU(t *testing.T, users *userdb.Type) {
	t.Helper()
	facets := schema.Texts("name", "n", "email", "e", "job", "j")
	_, err := users.Create(t.Context(), userdb.NewEntry{UID: "u", Facets: facets, Tags: []string{"a", "b"}})
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
			return fmt.Errorf("result %d: got %v, %w; want u", got, e, err)
		}
		got++
	}
	if got != n {
		return fmt.Errorf("got %d results, want one for each of %d hints", got, n)
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
		return fmt.Errorf("got %d entries, want 1", n)
	}
	return nil
}

// TestScriptsFlushed makes the server forget all scripts before each call, as if it had just
// started. Each call must still work.
func TestScriptsFlushed(t *testing.T) {
	s := startServer(t)
	users := lossyStore(t, s)
	before, err := users.Find(t.Context(), hints.UID("u"))
	must(t, err)
	for name, method := range basicMethods(s.first, users, before) {
		s.wipe()
		must(t, s.raw.ScriptFlush(t.Context()).Err())
		lossyStore(t, s)
		must(t, s.raw.ScriptFlush(t.Context()).Err())
		err := method(t.Context())
		if name == "exhaustive" || name == "login" || name == "save" {
			continue // these fail for other reasons: no such entry, a wrong password, a conflict
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.wipe()
}

// An errorReply is an error that a server sends as its reply.
type errorReply string

func (r errorReply) Error() string { return string(r) }

// RedisError implements redis.Error.
func (errorReply) RedisError() {}

// refuseLookupScript makes every script whose first key is an SRK fail, as on a server that lets
// scripts access only declared keys. It counts these scripts in sent.
func (t *tap) refuseLookupScript(sent *int) {
	answer := errorReply("ERR Script tried accessing undeclared key")
	t.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		var refused []redis.Cmder
		for _, cmd := range cmds {
			name, args := strings.ToLower(cmd.Name()), cmd.Args()
			if name != "evalsha" && name != "eval" || len(args) < 4 {
				continue
			}
			if key, err := recordkey.Parse(argument(args[3])); err == nil && key.Kind() == recordkey.KindSRK {
				refused = append(refused, cmd)
			}
		}
		err := send()
		for _, cmd := range refused {
			*sent++
			cmd.SetErr(answer)
			err = answer
		}
		return err
	})
}

// TestLookupScriptRefused looks up entries on a server that refuses the lookup script. Single
// commands must find the same entries, and the script must not be tried for every lookup.
func TestLookupScriptRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(oneScript)
		users, ctx := s.wide(), t.Context()
		add(t, users, "u", "name", "Ann", "email", "e", "job", "j")
		add(t, users, "v", "name", "bob", "nick", "Bob")
		must(t, s.raw.Set(ctx, "user/name:ghost/~prk", "user/uid:ghost", 0).Err())
		must(t, s.raw.Set(ctx, "user/name:stale/~prk", "user/uid:u", 0).Err())
		s.expect("I4 user/name:ghost/~prk", "I4 user/name:stale/~prk")
		sent := 0
		s.tap.refuseLookupScript(&sent)
		finds := map[string]struct {
			h   hints.Hint
			uid string
		}{
			"any field":             {hints.Any("ANN"), "u"},
			"one field":             {hints.Field("email", "E"), "u"},
			"name and nick of v":    {hints.Any("BOB"), "v"},
			"value of no entry":     {hints.Any("nobody"), ""},
			"SRK without an entry":  {hints.Any("ghost"), ""},
			"SRK out of date":       {hints.Any("stale"), ""},
			"facets of one entry":   {hints.Facets(schema.Texts("name", "ann", "email", "e")), "u"},
			"facets of two entries": {hints.Facets(schema.Texts("name", "ann", "nick", "bob")), ""},
			"UID":                   {hints.UID("v"), "v"},
		}
		for name, f := range finds {
			e, err := users.Find(ctx, f.h)
			if f.uid == "" {
				wantErr(t, name, err, userdb.ErrNotFound)
			} else if err != nil || e.UID() != f.uid {
				t.Errorf("%s: found %v, %v; want %q", name, e, err, f.uid)
			}
			for e, err := range users.FindAll(ctx, f.h, hints.UID("u"), hints.Any("ann")) {
				if e.UID() == "" && f.uid != "" {
					t.Errorf("%s among other hints: %v", name, err)
				}
			}
		}
		if sent == 0 || sent > 6 {
			t.Errorf("the script was sent %d times, want 1 to 6", sent)
		}
		_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("nick", "ANN")})
		wantErr(t, "create", err, userdb.ErrDuplicate)
		_, err = users.Update(ctx, hints.Any("ann"), putText("name", "Anna"))
		must(t, err)
		s.tap.set(nil)
	})
}
