// Package metrics exports metrics of a store to Prometheus: method calls by outcome and duration,
// events, the queue of password hashes, connections, and the cache.
//
//	collector := metrics.New(metrics.Options{})
//	prometheus.MustRegister(collector)
//	db, err := userdb.Open(ctx, url, userdb.Options{Observers: []userdb.Observer{collector}})
//
// No label holds an identifier, a value or a key. Labels are names of methods, outcomes and kinds
// of events; each has few values. docs/watch.md lists all metrics and suggests alerts.
package metrics

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/userdb"
)

// Options configures a Collector. The zero value is ready to use.
type Options struct {
	// Buckets are the upper bounds of histogram buckets in seconds, in increasing order. If nil,
	// they range from a quarter of a millisecond to 10 seconds.
	Buckets []float64
}

// defaultBuckets distinguish a lookup, which takes a fraction of a millisecond, from a delayed one,
// and a hash, which takes a quarter of a second, from a queued one.
var defaultBuckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// A Collector is a userdb.Observer and a prometheus.Collector. It adds up the metrics of all stores
// that it observes. To keep two stores apart, give each a Collector of its own and register it
// through prometheus.WrapRegistererWith. A Collector keeps references to the clients of its stores.
//
// A Collector is safe for concurrent use. The zero Collector is not usable; call New.
type Collector struct {
	verbs    *prometheus.HistogramVec // durations of method calls
	events   *prometheus.CounterVec
	waiting  prometheus.Gauge       // password hashing jobs in the queue
	running  prometheus.Gauge       // password hashing jobs that have a worker
	hashes   *prometheus.CounterVec // password hashing jobs that have ended
	waits    prometheus.Histogram   // how long these jobs were in the queue
	hashings prometheus.Histogram   // how long these jobs had a worker

	mu      sync.Mutex
	clients []redis.UniversalClient
}

var (
	_ prometheus.Collector = (*Collector)(nil)
	_ userdb.Observer      = (*Collector)(nil)
)

// New returns a Collector to register and to pass in userdb.Options.Observers.
func New(o Options) *Collector {
	if o.Buckets == nil {
		o.Buckets = defaultBuckets
	}
	seconds := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: o.Buckets}
	}
	return &Collector{
		verbs: prometheus.NewHistogramVec(seconds("userdb_verb_duration_seconds",
			"Duration of method calls, by method and outcome. A listing lasts as long as its caller reads."), []string{"verb", "outcome"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "userdb_events_total", Help: "Events by kind: login, failure, throttle, password and so on.",
		}, []string{"kind"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "userdb_hash_jobs_waiting", Help: "Password hashing jobs that are waiting for a worker.",
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "userdb_hash_jobs_running", Help: "Password hashing jobs that are running.",
		}),
		hashes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "userdb_hash_jobs_total", Help: "Password hashing jobs that have ended, by outcome. Unavailable means that the queue was too long or the store was unavailable.",
		}, []string{"outcome"}),
		waits: prometheus.NewHistogram(seconds("userdb_hash_wait_seconds",
			"Time that password hashing jobs waited until they had a worker or gave up.")),
		hashings: prometheus.NewHistogram(seconds("userdb_hash_duration_seconds",
			"Time that password hashing jobs took once they had a worker.")),
	}
}

// Call implements userdb.Observer.
func (c *Collector) Call(ctx context.Context, name string) (context.Context, func(userdb.Outcome)) {
	begin := time.Now()
	return ctx, func(o userdb.Outcome) {
		c.verbs.WithLabelValues(name, string(o)).Observe(time.Since(begin).Seconds())
	}
}

// Hash implements userdb.Observer.
func (c *Collector) Hash(context.Context) (func(), func(userdb.Outcome)) {
	enqueued := time.Now()
	var began time.Time // zero until the job has a worker
	c.waiting.Inc()
	endWait := func() {
		c.waiting.Dec()
		c.waits.Observe(time.Since(enqueued).Seconds())
	}
	begin := func() {
		began = time.Now()
		endWait()
		c.running.Inc()
	}
	end := func(o userdb.Outcome) {
		if began.IsZero() {
			endWait()
		} else {
			c.running.Dec()
			c.hashings.Observe(time.Since(began).Seconds())
		}
		c.hashes.WithLabelValues(string(o)).Inc()
	}
	return begin, end
}

// Event implements userdb.Observer.
func (c *Collector) Event(_ context.Context, kind string) { c.events.WithLabelValues(kind).Inc() }

// Client implements userdb.Observer. The next scrape includes the connections of the client.
func (c *Collector) Client(client redis.UniversalClient, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.clients, client) { // several stores may share one
		c.clients = append(c.clients, client)
	}
}

// collectors returns the metrics that are updated when something happens, not when they are
// scraped.
func (c *Collector) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.verbs, c.events, c.waiting, c.running, c.hashes, c.waits, c.hashings}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.collectors() {
		m.Describe(to)
	}
	for _, m := range clientMetrics {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, m := range c.collectors() {
		m.Collect(to)
	}
	c.mu.Lock()
	clients := slices.Clone(c.clients)
	c.mu.Unlock()
	s := sumStats(clients)
	for _, m := range clientMetrics {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s))
	}
}
