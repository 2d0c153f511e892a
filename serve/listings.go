package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

func (s *Service) registerListings() {
	read := []string{admin.ScopeRead}
	handle(s, route{id: "listEntries", method: "GET", path: typePrefix + "/entries", scopes: read, summary: "List entries, a page at a time"}, listEntries)
	handle(s, route{id: "countEntries", method: "GET", path: typePrefix + "/count", scopes: read, summary: "Count entries"}, countEntries)
	handleType(s, route{id: "lookupEntry", method: "POST", path: typePrefix + "/lookup", scopes: read, summary: "Find the entry with an identifier"}, lookupEntry)
	handleType(s, route{id: "getEntries", method: "POST", path: typePrefix + "/entries/get", scopes: read, summary: "Get entries by their UIDs"}, getEntries)
}

// A Filter describes which entries a request concerns.
type Filter struct {
	Where    []string     `query:"where,explode" maxItems:"20" doc:"FIELD:VALUE of an indexed or an identifying field; all conditions must hold"`
	Tag      []string     `query:"tag,explode" maxItems:"20" doc:"a tag of the entry; all conditions must hold"`
	Order    string       `query:"order" doc:"an ordered field to sort by"`
	Prefix   string       `query:"prefix" doc:"the beginning of the text in the ordered field"`
	GTE      string       `query:"gte" doc:"the least value of the ordered field"`
	LTE      string       `query:"lte" doc:"the greatest value of the ordered field"`
	Disabled OptionalBool `query:"disabled" doc:"true for disabled entries only, false for others only"`
}

// toQuery returns the query that a filter describes, and everything that is wrong with the filter.
func (in Filter) toQuery(r *http.Request, t schema.Type) (q userdb.Query, wrong []FieldProblem) {
	// An empty value would select all entries, as if it were absent.
	for _, name := range []string{"where", "tag"} {
		if slices.Contains(r.URL.Query()[name], "") {
			wrong = append(wrong, paramProblem(name, "must not be empty"))
		}
	}
	q = userdb.Query{Order: in.Order, Prefix: in.Prefix, Tags: in.Tag, Where: schema.Facets{}}
	for _, text := range in.Where {
		field, value, ok := strings.Cut(text, ":")
		_, twice := q.Where[field]
		v, err := schema.ParseText(t.Codec(field), value)
		switch {
		case !ok && text != "":
			wrong = append(wrong, paramProblem("where", "want FIELD:VALUE"))
		case twice:
			wrong = append(wrong, paramProblem("where", "a field appears twice"))
		case err != nil:
			wrong = append(wrong, paramProblem("where", "%s: %v", field, err))
		}
		q.Where[field] = v
	}
	for _, bound := range []struct {
		name, text string
		to         **schema.Value
	}{{"gte", in.GTE, &q.GTE}, {"lte", in.LTE, &q.LTE}} {
		if bound.text == "" {
			continue
		}
		v, err := schema.ParseText(t.Codec(in.Order), bound.text)
		if err != nil {
			wrong = append(wrong, paramProblem(bound.name, "%v", err))
		}
		*bound.to = &v
	}
	if in.Order == "" && in.Prefix+in.GTE+in.LTE != "" {
		wrong = append(wrong, paramProblem("order", "prefix, gte and lte need order=FIELD"))
	}
	if in.Disabled.set {
		q.Disabled = &in.Disabled.value
	}
	return q, wrong
}

// maxRead is how many entries a page may read. It may examine a hundred times as many keys.
const maxRead = 1000

// maxReadBytes is the approximate size of the entries that a request may read. Tests lower it.
var maxReadBytes = 8 << 20

// sizeOf returns the size of an entry, by which reads are limited.
func sizeOf(e userdb.Entry) (bytes int) {
	for field, v := range e.Facets() {
		bytes += len(field) + len(v.Wire())
	}
	for _, texts := range e.Values() {
		for _, text := range texts {
			bytes += len(text)
		}
	}
	return bytes
}

type listInput struct {
	TypePath
	Filter
	Reverse bool   `query:"reverse" doc:"from the greatest value to the least"`
	Limit   int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	After   string `query:"after" maxLength:"12288" doc:"next or prev from another page"`
}

