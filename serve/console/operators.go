package console

import (
	"net/http"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// maxOperatorsShown limits the operators on their page.
const maxOperatorsShown = 200

// An operatorRow describes an operator for the page that lists them.
type operatorRow struct {
	Name, Namespace    string
	Added              time.Time
	Disabled, TwoSteps bool
}

// listOperators shows the operators whom the operator who asks may see.
func (c *Console) listOperators(w http.ResponseWriter, r *http.Request) {
	found, err := c.operators.Page(r.Context(), userdb.Query{Order: admin.OperatorName, Limit: maxOperatorsShown})
	if err != nil && !isAny(err, userdb.ErrCorrupt) { // the other operators are fine
		c.fail(w, r, err)
		return
	}
	var all []operatorRow
	for _, e := range found.Entries {
		if !admin.CanSee(operatorNamespace(r), e.Text(admin.OperatorNamespace)) {
			continue
		}
		one := operatorRow{Name: e.Text(admin.OperatorName), Namespace: e.Text(admin.OperatorNamespace), Disabled: e.Disabled(), TwoSteps: hasFactor(e)}
		if v, ok := e.Get(admin.OperatorAdded); ok {
			one.Added, _ = v.Time()
		}
		all = append(all, one)
	}
	c.show(w, r, http.StatusOK, page{Name: "operators", Title: "Operators", Data: all})
}
