package metrics_test

import (
	"context"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/metrics"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

// openObserved opens a store that a new Collector observes.
func openObserved(t *testing.T, url string, o userdb.Options) (*metrics.Collector, *prometheus.Registry, *userdb.DB) {
	t.Helper()
	c := metrics.New(metrics.Options{})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	o.Observers = []userdb.Observer{c}
	db, err := userdb.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return c, r, db
}

// scrape returns what Prometheus would read.
func scrape(r *prometheus.Registry) string {
	response := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(response, httptest.NewRequest("GET", "/metrics", nil))
	return response.Body.String()
}

// requireLines reports an error for each line that is not in a scrape.
func requireLines(t *testing.T, scraped string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+scraped, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, scraped)
		}
	}
}

// TestMetricsPassLint checks the names and help texts of all metrics.
func TestMetricsPassLint(t *testing.T) {
	c, r, db := openObserved(t, "memory:", userdb.Options{Schema: testdb.MarkedSchema(), Keys: testdb.MarkedKeys()})
	if err := testdb.CallAll(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	problems, err = testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint of the collector: got %v, %v; want no problems", problems, err)
	}
}

// TestNothingLeaks calls all methods with marked texts, on a store that responds and on one that
// does not, and checks that the mark is not in a scrape.
func TestNothingLeaks(t *testing.T) {
	s := redistest.Start(t)
	for _, url := range []string{"memory:", s.URL()} {
		_, r, db := openObserved(t, url, userdb.Options{Schema: testdb.MarkedSchema(), Keys: testdb.MarkedKeys()})
		if err := testdb.CallAll(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if url == s.URL() {
			s.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = testdb.CallAll(ctx, db)
			cancel()
		}
		text := scrape(r)
		if strings.Contains(strings.ToLower(text), testdb.Mark) {
			t.Errorf("marked text in\n%s", text)
		}
		labels := regexp.MustCompile(`^userdb_\w+(\{(verb|outcome|kind|le)="[A-Za-z_.+0-9]*"(,(verb|outcome|le)="[A-Za-z_.+0-9e-]*")*\})? [-+0-9.eE]+$`)
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") && !labels.MatchString(line) {
				t.Errorf("unexpected labels: %s", line)
			}
		}
	}
}

// TestMetricsAreDocumented checks that docs/watch.md lists exactly the metrics that exist.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/watch.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, described []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(userdb_[a-z_]+)` \\|").FindAllSubmatch(page, -1) {
		listed = append(listed, string(m[1]))
	}
	all := make(chan *prometheus.Desc, 100)
	metrics.New(metrics.Options{}).Describe(all)
	close(all)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range all {
		described = append(described, name.FindStringSubmatch(d.String())[1])
	}
	if !slices.Equal(listed, described) {
		t.Errorf("docs/watch.md lists\n%v\nwant\n%v", listed, described)
	}
}

// TestCounts checks the counters after a few calls that succeed and fail.
func TestCounts(t *testing.T) {
	_, r, db := openObserved(t, "memory:", userdb.Options{HashWorkers: 1})
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	e, err := users.Create(ctx, userdb.NewEntry{UID: "u1", Facets: schema.Texts("email", "u1@x.org"), Password: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	_, session, err := users.StartSession(ctx, e, userdb.SessionOptions{})
	if err != nil || users.EndSession(ctx, session) != nil {
		t.Fatal(err)
	}
	for range 11 {
		_, _ = users.Login(ctx, "u1@x.org", "wrong horse", userdb.Attempt{})
	}
	_, _ = users.Find(ctx, hints.UID("u2"))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = users.SetPassword(gone, hints.UID("u1"), "brand new horse")
	requireLines(t, scrape(r),
		`userdb_verb_duration_seconds_count{outcome="ok",verb="Create"} 1`,
		`userdb_verb_duration_seconds_count{outcome="login",verb="Login"} 10`,
		`userdb_verb_duration_seconds_count{outcome="throttled",verb="Login"} 1`,
		`userdb_verb_duration_seconds_count{outcome="not_found",verb="Find"} 1`,
		`userdb_events_total{kind="failure"} 10`,
		`userdb_events_total{kind="throttle"} 1`,
		`userdb_events_total{kind="create"} 1`,
		`userdb_events_total{kind="start"} 1`,
		`userdb_events_total{kind="end"} 1`,
		`userdb_hash_jobs_total{outcome="ok"} 11`,
		`userdb_hash_duration_seconds_count 11`,
		`userdb_hash_wait_seconds_count 11`,
		`userdb_hash_jobs_waiting 0`,
		`userdb_hash_jobs_running 0`,
		`userdb_cache_entries 0`,
	)
}

// TestNewEventKindsAndMethods checks that new kinds of events and new methods need no change of
// this package.
func TestNewEventKindsAndMethods(t *testing.T) {
	c, r, _ := openObserved(t, "memory:", userdb.Options{})
	c.Event(t.Context(), "merge")
	_, ended := c.Call(t.Context(), "Merge")
	ended("ok")
	requireLines(t, scrape(r),
		`userdb_events_total{kind="merge"} 1`, `userdb_verb_duration_seconds_count{outcome="ok",verb="Merge"} 1`)
}

// TestHashQueue checks the gauges while one job is running and another waits, and after the second
// gives up.
func TestHashQueue(t *testing.T) {
	c, r, _ := openObserved(t, "memory:", userdb.Options{})
	began, ended := c.Hash(t.Context())
	began()
	_, gaveUp := c.Hash(t.Context())
	requireLines(t, scrape(r), `userdb_hash_jobs_running 1`, `userdb_hash_jobs_waiting 1`)
	gaveUp("unavailable")
	ended("ok")
	requireLines(t, scrape(r), `userdb_hash_jobs_running 0`, `userdb_hash_jobs_waiting 0`,
		`userdb_hash_jobs_total{outcome="unavailable"} 1`, `userdb_hash_wait_seconds_count 2`, `userdb_hash_duration_seconds_count 1`)
}

// TestClients checks the connections and cached entries of a store, that a client shared by two
// stores is counted once, and that a closed store keeps its counters.
func TestClients(t *testing.T) {
	c, r, db := openObserved(t, redistest.Start(t).URL(), userdb.Options{CacheSize: 10})
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := users.Create(t.Context(), userdb.NewEntry{UID: "u1", Facets: schema.Texts("email", "u1@x.org")}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := users.Find(t.Context(), hints.UID("u1")); err != nil {
			t.Fatal(err)
		}
	}
	text := scrape(r)
	requireLines(t, text, `userdb_cache_hits_total 2`, `userdb_cache_entries 1`)
	for _, line := range []string{"userdb_pool_connections 0\n", "userdb_pool_hits_total 0\n", "userdb_cache_bytes 0\n"} {
		if strings.Contains(text, line) {
			t.Errorf("unexpected %q in\n%s", line, text)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	text = scrape(r)
	requireLines(t, text, `userdb_pool_connections 0`, `userdb_cache_hits_total 2`)

	shared := redistest.Shared(t).Client()
	before := testutil.CollectAndCount(c)
	for range 2 {
		if _, err := redisdb.New(t.Context(), shared, userdb.Options{Observers: []userdb.Observer{c}}); err != nil {
			t.Fatal(err)
		}
	}
	if after := testutil.CollectAndCount(c); after != before {
		t.Errorf("%d metrics with a shared client, want %d", after, before)
	}
	requireLines(t, scrape(r), `userdb_pool_connections 1`)
}
