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

// pageSize is the number of accounts on a page of a list. maxRead limits the accounts that are read
// for a page if no index applies, and maxReadBytes their approximate size.
const (
	pageSize     = 25
	maxRead      = 500
	maxReadBytes = 8 << 20
)

// A listing holds one page of the accounts of a type.
type listing struct {
	Type, Path  string
	NewPath     string // path of the form for a new account
	Label       header // of the column with the labels
	Columns     []header
	Choices     []choice // of columns
	Rows        []row
	Conditions  []condition
	Kept        []input  // parameters that forms keep
	KeptColumns []input  // the chosen columns, which a form for another filter keeps
	Filters     []filter // what a form for another filter offers
	Dated       string   // the ordered field that says when accounts were added, or ""
	HasTags     bool
	Disabled    string
	Next, Prev  string // paths, or "" if there is no such page
	Count       string
	CountedAt   time.Time  // zero if the accounts were counted in the last minute
	Short       bool       // the page is not full, but later pages may have more accounts
	Tags        []shownTag // those of the filter that come from groups of directories
	RetiredPath string     // path of the page that lists retired UIDs, if the type has them
	GroupsPath  string     // path of the page that lists groups of directories, or ""
	CountPath   string     // path of the page that counts the accounts, if this one does not
}

// A filter is an option of the form for another filter, which adds a condition to a list. By is
// what the form sends.
type filter struct{ By, Text string }

// A header describes a column heading. Path leads to the list sorted by the column, or in the
// opposite order if it is sorted by it already; Path is "" if the column has no order. From is the
// class of a column that only wide windows show, or "".
type header struct{ Name, Path, Sort, From string }

// A choice is a column that can be shown.
type choice struct {
	Name  string
	Shown bool
}

type row struct {
	UID         string
	Path, Label string
	Disabled    bool
	Cells       []cell
}

// A cell shows one facet. At is set if the facet is a date. Class has classes of the stylesheet.
type cell struct {
	Column, Text, Class string
	At                  time.Time
}

// A condition describes what all listed accounts have in common. Without is the path of the list
// without the condition.
type condition struct{ Name, Value, Text, Without string }

