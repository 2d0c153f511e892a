// Package scim lets directories such as Okta and Entra ID create, change and disable the accounts
// of a type over SCIM 2.0 (RFC 7643 and RFC 7644). A user is an entry. A group is an entry in the
// store's own namespace, and its members carry a tag.
package scim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

// Prefix is the path under which all SCIM resources lie.
const Prefix = "/scim/v2"

// Options describe how directories see accounts. The zero Options suit accounts that an email
// address identifies.
type Options struct {
	// UserName is the identifying field that holds userName. If it is "", the field is email.
	UserName string
	// Mapping holds the fields of emails, displayName and the parts of name. If it does not contain
	// emails and the field of userName holds an address, emails shows that field, and requests
	// cannot change it through emails.
	Mapping Mapping
	// Namespace is the path of the namespace that is served. Keys of Tags that name no namespace
	// mean this one.
	Namespace string

	// Tags maps groups to the tags that their members carry in place of scim:ID. A key is the id of
	// a group or, if it does not have the form of an id, the name of a group. It means a group of
	// users of UserType in Namespace, unless it names another type or namespace: @TYPE:GROUP or
	// @NAMESPACE/TYPE:GROUP.
	Tags map[string]string
}

const defaultUserName = "email"

// UserType is the type whose entries are the users of a directory, unless the directory's API key
// is restricted to another single type.
const UserType = "user"

// A Handler serves SCIM requests. It is safe for concurrent use.
type Handler struct {
	options Options
	tags    map[groupKey]string

	mu          sync.Mutex
	preparing   map[string]chan struct{} // by collection name; full during preparation
	collections map[string]*collection
	positions   map[listIndex]position
	figures     figures.Cache
}

// A collection is the view of one directory: the users of one type in one namespace, and their
// groups.
type collection struct {
	h      *Handler
	name   string
	db     *userdb.DB
	scope  groupKey // namespace and type of the users; withName makes it a key of Handler.tags
	users  *userdb.Type
	groups *userdb.Type
	schema schema.Type // of the users
	fields Mapping
}

// New returns a Handler with the given options. It does not access the store.
func New(o Options) (*Handler, error) {
	o.UserName = cmp.Or(o.UserName, defaultUserName)
	tags, err := o.tagsByGroup()
	return &Handler{options: o, tags: tags, preparing: map[string]chan struct{}{}, collections: map[string]*collection{}, positions: map[listIndex]position{}}, err
}

// Prepare adds to the stored schema of a type what SCIM needs: an index on the field externalId, an
// order by the field "added", and an index on tags. It brings existing entries up to date while
// other programs keep running. It also retags the members of groups whose tag changed in
// [Options.Tags]. namespace is the path of the namespace of db.
func (h *Handler) Prepare(ctx context.Context, db *userdb.DB, namespace, typ string) error {
	_, err := h.collection(ctx, db, namespace, typ)
	return err
}

