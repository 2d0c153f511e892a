package userdb_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestDomainsStayApart gives two people addresses at two domains that were one value once, and looks for
// them by everything that means one of the two (I2).
func TestDomainsStayApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := s.users()
		spellings := map[string][]string{
			"sharp":  {"bob@straße.de", "BOB@STRAẞE.DE", "bob@xn--strae-oqa.de", "Bob＠Straße．de", `"bob"@straße.de.`, "bo\u00adb@straße.de"},
			"double": {"bob@strasse.de", "BOB@STRASSE.DE", `"b\ob"@strasse。de`, "bo\u034fb@strasse.de.", "bob\u3164@stra\u200dsse.de"},
			"final":  {"a@σίσυφος.gr", "a@xn--kxa6ajbbmh.gr"},
			"middle": {"a@σίσυφοσ.gr", "A@ΣΊΣΥΦΟΣ.GR"},
			"joined": {"a@نامه\u200cای.com", "a@xn--mgba3gch31f060k.com"},
			"apart":  {"a@نامهای.com"},
		}
		for who, emails := range spellings {
			entry := userdb.NewEntry{UID: who, Facets: schema.Texts("email", emails[0], "name", who)}
			if _, err := users.Create(t.Context(), entry); err != nil {
				t.Fatalf("%s: %v", who, err)
			}
		}
		n := 0
		for who, emails := range spellings {
			for _, email := range emails {
				for _, h := range []hints.Hint{hints.Any(email), hints.Field("email", email)} {
					if e, err := users.Find(t.Context(), h); err != nil || e.UID() != who {
						t.Errorf("%+q is %q, want %s: %v", email, e.UID(), who, err)
					}
				}
				n++
				other := userdb.NewEntry{UID: fmt.Sprint(n), Facets: schema.Texts("email", email, "name", fmt.Sprint("n", n))}
				if _, err := users.Create(t.Context(), other); !errors.Is(err, userdb.ErrDuplicate) && !errors.Is(err, userdb.ErrInvalid) {
					t.Errorf("%+q once more: %v", email, err)
				}
			}
		}
	})
}
