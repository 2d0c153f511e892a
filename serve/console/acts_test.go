package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/userdb"
)

// acts are what operators did as the feed tells it, the oldest first, as "KIND WHO ABOUT ORIGIN".
func (d *desk) acts() (all []string) {
	d.t.Helper()
	page, err := d.db.Events(d.t.Context(), userdb.EventQuery{Limit: 1000})
	must(d.t, err)
	for _, e := range page.Events {
		if e.Kind.OfOperator() {
			all = append(all, fmt.Sprint(e.Kind, " ", e.Who, " ", e.Purpose, " ", e.Origin))
		}
	}
	return all
}

// TestActs: what operators do is told with their names and from where, also where no histories are kept.
func TestActs(t *testing.T) {
	for _, history := range []bool{true, false} {
		t.Run(fmt.Sprintf("history %v", history), func(t *testing.T) {
			d := openWith(t, "memory:", history)
			d.make("u1", "name", "Alice")
			other := d.another()
			other.do(http.StatusUnprocessableEntity, "/console/signin", "name", "OLGA", "password", "wrong")
			other.do(http.StatusUnprocessableEntity, "/console/signin", "name", "my own password", "password", "wrong")
			d.do(http.StatusOK, "/console/keys", "name", "shop", "scope", "read")
			d.do(http.StatusSeeOther, "/console/keys/revoke", "name", "shop")
			d.do(http.StatusSeeOther, "/console/keys/revoke", "name", "shop") // it is revoked: nothing is done
			d.post(http.StatusSeeOther, "/console/types/user/u1/waits")
			d.over(d.do(http.StatusSeeOther, "/console/export", "type", ""))
			d.over(d.do(http.StatusSeeOther, "/console/check", "repair", "true", "confirm", "true"))
			want := []string{
				"operator_login operator:Olga  127.0.0.1",
				"operator_login_failed visitor Olga 127.0.0.1",
				"operator_login_failed visitor  127.0.0.1",
				"key_create operator:Olga shop 127.0.0.1",
				"key_revoke operator:Olga shop 127.0.0.1",
				"waits operator:Olga  127.0.0.1",
				"export operator:Olga Export of all accounts 127.0.0.1",
				"repair operator:Olga Repair of all accounts 127.0.0.1",
			}
			if got := d.acts(); !slices.Equal(got, want) {
				t.Errorf("told:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			d.has(d.do(http.StatusOK, "/console/history"), "This store: Operator Olga made the API key “shop” from 127.0.0.1",
				"A visitor failed to sign in to the console as Olga from 127.0.0.1", "Operator Olga began: Export of all accounts")
		})
	}
}
