package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// clientStats holds sums over several clients.
type clientStats struct {
	hits, misses, timeouts, waits, stale float64 // of connection pools
	waited                               time.Duration
	connections, idle                    float64

	cacheHits, cacheMisses, copies, bytes float64
}

// sumStats adds up the statistics of clients. Closed clients still report their counters.
func sumStats(clients []redis.UniversalClient) (s clientStats) {
	for _, c := range clients {
		if p := c.PoolStats(); p != nil {
			s.hits, s.misses = s.hits+float64(p.Hits), s.misses+float64(p.Misses)
			s.timeouts, s.waits = s.timeouts+float64(p.Timeouts), s.waits+float64(p.WaitCount)
			s.waited += time.Duration(p.WaitDurationNs)
			s.connections, s.idle = s.connections+float64(p.TotalConns), s.idle+float64(p.IdleConns)
			s.stale += float64(p.StaleConns)
		}
		if single, ok := c.(*redis.Client); ok { // without a cache, the statistics are zero
			k := single.CSCStats()
			s.cacheHits, s.cacheMisses = s.cacheHits+float64(k.Hits), s.cacheMisses+float64(k.Misses)
			s.copies, s.bytes = s.copies+float64(k.Entries), s.bytes+float64(k.MemoryUsageBytes)
		}
	}
	return s
}

// A clientMetric describes a metric that is computed at each scrape.
type clientMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(clientStats) float64
}

func counter(name, help string, value func(clientStats) float64) clientMetric {
	return clientMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value}
}

func gauge(name, help string, value func(clientStats) float64) clientMetric {
	return clientMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
}

var clientMetrics = []clientMetric{
	gauge("userdb_pool_connections", "Open connections to Redis.",
		func(s clientStats) float64 { return s.connections }),
	gauge("userdb_pool_idle_connections", "Idle connections to Redis.",
		func(s clientStats) float64 { return s.idle }),
	counter("userdb_pool_hits_total", "Times that the pool had an idle connection.",
		func(s clientStats) float64 { return s.hits }),
	counter("userdb_pool_misses_total", "Times that the pool had no idle connection.",
		func(s clientStats) float64 { return s.misses }),
	counter("userdb_pool_waits_total", "Times that a caller waited for a connection.",
		func(s clientStats) float64 { return s.waits }),
	counter("userdb_pool_wait_seconds_total", "Total time that callers waited for a connection.",
		func(s clientStats) float64 { return s.waited.Seconds() }),
	counter("userdb_pool_timeouts_total", "Times that a caller timed out waiting for a connection.",
		func(s clientStats) float64 { return s.timeouts }),
	counter("userdb_pool_stale_connections_total", "Broken or expired connections that were closed.",
		func(s clientStats) float64 { return s.stale }),
	counter("userdb_cache_hits_total", "Entries that Find returned from the cache.",
		func(s clientStats) float64 { return s.cacheHits }),
	counter("userdb_cache_misses_total", "Entries that Find did not find in the cache.",
		func(s clientStats) float64 { return s.cacheMisses }),
	gauge("userdb_cache_entries", "Entries in the cache.",
		func(s clientStats) float64 { return s.copies }),
	gauge("userdb_cache_bytes", "Memory used by the cache.",
		func(s clientStats) float64 { return s.bytes }),
}