func (c *Console) list(w http.ResponseWriter, r *http.Request) {
	db, t, err := c.pathType(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	params := r.URL.Query()
	done := params.Get("done")
	params.Del("done") // no link of the page repeats the message
	declared := db.Schema().Types[t.Name()]
	dated := dateOrder(declared)
	if params.Has("by") {
		c.filterList(w, r, params, dated)
		return
	}
	q, err := parseQuery(params, declared)
	var found userdb.Page
	if err == nil {
		found, err = readPage(r.Context(), t, &q, dated)
	}
	l := newListing(t.Name(), declared, params, q, found)
	if l.GroupsPath != "" && err == nil {
		var tags []shownTag
		tags, err = showTags(r.Context(), db, t.Name(), q.Tags)
		l.nameGroups(tags)
	}
	p, status := page{Name: "list", Title: "Accounts", Full: true, Done: doneMessages[done]}, http.StatusOK
	if len(db.Schema().Types) > 1 {
		p.Title += ": " + t.Name()
	}
	switch {
	case err == nil:
		c.setCount(r.Context(), &l, t, q, params)
	case isAny(err, userdb.ErrCorrupt): // the other accounts are fine
		p.Problems = []web.Problem{{Text: "A damaged account has been left out. The Check page says which."}}
	case isAny(err, userdb.ErrInvalid, userdb.ErrCursor, hints.ErrHint):
		p.Problems, status = []web.Problem{{Text: queryProblem(err)}}, userdb.CodeOf(err).HTTPStatus()
	default:
		c.fail(w, r, err)
		return
	}
	p.Data = l
	c.show(w, r, status, p)
}

// filterList redirects to the list that the form for another filter asks for.
func (c *Console) filterList(w http.ResponseWriter, r *http.Request, params url.Values, dated string) {
	rest, ok := filterParams(params, dated)
	if !ok {
		c.show(w, r, http.StatusUnprocessableEntity, page{Name: "message", Title: "Nothing was filtered", Data: "A list has either the values that begin with a text or the accounts that were added between two dates. Leave one of them out."})
		return
	}
	http.Redirect(w, r, r.URL.EscapedPath()+"?"+rest.Encode(), http.StatusSeeOther)
}

// newListing returns a page of a list. params are the parameters of the request, q is the query
// made from them, and found holds the accounts that q found.
func newListing(name string, t schema.Type, params url.Values, q userdb.Query, found userdb.Page) listing {
	path := typePath(name)
	l := listing{
		Type: name, Path: path, NewPath: "/console/new?" + url.Values{"type": {name}}.Encode(), Filters: listFilters(t), Dated: dateOrder(t),
		Disabled: params.Get("disabled"), HasTags: slices.Contains(t.IndexedTertiary(), "tags"),
		Conditions: activeConditions(path, params),
		Kept:       keptInputs(params, "where", "tag", "disabled", "order", "reverse", "prefix", "gte", "lte"), KeptColumns: keptInputs(params, "col"),
		Next: pagePath(path, params, "n.", found.Next), Prev: pagePath(path, params, "p.", found.Prev),
	}
	if t.Retire {
		l.RetiredPath = retiredPath(name, "")
	}
	if mayHaveGroups(t) {
		l.GroupsPath = groupsPath(name, "")
	}
	l.chooseColumns(t, params, q, found.Entries)
	for _, e := range found.Entries {
		l.Rows = append(l.Rows, newRow(e, t, l.Columns))
	}
	return l
}

// setCount sets the number of accounts that q selects or, if counting them may take long, the path
// of the page that counts them.
func (c *Console) setCount(ctx context.Context, l *listing, t *userdb.Type, q userdb.Query, params url.Values) {
	l.Short = l.Next != "" && len(l.Rows) < pageSize
	counted := cleanParams(params, "after")
	switch whole := l.Next == "" && params.Get("after") == ""; {
	case whole:
		l.Count = accountsText(int64(len(l.Rows)))
	case isIndexed(q) || params.Has("count"):
		l.Count, l.CountedAt = c.countText(ctx, t, q, cleanParams(counted, "order", "reverse", "count").Encode())
	default:
		counted.Set("count", "true")
		l.CountPath = l.Path + "?" + counted.Encode()
	}
}

// nameGroups sets the tags of the filter that come from groups, and names the groups in the filter.
func (l *listing) nameGroups(tags []shownTag) {
	for _, tag := range tags {
		if tag.Group == "" {
			continue
		}
		l.Tags = append(l.Tags, tag)
		for i, one := range l.Conditions {
			if one.Name == "tag" && one.Value == tag.Name && tag.IsOfGroup() {
				l.Conditions[i].Text = "group " + tag.Group
			}
		}
	}
}

// dateOrder returns the field that says when an account was added, if lists can be ordered by it.
func dateOrder(t schema.Type) string {
	if slices.Contains(t.Ordered(), "added") && t.Fields["added"].Codec == schema.CodecDate {
		return "added"
	}
	return ""
}

// readPage reads a page of a list. If the list has no order, the field dated orders it, the newest
// first, unless an index answers its filter. With an order, Page would read all accounts in that
// order instead of the few that the index names. The order is set in q.
func readPage(ctx context.Context, t *userdb.Type, q *userdb.Query, dated string) (userdb.Page, error) {
	if q.Order != "" || dated == "" || len(q.Where)+len(q.Tags) > 0 {
		return t.Page(ctx, *q)
	}
	plain := *q
	q.Order, q.Reverse = dated, true
	found, err := t.Page(ctx, *q)
	if isAny(err, userdb.ErrIndexBuilding) {
		*q = plain
		found, err = t.Page(ctx, *q)
	}
	return found, err
}

// beginsWith precedes the name of a field in the form for another filter, if the form sends only
// the beginning of a value. No field has such a name.
const beginsWith = "~prefix:"

// filterParams returns the parameters of the list that a form for another filter asks for. The form
// sends a field ("by"), a value, and two dates ("from" and "to"). A list has only one range, either
// a beginning of texts or two dates, so the one that was chosen last replaces an earlier one. ok is
// false if both are chosen at once.
func filterParams(params url.Values, dated string) (rest url.Values, ok bool) {
	value, from, to := params.Get("value"), params.Get("from"), params.Get("to")
	by, begins := strings.CutPrefix(params.Get("by"), beginsWith)
	begins = begins && value != ""
	dates := dated != "" && (from != "" || to != "")
	switch {
	case begins && dates:
		return nil, false
	case begins:
		params = cleanParams(params, "reverse", "gte", "lte")
		params.Set("order", by)
		params.Set("prefix", value)
	case dates:
		params = cleanParams(params, "prefix")
		params.Set("order", dated)
		params.Set("reverse", "true")
		params.Set("gte", from)
		params.Set("lte", to)
	}
	if value != "" && !begins {
		params.Add("where", by+":"+value)
	}
	rest = cleanParams(params, "by", "value", "from", "to", "after", "count")
	ranged := rest.Has("prefix") || rest.Has("gte") || rest.Has("lte")
	if (rest.Has("where") || rest.Has("tag")) && !ranged {
		// With an order, the query would read all accounts in that order, and use no index.
		rest.Del("order")
		rest.Del("reverse")
	}
	return rest, true
}

// keptInputs returns inputs that hold the named parameters.
func keptInputs(params url.Values, names ...string) (all []input) {
	for _, name := range names {
		for _, value := range params[name] {
			if value != "" {
				all = append(all, input{Name: name, Value: value})
			}
		}
	}
	return all
}

// chooseColumns sets the columns of a list: those that were chosen or else, of the usual ones,
// those that are not empty on this page. Unless they were chosen, only wide windows show all.
func (l *listing) chooseColumns(t schema.Type, params url.Values, q userdb.Query, entries []userdb.Entry) {
	usual := listColumns(t)
	all := slices.Clone(usual)
	for _, field := range fieldNames(t) {
		if !slices.Contains(all, field) {
			all = append(all, field)
		}
	}
	if fields := labelFields(t); len(fields) > 0 {
		l.Label = l.header(t, params, q, fields[0])
		all = slices.DeleteFunc(all, func(field string) bool { return field == fields[0] })
	}
	rank := 0 // of the column among those that the list is not sorted by
	for _, field := range all {
		empty := !slices.ContainsFunc(entries, func(e userdb.Entry) bool { return e.Text(field) != "" })
		shown := slices.Contains(params["col"], field)
		if len(params["col"]) == 0 {
			shown = slices.Contains(usual, field) && !empty
		}
		l.Choices = append(l.Choices, choice{field, shown})
		if shown {
			h := l.header(t, params, q, field)
			if len(params["col"]) == 0 && h.Sort == "" {
				h.From = widthOf(rank)
				rank++
			}
			l.Columns = append(l.Columns, h)
		}
	}
}

// widthOf returns the class of a column, by its rank among the usual ones: the stylesheet hides the
// later ones in a window in which they do not fit. The page of the account has everything.
func widthOf(rank int) string {
	switch {
	case rank < 1:
		return ""
	case rank < 3:
		return "from-900"
	}
	return "from-1200"
}

// header returns the header of the column of a field, in a list that q has read.
func (l *listing) header(t schema.Type, params url.Values, q userdb.Query, field string) header {
	h := header{Name: field}
	if !slices.Contains(t.Ordered(), field) {
		return h
	}
	next := cleanParams(params, "after", "order", "reverse", "prefix", "gte", "lte")
	if q.Order == field {
		h.Sort = "ascending"
		next = cleanParams(params, "after", "reverse")
		if q.Reverse {
			h.Sort = "descending"
		} else {
			next.Set("reverse", "true")
		}
	}
	next.Set("order", field)
	h.Path = l.Path + "?" + next.Encode()
	return h
}

// maxConditions is how many fields, and how many tags, a list can be filtered by.
const maxConditions = 20

// parseQuery parses the parameters of a list. They are the same as in the HTTP service.
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
	if err := parseBounds(&q, params, t); err != nil {
		return q, err
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

// parseBounds parses the parameters that select a range of an ordered list. A date without a time
// of day stands for the whole day, as in parseWhen.
func parseBounds(q *userdb.Query, params url.Values, t schema.Type) error {
	if q.Order == "" {
		return nil
	}
	q.Prefix = t.Canonical(params.Get("prefix"))
	for name, bound := range map[string]**schema.Value{"gte": &q.GTE, "lte": &q.LTE} {
		text := params.Get(name)
		if text == "" {
			continue
		}
		if from, after, err := parseWhen(text); err == nil && t.Codec(q.Order) == schema.CodecDate {
			if name == "lte" {
				from = after.Add(-time.Nanosecond).Truncate(time.Millisecond)
			}
			text = from.UTC().Format(time.RFC3339Nano)
		}
		v, err := schema.ParseText(t.Codec(q.Order), text)
		if err != nil {
			return &userdb.FieldError{Err: userdb.ErrInvalid, Field: q.Order, Rule: "codec", Reason: err.Error()}
		}
		*bound = &v
	}
	return nil
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

// pagePath returns the path of the next or previous page, or "" if there is none. which is "n." for
// the next page and "p." for the previous one.
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
	for name, words := range map[string]string{"prefix": " begins with ", "gte": " from ", "lte": " until "} {
		if text := params.Get(name); text != "" && params.Get("order") != "" {
			all = append(all, condition{name, text, params.Get("order") + words + text, path + "?" + cleanParams(params, "after", name).Encode()})
		}
	}
	slices.SortStableFunc(all, func(a, b condition) int { return strings.Compare(a.Name, b.Name) })
	if status := map[string]string{"true": "disabled", "false": "not disabled"}[params.Get("disabled")]; status != "" {
		all = append(all, condition{"disabled", params.Get("disabled"), status, path + "?" + cleanParams(params, "after", "disabled").Encode()})
	}
	return all
}

// maxColumns limits the number of columns that a list has, besides the label, if none were chosen.
const maxColumns = 8

// listColumns returns the usual columns of a list: identifiers, then indexed and ordered fields,
// then all others. It leaves out identifiers that nobody types, which mean nothing to a reader.
func listColumns(t schema.Type) []string {
	var all []string
	for _, more := range [][]string{t.Secondary(), t.Indexed(), t.Ordered(), fieldNames(t)} {
		for _, field := range more {
			if t.Fields[field].IsTyped() && !slices.Contains(all, field) {
				all = append(all, field)
			}
		}
	}
	if fields := labelFields(t); len(fields) > 0 {
		all = slices.DeleteFunc(all, func(field string) bool { return field == fields[0] })
	}
	return all[:min(len(all), maxColumns)]
}

// listFilters returns what a list can be filtered by: values of the primary field, of identifying
// fields and of indexed fields, and beginnings of the texts in ordered fields.
func listFilters(t schema.Type) (all []filter) {
	fields := append([]string{t.Primary}, append(t.Secondary(), t.Indexed()...)...)
	slices.Sort(fields)
	for _, field := range slices.Compact(fields) {
		all = append(all, filter{field, field + " is"})
	}
	for _, field := range t.Ordered() {
		if c := t.Codec(field); c == schema.CodecText || c == schema.CodecIdentity {
			all = append(all, filter{beginsWith + field, field + " begins with"})
		}
	}
	return all
}

func newRow(e userdb.Entry, t schema.Type, columns []header) row {
	r := row{UID: e.UID(), Path: accountPath(e.Type(), e.UID()), Label: accountLabel(e, t), Disabled: e.Disabled()}
	for _, column := range columns {
		one := cell{Column: column.Name, Text: truncate(e.Text(column.Name)), Class: column.From}
		if v, ok := e.Get(column.Name); ok {
			one.At, _ = v.Time()
		}
		if slices.Contains(t.Typed(), column.Name) {
			one.Class = strings.TrimSpace(one.Class + " typed")
		}
		if one.Text == "" {
			one.Class = strings.TrimSpace(one.Class + " empty")
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
func (c *Console) countText(ctx context.Context, t *userdb.Type, q userdb.Query, name string) (text string, at time.Time) {
	if q.After, q.Before, q.Limit, q.Reverse = "", "", 0, false; isUnbounded(q) {
		q.Order = ""
	}
	ctx, cancel := withFigureTimeout(ctx)
	defer cancel()
	total, at := gatherFigure(ctx, &c.figures, "count/"+t.Name()+"?"+name, figureAge, func(ctx context.Context) (userdb.Total, error) { return t.Count(ctx, q) })
	if at.IsZero() {
		return "The accounts are being counted", at
	}
	text = accountsText(total.Entries)
	if total.Estimate {
		text = "About " + text
	}
	if time.Since(at) < time.Minute {
		at = time.Time{}
	}
	return text, at
}

func accountsText(n int64) string {
	if n == 1 {
		return "1 account"
	}
	return formatNumber(n) + " accounts"
}

// isIndexed reports whether the size of a single index is the number of entries that a query
// selects.
func isIndexed(q userdb.Query) bool {
	return q.Disabled == nil && len(q.Where)+len(q.Tags) <= 1 && isUnbounded(q)
}

// isUnbounded reports whether the order of a query leaves out no entries.
func isUnbounded(q userdb.Query) bool { return q.Prefix == "" && q.GTE == nil && q.LTE == nil }

// queryProblem returns what is wrong with a query.
func queryProblem(err error) string {
	if field, ok := errors.AsType[*userdb.FieldError](err); ok {
		return strings.TrimPrefix(field.Field+": ", ": ") + field.Reason + "."
	}
	return "This page of the list no longer exists. Start again from the first page."
}
