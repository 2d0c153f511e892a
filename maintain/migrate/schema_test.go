package migrate_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

func TestStoredSchema(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		got, err := migrate.StoredSchema(s.Ctx, s.DB)
		if err != nil || len(got.Types) != 0 {
			t.Fatalf("nothing written yet: got %v, %v; want no type", got, err)
		}
		s.User(t, 1)
		if got, err = migrate.StoredSchema(s.Ctx, s.DB); err != nil || !reflect.DeepEqual(got.Names(), []string{"user"}) {
			t.Fatalf("one type written: got %v, %v; want the type user", got, err)
		}
		s.Clean(t)
		if got, err = migrate.StoredSchema(s.Ctx, s.DB); err != nil || !reflect.DeepEqual(got, testdb.DefaultSchema()) {
			t.Fatalf("all types written: got %+v, %v; want the schema of the tests", got, err)
		}
		s.Do(t, "DEL", "~/schema/firm")
		if got, err = migrate.StoredSchema(s.Ctx, s.DB); err != nil || !reflect.DeepEqual(got.Names(), []string{"user"}) {
			t.Fatalf("a type with only its name stored: got %v, %v; want only the type user", got, err)
		}
	})
}

func TestStoredSchemaDamaged(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		do         []string
	}{
		{"a schema that is not JSON", "damaged record: ~/types: the stored schema of type \"firm\" is not JSON", []string{"HSET", "~/schema/firm", "schema", "{"}},
		{"a schema of a later version", "damaged record: ~/types: the stored schema cannot be read: schema: types.firm.colour: ", []string{"HSET", "~/schema/firm", "schema", `{"primary":"id","colour":"red"}`}},
		{"a schema that does not match the fingerprint", "damaged record: ~/schema/firm: the stored schema does not match its fingerprint", []string{"HSET", "~/schema/firm", "schema", `{"primary":"id"}`}},
		{"a schema without a fingerprint", "damaged record: ~/schema/firm: the stored schema does not match its fingerprint", []string{"HDEL", "~/schema/firm", "fingerprint"}},
		{"a schema of another Redis type", "damaged record: ~/types: the stored schema of type \"firm\" is not JSON", []string{"SET", "~/schema/firm", "x"}},
		{"~/types of another Redis type", "damaged record: ~/types: not a set", []string{"SET", "~/types", "x"}},
		{"an empty type name", "damaged record: ~/types: it lists a type name that no key can hold", []string{"SADD", "~/types", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
			s.Clean(t)
			s.Do(t, tt.do...)
			_, err := migrate.StoredSchema(s.Ctx, s.DB)
			if !errors.Is(err, userdb.ErrCorrupt) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestPasswordHash(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.Clean(t)
		for _, h := range []hints.Hint{hints.UID("u0"), hints.Any("U0@X.ORG"), hints.Field("name", "name of u0").Of("user")} {
			got, err := transfer.PasswordHash(s.Ctx, s.DB, "user", h)
			want := s.Raw.HGet(s.Ctx, s.Key("user/uid:u0"), "password").Val()
			if err != nil || got != want || !strings.HasPrefix(got, "$2a$") {
				t.Errorf("%v: got %q, %v, want %q", h, got, err, want)
			}
		}
		if got, err := transfer.PasswordHash(s.Ctx, s.DB, "user", hints.UID("friend")); got != "" || err != nil {
			t.Errorf("an entry without a password: got %q, %v; want no hash and no error", got, err)
		}
		if _, err := transfer.PasswordHash(s.Ctx, s.DB, "user", hints.UID("nobody")); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("an unknown UID: got %v, want ErrNotFound", err)
		}
		if _, err := transfer.PasswordHash(s.Ctx, s.DB, "", hints.UID("u0")); !errors.Is(err, hints.ErrHint) {
			t.Errorf("a hint without a type: got %v, want ErrHint", err)
		}
	})
}

// TestCheckStoredUnreadable checks that a check reports no damage of entries if the stored schema
// cannot be read.
func TestCheckStoredUnreadable(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	s.Do(t, "HSET", "~/schema/firm", "fingerprint", "other", "schema", "{")
	testdb.Same(t, "all entries", s.Check(t, check.Options{}), []string{"own_schema ~/schema/firm"})
}
