package serve

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// newRequestMetrics returns a metric of requests by operation and status, both of which have few
// values.
func newRequestMetrics() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "userdb_http_request_duration_seconds", Help: "Duration of HTTP requests by operation and status, in seconds.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"operation", "status"})
}

// Metrics returns the metrics of the service, to be registered with Prometheus.
func (s *Service) Metrics() prometheus.Collector { return s.requests }

func (s *Service) observe(info *requestInfo, status int, took time.Duration) {
	operation := info.operation
	if operation == "" {
		operation = "none"
	}
	s.requests.WithLabelValues(operation, strconv.Itoa(status)).Observe(took.Seconds())
}