func (h *Handler) collection(ctx context.Context, db *userdb.DB, namespace, typ string) (*collection, error) {
	name := namespace + "\x00" + typ
	if r := h.cached(name); r != nil {
		return r, nil
	}
	preparing := h.preparation(name)
	select {
	case preparing <- struct{}{}:
		defer func() { <-preparing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r := h.cached(name); r != nil { // another request prepared it while this one waited
		return r, nil
	}
	r := &collection{h: h, name: name, scope: groupKey{namespace: namespace, typ: typ}}
	if err := r.open(ctx, db, typ); err != nil {
		return nil, err
	}
	if err := r.retagAll(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.collections[name] = r
	return r, nil
}

// reopen replaces a collection whose schema contradicts the stored one, and returns the new one. If
// the stored schema lacks what SCIM needs, because somebody has removed it, reopen adds it again,
// as Prepare does, but takes no part in changes of the schema that others make. If that takes
// longer than the request, the error is userdb.ErrIndexBuilding, and the work continues.
func (h *Handler) reopen(ctx context.Context, db *userdb.DB, typ string, old *collection) (*collection, error) {
	preparing := h.preparation(old.name)
	select {
	case preparing <- struct{}{}:
	case <-ctx.Done():
		return nil, errPreparing
	}
	if r := h.cached(old.name); r != old && r != nil { // another request reopened it
		<-preparing
		return r, nil
	}
	r := &collection{h: h, name: old.name, scope: old.scope}
	done := make(chan error, 1)
	go func() {
		defer func() { <-preparing }()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxReopen)
		defer cancel()
		err := r.extendAndOpen(limited, db, typ)
		if err == nil {
			h.mu.Lock()
			h.collections[r.name] = r
			h.mu.Unlock()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return r, err
	case <-ctx.Done():
		return nil, errPreparing
	}
}

// maxReopen limits how long reopen adds to the stored schema. The next request continues.
const maxReopen = time.Hour

var errPreparing = fmt.Errorf("%w: what SCIM needs is being added to the schema", userdb.ErrIndexBuilding)

func (h *Handler) cached(name string) *collection {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.collections[name]
}

// preparation returns the channel that is full during the preparation of the collection with a
// name. Each collection has its own, so that a slow one does not delay other directories.
func (h *Handler) preparation(name string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.preparing[name] == nil {
		h.preparing[name] = make(chan struct{}, 1)
	}
	return h.preparing[name]
}

// extendAndOpen does the same as open, but takes no part in changes of the schema that others make.
func (r *collection) extendAndOpen(ctx context.Context, db *userdb.DB, typ string) (err error) {
	r.schema, err = migrate.Extend(ctx, db, typ, func(stored schema.Type) (schema.Type, error) {
		if r.fields, err = r.h.options.fields(stored); err != nil {
			return stored, err
		}
		return withSCIM(stored, r.fields)
	})
	if err != nil {
		return err
	}
	return r.use(db, typ)
}

// open extends the stored schema with what SCIM needs and opens the users and groups under it.
func (r *collection) open(ctx context.Context, db *userdb.DB, typ string) error {
	stored, err := migrate.StoredSchema(ctx, db)
	if err != nil {
		return err
	}
	was, has := stored.Types[typ]
	if !has {
		if was, has = db.Schema().Types[typ]; !has {
			return fmt.Errorf("%w: there is no type %q", ErrOptions, typ)
		}
	}
	if r.fields, err = r.h.options.fields(was); err != nil {
		return err
	}
	if r.schema, err = withSCIM(was, r.fields); err != nil {
		return err
	}
	plan, err := migrate.Plan(ctx, db, schema.Schema{Types: map[string]schema.Type{typ: r.schema}})
	if err == nil && blocksWriters(plan) {
		err = fmt.Errorf("%w: the stored schema of type %q differs; run 'userdb schema apply' first", ErrOptions, typ)
	}
	if err == nil {
		err = plan.Apply(ctx, nil)
	}
	if errors.Is(err, migrate.ErrCollision) {
		err = fmt.Errorf("%w: the accounts of type %q do not meet the requirements of SCIM; 'userdb schema apply --plan' says why", ErrOptions, typ)
	}
	if err != nil {
		return err
	}
	return r.use(db, typ)
}

// use opens the users and groups of db under the schema of r.
func (r *collection) use(db *userdb.DB, typ string) error {
	types := maps.Clone(db.Schema().Types)
	types[typ] = r.schema
	db, err := db.With(schema.Schema{Types: types})
	if err == nil {
		r.users, err = db.Type(typ)
	}
	if err == nil {
		r.groups, err = admin.Groups(db, typ)
	}
	r.db = db
	return err
}

// A Meter limits how much memory responses take.
type Meter interface {
	// Reserve waits until there is memory for as many entries or members as one request may read.
	// Calling it again does nothing.
	Reserve(context.Context) error
	// Charge replaces the reservation with the size of the response's body. It returns an error if
	// the body must not be sent.
	Charge(body any) error
}

// A call holds one request.
type call struct {
	*collection
	ctx   context.Context
	r     *http.Request
	meter Meter
	base  string     // the beginning of the addresses of resources
	query url.Values // by parameter name in lower case
	id    string     // of the resource in the path, or ""
	reads bool       // whether the operation changes nothing
	used  usage
}

// An answer holds the response to a request.
type answer struct {
	status   int
	location string
	body     any // if nil, the response has no body
}

func (a answer) write(w http.ResponseWriter) {
	if a.location != "" {
		w.Header().Set("Location", a.location)
		if a.body != nil { // the body is that of a GET of the location
			w.Header().Set("Content-Location", a.location)
		}
	}
	write(w, cmp.Or(a.status, http.StatusOK), a.body)
}

type operation func(*call) (answer, error)

// operations maps each method and path that the service supports to an operation. An asterisk
// stands for the id of a resource.
var operations = map[string]operation{
	"GET Users": listUsers, "POST Users": createUser, "POST Users/.search": listUsers,
	"GET Users/*": getUser, "PUT Users/*": replaceUser, "PATCH Users/*": patchUser, "DELETE Users/*": deleteUser,
	"GET Groups": listGroups, "POST Groups": createGroup, "POST Groups/.search": listGroups,
	"GET Groups/*": getGroup, "PUT Groups/*": replaceGroup, "PATCH Groups/*": patchGroup, "DELETE Groups/*": deleteGroup,
	"GET ServiceProviderConfig": providerConfig, "GET ResourceTypes": listTypes, "GET ResourceTypes/*": getType, "GET Schemas": listSchemas,
	"GET Schemas/*": getSchema,
}

// Serve handles a request for the users of a type of db. If it returns an error, it has written no
// response. The caller then writes one: for an *Error, with [Error.Write].
func (h *Handler) Serve(w http.ResponseWriter, req *http.Request, db *userdb.DB, namespace, typ string, meter Meter) error {
	do, c, err := route(w.Header(), req)
	if err != nil {
		return err
	}
	c.meter = meter
	if c.collection, err = h.collection(req.Context(), db, namespace, typ); err != nil {
		return publicError(err)
	}
	a, err := c.run(db, do)
	if err != nil {
		return publicError(c.withAttribute(err))
	}
	if err := meter.Charge(a.body); err != nil {
		return c.afterChange(err)
	}
	a.write(w)
	return nil
}

// run runs the operation of the call. If the stored schema has changed meanwhile, run runs it again
// under the new one, except a POST that has changed something, which must not be repeated. The
// error says that changes were made if either attempt made some.
func (c *call) run(db *userdb.DB, do operation) (answer, error) {
	a, err := do(c)
	if !errors.Is(err, userdb.ErrSchemaMismatch) {
		return a, err
	}
	partial := errors.Is(err, ErrPartial)
	again, failed := c.h.reopen(c.ctx, db, c.users.Name(), c.collection)
	switch {
	case failed != nil && !partial:
		return answer{}, failed
	case failed != nil, partial && c.r.Method == http.MethodPost:
		return answer{}, err
	}
	c.collection, c.used = again, usage{}
	if a, err = do(c); partial && !errors.Is(err, ErrPartial) {
		err = markPartial("an earlier attempt changed something", err)
	}
	return a, err
}

// IsDiscovery reports whether a request asks for the service's description of itself, which anybody
// may read.
func IsDiscovery(req *http.Request) bool {
	kind, _, _ := strings.Cut(strings.Trim(strings.TrimPrefix(req.URL.Path, Prefix), "/"), "/")
	return req.Method == http.MethodGet && has([]string{"ServiceProviderConfig", "ResourceTypes", "Schemas"}, kind)
}

// Describe serves a request for which IsDiscovery reports true. It reads nothing from the store. t
// is the type of the users. Its errors are those of Serve.
func (h *Handler) Describe(w http.ResponseWriter, req *http.Request, t schema.Type) error {
	do, c, err := route(w.Header(), req)
	if err != nil {
		return err
	}
	c.collection = &collection{h: h, schema: t}
	if c.fields, err = h.options.fields(t); err != nil { // no directory can use the type
		c.fields = Mapping{"username": h.options.UserName, "externalid": externalField}
	}
	a, err := do(c)
	if err == nil {
		a.write(w)
	}
	return err
}

// route returns the operation that a request asks for, and the call to run it with. If the path
// does not support the method, it sets Allow in the header of the response.
func route(header http.Header, req *http.Request) (operation, *call, error) {
	c := &call{ctx: req.Context(), r: req, base: baseURL(req), query: url.Values{}, reads: req.Method == http.MethodGet}
	given, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, nil, badRequest(invalidSyntax, "the query cannot be parsed")
	}
	for name, values := range given {
		name = strings.ToLower(name)
		c.query[name] = append(c.query[name], values...)
	}
	path := strings.Trim(strings.TrimPrefix(req.URL.EscapedPath(), Prefix), "/")
	kind, id, hasID := strings.Cut(path, "/")
	if c.id, err = url.PathUnescape(id); err != nil {
		return nil, nil, errNotFound
	}
	if search := kind + "/.search"; path == search {
		c.reads = true
	} else if hasID {
		path = kind + "/*"
	}
	if do := operations[req.Method+" "+path]; do != nil {
		return do, c, nil
	}
	var allowed []string
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if operations[method+" "+path] != nil {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		return nil, nil, errNotFound
	}
	header.Set("Allow", strings.Join(allowed, ", "))
	return nil, nil, &Error{http.StatusMethodNotAllowed, "", "the path does not support this method"}
}

// baseURL returns the URL to which the paths of resources are added.
func baseURL(req *http.Request) string {
	scheme := "http"
	// A proxy sets X-Forwarded-Proto. A client that forges it deceives only itself.
	if req.TLS != nil || strings.EqualFold(req.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	return scheme + "://" + req.Host + Prefix + "/"
}

// url returns the address of a resource.
func (c *call) url(kind, id string) string {
	return c.base + kind + "/" + strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
}

// afterChange returns the error for a failure after the operation. The error says that the change
// was made, unless the operation only reads.
func (c *call) afterChange(err error) error {
	if c.reads {
		return err
	}
	return markPartial("the change was made", err)
}
