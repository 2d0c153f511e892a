package migrate_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

const originalFixture = "../../test/testdata/original/original_fixture.jsonl"

// An original is an entry that CoffeeNode UserDB, the original program, wrote.
type original struct {
	key    string
	fields map[string]string
	clear  string // the clear password; empty if it is not text
}

func readOriginals(t *testing.T) []original {
	t.Helper()
	file, err := os.Open(originalFixture)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []original
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Key, Type string
			Value     json.RawMessage
			Clear     json.RawMessage `json:"password_clear"`
		}
		testdb.Must(0, json.Unmarshal(lines.Bytes(), &line))
		if line.Type != "hash" {
			continue
		}
		o := original{key: line.Key}
		testdb.Must(0, json.Unmarshal(line.Value, &o.fields))
		_ = json.Unmarshal(line.Clear, &o.clear)
		all = append(all, o)
	}
	if len(all) == 0 || lines.Err() != nil {
		t.Fatal("no entries", lines.Err())
	}
	return all
}

// errorCodes returns the number of errors that a check leaves, for each code.
func (s *site) errorCodes(t *testing.T, o check.Options) map[string]int {
	t.Helper()
	codes := map[string]int{}
	for p, err := range check.Run(s.Ctx, s.DB, o) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Severity == check.SeverityError && !p.Repaired {
			codes[p.Code]++
		}
	}
	return codes
}

// TestMoving moves records of the original program, step by step, as docs/moving.md says.
func TestMoving(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = newSite(s.Under(t, testdb.OriginalSchema(t)))
		s.Load(t, originalFixture)
		all := readOriginals(t)

		// Check, repair, and decide who is alice@hotmail.com.
		want := map[string]int{"facet_undecodable": 1, "key_unparsable": 3, "value_shared": 1, "value_unkeyable": 3}
		if left := s.errorCodes(t, check.Options{Repair: true}); !maps.Equal(left, want) {
			t.Errorf("damage left by the repair: got %v, want %v", left, want)
		}
		alice := testdb.Must(recordkey.PRK("user", "uid", "17c07627d35e"))
		delete(want, "value_shared")
		if left := s.errorCodes(t, check.Options{Repair: true, Keep: []recordkey.Key{alice}}); !maps.Equal(left, want) {
			t.Errorf("damage left by the repair with Keep: got %v, want %v", left, want)
		}
		s.requireUnchanged(t, all)
		_, err := s.Type(t, "user").Update(s.Ctx, hints.UID("bd897df88169").Of("user"), func(e *userdb.Entry) error {
			e.Put("rating", schema.Null()) // it was undefined, which JSON does not have
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		delete(want, "facet_undecodable")
		oneIn := 20
		if t.Name() == "TestMoving/redis_" && !testdb.RaceEnabled && !testing.Short() {
			oneIn = 1
		}
		s.loginAll(t, all, oneIn)

		// Change to casefold: two more addresses differ only in case.
		to := testdb.OriginalSchema(t)
		user := to.Types["user"]
		user.Fold = schema.FoldCasefold
		to.Types["user"] = user
		if _, err := s.apply(s.Ctx, to); !errors.Is(err, migrate.ErrCollision) {
			t.Fatalf("applying casefold: got %v, want a collision", err)
		}
		_, err = s.Type(t, "user").Update(s.Ctx, hints.UID("46f9de89c9c5").Of("user"), func(e *userdb.Entry) error {
			e.Put("email", schema.Text("other@hotmail.com"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.apply(s.Ctx, to); err != nil {
			t.Fatal(err)
		}
		s.DB = s.withSchema(t, to)
		if left := s.errorCodes(t, check.Options{}); !maps.Equal(left, want) {
			t.Errorf("damage under casefold: got %v, want %v", left, want)
		}
		s.requireUnchanged(t, all, "user/uid:46f9de89c9c5", "user/uid:bd897df88169")
		for _, name := range []string{"BOB", "just a. user", "JUST  A. USER"} {
			if _, err := s.Type(t, "user").Find(s.Ctx, hints.Field("name", name).Of("user")); err != nil {
				t.Errorf("finding %s: %v", name, err)
			}
		}
	})
}

// loginAll logs in as every oneIn-th entry whose password is text of at most 72 bytes. It uses the
// address or, if that does not lead to the entry, the name. The original's hashes are slow to
// verify, so oneIn is 1 on one store only, and on none with -short or the race detector.
func (s *site) loginAll(t *testing.T, all []original, oneIn int) {
	t.Helper()
	user, n := s.Type(t, "user"), 0
	for _, o := range all {
		identifier := o.fields["email"]
		if lost := s.Raw.HExists(s.Ctx, s.Key(o.key), "~lost:email").Val(); identifier == "" || lost {
			identifier = o.fields["name"]
		}
		if o.clear == "" || len(o.clear) > 72 || !utf8.ValidString(o.clear) || strings.ContainsRune(o.clear, utf8.RuneError) {
			continue
		}
		if n++; n%oneIn != 0 {
			continue
		}
		if e, err := user.Login(s.Ctx, identifier, o.clear, userdb.Attempt{}); err != nil || s.Key(e.Key().In(recordkey.Namespace{}).String()) != s.Key(o.key) {
			t.Errorf("logging in as %q: got %v, %v; want %s", identifier, e.Key(), err, o.key)
		}
		if n%20 != 0 || len(o.clear) == 72 {
			continue // a refused login is as slow as a successful one
		}
		if _, err := user.Login(s.Ctx, identifier, o.clear+"x", userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
			t.Errorf("%s: login with a wrong password: want ErrLogin", o.key)
		}
	}
	if n < 50 {
		t.Errorf("only %d passwords can be tried, want at least 50", n)
	}
}

// requireUnchanged checks that every field that the original program wrote still has its value,
// possibly in ~lost:FIELD, and that no entry has a new facet. It leaves out the entries in except,
// which were changed meanwhile. If except is not empty, logins may also have replaced passwords.
func (s *site) requireUnchanged(t *testing.T, all []original, except ...string) {
	t.Helper()
	for _, o := range all {
		if slices.Contains(except, o.key) {
			continue
		}
		fields := s.Raw.HGetAll(s.Ctx, s.Key(o.key)).Val()
		for field, wire := range o.fields {
			rehashed := field == "password" && len(except) > 0
			if got, ok := fields[field]; (!ok || got != wire) && fields["~lost:"+field] != wire && !rehashed {
				t.Errorf("the field %s of %s is %q, want %q as before", field, o.key, got, wire)
			}
		}
		for field := range fields {
			if _, was := o.fields[field]; !was && !strings.HasPrefix(field, "~") {
				t.Errorf("%s has a new facet %q", o.key, field)
			}
		}
	}
}
