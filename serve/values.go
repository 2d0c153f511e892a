package serve

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// A MarkedValue is one of several values of a field, with what is known about it.
type MarkedValue struct {
	Value    string     `json:"value"`
	Verified *time.Time `json:"verified,omitempty" doc:"when its owner confirmed it; absent for the first value: if that is confirmed, the member verified of the entry names the field"`
	// Unverified means the same as in userdb.FieldValue.
	Unverified bool   `json:"unverified,omitempty" doc:"true if the value was added beside another one and became the first without a proof: nobody signs in with it until it is verified"`
	Label      string `json:"label,omitempty" doc:"what kind of value it is for its owner, such as work"`
}

// A Value is one of several values of a field. In JSON it is a string, or an object if there is
// more to say. Exports have the same form.
type Value MarkedValue

// MarshalJSON implements [json.Marshaler].
func (v Value) MarshalJSON() ([]byte, error) {
	if v.Verified == nil && v.Label == "" && !v.Unverified {
		return schema.Text(v.Value).MarshalJSON()
	}
	return strictjson.Marshal(MarkedValue(v))
}

// Schema implements [huma.SchemaProvider].
func (Value) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, r.Schema(reflect.TypeFor[MarkedValue](), true, "MarkedValue")}}
}

// valuesOf returns all values of the fields of an entry that may have several, by field.
func valuesOf(e userdb.Entry) map[string][]Value {
	known := e.FieldValues()
	if len(known) == 0 {
		return nil
	}
	all := make(map[string][]Value, len(known))
	for field, values := range known {
		for _, v := range values {
			out := Value{Value: v.Text, Unverified: v.Unverified, Label: v.Label}
			if !v.Verified.IsZero() {
				out.Verified = &v.Verified
			}
			all[field] = append(all[field], out)
		}
	}
	return all
}

// A GivenValue is a value in a request that has the form of a [MarkedValue]. Only the text counts,
// so that values can be sent back as they were read.
type GivenValue struct {
	Value      string `json:"value" maxLength:"4096"`
	Verified   any    `json:"verified,omitempty" doc:"ignored"`
	Unverified any    `json:"unverified,omitempty" doc:"ignored"`
	Label      any    `json:"label,omitempty" doc:"ignored"`
}

// A NewValue is a value in a request: a string, or a [GivenValue].
type NewValue string

// UnmarshalJSON implements [json.Unmarshaler].
func (v *NewValue) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(string(text), `"`) {
		return json.Unmarshal(text, (*string)(v))
	}
	var given GivenValue
	err := json.Unmarshal(text, &given)
	*v = NewValue(given.Value)
	return err
}

// Limits on the values in a request: how many a field may have, which no schema exceeds, and how
// many fields may have some. An entry can have at most 200 values beside the first ones.
const (
	maxFieldValues = 100
	maxValueFields = 200
)

// NewValues holds the values that fields are to have. A field with an empty list loses all its
// values.
type NewValues map[string][]NewValue

// Schema implements [huma.SchemaProvider].
func (NewValues) Schema(r huma.Registry) *huma.Schema {
	value := &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString, MaxLength: ptr(4096)}, r.Schema(reflect.TypeFor[GivenValue](), true, "GivenValue")}}
	values := &huma.Schema{Type: huma.TypeArray, Nullable: true, MaxItems: ptr(maxFieldValues), Items: value}
	values.PrecomputeMessages() // huma does not do so for additional properties
	return &huma.Schema{Type: huma.TypeObject, MaxProperties: ptr(maxValueFields), AdditionalProperties: values}
}

// texts returns the values of a field.
func (n NewValues) texts(field string) []string {
	var texts []string
	for _, v := range n[field] {
		texts = append(texts, string(v))
	}
	return texts
}