// A Page holds some of the entries of a listing.
type Page struct {
	Entries []Entry `json:"entries"`
	Next    *string `json:"next" doc:"after= for the page after this one; null if there is none"`
	Prev    *string `json:"prev" doc:"after= for the page before this one; null if there is none, or if the listing has no order"`
}

type pageOutput struct{ Body Page }

// Prefixes of the positions in next and prev. They tell in which direction to continue.
const (
	forwardPrefix  = "n."
	backwardPrefix = "p."
)

func listEntries(ctx context.Context, c *call, in *listInput) (*pageOutput, error) {
	t, err := c.findType(ctx, in.Type)
	if err != nil {
		return nil, err
	}
	q, wrong := in.toQuery(c.request, c.db.Schema().Types[in.Type])
	if in.Reverse && in.Order == "" {
		wrong = append(wrong, paramProblem("reverse", "needs order=FIELD"))
	}
	q.Reverse, q.Limit, q.MaxRead, q.MaxBytes = in.Reverse, in.Limit, maxRead, maxReadBytes
	switch text := in.After; {
	case strings.HasPrefix(text, forwardPrefix):
		q.After = text[len(forwardPrefix):]
	case strings.HasPrefix(text, backwardPrefix):
		q.Before = text[len(backwardPrefix):]
	case text != "":
		wrong = append(wrong, paramProblem("after", "%v", userdb.ErrCursor))
	}
	if err := queryProblem(wrong); err != nil {
		return nil, err
	}
	if err := c.response.Reserve(ctx); err != nil {
		return nil, err
	}
	p, err := t.Page(ctx, q)
	if err = queryError(err); err != nil && !errors.Is(err, userdb.ErrCorrupt) {
		return nil, err
	}
	out := Page{Entries: entriesOf(p.Entries)}
	if p.Next != "" {
		out.Next = ptr(forwardPrefix + p.Next)
	}
	if p.Prev != "" {
		out.Prev = ptr(backwardPrefix + p.Prev)
	}
	return &pageOutput{out}, nil
}

func ptr[T any](v T) *T { return &v }

// queryError converts an error about a query to a problem with [userdb.CodeUsage], because the
// value that it calls invalid is a parameter of the request, not a facet of an entry. It returns
// other errors unchanged.
func queryError(err error) error {
	if field, ok := errors.AsType[*userdb.FieldError](err); ok && errors.Is(err, userdb.ErrInvalid) {
		p := usageProblem("%s: %s", field.Field, field.Reason)
		p.Errors = []FieldProblem{{Field: field.Field, Rule: field.Rule, Detail: field.Reason}}
		return p
	}
	if errors.Is(err, userdb.ErrCursor) {
		return queryProblem([]FieldProblem{paramProblem("after", "%v", err)})
	}
	if errors.Is(err, schema.ErrSchema) {
		return usageProblem("%v", err)
	}
	return err
}

func entriesOf(all []userdb.Entry) []Entry {
	out := make([]Entry, len(all))
	for i, e := range all {
		out[i] = entryOf(e)
	}
	return out
}

type countInput struct {
	TypePath
	Filter
}

type countOutput struct {
	Body struct {
		Count int64 `json:"count"`
		Exact bool  `json:"exact" doc:"if false, the number may be out of date or, on a cluster, too high"`
	}
}

func countEntries(ctx context.Context, c *call, in *countInput) (*countOutput, error) {
	t, err := c.findType(ctx, in.Type)
	if err != nil {
		return nil, err
	}
	q, wrong := in.toQuery(c.request, c.db.Schema().Types[in.Type])
	if err := queryProblem(wrong); err != nil {
		return nil, err
	}
	total, err := c.count(ctx, t, q, in.Filter)
	if err = queryError(err); err != nil {
		return nil, err
	}
	out := &countOutput{}
	out.Body.Count, out.Body.Exact = total.Entries, !total.Estimate
	return out, nil
}

