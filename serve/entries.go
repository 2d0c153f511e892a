package serve

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// An Entry describes an account in a response.
type Entry struct {
	UID      string   `json:"uid"`
	Type     string   `json:"type"`
	Rev      string   `json:"rev" doc:"different after every change of the entry"`
	Created  string   `json:"created,omitempty" format:"date-time"`
	Disabled bool     `json:"disabled" doc:"the entry cannot log in"`
	Verified []string `json:"verified" doc:"facets with an address that its owner has confirmed"`
	Facets   Facets   `json:"facets"`
	Unproven bool     `json:"unproven,omitempty" doc:"the entry was self-registered, and its address is not verified yet"`

	Values map[string][]Value `json:"values,omitempty" doc:"all values of each field that may have several, the facet first"`
}

// Facets holds the values of an entry by field.
type Facets schema.Facets

// MarshalJSON implements [json.Marshaler].
func (f Facets) MarshalJSON() ([]byte, error) { return schema.Facets(f).MarshalJSON() }

// Schema implements [huma.SchemaProvider].
func (Facets) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{}}
}

// createdField is the field that holds the time at which an entry was created.
const createdField = "added"

// entryOf returns an entry in the form in which the service sends it.
func entryOf(e userdb.Entry) Entry {
	out := Entry{UID: e.UID(), Type: e.Type(), Rev: e.Rev(), Disabled: e.Disabled(), Verified: []string{}, Facets: Facets(e.Facets()), Unproven: e.Unproven(), Values: valuesOf(e)}
	delete(out.Facets, e.Key().Field())
	for field := range out.Facets {
		if e.Verified(field) {
			out.Verified = append(out.Verified, field)
		}
	}
	slices.Sort(out.Verified)
	if at, ok := out.Facets[createdField].Time(); ok {
		out.Created = schema.Date(at).Wire()
	}
	return out
}

// etagOf returns the entity tag of an entry, or "" if the entry has no revision.
func etagOf(e userdb.Entry) string {
	if e.Rev() == "" {
		return ""
	}
	return `"` + e.Rev() + `"`
}

// matchesETag reports whether list, the value of an If-Match or If-None-Match header, contains the
// entity tag of an entry. It ignores whether a tag is weak.
func matchesETag(list string, e userdb.Entry) bool {
	if strings.TrimSpace(list) == "*" {
		return true
	}
	for tag := range strings.SplitSeq(list, ",") {
		if e.Rev() != "" && strings.TrimPrefix(strings.TrimSpace(tag), "W/") == etagOf(e) {
			return true
		}
	}
	return false
}

var errPrecondition = problem(userdb.CodePrecondition, "the entry does not have the revision in If-Match: get the current one")

// Inputs and outputs that several routes share.
type (
	TypePath struct {
		Type string `path:"type" doc:"a type of the schema, such as user"`
	}
	EntryPath struct {
		TypePath
		UID string `path:"uid" doc:"the primary value of the entry"`
	}
	entryOutput struct {
		Status int
		ETag   string `header:"ETag"`
		Body   *Entry
	}
	createdOutput struct {
		ETag     string `header:"ETag"`
		Location string `header:"Location"`
		Body     Entry
	}
	empty struct{}
)

// ServerOwned holds the members of an entry that the server owns. A request may contain them, so
// that an entry can be sent back as it was read, but they have no effect.
type ServerOwned struct {
	Type     any `json:"type,omitempty" doc:"ignored"`
	Rev      any `json:"rev,omitempty" doc:"ignored"`
	Created  any `json:"created,omitempty" doc:"ignored"`
	Disabled any `json:"disabled,omitempty" doc:"ignored"`
	Verified any `json:"verified,omitempty" doc:"ignored"`
	Unproven any `json:"unproven,omitempty" doc:"ignored"`
}

// hint returns a hint for the entry of a path. It matches nothing if no entry can have that UID.
func (in EntryPath) hint() hints.Hint { return hints.UID(in.UID) }

// asNotFound returns [userdb.ErrNotFound] if err says that no entry can have the UID of a path. It
// returns all other errors unchanged.
func asNotFound(err error) error {
	if errors.Is(err, hints.ErrHint) {
		return userdb.ErrNotFound
	}
	return err
}

