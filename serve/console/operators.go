package console

import (
	"net/http"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on the page of operators: how many it shows, and how many it reads. Tests lower the
// second.
const maxOperatorsShown = 200

var maxOperatorsRead = 20_000

// An operatorsPage lists operators. More reports whether there may be more of them.
type operatorsPage struct {
	All  []operatorRow
	More bool
}

// An operatorRow describes an operator for the page that lists them.
type operatorRow struct {
	Name, Namespace    string
	Added              time.Time
	Disabled, TwoSteps bool
}

// listOperators shows the operators that the signed-in operator may see.
func (c *Console) listOperators(w http.ResponseWriter, r *http.Request) {
	var p operatorsPage
	read := 0
	for e, err := range c.operators.All(r.Context(), userdb.Query{Order: admin.OperatorName}) {
		if read++; read > maxOperatorsRead {
			p.More = true
			break
		}
		if isAny(err, userdb.ErrCorrupt) { // the other operators are fine
			continue
		}
		if err != nil {
			c.fail(w, r, err)
			return
		}
		if !admin.CanSee(operatorNamespace(r), e.Text(admin.OperatorNamespace)) {
			continue
		}
		if p.More = len(p.All) == maxOperatorsShown; p.More {
			break
		}
		one := operatorRow{Name: e.Text(admin.OperatorName), Namespace: e.Text(admin.OperatorNamespace), Disabled: e.Disabled(), TwoSteps: hasFactor(e)}
		if v, ok := e.Get(admin.OperatorAdded); ok {
			one.Added, _ = v.Time()
		}
		p.All = append(p.All, one)
	}
	c.show(w, r, http.StatusOK, page{Name: "operators", Title: "Operators", Data: p})
}
