package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

// A call is a request with the key that authorizes it.
type call struct {
	service *Service
	key     admin.Key
	db      *userdb.DB
	request *http.Request
	leave   func() // frees the slot of the call and what it has reserved of other quotas
	// valid ends, with the reason as its cause, when the key of a stream is no longer valid. It
	// does not end when the client disconnects.
	valid context.Context
	// response is the part of the quota for responses that is reserved for the response.
	response *response
}

type (
	callKey    struct{}
	requestKey struct{}
)

// A requestInfo holds what the log says about a request.
type requestInfo struct {
	id, operation, key string
	route              string // the pattern of the path, without its values
	operator           string // the operator who is signed in to the console
	origin             string
	err                error
}

// infoOf returns the requestInfo in a context, or an empty one if there is none.
func infoOf(ctx context.Context) *requestInfo {
	info, _ := ctx.Value(requestKey{}).(*requestInfo)
	if info == nil {
		info = &requestInfo{}
	}
	return info
}

// findType returns the type with a name under the stored schema, if the key may see it. The schema
// may have got types and fields since the view was made: findType reads it again unless the view
// did so within schemaMaxAge. If an index was removed since then, queries that need it say so.
func (c *call) findType(ctx context.Context, name string) (*userdb.Type, error) {
	if !c.key.CanSee(name) {
		return nil, problem(userdb.CodeScope, "the key is not for this type")
	}
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	t, err := c.db.Type(name)
	if err != nil {
		err = problem(userdb.CodeNotFound, "there is no such type")
	}
	return t, err
}

// refresh replaces the view of the call with one under the schema that is stored now. If the schema
// of one type cannot be read, all types stay as they are, so that people still log in.
func (c *call) refresh(ctx context.Context) error {
	db, err := c.service.viewOf(ctx, c.key.Namespace, true)
	if errors.Is(err, userdb.ErrCorrupt) {
		return nil
	}
	if err == nil {
		c.db = db
	}
	return err
}

// visibleTypes returns an iterator over the types that the key may see. Types that are new in the
// stored schema come last.
func (c *call) visibleTypes(ctx context.Context) iter.Seq[*userdb.Type] {
	return func(yield func(*userdb.Type) bool) {
		known := c.db.Schema().Types
		isKnown := func(name string) bool { _, ok := known[name]; return ok }
		if !c.yieldTypes(isKnown, yield) || c.refresh(ctx) != nil {
			return
		}
		c.yieldTypes(func(name string) bool { return !isKnown(name) }, yield)
	}
}

// yieldTypes yields the types that the key may see and for which include returns true. It reports
// whether to continue.
func (c *call) yieldTypes(include func(name string) bool, yield func(*userdb.Type) bool) bool {
	for _, name := range c.db.Schema().Names() {
		if !include(name) || !c.key.CanSee(name) {
			continue
		}
		if t, err := c.db.Type(name); err == nil && !yield(t) {
			return false
		}
	}
	return true
}

// visibleSchema returns the part of the schema that the key may see.
func (c *call) visibleSchema() schema.Schema {
	visible := schema.Schema{Types: map[string]schema.Type{}}
	for name, t := range c.db.Schema().Types {
		if c.key.CanSee(name) {
			visible.Types[name] = t
		}
	}
	return visible
}

