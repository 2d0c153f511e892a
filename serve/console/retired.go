package console

import (
	"net/http"
	"net/url"

	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// A retiredList holds one page of the retired UIDs of a type.
type retiredList struct {
	Type  string
	UIDs  []userdb.RetiredUID
	After string // where the page begins, "" for the first one
	Next  string // path of the next page, or ""
}

// retiredPath returns the path of the page that lists the retired UIDs of a type.
func retiredPath(typ, after string) string {
	values := url.Values{"type": {typ}}
	if after != "" {
		values.Set("after", after)
	}
	return "/console/retired?" + values.Encode()
}

// retired lists the retired UIDs of a type.
func (c *Console) retired(w http.ResponseWriter, r *http.Request) {
	c.showRetired(w, r)
}

// showRetired sends a page of the retired UIDs of the type that a form or a query names.
func (c *Console) showRetired(w http.ResponseWriter, r *http.Request, problems ...web.Problem) {
	t, err := c.formType(r)
	l := retiredList{After: r.FormValue("after")}
	if err == nil {
		var next string
		l.Type = t.Name()
		if l.UIDs, next, err = t.RetiredPage(r.Context(), l.After, pageSize); next != "" {
			l.Next = retiredPath(l.Type, next)
		}
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	p := page{Name: "retired", Title: "UIDs of deleted accounts: " + l.Type, RailPath: "/console/types/" + l.Type, Data: l, Problems: problems}
	c.show(w, r, statusOf(problems), p)
}

// forgetUID allows a retired UID to be reused. It asks for confirmation first.
func (c *Console) forgetUID(w http.ResponseWriter, r *http.Request) {
	uid := r.PostFormValue("uid")
	t, err := c.formType(r)
	if err == nil && uid != "" && r.PostFormValue(confirmName) == "" {
		data := struct{ Type, UID, Back string }{t.Name(), uid, retiredPath(t.Name(), "")}
		c.show(w, r, http.StatusOK, page{Name: "retired-confirm", Title: "Allow this UID to be reused?", Data: data})
		return
	}
	if err == nil {
		err = t.ForgetUID(r.Context(), uid)
	}
	switch {
	case t != nil && (isAbsent(err) || userdb.CodeOf(err) == userdb.CodeHint):
		c.showRetired(w, r, web.Problem{Field: "uid", Code: userdb.CodeNotFound, Text: "No deleted account holds this UID."})
	case err != nil:
		c.fail(w, r, err)
	default:
		http.Redirect(w, r, retiredPath(t.Name(), ""), http.StatusSeeOther)
	}
}

// formType returns the type that a form or a query names.
func (c *Console) formType(r *http.Request) (*userdb.Type, error) {
	db, err := c.view(r.Context())
	if err != nil {
		return nil, err
	}
	t, err := db.Type(r.FormValue("type"))
	if err != nil {
		err = userdb.ErrNotFound
	}
	return t, err
}
