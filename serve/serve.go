// Package serve makes package userdb available over HTTP, to programs in any language, with API
// keys.
//
// Its paths, JSON members, error codes and scopes change only with a new major version.
// /openapi.json describes them all.
package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/console"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on requests.
const (
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 1 << 20
	maxNamespaces  = 1000 // number of views that are kept, one for each namespace
)

// Timeouts, which tests change. storeTimeout limits all calls to the store that one request makes.
// headerTimeout and bodyTimeout limit how long a client may take to send a header and a body.
// responseTimeout limits a response, from the end of the request's header on. drainTimeout is how
// long requests may continue when the service shuts down, and abortTimeout how long canceled
// requests then have to end.
var (
	storeTimeout    = admin.RequestTimeout
	responseTimeout = 90 * time.Second
	drainTimeout    = 18 * time.Second
	abortTimeout    = time.Second
	headerTimeout   = 10 * time.Second
	bodyTimeout     = 30 * time.Second
)

// schemaMaxAge is how long a schema is trusted to be the stored one.
var schemaMaxAge = 5 * time.Second

// Options configures a Service. The zero value is valid for a service that is not behind a proxy.
type Options struct {
	// Namespace is the namespace of the view passed to New. Keys for namespaces outside it are
	// refused.
	Namespace recordkey.Namespace

	// Proxies are the addresses of proxies whose X-Forwarded-For header is trusted.
	Proxies []netip.Prefix

	// SessionCookie is the name of the cookie that /v1/session/check reads. If it is empty, the
	// name is "session".
	SessionCookie string

	// Logger receives a line for each request. If it is nil, nothing is logged.
	Logger *slog.Logger

	// Version is the version that /openapi.json states.
	Version string

	// TLS configures Run. If it is nil, Run speaks plain HTTP.
	TLS *tls.Config

	// SCIM configures the routes for directories at /scim/v2. If it is nil, there are none.
	SCIM *scim.Options

	// Console enables the pages for operators at /console. Operators need a second factor there if
	// [admin.RequireFactors] has required it.
	Console bool

	// Passkeys enables passkeys for types that have a field for them. If it is nil, the routes for
	// passkeys refuse all requests. All namespaces have the same relying party.
	Passkeys *passkey.Config

	// OperatorPasskeys enables passkeys for operators in the console. Its only origin should be
	// that of the console: a script on another origin could sign in with an operator's passkey.
	OperatorPasskeys *passkey.Config

	// ResetLink is the URL of the application's page for a new password, with {secret} in it.
	// Operators can make links to it. If it is empty, they cannot.
	ResetLink string
}

// A Service responds to requests. Any number of processes may serve one store: a process keeps
// nothing that others need, except the files of jobs that it runs for operators. It is safe for
// concurrent use.
type Service struct {
	db      *userdb.DB
	options Options
	keys    *keyCache
	budgets *budgets
	api     huma.API
	handler http.Handler
	scim    *scim.Handler    // nil if disabled
	console *console.Console // nil if disabled

	mu    sync.Mutex
	views map[string]*cachedView // by namespace path

	figures  figures.Cache
	feeds    map[*userdb.DB]*feed // by view; only feeds that have listeners
	closing  chan struct{}        // closed by end, when the service shuts down
	end      func()
	ready    readiness
	requests *prometheus.HistogramVec

	draining atomic.Bool  // if true, connections close after their responses
	active   atomic.Int64 // number of requests
}

// A cachedView is a view of a namespace under the schema that is stored there.
type cachedView struct {
	db   *userdb.DB
	read time.Time // when the stored schema was read; zero if it must be read again
}