// registerRoutes registers all routes and returns their handler.
func (s *Service) registerRoutes() (http.Handler, error) {
	mux := http.NewServeMux()
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "userdb", Version: s.options.Version, License: &huma.License{Name: "BSD 2-Clause", Identifier: "BSD-2-Clause"},
				Description: "Accounts that can be found by any identifier they own. One identifier never means two people.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"key": {Type: "http", Scheme: "bearer", Description: "An API key, which userdb apikey create NAME --scope SCOPE creates"},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": strictJSON, "json": strictJSON},
		DefaultFormat: "application/json", Transformers: []huma.Transformer{transform}, RejectUnknownQueryParameters: true,
	}
	s.api = humago.New(mux, config)
	s.registerAbout(mux)
	s.registerEntries()
	s.registerValues()
	s.registerHeld()
	s.registerFactors()
	s.registerPasskeys()
	s.registerListings()
	s.registerLogins()
	s.registerTokens()
	s.registerTags()
	s.registerTransfers(mux)
	s.registerEvents(mux)
	s.completeDocument()
	// Encode the document once. huma's own route would do so during the first requests,
	// concurrently.
	text, err := json.Marshal(s.api.OpenAPI())
	mux.HandleFunc("GET "+documentPath, func(w http.ResponseWriter, r *http.Request) {
		infoOf(r.Context()).operation = "openapi"
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(text) // the client may have gone
	})
	if s.scim != nil {
		mux.HandleFunc(scim.Prefix+"/", s.serveSCIM)
		mux.HandleFunc(scim.Prefix, s.serveSCIM)
	}
	if s.console != nil {
		mux.HandleFunc(consolePath+"/", s.serveConsole)
		mux.HandleFunc(consolePath, s.serveConsole)
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
			infoOf(r.Context()).operation = "root"
			http.Redirect(w, r, consolePath, http.StatusSeeOther)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.serveNotFound(mux, w, r) })
	return rejectUncleanPaths(mux), err
}

// serveNotFound responds if no route matches: with 405 if another method has a route, else with
// 404.
func (s *Service) serveNotFound(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" && pattern != "/" && method != r.Method {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		writeProblem(w, r, problem(userdb.CodeNotFound, "there is no such path: /docs lists all paths"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeProblem(w, r, problem(userdb.CodeUsage, "the path does not take this method").withStatus(http.StatusMethodNotAllowed))
}

// Errors of strictJSON.
var (
	errDuplicateMember = errors.New("a member appears twice")
	errTooManyValues   = errors.New("the body has too many values")
)

// maxValues is how many values a body may have outside its facets. For each that is wrong, huma
// keeps about 250 bytes. Even an entry with 10,000 values, sent back with all that is known about
// them, stays below the limit.
const maxValues = 60_000

// withoutFacetValues returns a valid JSON text with null in place of the value of each facet. huma
// checks no facet, and decoding all of them could take a hundred times the size of the text.
func withoutFacetValues(text []byte) ([]byte, error) {
	return replaceMembers(text, func(name string, value json.RawMessage) (json.RawMessage, error) {
		if name != "facets" {
			return value, nil
		}
		return replaceMembers(value, func(string, json.RawMessage) (json.RawMessage, error) { return json.RawMessage("null"), nil })
	})
}

// replaceMembers returns a valid JSON text with the values that replace returns for the members of
// its object. If the text is not an object, it is returned unchanged.
func replaceMembers(text []byte, replace func(name string, value json.RawMessage) (json.RawMessage, error)) ([]byte, error) {
	in := json.NewDecoder(bytes.NewReader(text))
	if token, err := in.Token(); err != nil || token != json.Delim('{') {
		return text, err
	}
	out := []byte("{")
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		var value json.RawMessage
		if err = in.Decode(&value); err == nil {
			value, err = replace(name, value)
		}
		if err != nil {
			return nil, err
		}
		quoted, _ := json.Marshal(name) // a string can always be encoded
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}'), nil
}

// strictJSON reads JSON that can be read in only one way. No object may contain a member twice, and
// no two members of a body may differ only in case, because huma would validate one of them and
// decode the other. A body has at most maxValues values outside its facets. They are counted first,
// because decoding the body could take a hundred times the memory of its text.
var strictJSON = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(text []byte, v any) error {
	if !strictjson.ValidUnicode(text) {
		return errors.New("not valid UTF-8, or half a surrogate pair")
	}
	body, ok := v.(*any)
	if !ok {
		return json.Unmarshal(text, v)
	}
	checked := text
	if strictjson.CountValues(text) > maxValues && json.Valid(text) {
		var err error
		if checked, err = withoutFacetValues(text); err != nil {
			return err
		}
		if strictjson.CountValues(checked) > maxValues {
			return errTooManyValues
		}
	}
	if err := json.Unmarshal(checked, body); err != nil {
		return err
	}
	if strictjson.HasDuplicateNames(text) {
		return errDuplicateMember
	}
	members, _ := (*body).(map[string]any)
	seen := make(map[string]bool, len(members))
	for name := range members {
		name = strictjson.FoldName(name)
		if seen[name] {
			return errDuplicateMember
		}
		seen[name] = true
	}
	return nil
}}

