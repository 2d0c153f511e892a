package check_test

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCheckPasskeys checks that the passkeys of an entry are compared with the digests by which
// they are found, and that a repair changes neither.
func TestCheckPasskeys(t *testing.T) {
	one, other := strings.Repeat("1a", 32), strings.Repeat("2b", 32)
	name := "passkey/" + one[:32] + "x"
	addPasskey := cmds(
		cmd("HSET", "user/uid:u1", "~factor", name),
		cmd("HSET", "~/factor/{user/uid:u1}", name, "1 1   sealed"),
	)
	lost, orphan := "passkey_lost user/uid:u1", "passkey_orphan user/uid:u1"
	eachEngine(t, func(t *testing.T, s *site) {
		for _, tt := range []struct {
			name   string
			field  string
			values []string
			do     [][]string
			want   []string
		}{
			{"a passkey", "passkeys", []string{one}, addPasskey, nil},
			{"a passkey in another field", "keys", []string{one}, addPasskey, nil},
			{"a passkey without its digest", "passkeys", nil, addPasskey, []string{lost}},
			{"a passkey with the digest of another", "passkeys", []string{other}, addPasskey, []string{lost, orphan}},
			{"a digest beside that of the passkey", "passkeys", []string{one, other}, addPasskey, []string{orphan}},
			{"a digest beside that of the passkey, in another field", "keys", []string{other, one}, addPasskey, []string{orphan}},
			{"a digest without a passkey", "passkeys", []string{one}, nil, []string{orphan}},
			{"a digest without a passkey, in another field", "keys", []string{one}, nil, nil},
		} {
			t.Run(tt.name, func(t *testing.T) {
				sch := testdb.DefaultSchema()
				user := sch.Types["user"]
				user.Factors = true
				for _, field := range []string{"passkeys", "keys"} {
					user.Fields[field] = schema.Field{Role: schema.RoleSecondary, Typed: new(false), Many: 8}
				}
				sch.Types["user"] = user
				s := s.Under(t, sch)
				s.Clean(t)
				n := userdb.NewEntry{
					UID: "u1", Facets: schema.Texts("name", "n1"), Values: map[string][]string{"email": {"u1@x.org"}},
				}
				if len(tt.values) > 0 {
					n.Values[tt.field] = tt.values
				}
				if _, err := s.Type(t, "user").Create(s.Ctx, n); err != nil {
					t.Fatal(err)
				}
				s.damage(t, damage{do: tt.do}, 1)
				testdb.Same(t, "found", s.Check(t, check.Options{}), tt.want)
				testdb.Same(t, "found in the entry", s.Check(t, check.Options{Only: hints.UID("u1").Of("user")}), tt.want)
				s.Repaired(t, check.Options{})
				testdb.Same(t, "left", s.Check(t, check.Options{}), tt.want)
			})
		}
	})
}
