package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A heldValue describes a held value for a page.
type heldValue struct {
	userdb.HeldValue
	Type string
	Path string // of the account; "" if it was deleted
	Back string
}

// findHeld returns the held values of a type that match q.
func findHeld(ctx context.Context, t *userdb.Type, declared schema.Type, q string) (all []heldValue, err error) {
	for _, field := range declared.Secondary() {
		if declared.Fields[field].Hold == 0 {
			continue
		}
		h, err := t.FindHeld(ctx, field, q)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		one := heldValue{HeldValue: h, Type: t.Name(), Back: "/console/find?q=" + url.QueryEscape(q)}
		if _, err := t.Former(ctx, field, q); err == nil {
			one.Path = accountPath(t.Name(), h.UID)
		}
		all = append(all, one)
	}
	return all, nil
}

// releaseHeld lets others take a held value. It asks for confirmation first.
func (c *Console) releaseHeld(w http.ResponseWriter, r *http.Request) {
	field, value := r.PostFormValue("field"), r.PostFormValue("value")
	t, err := c.formType(r)
	var found []heldValue
	if err == nil {
		declared := t.Schema()
		declared.Fields = map[string]schema.Field{field: declared.Fields[field]}
		found, err = findHeld(r.Context(), t, declared, value)
	}
	if err == nil && len(found) == 0 {
		err = userdb.ErrNotFound
	}
	if err == nil && r.PostFormValue(confirmName) == "" {
		h := found[0]
		if h.Path != "" {
			h.Back = h.Path
		}
		c.show(w, r, http.StatusOK, page{Name: "held-confirm", Title: "Let others take this value?", Data: h})
		return
	}
	if err == nil {
		err = t.ReleaseHeld(r.Context(), field, value)
	}
	if t != nil && errors.Is(err, userdb.ErrNotFound) { // as after a double click
		c.show(w, r, http.StatusNotFound, page{Name: "message", Title: "This value is not held", Data: "Nobody has to wait for it. It may have been released just now."})
		return
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/console/find?q="+url.QueryEscape(value), http.StatusSeeOther)
}
