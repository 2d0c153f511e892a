package trace

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The spans of go-redis hold personal data: statements with keys and values, which can be disabled,
// and texts of errors, in which Redis quotes arguments and which cannot be disabled. Therefore they
// are created through a provider that only passes attributes known to be harmless.

// traceCommands makes go-redis create spans for the commands of a client.
func traceCommands(c redis.UniversalClient, p oteltrace.TracerProvider) {
	one := func(c *redis.Client) {
		// InstrumentTracing only fails for unknown types of clients.
		_ = redisotel.InstrumentTracing(
			c,
			redisotel.WithTracerProvider(discreet{p}),
			redisotel.WithDBStatement(false),
			redisotel.WithCallerEnabled(false),
		)
	}
	switch c := c.(type) {
	case *redis.Client:
		one(c)
	case *redis.ClusterClient:
		c.OnNewNode(one)
	}
}

// A discreet provider creates spans that hold nothing personal.
type discreet struct{ oteltrace.TracerProvider }

// Tracer implements oteltrace.TracerProvider.
func (d discreet) Tracer(name string, o ...oteltrace.TracerOption) oteltrace.Tracer {
	return discreetTracer{d.TracerProvider.Tracer(name, o...)}
}

type discreetTracer struct{ oteltrace.Tracer }

// Start implements oteltrace.Tracer. It creates no span for a command outside of any span: if many
// callers share one round trip, the command belongs to none of them, and a trace of its own would
// say nothing.
func (d discreetTracer) Start(ctx context.Context, name string, o ...oteltrace.SpanStartOption) (context.Context, oteltrace.Span) {
	if !oteltrace.SpanContextFromContext(ctx).IsValid() {
		return ctx, noop.Span{}
	}
	c := oteltrace.NewSpanStartConfig(o...)
	ctx, span := d.Tracer.Start(ctx, name,
		oteltrace.WithSpanKind(c.SpanKind()), oteltrace.WithTimestamp(c.Timestamp()), oteltrace.WithAttributes(harmless(c.Attributes())...))
	return ctx, discreetSpan{span}
}

// allowed lists the attributes that are passed on.
var allowed = []attribute.Key{"db.system", "db.redis.num_cmd", "server.address", "server.port"}

// harmless returns the allowed attributes among all.
func harmless(all []attribute.KeyValue) []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(all), func(a attribute.KeyValue) bool { return !slices.Contains(allowed, a.Key) })
}

type discreetSpan struct{ oteltrace.Span }

// SetAttributes implements oteltrace.Span.
func (s discreetSpan) SetAttributes(all ...attribute.KeyValue) {
	s.Span.SetAttributes(harmless(all)...)
}

// SetStatus implements oteltrace.Span. It does nothing, as the description is the text of an error;
// RecordError sets the status.
func (s discreetSpan) SetStatus(codes.Code, string) {}

// SetName implements oteltrace.Span. It does nothing, so that spans keep the name they started
// with.
func (s discreetSpan) SetName(string) {}

// AddEvent implements oteltrace.Span. It does nothing.
func (s discreetSpan) AddEvent(string, ...oteltrace.EventOption) {}

// RecordError implements oteltrace.Span. It records only the class of the error.
func (s discreetSpan) RecordError(err error, _ ...oteltrace.EventOption) {
	class := classOf(err)
	s.Span.SetAttributes(attribute.String("error.type", class))
	if !slices.Contains(detours, class) {
		s.Span.SetStatus(codes.Error, "")
	}
}

// detours lists the replies after which a command is sent in another way. They are not errors of
// the span.
var detours = []string{"NOSCRIPT", "MOVED", "ASK"}

// words lists the words with which known error replies of Redis begin. Other replies may begin with
// anything.
var words = strings.Fields("ASK BUSY BUSYGROUP CLUSTERDOWN CROSSSLOT ERR EXECABORT LOADING MASTERDOWN MISCONF MOVED NOAUTH NOPERM NOREPLICAS" +
	" NOSCRIPT OOM READONLY TRYAGAIN UNKILLABLE WRONGPASS WRONGTYPE")

// classOf returns the class of an error: the first word of an error reply of Redis, or "timeout",
// "canceled" or "network". For other errors it returns "_OTHER", the value that OpenTelemetry
// defines.
func classOf(err error) string {
	if answer, is := errors.AsType[redis.Error](err); is {
		if word, _, _ := strings.Cut(answer.Error(), " "); slices.Contains(words, word) {
			return word
		}
	}
	wire, isWire := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), isWire && wire.Timeout():
		return "timeout"
	case isWire:
		return "network"
	}
	return "_OTHER"
}
