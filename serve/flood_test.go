package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// A hashGate is an observer that counts the jobs for hash workers and, while it is shut, makes the
// workers wait.
type hashGate struct {
	shut    sync.RWMutex // write-locked while the gate is shut
	countMu sync.Mutex
	jobs    int // waiting for a worker or running
	most    int // the greatest value of jobs so far
}

func (*hashGate) Call(ctx context.Context, _ string) (context.Context, func(userdb.Outcome)) {
	return ctx, func(userdb.Outcome) {}
}

func (*hashGate) Event(context.Context, string) {}

func (g *hashGate) Hash(context.Context) (began func(), ended func(userdb.Outcome)) {
	g.countMu.Lock()
	defer g.countMu.Unlock()
	g.jobs++
	g.most = max(g.most, g.jobs)
	began = func() { g.shut.RLock(); defer g.shut.RUnlock() }
	return began, func(userdb.Outcome) {
		g.countMu.Lock()
		defer g.countMu.Unlock()
		g.jobs--
	}
}

// counts returns how many jobs there are, and the most that there were.
func (g *hashGate) counts() (jobs, most int) {
	g.countMu.Lock()
	defer g.countMu.Unlock()
	return g.jobs, g.most
}

// TestFloodOfConsoleSignIns checks that visitors who sign in at the console take no slots from
// requests with keys. A login with a key waits for at most as many hashes as visitors can sign in
// at the same time.
func TestFloodOfConsoleSignIns(t *testing.T) {
	const slots, visitors = 4, 60
	defer serve.SetMaxConcurrent(slots)()
	gate := &hashGate{}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema(), HashWorkers: 1, Observers: []userdb.Observer{gate}})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	service, err := serve.New(db, serve.Options{Console: true, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	must(t, err)
	arrived := make(chan struct{}, visitors)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/console/signin" {
			arrived <- struct{}{}
		}
		service.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c := &client{Site: &testdb.Site{DB: db, Ctx: t.Context()}, t: t, url: server.URL}
	c.key = c.makeKey(admin.Key{Name: "all", Scopes: []string{admin.ScopeAdmin}})
	other := c.withKey(c.makeKey(admin.Key{Name: "other", Scopes: []string{admin.ScopeRead}}))
	c.create(alice)
	_, err = admin.AddOperator(c.Ctx, db, "Olga", "correct horse battery")
	must(t, err)

	gate.shut.Lock()
	open := sync.OnceFunc(gate.shut.Unlock)
	var all sync.WaitGroup
	t.Cleanup(func() { open(); all.Wait() }) // so that the service can end even if the test fails
	for i := range visitors {
		all.Go(func() {
			form := url.Values{"name": {fmt.Sprint("visitor", i)}, "password": {"a wrong password"}}.Encode()
			req, err := http.NewRequestWithContext(context.WithoutCancel(c.Ctx), "POST", c.url+"/console/signin", strings.NewReader(form))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", formType)
			req.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
			answer, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_ = answer.Body.Close()
		})
	}
	for range visitors {
		<-arrived
	}
	c.until("the sign-ins wait for hashes", func() bool { jobs, _ := gate.counts(); return jobs >= slots })
	var login reply
	all.Go(func() {
		login = c.send("POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9","origin":"198.51.100.1"}`)
	})
	c.until("the login waits for its hash", func() bool { jobs, _ := gate.counts(); return jobs > slots })
	other.do("200", "GET", "/v1/schema", "")
	open()
	all.Wait()
	if login.status != 200 {
		t.Errorf("the login got %d %s, want 200", login.status, login.text)
	}
	if _, most := gate.counts(); most != slots+1 {
		t.Errorf("there were %d jobs for hash workers at the same time, want %d and the login", most, slots)
	}
}

// A gatedClient is a client of a service with one hash worker, whose gate is shut until open is
// called. However long that takes, no request is too late for its hash.
type gatedClient struct {
	*client
	gate   *hashGate
	open   func()
	queued sync.WaitGroup // requests that wait for a hash
}

func newGatedClient(t *testing.T) *gatedClient {
	t.Helper()
	t.Cleanup(serve.SetStoreTimeout(time.Hour))
	gate := &hashGate{}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testSchema(), HashWorkers: 1, Observers: []userdb.Observer{gate}})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	g := &gatedClient{client: newClient(t, &testdb.Site{DB: db, Ctx: t.Context()}, serve.Options{}), gate: gate}
	g.create(alice)
	gate.shut.Lock()
	g.open = sync.OnceFunc(func() { gate.shut.Unlock(); g.queued.Wait() })
	t.Cleanup(g.open) // so that the service can end even if the test fails
	return g
}

// queue sends a request, and returns when it waits for a hash. Its response must have the status.
func (g *gatedClient) queue(status int, method, path, body string, headers ...string) {
	g.t.Helper()
	before, _ := g.gate.counts()
	g.queued.Go(func() {
		if r := g.send(method, path, body, headers...); r.status != status {
			g.t.Errorf("%s %s: got %d %s, want %d", path, body, r.status, r.text, status)
		}
	})
	g.until("a request waits for a hash", func() bool { jobs, _ := g.gate.counts(); return jobs > before })
}

// TestRequestsDuringFloodOfLogins checks that requests that wait for a hash use up none of their
// key's slots for other requests.
func TestRequestsDuringFloodOfLogins(t *testing.T) {
	defer serve.SetMaxConcurrent(4)() // one for each key
	g := newGatedClient(t)
	secret := g.do("201", "POST", "/v1/types/user/entries/alice/sessions", `{}`).str("session.secret")
	login := func(i int) string {
		return fmt.Sprintf(`{"identifier":"nobody%d","password":"a wrong one","origin":"192.0.2.%d"}`, i, i)
	}
	const slots = 65 // half of the queue for one worker
	for i := range slots {
		g.queue(401, "POST", "/v1/types/user/login", login(i))
	}
	if r := g.do("503 unavailable", "POST", "/v1/types/user/login", login(slots)); !strings.Contains(r.text, "too many logins at once") {
		g.t.Errorf("a login beyond the queue got %s, want too many logins at once", r.text)
	}
	g.do("200", "POST", "/v1/session", `{"secret":"`+secret+`"}`)
	g.open()
}

// TestFloodOfSignUps checks that a visitor who signs up many times leaves slots in the queue to
// other visitors, whose requests have the same key.
func TestFloodOfSignUps(t *testing.T) {
	const entries = "/v1/types/user/entries"
	g := newGatedClient(t)
	signUp := func(i int) string {
		return fmt.Sprintf(`{"facets":{"name":"New%d"},"password":"battery staple 9","origin":"192.0.2.7"}`, i)
	}
	for i := range 4 { // together 8 requests, which is what one origin gets
		g.queue(201, "POST", entries, signUp(i))
		g.queue(201, "POST", entries, signUp(100+i), "Idempotency-Key", fmt.Sprint(i))
	}
	g.do("503 unavailable", "POST", entries, signUp(4))
	g.do("503 unavailable", "POST", entries, signUp(5), "Idempotency-Key", "another")
	g.queue(200, "POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9","origin":"192.0.2.8"}`)
	g.open()
	r := g.do("200", "GET", "/v1/events?kind=create", "")
	if text := r.text; !strings.Contains(text, `"origin":"192.0.2.7"`) {
		t.Errorf("the events of the sign-ups are %s, want the visitor's origin in them", text)
	}
}