// newTexts returns the values of all fields of a new entry. raw and facets are the facets in the
// request, before and after parsing.
func (n NewValues) newTexts(raw map[string]json.RawMessage, facets schema.Facets) (map[string][]string, error) {
	all := make(map[string][]string, len(n))
	for _, field := range slices.Sorted(maps.Keys(n)) {
		all[field] = n.texts(field)
		if err := checkFirst(field, all[field], raw, facets); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// checkFirst returns an error if a request has both a facet and values for a field, and the facet
// differs from the first value.
func checkFirst(field string, texts []string, raw map[string]json.RawMessage, facets schema.Facets) error {
	if _, given := raw[field]; !given {
		return nil
	}
	var first []string
	if v, has := facets[field]; has {
		first = []string{v.Text()}
	}
	if slices.Equal(first, texts[:min(len(texts), 1)]) {
		return nil
	}
	wrong := FieldProblem{Pointer: valuePointer(field), Field: field, Rule: "many", Detail: "the facet differs from the first of the values"}
	p := usageProblem("%s: %s", wrong.Pointer, wrong.Detail)
	p.Field, p.Rule, p.Errors = field, wrong.Rule, []FieldProblem{wrong}
	return p
}

// valuePointer returns the JSON pointer to the values of a field in a request body.
func valuePointer(field string) string { return "/values/" + escapePointer(field) }

var errPreconditionRequired = problem(userdb.CodePrecondition, "replacing all values of a field requires If-Match").withStatus(http.StatusPreconditionRequired)

// edit sets the values in an entry and returns the fields that this changes. Values that the entry
// has already require no revision, so that an entry can be sent back as it was read.
func (n NewValues) edit(e *userdb.Entry, hasRevision bool, raw map[string]json.RawMessage, facets schema.Facets) (changed []string, err error) {
	for _, field := range slices.Sorted(maps.Keys(n)) {
		texts := n.texts(field)
		if slices.Equal(texts, e.Texts(field)) {
			continue
		}
		if !hasRevision {
			return nil, errPreconditionRequired
		}
		if err := checkFirst(field, texts, raw, facets); err != nil {
			return nil, err
		}
		changed = append(changed, field)
	}
	for _, field := range changed {
		e.SetTexts(field, n.texts(field)...)
	}
	return changed, nil
}

// pointTo returns err as a problem in which the errors about the given fields have the pointers
// that pointer returns. It returns errors that are not about fields unchanged.
func pointTo(err error, pointer func(field string) string, fields ...string) error {
	if err == nil {
		return nil
	}
	p := problemOf(err)
	if len(p.Errors) == 0 {
		return err
	}
	for i, wrong := range p.Errors {
		if slices.Contains(fields, wrong.Field) {
			p.Errors[i].Pointer = pointer(wrong.Field)
		}
	}
	return p
}

func (s *Service) registerValues() {
	write, path := []string{admin.ScopeWrite}, typePrefix+"/entries/{uid}/values/{field}"
	handleType(s, route{id: "addValue", method: "POST", path: path + "/add", scopes: write, summary: "Add a value to a field that may have several"},
		handleValue(func(e *userdb.Entry, field, value string) error {
			e.AddText(field, value)
			return nil
		}))
	handleType(s, route{id: "removeValue", method: "POST", path: path + "/remove", scopes: write, summary: "Remove a value from a field that may have several"},
		handleValue(func(e *userdb.Entry, field, value string) error {
			e.DropText(field, value)
			return nil
		}))
	handleType(s, route{id: "putValueFirst", method: "POST", path: path + "/first", scopes: write, summary: "Make a value of a field the first one, which is the facet"},
		handleValue(func(e *userdb.Entry, field, value string) error {
			n := len(e.Texts(field))
			if e.PutFirst(field, value); len(e.Texts(field)) != n {
				return &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "absent", Reason: "the entry has no such value in this field"}
			}
			return nil
		}))
}

type valueInput struct {
	EntryPath
	Field   string `path:"field" maxLength:"1024" doc:"a field that may have several values"`
	IfMatch string `header:"If-Match" doc:"the revision that the entry must have"`
	Body    struct {
		Value string `json:"value" minLength:"1" maxLength:"4096"`
	}
}

// handleValue returns a handler that calls edit to change one value of an entry, and responds with
// the entry. If the entry is already as requested, it does not change, so a request may be
// repeated.
func handleValue(edit func(e *userdb.Entry, field, value string) error) func(context.Context, *call, *userdb.Type, *valueInput) (*entryOutput, error) {
	return func(ctx context.Context, c *call, t *userdb.Type, in *valueInput) (*entryOutput, error) {
		f, err := c.findMultiValueField(ctx, in.Type, in.Field)
		if err != nil {
			return nil, pointTo(err, func(string) string { return "field" }, in.Field)
		}
		value := in.Body.Value
		if f.HasAddresses() {
			value = strings.TrimSpace(value) // as it is stored
		}
		e, err := t.Update(ctx, in.hint(), func(e *userdb.Entry) error {
			if in.IfMatch != "" && !matchesETag(in.IfMatch, *e) {
				return errPrecondition
			}
			return edit(e, in.Field, value)
		})
		if err != nil {
			return nil, pointTo(asNotFound(err), func(string) string { return "/value" }, in.Field)
		}
		out := entryOf(e)
		return &entryOutput{Status: http.StatusOK, ETag: etagOf(e), Body: &out}, nil
	}
}

// findMultiValueField returns a field that may have several values. It reads the stored schema
// again if the field may be new.
func (c *call) findMultiValueField(ctx context.Context, typ, field string) (schema.Field, error) {
	f, has := c.db.Schema().Types[typ].Fields[field]
	if f.MaxValues() < 2 {
		if err := c.refresh(ctx); err != nil {
			return f, err
		}
		f, has = c.db.Schema().Types[typ].Fields[field]
	}
	switch {
	case !has:
		return f, &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "undeclared", Reason: "the schema has no such field"}
	case f.MaxValues() < 2:
		return f, &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "many", Reason: "the schema allows only one value"}
	}
	return f, nil
}
