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

// go-redis' own spans tell more than they may: statements with keys and values, which can be switched off, and the texts of
// errors, which Redis writes arguments into and which cannot. So they go through a provider that lets pass what is known
// to be harmless.

// traceCommands has go-redis make spans of a client's commands.
func traceCommands(c redis.UniversalClient, p oteltrace.TracerProvider) {
	one := func(c *redis.Client) {
		// It fails for clients that are of no kind that it knows, and this is one.
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

// A discreet provider makes spans without anything that could name somebody.
type discreet struct{ oteltrace.TracerProvider }

// Tracer implements oteltrace.TracerProvider.
func (d discreet) Tracer(name string, o ...oteltrace.TracerOption) oteltrace.Tracer {
	return discreetTracer{d.TracerProvider.Tracer(name, o...)}
}

type discreetTracer struct{ oteltrace.Tracer }

// Start implements oteltrace.Tracer. A command that no span is around has none itself: where many callers share one round
// trip, it belongs to none of them, and a trace for each would say nothing.
func (d discreetTracer) Start(ctx context.Context, name string, o ...oteltrace.SpanStartOption) (context.Context, oteltrace.Span) {
	if !oteltrace.SpanContextFromContext(ctx).IsValid() {
		return ctx, noop.Span{}
	}
	c := oteltrace.NewSpanStartConfig(o...)
	ctx, span := d.Tracer.Start(ctx, name,
		oteltrace.WithSpanKind(c.SpanKind()), oteltrace.WithTimestamp(c.Timestamp()), oteltrace.WithAttributes(harmless(c.Attributes())...))
	return ctx, discreetSpan{span}
}

// allowed are the attributes that pass.
var allowed = []attribute.Key{"db.system", "db.redis.num_cmd", "server.address", "server.port"}

func harmless(all []attribute.KeyValue) []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(all), func(a attribute.KeyValue) bool { return !slices.Contains(allowed, a.Key) })
}

type discreetSpan struct{ oteltrace.Span }

// SetAttributes implements oteltrace.Span.
func (s discreetSpan) SetAttributes(all ...attribute.KeyValue) {
	s.Span.SetAttributes(harmless(all)...)
}

// SetStatus implements oteltrace.Span. Its description is the text of an error: RecordError sets the status.
func (s discreetSpan) SetStatus(codes.Code, string) {}

// SetName implements oteltrace.Span: names are those that spans began with.
func (s discreetSpan) SetName(string) {}

// AddEvent implements oteltrace.Span: there are no events.
func (s discreetSpan) AddEvent(string, ...oteltrace.EventOption) {}

// RecordError implements oteltrace.Span: of an error only its class is kept.
func (s discreetSpan) RecordError(err error, _ ...oteltrace.EventOption) {
	class := classOf(err)
	s.Span.SetAttributes(attribute.String("error.type", class))
	if !slices.Contains(detours, class) {
		s.Span.SetStatus(codes.Error, "")
	}
}

// detours are answers after which a command is sent in another way: nothing is wrong.
var detours = []string{"NOSCRIPT", "MOVED", "ASK"}

// words are how answers of Redis begin that mean something. Others may begin with anything.
var words = strings.Fields("ASK BUSY BUSYGROUP CLUSTERDOWN CROSSSLOT ERR EXECABORT LOADING MASTERDOWN MISCONF MOVED NOAUTH NOPERM NOREPLICAS" +
	" NOSCRIPT OOM READONLY TRYAGAIN UNKILLABLE WRONGPASS WRONGTYPE")

// classOf is what may be said of an error: the word that Redis answers with, or "timeout", "canceled", "network"; "_OTHER", as
// OpenTelemetry has it, for the rest.
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
