// Package serve is the service over HTTP: what package userdb does, for programs in any language, by API keys.
//
// Its paths, members, codes and scopes do not change without a major version; /openapi.json has them all.
package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/console"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

// Limits of requests.
const (
	requestTime = 30 * time.Second // that the store has for one
	idleTime    = 2 * time.Minute
	mostHeader  = 16 << 10
	mostBody    = 1 << 20
	mostSpaces  = 1000
)

// What tests lower: how long a header and a body may take, an answer from the end of the header,
// and the requests that are left when a service ends.
var (
	answerTime = 90 * time.Second
	drainTime  = 18 * time.Second
	headerTime = 10 * time.Second
	bodyTime   = 30 * time.Second
)

// spaceAge is how long a schema is believed to have no type besides those that were read.
var spaceAge = 5 * time.Second

// Options say how a Service answers. The zero Options are good for one behind no proxy.
type Options struct {
	Namespace     recordkey.Namespace // that of the view that New is given: keys of others are refused
	Proxies       []netip.Prefix      // whose X-Forwarded-For is believed
	SessionCookie string              // that of visitors, for /v1/session/check; "": session
	Logger        *slog.Logger        // a line for each request; nil: none
	Version       string              // for /openapi.json
	TLS           *tls.Config         // what Run speaks; nil: none
	SCIM          *scim.Options       // for directories, at /scim/v2; nil: it is not there
	Console       bool                // pages for operators are at /console
	ResetLink     string              // the application's page for a new password, with {secret} in it, for links that operators make; "": none
}

// A Service answers requests. It has no state but for a few seconds: any number of processes may serve one store.
type Service struct {
	db      *userdb.DB
	options Options
	ring    *keyring
	budgets *budgets
	api     huma.API
	handler http.Handler
	scim    *scim.Handler    // nil: none
	console *console.Console // nil: none

	mu     sync.Mutex
	spaces map[string]*space // by the paths of their namespaces

	figures  figures.Figures
	feeds    map[*userdb.DB]*feed // that somebody listens to
	closing  chan struct{}        // closed by end, when the service ends
	end      func()
	ready    readiness
	requests *prometheus.HistogramVec

	ending  atomic.Bool  // connections end with their answers
	running atomic.Int64 // requests
}

// A space is a namespace, by the schema that is stored there.
type space struct {
	db   *userdb.DB
	read time.Time
}

// New makes a service of a view of a store. It asks the store for nothing yet.
func New(db *userdb.DB, o Options) (*Service, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SessionCookie == "" {
		o.SessionCookie = "session"
	}
	budgets := newBudgets()
	ring, err := newKeyring(db, &budgets.lookups)
	if err != nil {
		return nil, err
	}
	s := &Service{db: db, options: o, ring: ring, budgets: budgets, spaces: map[string]*space{}, requests: newRequests(), feeds: map[*userdb.DB]*feed{}, closing: make(chan struct{})}
	s.ready = readiness{db: db, asking: make(chan struct{}, 1)}
	s.end = sync.OnceFunc(func() { close(s.closing); s.figures.Close() })
	if o.SCIM != nil {
		directories := *o.SCIM
		directories.Namespace = o.Namespace.Path()
		if s.scim, err = scim.New(directories); err != nil {
			return nil, err
		}
	}
	if o.Console {
		if err := s.operate(); err != nil {
			return nil, err
		}
	}
	routes, err := s.routes()
	s.handler = s.outside(routes)
	return s, err
}

// ServeHTTP implements [http.Handler].
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// space is the namespace of a key, as it is now. fresh asks for the stored schema once more, where that was a while ago.
func (s *Service) space(ctx context.Context, path string, fresh bool) (*userdb.DB, error) {
	s.mu.Lock()
	known, has := s.spaces[path]
	s.mu.Unlock()
	if has && (!fresh || time.Since(known.read) < spaceAge) {
		return known.db, nil
	}
	ctx, cancel := within(ctx)
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
	if err == nil && len(stored.Types) > 0 && (has || ns != s.options.Namespace) {
		db, err = db.With(withOwn(stored, db.Schema()))
	}
	if err != nil {
		return nil, err
	}
	if has && same(known.db.Schema(), db.Schema()) { // those who listen to its feed stay together
		db = known.db
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spaces) >= mostSpaces {
		clear(s.spaces)
	}
	s.spaces[path] = &space{db, time.Now()}
	return db, nil
}

// same reports whether two schemas are one.
func same(a, b schema.Schema) bool {
	one, err := json.Marshal(a)
	other, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}

// withOwn is a stored schema, and the types that a program has besides.
func withOwn(stored, program schema.Schema) schema.Schema {
	for name, t := range program.Types {
		if _, has := stored.Types[name]; !has {
			stored.Types[name] = t
		}
	}
	return stored
}
