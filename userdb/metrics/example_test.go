package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/metrics"
)

// This example collects metrics of a store. promhttp.HandlerFor serves the registry at /metrics.
func Example() {
	ctx := context.Background()
	collector := metrics.New(metrics.Options{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	db, err := userdb.Open(ctx, "memory:", userdb.Options{Observers: []userdb.Observer{collector}})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	users, err := db.Type("user")
	if err != nil {
		log.Fatal(err)
	}
	_, err = users.Find(ctx, hints.UID("17c0"))
	fmt.Println(errors.Is(err, userdb.ErrNotFound))
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "userdb_verb_duration_seconds" {
			m := f.GetMetric()[0]
			fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetHistogram().GetSampleCount())
		}
	}
	// Output:
	// true
	// userdb_verb_duration_seconds not_found Find 1
}