func (s *Service) registerEntries() {
	handleType(s, route{id: "createEntry", method: "POST", path: typePrefix + "/entries", scopes: []string{admin.ScopeWrite}, summary: "Create an entry", status: http.StatusCreated}, createEntry)
	handleType(s, route{id: "getEntry", method: "GET", path: typePrefix + "/entries/{uid}", scopes: []string{admin.ScopeRead}, summary: "Get an entry by its UID"}, getEntry)
	handleType(s, route{id: "patchEntry", method: "PATCH", path: typePrefix + "/entries/{uid}", scopes: []string{admin.ScopeWrite}, summary: "Set facets and values, and remove those that are null"}, patchEntry)
	handleType(s, route{id: "deleteEntry", method: "DELETE", path: typePrefix + "/entries/{uid}", scopes: []string{admin.ScopeWrite}, summary: "Delete an entry and everything that belongs to it", status: http.StatusNoContent}, deleteEntry)
	handleType(s, route{id: "disableEntry", method: "POST", path: typePrefix + "/entries/{uid}/disable", scopes: []string{admin.ScopeWrite}, summary: "Disable an entry: it cannot log in, and its sessions and tokens end", status: http.StatusNoContent},
		handleUID((*userdb.Type).Disable))
	handleType(s, route{id: "enableEntry", method: "POST", path: typePrefix + "/entries/{uid}/enable", scopes: []string{admin.ScopeWrite}, summary: "Enable an entry, so that it can log in again", status: http.StatusNoContent},
		handleUID((*userdb.Type).Enable))
	handleType(s, route{id: "endWaits", method: "DELETE", path: typePrefix + "/entries/{uid}/waits", scopes: []string{admin.ScopeWrite}, summary: "Forget the failed logins of an entry, so that nobody has to wait", status: http.StatusNoContent},
		handleUID((*userdb.Type).ResetThrottle))
}

// handleUID returns a handler that calls do with a hint for the entry of a path and responds
// without a body.
func handleUID(do func(*userdb.Type, context.Context, hints.Hint) error) func(context.Context, *call, *userdb.Type, *EntryPath) (*empty, error) {
	return func(ctx context.Context, _ *call, t *userdb.Type, in *EntryPath) (*empty, error) {
		return &empty{}, asNotFound(do(t, ctx, in.hint()))
	}
}

