// Package trace makes an OpenTelemetry span of every verb of a store, with spans of the hashes and Redis commands in it.
//
//	db, err := userdb.Open(ctx, url, userdb.Options{Observers: []userdb.Observer{trace.New(trace.Options{})}})
//
// No span holds an identifier, a value, a key or a statement; docs/watch.md lists what they hold.
package trace

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/coffeenode/userdb/userdb"
)

// scope names this package to those who read spans.
const scope = "github.com/coffeenode/userdb/userdb/trace"

// Attributes of spans.
const (
	attrVerb    = attribute.Key("userdb.verb")    // as go doc names it
	attrOutcome = attribute.Key("userdb.outcome") // a userdb.Outcome
)

// Options of a Tracer. The zero Options are good for a start.
type Options struct {
	// Provider makes the spans; nil: the process' own, otel.GetTracerProvider, as it is when New or Client is called.
	Provider oteltrace.TracerProvider
	// NoCommands leaves out the spans of Redis commands. False: there are some, below the spans of verbs.
	NoCommands bool
}

func (o Options) provider() oteltrace.TracerProvider {
	return cmp.Or(o.Provider, otel.GetTracerProvider())
}

// A Tracer observes stores. It is safe for concurrent use. The zero Tracer is not usable; make one with New.
type Tracer struct {
	options Options
	tracer  oteltrace.Tracer
}

var _ userdb.Observer = (*Tracer)(nil)

// New returns a Tracer, to be given to userdb.Options.Observers. Commands are traced of stores that Open opens; of a
// client of your own that you give to New, trace them with Client.
func New(o Options) *Tracer {
	return &Tracer{options: o, tracer: o.provider().Tracer(scope)}
}

// Verb implements userdb.Observer. The span "userdb.Find" lasts as long as the verb does, and has its outcome.
func (t *Tracer) Verb(ctx context.Context, name string) (context.Context, func(userdb.Outcome)) {
	ctx, span := t.tracer.Start(ctx, "userdb."+name, oteltrace.WithAttributes(attrVerb.String(name)))
	return ctx, func(o userdb.Outcome) { end(span, o) }
}

// Hash implements userdb.Observer. The span "userdb.hash" has an event "began" where it had a worker.
func (t *Tracer) Hash(ctx context.Context) (func(), func(userdb.Outcome)) {
	_, span := t.tracer.Start(ctx, "userdb.hash")
	return func() { span.AddEvent("began") }, func(o userdb.Outcome) { end(span, o) }
}

// Event implements userdb.Observer: the kind is an event of the span that is under way.
func (t *Tracer) Event(ctx context.Context, kind string) {
	oteltrace.SpanFromContext(ctx).AddEvent("userdb." + kind)
}

// Client implements userdb.Observer.
func (t *Tracer) Client(c redis.UniversalClient, opened bool) {
	if opened && !t.options.NoCommands {
		traceCommands(c, t.options.provider())
	}
}

// end ends a span. Its status is an error only where the store or the program is at fault.
func end(span oteltrace.Span, o userdb.Outcome) {
	span.SetAttributes(attrOutcome.String(string(o)))
	if o.Failed() {
		span.SetStatus(codes.Error, string(o))
	}
	span.End()
}

// Client traces the commands of a client that is then given to userdb.New, without what is in them. Call it once for a client.
// What the application itself does with the client is traced as well, if its context has a span.
func Client(c redis.UniversalClient, o Options) { traceCommands(c, o.provider()) }
