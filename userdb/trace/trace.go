// Package trace creates an OpenTelemetry span for every method call on a store, with child spans
// for password hashes and Redis commands.
//
//	tracer := trace.New(trace.Options{})
//	db, err := userdb.Open(ctx, url, userdb.Options{Observers: []userdb.Observer{tracer}})
//
// No span holds an identifier, a value, a key or a statement; docs/watch.md lists what spans hold.
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

// scope is the instrumentation scope of the spans.
const scope = "github.com/coffeenode/userdb/userdb/trace"

// Attributes of spans.
const (
	attrVerb    = attribute.Key("userdb.verb")    // the name of the method
	attrOutcome = attribute.Key("userdb.outcome") // a userdb.Outcome
)

// Options configures a Tracer. The zero value is ready to use.
type Options struct {
	// Provider creates the spans. If nil, it is otel.GetTracerProvider() at the time of the call to
	// New or Client.
	Provider oteltrace.TracerProvider
	// NoCommands omits the spans of Redis commands, which are otherwise children of the method's
	// span.
	NoCommands bool
}

func (o Options) provider() oteltrace.TracerProvider {
	return cmp.Or(o.Provider, otel.GetTracerProvider())
}

// A Tracer is a userdb.Observer that creates spans. It is safe for concurrent use. The zero Tracer
// is not usable; call New.
type Tracer struct {
	options Options
	tracer  oteltrace.Tracer
}

var _ userdb.Observer = (*Tracer)(nil)

// New returns a Tracer for userdb.Options.Observers. It traces the Redis commands of stores that
// userdb.Open opens. To trace those of a client that is passed to redisdb.New, also call Client.
func New(o Options) *Tracer {
	return &Tracer{options: o, tracer: o.provider().Tracer(scope)}
}

// Call implements userdb.Observer. The span, such as "userdb.Find", lasts as long as the method and
// has its outcome as an attribute.
func (t *Tracer) Call(ctx context.Context, name string) (context.Context, func(userdb.Outcome)) {
	ctx, span := t.tracer.Start(ctx, "userdb."+name, oteltrace.WithAttributes(attrVerb.String(name)))
	return ctx, func(o userdb.Outcome) { end(span, o) }
}

// Hash implements userdb.Observer. The span "userdb.hash" has an event "began" at the time when the
// job got a worker.
func (t *Tracer) Hash(ctx context.Context) (func(), func(userdb.Outcome)) {
	_, span := t.tracer.Start(ctx, "userdb.hash")
	return func() { span.AddEvent("began") }, func(o userdb.Outcome) { end(span, o) }
}

// Event implements userdb.Observer. It adds an event to the current span.
func (t *Tracer) Event(ctx context.Context, kind string) {
	oteltrace.SpanFromContext(ctx).AddEvent("userdb." + kind)
}

// Client implements userdb.Observer.
func (t *Tracer) Client(c redis.UniversalClient, opened bool) {
	if opened && !t.options.NoCommands {
		traceCommands(c, t.options.provider())
	}
}

// end ends a span. The status is an error only if the store or the program is at fault.
func end(span oteltrace.Span, o userdb.Outcome) {
	span.SetAttributes(attrOutcome.String(string(o)))
	if o.Failed() {
		span.SetStatus(codes.Error, string(o))
	}
	span.End()
}

// Client traces the commands of a client that is then passed to redisdb.New, without their
// arguments. Call it once for each client. Commands that the application itself sends are also
// traced if their context has a span.
func Client(c redis.UniversalClient, o Options) { traceCommands(c, o.provider()) }
