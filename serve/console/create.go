package console

import (
	"errors"
	"net/http"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// typeName is the name of the input for the type of a new account. No facet has such a name.
const typeName = "~type"

// newAccountTitle is the heading of the form for a new account.
const newAccountTitle = "New account"

// newAccount shows the form for a new account.
func (c *Console) newAccount(w http.ResponseWriter, r *http.Request) {
	db, t, err := c.namedType(r, r.FormValue("type"))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.showNew(w, r, db, t, nil)
}

// namedType returns the type with a name, or the first type if the name is "".
func (c *Console) namedType(r *http.Request, name string) (*userdb.DB, *userdb.Type, error) {
	db, err := c.view(r.Context())
	if err != nil {
		return nil, nil, err
	}
	if all := db.Schema().Names(); name == "" && len(all) > 0 {
		name = all[0]
	}
	t, err := db.Type(name)
	if err != nil {
		return nil, nil, userdb.ErrNotFound
	}
	return db, t, nil
}

func (c *Console) showNew(w http.ResponseWriter, r *http.Request, db *userdb.DB, t *userdb.Type, problems []web.Problem) {
	declared := db.Schema().Types[t.Name()]
	a := account{Type: t.Name(), Path: "/console/new", Fields: newEditors(userdb.Entry{}, declared), Taken: findOwners(r, db, t, problems, r.PostForm)}
	c.show(w, r, statusOf(problems), page{Name: "new", Title: newAccountTitle, RailPath: "/console/types/" + t.Name(), Problems: problems, Data: a})
}

// createAccount creates an account without a password.
func (c *Console) createAccount(w http.ResponseWriter, r *http.Request) {
	db, t, err := c.namedType(r, r.PostFormValue(typeName))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	declared := db.Schema().Types[t.Name()]
	facets := schema.Facets{}
	for _, one := range newEditors(userdb.Entry{}, declared) {
		if entered, changed := enteredChange(r.PostForm, one); changed {
			facets[one.Name] = parseEntered(declared, one, entered)
		}
	}
	e, err := t.Create(r.Context(), userdb.NewEntry{Facets: facets})
	if err == nil {
		http.Redirect(w, r, accountPath(e.Type(), e.UID())+"?done=new", http.StatusSeeOther)
		return
	}
	problems := web.Problems(err)
	if isServiceProblem(problems) || isAny(err, userdb.ErrNotFound, admin.ErrOperatorDisabled) {
		c.fail(w, r, err)
		return
	}
	c.showNew(w, r, db, t, problems)
}

// deleteAccount deletes an account and everything that is stored about it.
func (c *Console) deleteAccount(w http.ResponseWriter, r *http.Request) {
	_, t, err := c.pathType(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	done := "delete"
	switch err = t.Delete(r.Context(), hints.UID(r.PathValue("uid"))); {
	case errors.Is(err, userdb.ErrNotFound): // after a double click, the first form has deleted it
		done = "deleted"
	case err != nil:
		c.fail(w, r, err)
		return
	}
	http.Redirect(w, r, typePath(t.Name())+"?done="+done, http.StatusSeeOther)
}
