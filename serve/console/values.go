package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A valueList holds the values of a field that may have several.
type valueList struct {
	Field     string
	Values    []valueRow
	Addresses bool // the values are mail addresses
	Linked    bool // the values are identities at other providers, which nobody types
	Required  bool // the last value cannot be removed
	Limit     int  // how many values the schema allows
}

// Full reports whether the schema allows no more values.
func (l valueList) Full() bool { return len(l.Values) >= l.Limit }

// A valueRow is one value of a list. The first one is the facet.
type valueRow struct {
	Text, Label     string
	Index           int
	First, Verified bool
}

// newValueLists returns the values of an entry in all fields that may have several. Fields without
// a value are missing: their first value is set like any other facet.
func newValueLists(e userdb.Entry, t schema.Type) (lists []valueList) {
	all := e.FieldValues()
	for _, field := range fieldNames(t) {
		f := t.Fields[field]
		l := valueList{Field: field, Addresses: f.HasAddresses(), Required: f.Required, Limit: f.MaxValues(), Linked: f.Role.Has(schema.RoleSecondary) && !f.IsTyped()}
		for i, v := range all[field] {
			verified := !v.Verified.IsZero()
			if i == 0 {
				verified = e.Verified(field)
			}
			l.Values = append(l.Values, valueRow{Text: v.Text, Label: v.Label, Index: i, First: i == 0, Verified: verified})
		}
		if len(l.Values) > 0 {
			lists = append(lists, l)
		}
	}
	return lists
}

// addName and rowsName return the names by which a page refers to two parts of a field's form: the
// input for another value, and the list of the values that it has. No facet has such a name.
func addName(field string) string  { return "~add:" + field }
func rowsName(field string) string { return "~rows:" + field }

// A valueChange is a change of one value of a field, as a form asks for it.
type valueChange struct {
	field, do, rev string
	entered        string // the value to add
	index          int    // index of the value to remove or to make the first
}

// newValueChange reads the form. A form names a value by its index in the revision that the page
// shows, because browsers may change its text.
func newValueChange(form url.Values, t schema.Type) valueChange {
	v := valueChange{field: form.Get("field"), do: form.Get("do"), rev: form.Get("rev"), entered: form.Get("value"), index: -1}
	if index, err := strconv.Atoi(form.Get("index")); err == nil {
		v.index = index
	}
	if t.Fields[v.field].HasAddresses() {
		v.entered = strings.TrimSpace(v.entered) // as it is stored
	}
	return v
}

// inputs returns the inputs of a form that asks for the same change.
func (v valueChange) inputs() []input {
	all := []input{{Name: "rev", Value: v.rev}, {Name: "field", Value: v.field}, {Name: "do", Value: v.do}}
	if v.do == "add" {
		return append(all, input{Name: "value", Value: v.entered})
	}
	return append(all, input{Name: "index", Value: strconv.Itoa(v.index)})
}

// apply makes the change in e, which must have the revision that the page shows.
func (v valueChange) apply(e *userdb.Entry) error {
	if e.Rev() != v.rev {
		return userdb.ErrConflict
	}
	texts := e.Texts(v.field)
	switch {
	case v.do == "add" && v.entered == "":
		return &userdb.FieldError{Err: userdb.ErrInvalid, Field: v.field, Rule: "required", Reason: "there is no value"}
	case v.do == "add":
		if e.AddText(v.field, v.entered); len(e.Texts(v.field)) == len(texts) {
			return &userdb.FieldError{Err: userdb.ErrInvalid, Field: v.field, Rule: "same", Reason: "this account has it already"}
		}
	case v.index < 0 || v.index >= len(texts):
		return userdb.ErrConflict
	case v.do == "first":
		e.PutFirst(v.field, texts[v.index])
	case v.do == "remove":
		e.DropText(v.field, texts[v.index])
	}
	return nil
}

