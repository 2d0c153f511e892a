package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// pageSize is the number of accounts on a page of a list. maxRead is the number of accounts read
// for it if no index applies, and maxReadBytes is the approximate size of the accounts read.
const (
	pageSize     = 25
	maxRead      = 500
	maxReadBytes = 8 << 20
)

// A listing holds one page of the accounts of a type.
type listing struct {
	Path         string
	Columns      []string
	Rows         []row
	Conditions   []condition
	FilterFields []string // fields that can be filtered by
	Orders       []string // fields that lists can be ordered by
	HasTags      bool
	Order        string
	Reverse      bool
	Disabled     string
	Next, Prev   string // paths, or "" if there is no such page
	Count        string
	Short        bool   // the page is not full, but later pages may have more accounts
	RetiredPath  string // path of the page that lists retired UIDs, if the type has them
	CountPath    string // path of the page that counts them, if this one does not
}

type row struct {
	Path, Label string
	Disabled    bool
	Cells       []cell
}

// A cell shows one facet. At is set if the facet is a date.
type cell struct {
	Column, Text string
	At           time.Time
}

// A condition is a filter. Without is the path of the list without it.
type condition struct{ Name, Value, Text, Without string }

func (c *Console) list(w http.ResponseWriter, r *http.Request) {
	db, t, err := c.pathType(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	params := r.URL.Query()
	// The form for a new filter sends the parameters by and value.
	if by, value := params.Get("by"), params.Get("value"); by != "" || value != "" {
		if params.Del("by"); value != "" {
			params.Add("where", by+":"+value)
		}
		http.Redirect(w, r, r.URL.EscapedPath()+"?"+cleanParams(params, "value", "after").Encode(), http.StatusSeeOther)
		return
	}
	declared := db.Schema().Types[t.Name()]
	q, err := parseQuery(params, declared)
	var found userdb.Page
	if err == nil {
		found, err = t.Page(r.Context(), q)
	}
	l := listing{
		Path: typePath(t.Name()), Columns: listColumns(declared), FilterFields: filterFields(declared), Orders: declared.Ordered(), Order: params.Get("order"),
		Reverse: params.Get("reverse") == "true", Disabled: params.Get("disabled"), HasTags: slices.Contains(declared.IndexedTertiary(), "tags"),
		Conditions: activeConditions(typePath(t.Name()), params),
	}
	if declared.Retire {
		l.RetiredPath = retiredPath(t.Name(), "")
	}
	for _, e := range found.Entries {
		l.Rows = append(l.Rows, newRow(e, declared, l.Columns))
	}
	l.Next, l.Prev = pagePath(l.Path, params, "n.", found.Next), pagePath(l.Path, params, "p.", found.Prev)
	p, status := page{Name: "list", Title: "Accounts: " + t.Name()}, http.StatusOK
	switch {
	case isAny(err, userdb.ErrCorrupt): // the other accounts are fine
		p.Problems = []web.Problem{{Text: "A damaged account has been left out. The Check page says which."}}
	case isAny(err, userdb.ErrInvalid, userdb.ErrCursor, hints.ErrHint):
		p.Problems, status = []web.Problem{{Text: queryProblem(err)}}, userdb.CodeOf(err).HTTPStatus()
	case err != nil:
		c.fail(w, r, err)
		return
	default:
		l.Short = found.Next != "" && len(l.Rows) < pageSize
		switch whole := found.Next == "" && params.Get("after") == ""; {
		case whole:
			l.Count = accountsText(int64(len(l.Rows)))
		case isIndexed(q) || params.Has("count"):
			l.Count = c.countText(r.Context(), t, q, cleanParams(params, "after", "order", "reverse", "count").Encode())
		default:
			l.CountPath = l.Path + "?" + cleanParams(url.Values{"count": {"true"}, "where": params["where"], "tag": params["tag"], "disabled": params["disabled"], "order": params["order"], "reverse": params["reverse"]}).Encode()
		}
	}
	p.Data = l
	c.show(w, r, status, p)
}

// maxConditions is how many fields, and how many tags, a list can be filtered by.
const maxConditions = 20

// parseQuery parses the parameters of a list, which are those of the HTTP service.
func parseQuery(params url.Values, t schema.Type) (userdb.Query, error) {
	q := userdb.Query{Limit: pageSize, MaxRead: maxRead, MaxBytes: maxReadBytes, Order: params.Get("order"), Reverse: params.Get("reverse") == "true" && params.Get("order") != "", Where: schema.Facets{}}
	for _, name := range []string{"where", "tag"} {
		if len(params[name]) > maxConditions {
			return q, &userdb.FieldError{Err: userdb.ErrInvalid, Field: name, Rule: "max", Reason: "a list takes at most 20 conditions"}
		}
	}
	for _, tag := range params["tag"] {
		if tag != "" {
			q.Tags = append(q.Tags, tag)
		}
	}
	for _, text := range params["where"] {
		field, value, _ := strings.Cut(text, ":")
		v, err := schema.ParseText(t.Codec(field), value)
		if err != nil {
			return q, &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "codec", Reason: err.Error()}
		}
		if text != "" {
			q.Where[field] = v
		}
	}
	switch params.Get("disabled") {
	case "true":
		q.Disabled = new(true)
	case "false":
		q.Disabled = new(false)
	}
	if after := params.Get("after"); strings.HasPrefix(after, "p.") {
		q.Before = after[2:]
	} else {
		q.After = strings.TrimPrefix(after, "n.")
	}
	return q, nil
}

