package check_test

import (
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// untypedSchema returns the schema testdb.DefaultSchema with an untyped field.
func untypedSchema() schema.Schema {
	s := testdb.DefaultSchema()
	s.Types["user"].Fields["ext"] = schema.Field{Role: schema.RoleSecondary, Typed: new(false), Many: 3}
	return s
}

// untypedUsers creates two entries. Each has a value in the untyped field that the other has in a
// typed field.
func (s *site) untypedUsers(t testdb.Tester) {
	t.Helper()
	for _, e := range []userdb.NewEntry{
		{UID: "u1", Facets: schema.Texts("name", "n1"), Values: map[string][]string{"email": {"u1@x.org", "also@x.org"}, "ext": {"x", "n2"}}},
		{UID: "u2", Facets: schema.Texts("name", "n2"), Values: map[string][]string{"email": {"u2@x.org"}, "ext": {"u1@x.org", "also@x.org"}}},
	} {
		if _, err := s.Type(t, "user").Create(s.Ctx, e); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckUntyped checks that a value in an untyped field is compared with no other field, and
// that every damage of such a value is found and repaired.
func TestCheckUntyped(t *testing.T) {
	const u1, u2, srkX, srkAddress = "user/uid:u1", "user/uid:u2", "user/ext:x/~prk", "user/ext:u1@x.org/~prk"
	shared := cmds(cmd("HSET", u2, "ext", "x"), cmd("DEL", srkAddress))
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, untypedSchema())
		for _, tt := range []struct {
			name       string
			do         [][]string
			want, left []string
		}{
			{"no damage", nil, nil, nil},
			{"no SRK", cmds(cmd("DEL", srkX)), []string{"srk_missing " + srkX}, nil},
			{"no SRK of a further value", cmds(cmd("DEL", "user/ext:n2/~prk")), []string{"srk_missing user/ext:n2/~prk"}, nil},
			{"an SRK without an entry", cmds(cmd("SET", "user/ext:z/~prk", "user/uid:z")), []string{"srk_orphan user/ext:z/~prk"}, nil},
			{"an SRK of a former value", cmds(cmd("SET", "user/ext:z/~prk", u1)), []string{"srk_stale user/ext:z/~prk"}, nil},
			{"an SRK that names the owner of the value in another field", cmds(cmd("SET", srkAddress, u1)), []string{"srk_stale " + srkAddress, "srk_wrong " + srkAddress}, nil},
			{"another canonical form", cmds(cmd("HSET", u1, "~skv:ext", "q")), []string{"skv_wrong " + u1}, nil},
			{"a further value without its name", cmds(cmd("HSET", u1, "~also:ext", "1 - -")), []string{"further_wrong " + u1}, nil},
			{"shared in the field", shared, []string{"value_shared " + srkX}, []string{"value_shared " + srkX}},
			{"shared in the field, and another value shared in a typed field", append(cmds(cmd("HSET", u2, "name", "n1"), cmd("DEL", "user/name:n2/~prk")), shared...), []string{"value_shared " + srkX, "value_shared user/name:n1/~prk"}, []string{"value_shared " + srkX, "value_shared user/name:n1/~prk"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				s.Clean(t)
				s.untypedUsers(t)
				for _, words := range tt.do {
					s.Do(t, words...)
				}
				testdb.Same(t, "found", s.Check(t, check.Options{}), tt.want)
				s.Repaired(t, check.Options{})
				testdb.Same(t, "left", s.Check(t, check.Options{}), tt.left)
			})
		}
	})
}

// TestRepairKeepsUntyped gives a value that two entries have in an untyped field to one of them.
// The other entry must keep the same value in a typed field. It does the same with the two fields
// exchanged.
func TestRepairKeepsUntyped(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, untypedSchema())
		for what, do := range map[string][][]string{
			"ext":   cmds(cmd("HSET", "user/uid:u1", "~also:ext:u1@x.org", "3 - -")),
			"email": cmds(cmd("HSET", "user/uid:u2", "~also:email:u1@x.org", "3 - -")),
		} {
			s.Clean(t)
			s.untypedUsers(t)
			for _, words := range do {
				s.Do(t, words...)
			}
			keeper := map[string]string{"ext": "u2", "email": "u1"}[what]
			_, left := s.Repaired(t, check.Options{Keep: []recordkey.Key{testdb.Must(recordkey.PRK("user", "uid", keeper))}})
			testdb.Same(t, what+": left", left, nil)
			testdb.Same(t, what+": left", s.Check(t, check.Options{}), nil)
			for field, want := range map[string]string{"ext": "u2", "email": "u1"} {
				e, err := s.Type(t, "user").Find(s.Ctx, hints.Field(field, "u1@x.org").Of("user"))
				if err != nil || e.UID() != want {
					t.Errorf("shared in %s: Find by %s returns %q, %v; want %s", what, field, e.UID(), err, want)
				}
			}
		}
	})
}