// count counts the entries that a query selects. Unless an index has their number, counting scans
// many records. Requests that ask at the same time therefore share one count, a slow count is
// reused for a while, and each key runs one count at a time.
func (c *call) count(ctx context.Context, t *userdb.Type, q userdb.Query, f Filter) (userdb.Total, error) {
	if q.Order == "" && q.Disabled == nil && len(q.Where)+len(q.Tags) == 1 {
		return t.Count(ctx, q)
	}
	name, err := json.Marshal([]any{"count", c.key.Namespace, t.Name(), f.Where, f.Tag, f.Order, f.Prefix, f.GTE, f.LTE, f.Disabled.set, f.Disabled.value})
	if err != nil {
		return userdb.Total{}, err
	}
	asked := time.Now()
	figure, err := figures.GatherFor(ctx, &c.service.figures, c.key.Name, string(name), 0, func(ctx context.Context) (userdb.Total, error) { return t.Count(ctx, q) })
	if figure.StartedAt.Before(asked) { // it may lack changes that were made since
		figure.Value.Estimate = true
	}
	return figure.Value, figureError(err)
}

// figureError returns a problem with [userdb.CodeUnavailable] if err means that a figure was not
// gathered in time. It returns other errors unchanged.
func figureError(err error) error {
	if errors.Is(err, figures.ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
		return problem(userdb.CodeUnavailable, "this takes a while: try again").withRetryAfter(5)
	}
	return err
}

type lookupInput struct {
	TypePath
	Body struct {
		Value string `json:"value" minLength:"1" maxLength:"4096"`
		Field string `json:"field,omitempty" maxLength:"1024" doc:"the identifying field; if absent, any of them"`
	}
}

func lookupEntry(ctx context.Context, c *call, t *userdb.Type, in *lookupInput) (*entryOutput, error) {
	h := hints.Any(in.Body.Value)
	if in.Body.Field != "" {
		h = hints.Field(in.Body.Field, in.Body.Value)
	}
	e, err := t.Find(ctx, h)
	if err != nil {
		return nil, queryError(err)
	}
	out := entryOf(e)
	return &entryOutput{Status: http.StatusOK, ETag: etagOf(e), Body: &out}, nil
}

type getManyInput struct {
	TypePath
	Body struct {
		UIDs []string `json:"uids" maxItems:"100"`
	}
}

type getManyOutput struct {
	Body struct {
		Entries []entryOrNull `json:"entries" doc:"in the order of the UIDs; null if there is no such entry"`
	}
}

// An entryOrNull holds an entry, or nil if it does not exist.
type entryOrNull struct{ *Entry }

// MarshalJSON implements [json.Marshaler].
func (o entryOrNull) MarshalJSON() ([]byte, error) { return json.Marshal(o.Entry) }

// Schema implements [huma.SchemaProvider].
func (entryOrNull) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{r.Schema(reflect.TypeFor[Entry](), true, "Entry"), {Type: "null"}}}
}

// getBatch is the number of entries that getEntries reads at a time. Their sizes are known only
// when they have been read.
const getBatch = 16

func getEntries(ctx context.Context, c *call, t *userdb.Type, in *getManyInput) (*getManyOutput, error) {
	hs := make([]hints.Hint, len(in.Body.UIDs))
	for i, uid := range in.Body.UIDs {
		hs[i] = hints.UID(uid)
	}
	if err := c.response.Reserve(ctx); err != nil {
		return nil, err
	}
	out := &getManyOutput{}
	out.Body.Entries = make([]entryOrNull, 0, len(hs))
	size := 0
	for batch := range slices.Chunk(hs, getBatch) {
		if size >= maxReadBytes {
			return nil, usageProblem("the entries are too large for one response: request fewer of them; %d always fit", getBatch)
		}
		for e, err := range t.FindAll(ctx, batch...) {
			var found entryOrNull
			switch {
			case err == nil:
				found.Entry = ptr(entryOf(e))
				size += sizeOf(e)
			case !errors.Is(err, userdb.ErrNotFound) && !errors.Is(err, hints.ErrHint):
				return nil, err
			}
			out.Body.Entries = append(out.Body.Entries, found)
		}
	}
	return out, nil
}
