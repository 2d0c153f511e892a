package trace_test

import (
	"context"
	"fmt"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/trace"
)

// This example traces a store to memory. An application passes its own provider or sets the global
// one of package otel.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	db, err := userdb.Open(ctx, "memory:", userdb.Options{
		Observers: []userdb.Observer{trace.New(trace.Options{Provider: provider, NoCommands: true})},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	users, err := db.Type("user")
	if err != nil {
		log.Fatal(err)
	}
	if ok, err := users.Exists(ctx, hints.Any("alice@example.com")); ok || err != nil {
		log.Fatal(ok, err)
	}
	for _, s := range spans.GetSpans() {
		fmt.Print(s.Name)
		for _, a := range s.Attributes {
			fmt.Printf(" %s=%s", a.Key, a.Value.AsString())
		}
		fmt.Println()
	}
	// Output:
	// userdb.Exists userdb.verb=Exists userdb.outcome=ok
}
