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

// Spans of go-redis hold personal data: statements with keys and values, which can be disabled, and
// error texts in which Redis quotes arguments, which cannot. They are therefore created through a
// provider that only passes on attributes known to be harmless.

// traceCommands makes go-redis create spans for the commands of a client.
func traceCommands(c redis.UniversalClient, p oteltrace.TracerProvider) {
	instrument := func(c *redis.Client) {
		// InstrumentTracing only fails for unknown types of clients.
		_ = redisotel.InstrumentTracing(
			c,
			redisotel.WithTracerProvider(filteringProvider{p}),
			redisotel.WithDBStatement(false),
			redisotel.WithCallerEnabled(false),
		)
	}
	switch c := c.(type) {
	case *redis.Client:
		instrument(c)
	case *redis.ClusterClient:
		c.OnNewNode(instrument)
	}
}

// A filteringProvider creates spans that hold no personal data.
type filteringProvider struct{ oteltrace.TracerProvider }

// Tracer implements oteltrace.TracerProvider.
func (d filteringProvider) Tracer(name string, o ...oteltrace.TracerOption) oteltrace.Tracer {
	return filteringTracer{d.TracerProvider.Tracer(name, o...)}
}

type filteringTracer struct{ oteltrace.Tracer }

// Start implements oteltrace.Tracer. It creates no span for a command outside of any span: a
// command that many callers share belongs to none of them, and a trace of its own would be useless.
func (d filteringTracer) Start(ctx context.Context, name string, o ...oteltrace.SpanStartOption) (context.Context, oteltrace.Span) {
	if !oteltrace.SpanContextFromContext(ctx).IsValid() {
		return ctx, noop.Span{}
	}
	c := oteltrace.NewSpanStartConfig(o...)
	ctx, span := d.Tracer.Start(ctx, name,
		oteltrace.WithSpanKind(c.SpanKind()), oteltrace.WithTimestamp(c.Timestamp()), oteltrace.WithAttributes(filterAttributes(c.Attributes())...))
	return ctx, filteringSpan{span}
}

// allowedAttributes lists the attributes that are passed on.
var allowedAttributes = []attribute.Key{"db.system", "db.redis.num_cmd", "server.address", "server.port"}

// filterAttributes returns the attributes that are allowed.
func filterAttributes(all []attribute.KeyValue) []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(all), func(a attribute.KeyValue) bool { return !slices.Contains(allowedAttributes, a.Key) })
}

type filteringSpan struct{ oteltrace.Span }

// SetAttributes implements oteltrace.Span.
func (s filteringSpan) SetAttributes(all ...attribute.KeyValue) {
	s.Span.SetAttributes(filterAttributes(all)...)
}

// SetStatus implements oteltrace.Span. It does nothing, as the description is the text of an error;
// RecordError sets the status.
func (s filteringSpan) SetStatus(codes.Code, string) {}

// SetName implements oteltrace.Span. It does nothing, so that spans keep the name they started
// with.
func (s filteringSpan) SetName(string) {}

// AddEvent implements oteltrace.Span. It does nothing.
func (s filteringSpan) AddEvent(string, ...oteltrace.EventOption) {}

// RecordError implements oteltrace.Span. It records only the class of the error.
func (s filteringSpan) RecordError(err error, _ ...oteltrace.EventOption) {
	class := errorClass(err)
	s.Span.SetAttributes(attribute.String("error.type", class))
	if !slices.Contains(redirects, class) {
		s.Span.SetStatus(codes.Error, "")
	}
}

// redirects lists the error replies after which go-redis sends the command again. They do not mark
// the span as failed.
var redirects = []string{"NOSCRIPT", "MOVED", "ASK"}

// errorWords lists the first words of Redis's known error replies. Unknown replies may begin with
// personal data.
var errorWords = strings.Fields("ASK BUSY BUSYGROUP CLUSTERDOWN CROSSSLOT ERR EXECABORT LOADING MASTERDOWN MISCONF MOVED NOAUTH NOPERM NOREPLICAS" +
	" NOSCRIPT OOM READONLY TRYAGAIN UNKILLABLE WRONGPASS WRONGTYPE")

// errorClass returns the class of an error: the first word of an error reply of Redis, or
// "timeout", "canceled" or "network". For other errors it returns "_OTHER", the value that
// OpenTelemetry defines.
func errorClass(err error) string {
	if answer, ok := errors.AsType[redis.Error](err); ok {
		if word, _, _ := strings.Cut(answer.Error(), " "); slices.Contains(errorWords, word) {
			return word
		}
	}
	netErr, isNetErr := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), isNetErr && netErr.Timeout():
		return "timeout"
	case isNetErr:
		return "network"
	}
	return "_OTHER"
}