// A route describes one operation.
type route struct {
	id, method, path string
	scopes           []string // the key needs one of them
	summary          string
	status           int                   // on success; 0 means 200
	badKeyStatus     int                   // status for a wrong key; 0 means 401
	streams          bool                  // the bodies may take any length of time
	bodiless         bool                  // the body of a request is not read
	ignoresQuery     bool                  // any query is accepted
	slots            func(*budgets) *quota // nil means those of requests
}

const typePrefix = "/v1/types/{type}"

// changes reports whether the operation may change something.
func (r route) changes() bool {
	return r.method != http.MethodGet && !slices.Equal(r.scopes, []string{admin.ScopeRead})
}

// handle registers a route.
func handle[I, O any](s *Service, r route, do func(ctx context.Context, c *call, in *I) (*O, error)) {
	_, hasBody := reflect.TypeFor[I]().FieldByName("Body")
	r.bodiless = !hasBody
	op := s.newOperation(r)
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		c := ctx.Value(callKey{}).(*call)
		out, err := do(ctx, c, in)
		if errors.Is(err, userdb.ErrSchemaMismatch) && !r.changes() {
			s.forgetView(c.key.Namespace, err)
			if err = c.refresh(ctx); err == nil {
				out, err = do(ctx, c, in)
			}
		}
		if err == nil {
			if err = c.response.Charge(out); err != nil && r.changes() {
				err = fmt.Errorf("%w: %w", scim.ErrPartial, err)
			}
		}
		if err != nil {
			s.forgetView(c.key.Namespace, err)
			infoOf(ctx).err = err
			return nil, problemOf(err).withReasons(c.key).withoutStrayPointers(in)
		}
		return out, nil
	})
}

// newOperation returns the description of a route that takes a key.
func (s *Service) newOperation(r route) huma.Operation {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	registry := s.api.OpenAPI().Components.Schemas
	return huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, DefaultStatus: r.status,
		Description:        "Scope: " + strings.Join(r.scopes, " or ") + ".",
		Security:           []map[string][]string{{"key": r.scopes}},
		Middlewares:        huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) { s.authorize(r, ctx, next) }},
		SkipValidateParams: r.ignoresQuery,
		// One byte more than the limit, because huma refuses bodies of exactly MaxBodyBytes.
		MaxBodyBytes: maxBodyBytes + 1, BodyReadTimeout: bodyTimeout,
		Responses: map[string]*huma.Response{"default": {
			Description: "The request failed.",
			Content:     map[string]*huma.MediaType{problemJSON: {Schema: registry.Schema(reflect.TypeFor[Problem](), true, "Problem")}},
		}},
	}
}

// authorize calls next if the request has a key with the right scope.
func (s *Service) authorize(r route, ctx huma.Context, next func(huma.Context)) {
	req, w := humago.Unwrap(ctx)
	c, leave, err := s.beginCall(w, req, r)
	if err != nil {
		infoOf(req.Context()).err = err
		writeProblem(w, req, problemOf(err))
		return
	}
	defer leave()
	next(&statusOverride{humaContext: huma.WithContext(ctx, context.WithValue(c.request.Context(), callKey{}, c))})
}

