package maintain_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

func TestStoredSchema(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		got, err := maintain.StoredSchema(s.ctx, s.db)
		if err != nil || len(got.Types) != 0 {
			t.Fatalf("nothing written yet: %v, %v", got, err)
		}
		s.user(t, 1)
		if got, err = maintain.StoredSchema(s.ctx, s.db); err != nil || !reflect.DeepEqual(got.Names(), []string{"user"}) {
			t.Fatalf("one type written: %v, %v", got, err)
		}
		s.clean(t)
		if got, err = maintain.StoredSchema(s.ctx, s.db); err != nil || !reflect.DeepEqual(got, house()) {
			t.Fatalf("all types written: %+v, %v", got, err)
		}
		s.do(t, "DEL", "~/schema/firm")
		if got, err = maintain.StoredSchema(s.ctx, s.db); err != nil || !reflect.DeepEqual(got.Names(), []string{"user"}) {
			t.Fatalf("one with nothing stored but its name: %v, %v", got, err)
		}
	})
}

func TestStoredSchemaDamaged(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		do         []string
	}{
		{"no JSON", "damaged record: ~/types: the stored schema of type \"firm\" is no JSON", cmd("HSET", "~/schema/firm", "schema", "{")},
		{"of a later version", "damaged record: ~/types: the stored schema cannot be read: schema: types.firm.colour: ", cmd("HSET", "~/schema/firm", "schema", `{"primary":"id","colour":"red"}`)},
		{"not the one of the fingerprint", "damaged record: ~/schema/firm: the schema is not the one that the fingerprint is of", cmd("HSET", "~/schema/firm", "schema", `{"primary":"id"}`)},
		{"without a fingerprint", "damaged record: ~/schema/firm: the schema is not the one that the fingerprint is of", cmd("HDEL", "~/schema/firm", "fingerprint")},
		{"of another Redis type", "damaged record: ~/types: the stored schema of type \"firm\" is no JSON", cmd("SET", "~/schema/firm", "x")},
		{"types of another Redis type", "damaged record: ~/types: not a set", cmd("SET", "~/types", "x")},
		{"no name", "damaged record: ~/types: it names a type that no key can name", cmd("SADD", "~/types", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
			s.clean(t)
			s.do(t, tt.do...)
			_, err := maintain.StoredSchema(s.ctx, s.db)
			if !errors.Is(err, userdb.ErrCorrupt) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestPasswordHash(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.clean(t)
		for _, h := range []hints.Hint{hints.UID("u0"), hints.Any("U0@X.ORG"), hints.Field("name", "name of u0").Of("user")} {
			got, err := maintain.PasswordHash(s.ctx, s.db, "user", h)
			want := s.raw.HGet(s.ctx, s.key("user/uid:u0"), "password").Val()
			if err != nil || got != want || !strings.HasPrefix(got, "$2a$") {
				t.Errorf("%v: got %q, %v, want %q", h, got, err, want)
			}
		}
		if got, err := maintain.PasswordHash(s.ctx, s.db, "user", hints.UID("friend")); got != "" || err != nil {
			t.Errorf("none: %q, %v", got, err)
		}
		if _, err := maintain.PasswordHash(s.ctx, s.db, "user", hints.UID("nobody")); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("nobody: %v", err)
		}
		if _, err := maintain.PasswordHash(s.ctx, s.db, "", hints.UID("u0")); !errors.Is(err, hints.ErrHint) {
			t.Errorf("no type: %v", err)
		}
	})
}

// TestCheckStoredUnreadable: a schema in the database that differs and cannot be read is no reason to
// take all records for damaged.
func TestCheckStoredUnreadable(t *testing.T) {
	s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
	s.clean(t)
	s.do(t, "HSET", "~/schema/firm", "fingerprint", "other", "schema", "{")
	same(t, "of all", s.check(t, maintain.CheckOptions{}), []string{"own_schema ~/schema/firm"})
}