// changeValues adds a value to a field that may have several, removes one or makes one the first.
// It asks for confirmation first, unless the values stay the same.
func (c *Console) changeValues(w http.ResponseWriter, r *http.Request) {
	db, t, e, ok := c.findAccount(w, r)
	if !ok {
		return
	}
	declared := db.Schema().Types[t.Name()]
	v, after := newValueChange(r.PostForm, declared), e
	if declared.Fields[v.field].MaxValues() < 2 || !slices.Contains([]string{"add", "first", "remove"}, v.do) {
		c.fail(w, r, userdb.ErrNotFound)
		return
	}
	err := v.apply(&after)
	if err == nil {
		err = t.Check(r.Context(), after)
	}
	changes := compareValues(v.field, e.Texts(v.field), after.Texts(v.field))
	if err == nil && len(changes) > 0 && r.PostForm.Get(confirmName) == "" {
		path := accountPath(e.Type(), e.UID())
		q := question{Path: path + "/values", Back: path, Label: accountLabel(e, declared), Changes: changes, Inputs: v.inputs()}
		q.warn(e, after, declared)
		c.show(w, r, http.StatusOK, page{Name: "edit-confirm", Title: confirmTitle, Data: q})
		return
	}
	if err == nil {
		_, err = t.Update(r.Context(), hints.Key(e.Key()), v.apply)
	}
	if v.do == "add" && errors.Is(err, userdb.ErrConflict) {
		now, readErr := t.Find(r.Context(), hints.Key(e.Key()))
		if readErr == nil && slices.Contains(now.Texts(v.field), v.entered) {
			err = nil // after a double click, the first form has added it
		}
	}
	e, problems, ok := c.respondSaved(w, r, t, e, err)
	if !ok {
		return
	}
	taken := findOwners(r, db, t, problems, map[string][]string{v.field: {v.entered}})
	name := rowsName(v.field)
	if v.do == "add" {
		name = addName(v.field)
	}
	for i := range problems {
		if problems[i].Field == v.field { // show it beside this form, and not beside the facet
			problems[i].Field = name
		}
	}
	c.showAccount(w, r, db, t, e, func(a *account, p *page) {
		p.Problems, p.Form = problems, map[string][]string{addName(v.field): {r.PostForm.Get("value")}}
		a.Taken = taken
	})
}

// compareValues describes what changes in the values of a field.
func compareValues(field string, before, after []string) (all []identifierChange) {
	gone := func(text string) bool { return !slices.Contains(after, text) }
	added := func(text string) bool { return !slices.Contains(before, text) }
	several := len(before) > 0
	switch {
	case len(before) == 0 || len(after) == 0 || before[0] == after[0]:
	case gone(before[0]) && added(after[0]):
		all = append(all, identifierChange{Field: field, From: before[0], To: after[0]})
		before, after = before[1:], after[1:]
	default:
		all = append(all, identifierChange{Field: field, To: after[0], First: true})
	}
	for _, text := range before {
		if gone(text) {
			all = append(all, identifierChange{Field: field, From: text})
		}
	}
	for _, text := range after {
		if added(text) {
			all = append(all, identifierChange{Field: field, To: text, Added: several})
		}
	}
	return all
}

// warn adds to q what a change of identifiers means for signing in: which mail addresses do not
// count before they are verified, and whether no identifier is left.
func (q *question) warn(before, after userdb.Entry, t schema.Type) {
	left := false
	for _, field := range t.Secondary() {
		left = left || after.Text(field) != ""
		if t.Fields[field].MaxValues() < 2 || !t.Fields[field].HasAddresses() {
			continue
		}
		earlier := before.Texts(field)
		for i, text := range after.Texts(field) {
			was := slices.Index(earlier, text)
			if moved := was < 0 && i > 0 || was >= 0 && (was == 0) != (i == 0); moved && !after.VerifiedText(field, text) {
				q.Unverified = append(q.Unverified, text)
			}
		}
	}
	q.None = !left
}