type createInput struct {
	TypePath
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"all requests with the same key create one entry, for 24 hours"`
	Body           struct {
		ServerOwned
		UID      string                     `json:"uid,omitempty" maxLength:"1024" doc:"generated if absent"`
		Facets   map[string]json.RawMessage `json:"facets,omitempty" maxProperties:"1000"`
		Values   NewValues                  `json:"values,omitempty" doc:"all values of fields that may have several, the facet first"`
		Tags     []string                   `json:"tags,omitempty" maxItems:"1000"`
		Password *string                    `json:"password,omitempty" maxLength:"4096" doc:"if absent, nobody can log in with a password"`
		Self     bool                       `json:"self_registered,omitempty" doc:"a visitor signs up without having verified an address; until one is verified, the entry gets no second factor and no further identifier"`
		Origin   string                     `json:"origin,omitempty" maxLength:"1024" doc:"the address of the visitor who signs up, which the caller vouches for"`
	}
}

// parseNewEntry returns the new entry that a request body describes. An empty password is not
// treated as absent: it has to satisfy the policy.
func (c *call) parseNewEntry(typ string, facets map[string]json.RawMessage, tags []string, password *string) (n userdb.NewEntry, err error) {
	n = userdb.NewEntry{Tags: tags, RequirePassword: password != nil}
	if n.RequirePassword {
		n.Password = *password
	}
	n.Facets, err = c.parseFacets(typ, facets)
	return n, errors.Join(err, checkTags(tags...))
}

func createEntry(ctx context.Context, c *call, t *userdb.Type, in *createInput) (*createdOutput, error) {
	ctx = Visitor{Origin: in.Body.Origin}.withOrigin(ctx)
	n, err := c.parseNewEntry(in.Type, in.Body.Facets, in.Body.Tags, in.Body.Password)
	if err != nil {
		return nil, err
	}
	n.UID, n.SelfRegistered = in.Body.UID, in.Body.Self
	if n.Values, err = in.Body.Values.newTexts(in.Body.Facets, n.Facets); err != nil {
		return nil, err
	}
	var e userdb.Entry
	if in.IdempotencyKey == "" {
		e, err = t.Create(ctx, n)
	} else if e, err = t.CreateOnce(ctx, c.key.Name+"\x00"+in.IdempotencyKey, n); errors.Is(err, userdb.ErrNotFound) {
		return nil, problem(userdb.CodeNotFound, "the entry that was created with this idempotency key no longer exists").withStatus(http.StatusGone)
	}
	if err != nil {
		return nil, pointTo(err, valuePointer, slices.Collect(maps.Keys(n.Values))...)
	}
	return &createdOutput{etagOf(e), locationOf(e), entryOf(e)}, nil
}

// locationOf returns the URL path of an entry. It escapes dots as well, so that a UID such as ".."
// is not taken for a relative path.
func locationOf(e userdb.Entry) string {
	segment := func(text string) string { return strings.ReplaceAll(url.PathEscape(text), ".", "%2E") }
	return "/v1/types/" + segment(e.Type()) + "/entries/" + segment(e.UID())
}

// parseFacets parses the facets of a request with the codecs of a type. It leaves out those that
// are null. If a codec cannot read a value, parseFacets keeps it as JSON, so that it is refused
// later together with everything else that is wrong. It refuses values that cannot even be kept as
// JSON, such as text that is too long.
func (c *call) parseFacets(typ string, raw map[string]json.RawMessage) (schema.Facets, error) {
	facets, t, wrong := make(schema.Facets, len(raw)), c.db.Schema().Types[typ], []error(nil)
	for _, field := range slices.Sorted(maps.Keys(raw)) {
		if string(raw[field]) == "null" {
			continue
		}
		v, err := schema.ParseJSON(t.Codec(field), raw[field])
		if err != nil {
			v, err = schema.JSON(raw[field])
		}
		if bad, ok := errors.AsType[*schema.ValueError](err); ok {
			wrong = append(wrong, &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "codec", Reason: bad.Reason})
		}
		facets[field] = v
	}
	return facets, errors.Join(wrong...)
}

type getInput struct {
	EntryPath
	IfNoneMatch string `header:"If-None-Match"`
}

func getEntry(ctx context.Context, c *call, t *userdb.Type, in *getInput) (*entryOutput, error) {
	e, err := t.Find(ctx, in.hint())
	if err != nil {
		return nil, asNotFound(err)
	}
	if in.IfNoneMatch != "" && matchesETag(in.IfNoneMatch, e) {
		return &entryOutput{Status: http.StatusNotModified, ETag: etagOf(e)}, nil
	}
	out := entryOf(e)
	return &entryOutput{Status: http.StatusOK, ETag: etagOf(e), Body: &out}, nil
}

type patchInput struct {
	EntryPath
	IfMatch string `header:"If-Match" doc:"the revision that the entry must have"`
	Body    struct {
		ServerOwned
		UID    any                        `json:"uid,omitempty" doc:"ignored"`
		Facets map[string]json.RawMessage `json:"facets,omitempty" maxProperties:"1000" doc:"new values, or null to remove a facet with all values of the field; all others stay. Required unless there are values"`
		Values NewValues                  `json:"values,omitempty" doc:"all values of a field, in place of those that it has; an empty list or null removes them. This requires If-Match"`
	} `contentType:"application/merge-patch+json"`
}

// errNoFacets is the problem of a patch that has neither facets nor values. It names only facets,
// which were required before there were values.
var errNoFacets = schemaProblem(&huma.ErrorModel{
	Status: http.StatusUnprocessableEntity,
	Errors: []*huma.ErrorDetail{{Location: "body", Message: "expected required property facets to be present"}},
})

func patchEntry(ctx context.Context, c *call, t *userdb.Type, in *patchInput) (*entryOutput, error) {
	if in.Body.Facets == nil && in.Body.Values == nil {
		return nil, errNoFacets
	}
	facets, err := c.parseFacets(in.Type, in.Body.Facets)
	if err != nil {
		return nil, err
	}
	var changed []string // fields whose values differ from those that the entry had
	e, err := t.Update(ctx, in.hint(), func(e *userdb.Entry) error {
		if in.IfMatch != "" && !matchesETag(in.IfMatch, *e) {
			return errPrecondition
		}
		var err error
		if changed, err = in.Body.Values.edit(e, in.IfMatch != "", in.Body.Facets, facets); err != nil {
			return err
		}
		for field := range in.Body.Facets {
			v, has := facets[field]
			switch {
			case slices.Contains(changed, field): // the facet is the first of the values
			case has:
				e.Put(field, v)
			default:
				e.Drop(field)
			}
		}
		return nil
	})
	if err != nil {
		return nil, pointTo(asNotFound(err), valuePointer, changed...)
	}
	out := entryOf(e)
	return &entryOutput{Status: http.StatusOK, ETag: etagOf(e), Body: &out}, nil
}

type deleteInput struct {
	EntryPath
	IfMatch string `header:"If-Match" doc:"the revision that the entry must have"`
	Release bool   `query:"release" doc:"let others take the values of the entry at once, including those that it gave up earlier and still holds"`
}

func deleteEntry(ctx context.Context, c *call, t *userdb.Type, in *deleteInput) (*empty, error) {
	var options []userdb.DeleteOption
	if in.Release {
		options = append(options, userdb.ReleaseAtOnce())
	}
	if in.IfMatch != "" {
		options = append(options, userdb.DeleteIf(func(e userdb.Entry) error {
			if !matchesETag(in.IfMatch, e) {
				return errPrecondition
			}
			return nil
		}))
	}
	return &empty{}, asNotFound(t.Delete(ctx, in.hint(), options...))
}