// cleanParams returns a copy of params without the given names and without empty values.
func cleanParams(params url.Values, without ...string) url.Values {
	rest := url.Values{}
	for name, values := range params {
		if slices.Contains(without, name) {
			continue
		}
		for _, v := range values {
			if v != "" {
				rest.Add(name, v)
			}
		}
	}
	return rest
}

// pagePath returns the path of the next or previous page, or "" if there is none.
func pagePath(path string, params url.Values, which, cursor string) string {
	if cursor == "" {
		return ""
	}
	next := cleanParams(params, "after")
	next.Set("after", which+cursor)
	return path + "?" + next.Encode()
}

func activeConditions(path string, params url.Values) (all []condition) {
	for _, name := range []string{"where", "tag"} {
		for _, text := range params[name] {
			rest := cleanParams(params, "after")
			rest[name] = slices.DeleteFunc(slices.Clone(rest[name]), func(other string) bool { return other == text })
			shown := strings.Replace(text, ":", " is ", 1)
			if name == "tag" {
				shown = "tag " + text
			}
			if text != "" {
				all = append(all, condition{name, text, shown, path + "?" + rest.Encode()})
			}
		}
	}
	return all
}

// maxColumns limits the number of fields that a list shows besides the label. Identifiers come
// first, followed by indexed fields.
const maxColumns = 8

func listColumns(t schema.Type) []string {
	all := t.Secondary()
	for _, more := range [][]string{t.Indexed(), t.Ordered(), fieldNames(t)} {
		for _, field := range more {
			if !slices.Contains(all, field) {
				all = append(all, field)
			}
		}
	}
	if fields := labelFields(t); len(fields) > 0 {
		all = slices.DeleteFunc(all, func(field string) bool { return field == fields[0] })
	}
	return all[:min(len(all), maxColumns)]
}

// filterFields returns the fields that a list can be filtered by: the primary field, identifying
// fields and indexed fields.
func filterFields(t schema.Type) []string {
	all := append([]string{t.Primary}, append(t.Secondary(), t.Indexed()...)...)
	slices.Sort(all)
	return slices.Compact(all)
}

func newRow(e userdb.Entry, t schema.Type, columns []string) row {
	r := row{Path: accountPath(e.Type(), e.UID()), Label: accountLabel(e, t), Disabled: e.Disabled()}
	for _, field := range columns {
		one := cell{Column: field, Text: truncate(e.Text(field))}
		if v, ok := e.Get(field); ok {
			one.At, _ = v.Time()
		}
		r.Cells = append(r.Cells, one)
	}
	return r
}

// truncate shortens text to fit in a table.
func truncate(text string) string {
	if letters := []rune(text); len(letters) > 80 {
		return string(letters[:79]) + "…"
	}
	return text
}

// countText returns how many accounts a query selects, as far as is known.
func (c *Console) countText(ctx context.Context, t *userdb.Type, q userdb.Query, name string) string {
	q.After, q.Before, q.Limit, q.Order, q.Reverse = "", "", 0, "", false
	ctx, cancel := withFigureTimeout(ctx)
	defer cancel()
	total, at := gatherFigure(ctx, &c.figures, "count/"+t.Name()+"?"+name, figureAge, func(ctx context.Context) (userdb.Total, error) { return t.Count(ctx, q) })
	if at.IsZero() {
		return "The accounts are being counted"
	}
	text := accountsText(total.Entries)
	if total.Estimate {
		text = "About " + text
	}
	if age := time.Since(at); age > 5*time.Second {
		text += ", " + age.Round(time.Second).String() + " ago"
	}
	return text
}

func accountsText(n int64) string {
	if n == 1 {
		return "1 account"
	}
	return formatNumber(n) + " accounts"
}

// isIndexed reports whether the size of a single index is the number of entries that a query
// selects.
func isIndexed(q userdb.Query) bool { return q.Disabled == nil && len(q.Where)+len(q.Tags) <= 1 }

// queryProblem returns what is wrong with a query.
func queryProblem(err error) string {
	if field, ok := errors.AsType[*userdb.FieldError](err); ok {
		return strings.TrimPrefix(field.Field+": ", ": ") + field.Reason + "."
	}
	return "This page of the list no longer exists. Start again from the first page."
}
