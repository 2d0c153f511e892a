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

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// A hashGate is an observer that counts the jobs for hash workers and, while it is shut, makes the
// workers wait.
type hashGate struct {
	mu   sync.RWMutex // write-locked while the gate is shut
	stat sync.Mutex
	jobs int // waiting for a worker or running
	most int // the greatest value of jobs so far
}

func (*hashGate) Call(ctx context.Context, _ string) (context.Context, func(userdb.Outcome)) {
	return ctx, func(userdb.Outcome) {}
}

func (*hashGate) Event(context.Context, string) {}

func (g *hashGate) Hash(context.Context) (began func(), ended func(userdb.Outcome)) {
	g.stat.Lock()
	defer g.stat.Unlock()
	g.jobs++
	g.most = max(g.most, g.jobs)
	began = func() { g.mu.RLock(); defer g.mu.RUnlock() }
	return began, func(userdb.Outcome) {
		g.stat.Lock()
		defer g.stat.Unlock()
		g.jobs--
	}
}

// counts returns how many jobs there are, and the most that there were.
func (g *hashGate) counts() (jobs, most int) {
	g.stat.Lock()
	defer g.stat.Unlock()
	return g.jobs, g.most
}

// TestFloodOfConsoleSignIns checks that however many visitors sign in at the console, they take no
// places of requests with keys, and a login by API waits for at most as many of their hashes as
// visitors can sign in at the same time.
func TestFloodOfConsoleSignIns(t *testing.T) {
	const places, visitors = 4, 60
	defer serve.SetMaxConcurrent(places)()
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

	gate.mu.Lock()
	open := sync.OnceFunc(gate.mu.Unlock)
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
	c.until("the sign-ins wait for hashes", func() bool { jobs, _ := gate.counts(); return jobs >= places })
	var login reply
	all.Go(func() {
		login = c.send("POST", "/v1/types/user/login", `{"identifier":"alice","password":"battery staple 9","origin":"198.51.100.1"}`)
	})
	c.until("the login waits for its hash", func() bool { jobs, _ := gate.counts(); return jobs > places })
	other.do("200", "GET", "/v1/schema", "")
	open()
	all.Wait()
	if login.status != 200 {
		t.Errorf("the login got %d %s, want 200", login.status, login.text)
	}
	if _, most := gate.counts(); most != places+1 {
		t.Errorf("there were %d jobs for hash workers at the same time, want %d and the login", most, places)
	}
}