// New returns a service for a view of a store. It does not access the store.
func New(db *userdb.DB, o Options) (*Service, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SessionCookie == "" {
		o.SessionCookie = "session"
	}
	if o.Passkeys != nil {
		if err := o.Passkeys.Check(); err != nil {
			return nil, err
		}
	}
	budgets := newBudgets()
	keys, err := newKeyCache(db, &budgets.lookups)
	if err != nil {
		return nil, err
	}
	s := &Service{db: db, options: o, keys: keys, budgets: budgets, views: map[string]*cachedView{}, requests: newRequestMetrics(), feeds: map[*userdb.DB]*feed{}, closing: make(chan struct{})}
	s.ready = readiness{db: db, sem: make(chan struct{}, 1)}
	s.end = sync.OnceFunc(func() { close(s.closing); s.figures.Close() })
	if o.SCIM != nil {
		directories := *o.SCIM
		directories.Namespace = o.Namespace.Path()
		if s.scim, err = scim.New(directories); err != nil {
			return nil, err
		}
	}
	if o.Console {
		if err := s.openConsole(); err != nil {
			return nil, err
		}
	}
	routes, err := s.registerRoutes()
	s.handler = s.middleware(routes)
	return s, err
}

// ServeHTTP implements [http.Handler].
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// viewOf returns the view of the namespace with the given path. If fresh is set, it reads the
// stored schema again unless it did so within schemaMaxAge.
func (s *Service) viewOf(ctx context.Context, path string, fresh bool) (*userdb.DB, error) {
	s.mu.Lock()
	cached, has := s.views[path]
	s.mu.Unlock()
	if has && !cached.read.IsZero() && (!fresh || time.Since(cached.read) < schemaMaxAge) {
		return cached.db, nil
	}
	ctx, cancel := withStoreTimeout(ctx)
	defer cancel()
	ns, err := recordkey.ParseNamespace(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(ns.String(), s.options.Namespace.String()) {
		return nil, problem(userdb.CodeScope, "the key is for a namespace that is not served here")
	}
	db := s.db
	if ns != s.options.Namespace {
		if db, err = s.db.In(ns); err != nil {
			return nil, err
		}
	}
	stored, err := migrate.StoredSchema(ctx, db)
	if err == nil && has && ns == s.options.Namespace {
		err = s.addProgramFields(ctx, stored)
	}
	if err == nil && len(stored.Types) > 0 && (has || ns != s.options.Namespace) {
		db, err = db.With(addProgramTypes(stored, db.Schema()))
	}
	if err != nil {
		return nil, err
	}
	// If nothing has changed, keep the view, whose listeners share one feed.
	if has && equalSchemas(cached.db.Schema(), db.Schema()) {
		db = cached.db
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.views) >= maxNamespaces {
		clear(s.views)
	}
	s.views[path] = &cachedView{db, time.Now()}
	return db, nil
}

// forgetView makes the next request in a namespace read the stored schema if err says that the
// schema of the view is no longer the stored one. In this way a service follows a change of the
// schema as other programs do.
func (s *Service) forgetView(path string, err error) {
	if !errors.Is(err, userdb.ErrSchemaMismatch) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cached, has := s.views[path]; has {
		s.views[path] = &cachedView{db: cached.db}
	}
}

// addProgramFields adds to the stored schema of the service's own namespace what only the program
// declares and the next write stores. A type that contradicts the stored one adds nothing.
func (s *Service) addProgramFields(ctx context.Context, stored schema.Schema) error {
	own := view.Of(s.db)
	for name := range s.db.Schema().Types {
		if _, has := stored.Types[name]; !has {
			continue
		}
		v, err := own.Follow(ctx, view.KeepExtension, name)
		if err != nil && !errors.Is(err, userdb.ErrSchemaMismatch) {
			return err
		}
		// While a change stops writers, Follow returns the type with which the program started.
		if err == nil && v.ByName[name] != own.ByName[name] && !v.ByName[name].ChangeUnderWay {
			stored.Types[name] = v.ByName[name].Schema
		}
	}
	return nil
}

func equalSchemas(a, b schema.Schema) bool {
	one, err := json.Marshal(a)
	other, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}

// addProgramTypes adds to a stored schema the types that only the program declares.
func addProgramTypes(stored, program schema.Schema) schema.Schema {
	for name, t := range program.Types {
		if _, has := stored.Types[name]; !has {
			stored.Types[name] = t
		}
	}
	return stored
}
