package migrate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestHoldsEnd checks that an entry and a deleted one hold nothing in a field that is no longer
// secondary or has another name, and that check finds no damage then.
func TestHoldsEnd(t *testing.T) {
	held := schema.Field{Role: schema.RoleSecondary, Many: 4, Hold: schema.Period(time.Hour)}
	from := userSchema(schema.FoldCasefold, field("email", held))
	renamed := held
	renamed.Was = "email"
	eachEngine(t, func(t *testing.T, s *site) {
		for what, to := range map[string]schema.Schema{
			"a removed field": userSchema(schema.FoldCasefold, drop("email")),
			"another role":    userSchema(schema.FoldCasefold, field("email", index)),
			"another name":    userSchema(schema.FoldCasefold, drop("email"), field("mail", renamed)),
		} {
			t.Run(what, func(t *testing.T) {
				s.flush(t)
				s.DB = s.withSchema(t, from)
				s.createTexts(t, from, "u", []string{"a", "b"})
				s.createTexts(t, from, "gone", []string{"c"})
				user := s.Type(t, "user")
				_, err := user.Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error {
					e.DropText("email", "b")
					return nil
				})
				if err == nil {
					err = user.Delete(s.Ctx, hints.UID("gone"))
				}
				if err != nil || !s.Raw.HExists(s.Ctx, s.Key("user/uid:u"), "~held:email:b").Val() {
					t.Fatalf("giving up values: %v, or none is held", err)
				}
				if _, err := s.apply(s.Ctx, to); err != nil {
					t.Fatal(err)
				}
				s.requireFields(t, "u", map[string]string{}, "~held")
				s.DB = s.withSchema(t, to)
				got := slices.DeleteFunc(s.Check(t, check.Options{}), func(p string) bool { return strings.HasPrefix(p, "field_missing") })
				testdb.Same(t, "check", got, nil)
			})
		}
	})
}
