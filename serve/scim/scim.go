// Package scim lets directories such as Okta and Entra ID make, change and disable the accounts of a type, by SCIM 2.0 (RFC 7643
// and 7644). A user is an entry. A group is an entry of the store's own, and its members carry a tag.
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

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

// Prefix is how the paths begin.
const Prefix = "/scim/v2"

// Options say how accounts are seen by directories. The zero Options are good where accounts are identified by an address.
type Options struct {
	UserName  string  // the identifying field that is userName; "": email
	Mapping   Mapping // for emails, name and displayName; nil: emails shares an address that is userName
	Namespace string  // the path of the one that is served, which Tags mean if they name none

	// Tags are those that the members of some groups carry in place of scim:ID. They are by the
	// group's id or, if the text does not have the form of an id, by its name; of the users of
	// UserType in Namespace, or of those that are named before it: @TYPE:GROUP or
	// @NAMESPACE/TYPE:GROUP.
	Tags map[string]string
}

// UserType is the type whose entries are the users of a directory, unless its key is for another
// one alone.
const UserType = "user"

// A Handler answers requests. It may be used by any number of goroutines.
type Handler struct {
	options Options
	tags    map[group]string

	preparing chan struct{} // full while a room is made
	mu        sync.Mutex
	rooms     map[string]*room
	marks     map[string]mark
	figures   figures.Figures
}

// A room is what a directory sees: the users of one type of one namespace, and their groups.
type room struct {
	h      *Handler
	name   string
	tags   group // that groups of the room are mapped by, without the group
	users  *userdb.Type
	groups *userdb.Type
	schema schema.Type // of the users
	fields Mapping
}

// New makes a handler. It asks the store for nothing yet.
func New(o Options) (*Handler, error) {
	o.UserName = cmp.Or(o.UserName, "email")
	tags, err := o.tagsByGroup()
	return &Handler{options: o, tags: tags, preparing: make(chan struct{}, 1), rooms: map[string]*room{}, marks: map[string]mark{}}, err
}

// Prepare adds what SCIM needs to the stored schema of a type, and brings entries to it while programs go on: externalId is indexed,
// added is ordered. It tells groups whose mapping has changed to their members. namespace names that of the view.
func (h *Handler) Prepare(ctx context.Context, db *userdb.DB, namespace, typ string) error {
	_, err := h.room(ctx, db, namespace, typ)
	return err
}