// beginCall returns the call that a request makes on a route, if its key allows that. It takes a
// slot for the call, which leave gives back. It checks the key before it reads the body. Unless
// the route streams, it checks the key again when the whole body has arrived, because the key may
// have been revoked meanwhile. After the last check, a request that does not stream has
// storeTimeout for all it does.
func (s *Service) beginCall(w http.ResponseWriter, req *http.Request, r route) (c *call, leave func(), err error) {
	key, err := s.authorizeKey(req, r)
	if err != nil {
		return nil, nil, err
	}
	release := func() {}
	defer func() {
		if err != nil {
			release()
		}
	}()
	switch {
	case r.streams || req.Body == nil || req.Body == http.NoBody:
	case r.bodiless:
		if req.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // otherwise the server would read some of it
		}
	default:
		read, err := s.budgets.readBody(w, req, key.Name)
		if err != nil {
			return nil, nil, err
		}
		release = read
		if key, err = s.authorizeKey(req, r); err != nil {
			return nil, nil, err
		}
	}
	if !r.streams {
		limited, cancel := withStoreTimeout(req.Context())
		read := release
		req, release = req.WithContext(limited), func() { cancel(); read() }
	}
	slots := s.budgets.requests
	if r.slots != nil {
		slots = r.slots(s.budgets)
	}
	releaseSlot, err := slots.takeSlot(key.Name)
	if err != nil {
		return nil, nil, err
	}
	if !r.ignoresQuery {
		err = checkQuery(req)
	}
	if err == nil {
		c, err = s.newCall(req, key)
	}
	if err != nil {
		releaseSlot()
		return nil, nil, err
	}
	if r.slots == nil {
		// Many requests that wait for a hash must not use up the slots of the key.
		c.request = c.request.WithContext(view.WithSlot(c.request.Context(), releaseSlot))
	}
	c.response = &response{quota: s.budgets.responses, client: key.Name}
	c.leave = func() { releaseSlot(); release(); c.response.release() }
	return c, c.leave, nil
}

// authorizeKey returns the key of a request, if the key may use the route.
func (s *Service) authorizeKey(req *http.Request, r route) (admin.Key, error) {
	info := infoOf(req.Context())
	info.operation, info.route = r.id, r.path
	ctx := req.Context()
	key, err := s.keys.find(ctx, req.Header.Get("Authorization"), info.origin)
	if err != nil {
		if p := problemOf(err); p.ErrorCode() == userdb.CodeKey && r.badKeyStatus != 0 {
			err = problem(userdb.CodeKey, p.Detail).withStatus(r.badKeyStatus)
		}
		return admin.Key{}, err
	}
	info.key = key.Name
	if !slices.ContainsFunc(r.scopes, key.HasScope) {
		return admin.Key{}, problem(userdb.CodeScope, "the key does not have the scope "+strings.Join(r.scopes, " or "))
	}
	return key, nil
}

// newCall returns the call that a request makes with a key.
func (s *Service) newCall(req *http.Request, key admin.Key) (*call, error) {
	ctx := req.Context()
	db, err := s.viewOf(ctx, key.Namespace, false)
	acting := userdb.WithActor(view.WithPeer(ctx, infoOf(ctx).origin), userdb.Actor{Name: "key:" + key.Name})
	return &call{service: s, key: key, db: db, request: req.WithContext(acting)}, err
}

// A statusOverride is a context in which transform can replace the status that huma sets, and in
// which huma cannot set a deadline for reading the body.
type statusOverride struct {
	humaContext
	status int
}

type humaContext = huma.Context // an embedded field named Context would hide the method

// Unwrap returns the embedded context, which the adapter needs.
func (a *statusOverride) Unwrap() huma.Context { return a.humaContext }

// SetStatus implements [huma.Context].
func (a *statusOverride) SetStatus(code int) {
	if a.status != 0 {
		code = a.status
	}
	a.humaContext.SetStatus(code)
}

// SetReadDeadline implements [huma.Context]. It does nothing: the body has arrived, and a deadline
// for it would end the request while it is being handled.
func (a *statusOverride) SetReadDeadline(time.Time) error { return nil }

// transform converts errors of huma to problems, and adds the request ID to every problem.
func transform(ctx huma.Context, _ string, v any) (any, error) {
	id := infoOf(ctx.Context()).id
	switch v := v.(type) {
	case *huma.ErrorModel:
		p := schemaProblem(v)
		p.RequestID = id
		if a, ok := ctx.(*statusOverride); ok {
			a.status = p.Status
		}
		infoOf(ctx.Context()).err = p
		return p, nil
	case *Problem:
		p := *v
		p.RequestID = id
		return &p, nil
	}
	return v, nil
}

// writeProblem responds to a request with a problem.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	answer := *p
	answer.RequestID = infoOf(r.Context()).id
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	if isSCIM(r.URL.Path) {
		p.writeSCIM(w)
		return
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}