func (h *Handler) room(ctx context.Context, db *userdb.DB, namespace, typ string) (*room, error) {
	name := namespace + "\x00" + typ
	if known := h.made(name); known != nil {
		return known, nil
	}
	select {
	case h.preparing <- struct{}{}:
		defer func() { <-h.preparing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if known := h.made(name); known != nil { // while this one waited
		return known, nil
	}
	r := &room{h: h, name: name, tags: group{namespace: namespace, typ: typ}}
	if err := r.open(ctx, db, typ); err != nil {
		return nil, err
	}
	if err := r.retagAll(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rooms[name] = r
	return r, nil
}

func (h *Handler) made(name string) *room {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rooms[name]
}

// open brings the stored schema to what is needed, and goes by that.
func (r *room) open(ctx context.Context, db *userdb.DB, typ string) error {
	stored, err := migrate.StoredSchema(ctx, db)
	if err != nil {
		return err
	}
	types := maps.Clone(db.Schema().Types)
	was, has := stored.Types[typ]
	if !has {
		if was, has = types[typ]; !has {
			return fmt.Errorf("%w: there is no type %q", ErrOptions, typ)
		}
	}
	if r.fields, err = r.h.options.fields(was); err != nil {
		return err
	}
	if r.schema, err = needs(was, r.fields); err != nil {
		return err
	}
	plan, err := migrate.Plan(ctx, db, schema.Schema{Types: map[string]schema.Type{typ: r.schema}})
	if err == nil && alone(plan) {
		err = fmt.Errorf("%w: the stored schema of type %q is another one: bring the records over with 'userdb schema apply' first", ErrOptions, typ)
	}
	if err == nil {
		err = plan.Apply(ctx, nil)
	}
	if errors.Is(err, migrate.ErrCollision) {
		err = fmt.Errorf("%w: the accounts of type %q do not fit what directories need: 'userdb schema apply --plan' says why", ErrOptions, typ)
	}
	if err != nil {
		return err
	}
	types[typ] = r.schema
	if db, err = db.With(schema.Schema{Types: types}); err == nil {
		r.users, err = db.Type(typ)
	}
	if err == nil {
		r.groups, err = own.Groups(db, typ)
	}
	return err
}

// A call is one request.
type call struct {
	*room
	ctx   context.Context
	r     *http.Request
	query url.Values // by names in lower case
	id    string     // of the resource that the path names
}

// An answer is one to a request.
type answer struct {
	status   int
	location string
	body     any // nil: none
}

type operation func(*call) (answer, error)

// operations are by method and path. Those of one resource have * in place of its id.
var operations = map[string]operation{
	"GET Users": listUsers, "POST Users": createUser, "POST Users/.search": listUsers,
	"GET Users/*": getUser, "PUT Users/*": replaceUser, "PATCH Users/*": patchUser, "DELETE Users/*": deleteUser,
	"GET Groups": listGroups, "POST Groups": createGroup, "POST Groups/.search": listGroups,
	"GET Groups/*": getGroup, "PUT Groups/*": replaceGroup, "PATCH Groups/*": patchGroup, "DELETE Groups/*": deleteGroup,
	"GET ServiceProviderConfig": providerConfig, "GET ResourceTypes": listTypes, "GET ResourceTypes/*": getType, "GET Schemas": listSchemas,
	"GET Schemas/*": getSchema,
}

// Serve answers a request, for the users of a type of a view. An error is one that it has not answered: an *Error, or another one
// that the caller puts into words.
func (h *Handler) Serve(w http.ResponseWriter, req *http.Request, db *userdb.DB, namespace, typ string) error {
	do, c, err := route(w.Header(), req)
	if err != nil {
		return err
	}
	if c.room, err = h.room(req.Context(), db, namespace, typ); err != nil {
		return public(err)
	}
	a, err := do(c)
	if errors.Is(err, userdb.ErrSchemaMismatch) { // it has changed: the next request looks at it anew
		h.mu.Lock()
		delete(h.rooms, c.name)
		h.mu.Unlock()
	}
	if err != nil {
		return public(err)
	}
	if a.location != "" {
		w.Header().Set("Location", a.location)
	}
	write(w, cmp.Or(a.status, http.StatusOK), a.body)
	return nil
}

// route finds what a request asks for, or says in the header of the answer what may be asked of its path.
func route(answer http.Header, req *http.Request) (operation, *call, error) {
	c := &call{ctx: req.Context(), r: req, query: url.Values{}}
	given, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, nil, refuse(invalidSyntax, "the query cannot be read")
	}
	for name, values := range given {
		name = strings.ToLower(name)
		c.query[name] = append(c.query[name], values...)
	}
	path := strings.Trim(strings.TrimPrefix(req.URL.EscapedPath(), Prefix), "/")
	kind, id, one := strings.Cut(path, "/")
	if c.id, err = url.PathUnescape(id); err != nil {
		return nil, nil, errNotFound
	}
	if one && path != kind+"/.search" {
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
	answer.Set("Allow", strings.Join(allowed, ", "))
	return nil, nil, &Error{http.StatusMethodNotAllowed, "", "the path does not take this method"}
}

// url is where a resource is.
func (c *call) url(kind, id string) string {
	scheme := "http"
	if c.r.TLS != nil || strings.EqualFold(c.r.Header.Get("X-Forwarded-Proto"), "https") { // of a proxy; a client only misleads itself
		scheme = "https"
	}
	return scheme + "://" + c.r.Host + Prefix + "/" + kind + "/" + strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
}
