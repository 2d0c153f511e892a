package trace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
	"github.com/coffeenode/userdb/userdb/trace"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

// A tracedStore is a store that is traced to memory.
type tracedStore struct {
	*userdb.DB
	users    *userdb.Type
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func openTraced(t *testing.T, open func(o userdb.Options, p *sdktrace.TracerProvider) (*userdb.DB, error)) *tracedStore {
	t.Helper()
	s := &tracedStore{spans: tracetest.NewInMemoryExporter()}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	o := userdb.Options{
		Schema: testdb.MarkedSchema(), Keys: testdb.MarkedKeys(), Observers: []userdb.Observer{trace.New(trace.Options{Provider: s.provider})},
	}
	db, err := open(o, s.provider)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s.DB = db
	if s.users, err = db.Type("user"); err != nil {
		t.Fatal(err)
	}
	s.spans.Reset()
	return s
}

func openURL(t *testing.T, url string) *tracedStore {
	t.Helper()
	return openTraced(t, func(o userdb.Options, _ *sdktrace.TracerProvider) (*userdb.DB, error) {
		return userdb.Open(t.Context(), url, o)
	})
}

// exportedText returns everything that the exporter received, as text.
func (s *tracedStore) exportedText(t *testing.T) string {
	t.Helper()
	text, err := json.MarshalIndent(s.spans.GetSpans(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + fmt.Sprintf("%+v", s.spans.GetSpans())
}

// tree returns a line for each span, with its parent, outcome, status and events. The lines are
// sorted, and without duplicates.
func (s *tracedStore) tree() (all []string) {
	spans := s.spans.GetSpans()
	names := map[string]string{}
	for _, sp := range spans {
		names[sp.SpanContext.SpanID().String()] = sp.Name
	}
	for _, sp := range spans {
		line := sp.Name
		if parent := names[sp.Parent.SpanID().String()]; parent != "" {
			line = parent + " > " + line
		}
		for _, a := range sp.Attributes {
			if a.Key == "userdb.outcome" || a.Key == "error.type" {
				line += " " + a.Value.AsString()
			}
		}
		if sp.Status.Code == codes.Error {
			line += " ERROR"
		}
		for _, e := range sp.Events {
			line += " +" + e.Name
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestSpans(t *testing.T) {
	s := openURL(t, redistest.Shared(t).URL())
	ctx := t.Context()
	_, err := s.users.Create(ctx, userdb.NewEntry{UID: "traced", Facets: schema.Texts("email", "traced@x.org"), Password: "correct horse"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first login loads the scripts
		s.spans.Reset()
		if _, err := s.users.Login(ctx, "traced@x.org", "wrong horse", userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
			t.Fatalf("Login: got %v, want ErrLogin", err)
		}
	}
	tree := s.tree()
	for _, want := range []string{
		"userdb.Login login +userdb.failure",
		"userdb.Login > userdb.hash ok +began",
		"userdb.Login > evalsha",
	} {
		if !slices.Contains(tree, want) {
			t.Errorf("no %q in\n%s", want, strings.Join(tree, "\n"))
		}
	}
	for _, line := range tree {
		if !strings.HasPrefix(line, "userdb.") {
			t.Errorf("%q is outside of any method", line)
		}
	}
}

// TestSpanStatus checks that a span has an error status if the store is unavailable, but not for
// errors that callers must expect.
func TestSpanStatus(t *testing.T) {
	server := redistest.Start(t)
	s := openURL(t, server.URL())
	if _, err := s.users.Find(t.Context(), hints.UID("x")); !errors.Is(err, userdb.ErrNotFound) {
		t.Fatalf("Find: got %v, want ErrNotFound", err)
	}
	if tree := s.tree(); !slices.Contains(tree, "userdb.Find not_found") {
		t.Errorf("the spans are %q, want one of Find with not_found and no error", tree)
	}
	server.Stop()
	s.spans.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Ping(ctx); !errors.Is(err, userdb.ErrUnavailable) {
		t.Fatalf("Ping: got %v, want ErrUnavailable", err)
	}
	if tree := s.tree(); !slices.Contains(tree, "userdb.Ping unavailable ERROR") {
		t.Errorf("the spans are %q, want one of Ping with unavailable and an error", tree)
	}
}

// attributeKeys lists all attributes that spans may have.
var attributeKeys = []attribute.Key{
	"userdb.verb", "userdb.outcome", "error.type", "db.system", "db.redis.num_cmd", "server.address", "server.port",
}

// TestNothingLeaks calls all methods with marked texts and checks that the mark is not exported.
// The calls succeed, are refused, or fail because a record has the wrong type or the server is
// gone.
func TestNothingLeaks(t *testing.T) {
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	for name, open := range map[string]func(o userdb.Options, p *sdktrace.TracerProvider) (*userdb.DB, error){
		"memory": func(o userdb.Options, _ *sdktrace.TracerProvider) (*userdb.DB, error) {
			return userdb.Open(t.Context(), "memory:", o)
		},
		"cluster": func(o userdb.Options, _ *sdktrace.TracerProvider) (*userdb.DB, error) {
			return userdb.Open(t.Context(), cluster.URL(), o)
		},
		"client of the caller": func(o userdb.Options, p *sdktrace.TracerProvider) (*userdb.DB, error) {
			c := server.Client()
			trace.Client(c, trace.Options{Provider: p})
			return redisdb.New(t.Context(), c, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTraced(t, open)
			if err := testdb.CallAll(t.Context(), s.DB); err != nil {
				t.Fatal(err)
			}
			if name == "client of the caller" {
				provokeErrors(t, s, server)
			}
			text := s.exportedText(t)
			if at := strings.Index(strings.ToLower(text), testdb.Mark); at >= 0 {
				t.Errorf("marked text in …%s…", text[max(0, at-300):min(len(text), at+100)])
			}
			commands := 0
			for _, sp := range s.spans.GetSpans() {
				if !strings.HasPrefix(sp.Name, "userdb.") {
					commands++
				}
				for _, a := range sp.Attributes {
					if !slices.Contains(attributeKeys, a.Key) {
						t.Errorf("%s has the attribute %s", sp.Name, a.Key)
					}
				}
			}
			if commands < 50 {
				t.Errorf("%d spans of commands, want at least 50", commands)
			}
		})
	}
}

// provokeErrors makes Redis reply with texts that quote the arguments of commands.
func provokeErrors(t *testing.T, s *tracedStore, server *redistest.Server) {
	t.Helper()
	ctx, span := s.provider.Tracer("test").Start(t.Context(), "userdb.test")
	c := server.Client()
	trace.Client(c, trace.Options{Provider: s.provider})
	if err := c.Do(ctx, "nonsense", "marked").Err(); err == nil || !strings.Contains(err.Error(), "marked") {
		t.Errorf("Redis does not quote the argument: %v", err)
	}
	if err := c.Eval(ctx, "return redis.error_reply('MARKED marked')", nil).Err(); err == nil {
		t.Error("a script that replies with an error returned none")
	}
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "marked"); return p.Do(ctx, "nonsense", "marked").Err() })
	if err := c.Set(ctx, "user/uid:marked0uid", "marked", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_ = testdb.CallAll(ctx, s.DB)
	span.End()
	if tree := strings.Join(s.tree(), "\n"); !strings.Contains(tree, "ERR ERROR") || !strings.Contains(tree, "_OTHER ERROR") {
		t.Errorf("no error classes in\n%s", tree)
	}
	server.Stop()
	gone, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = testdb.CallAll(gone, s.DB)
}

// TestSharedRoundTrips makes many calls at once, so that they share round trips. No span of a
// shared command may start a trace of its own.
func TestSharedRoundTrips(t *testing.T) {
	s := openURL(t, redistest.Shared(t).URL())
	done := make(chan error)
	const callers = 64
	for range callers {
		go func() {
			var err error
			for range 20 {
				_, err = s.users.Exists(t.Context(), hints.Any("nobody@x.org"))
			}
			done <- err
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for _, sp := range s.spans.GetSpans() {
		if !strings.HasPrefix(sp.Name, "userdb.") && !sp.Parent.IsValid() {
			t.Fatalf("%s has no parent", sp.Name)
		}
	}
}

// TestCache checks that an entry is fetched once, by a traced command, and then comes from the
// cache.
func TestCache(t *testing.T) {
	server := redistest.Start(t)
	s := openTraced(t, func(o userdb.Options, _ *sdktrace.TracerProvider) (*userdb.DB, error) {
		o.CacheSize = 10
		return userdb.Open(t.Context(), server.URL(), o)
	})
	ctx := t.Context()
	if _, err := s.users.Create(ctx, userdb.NewEntry{UID: "copied", Facets: schema.Texts("email", "copied@x.org")}); err != nil {
		t.Fatal(err)
	}
	s.spans.Reset()
	reads := func() (n int) {
		_, rest, _ := strings.Cut(server.Client().Info(ctx, "commandstats").Val(), "cmdstat_hgetall:calls=")
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	before := reads()
	for range 3 {
		if _, err := s.users.Find(ctx, hints.UID("copied")); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := s.tree(), []string{"userdb.Find > hgetall", "userdb.Find ok"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := reads() - before; got != 1 {
		t.Errorf("%d reads were sent, want 1", got)
	}
}

// TestNoCommands checks that with NoCommands there are only spans of methods.
func TestNoCommands(t *testing.T) {
	s := openTraced(t, func(o userdb.Options, p *sdktrace.TracerProvider) (*userdb.DB, error) {
		o.Observers = []userdb.Observer{trace.New(trace.Options{Provider: p, NoCommands: true})}
		return userdb.Open(t.Context(), "memory:", o)
	})
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := s.tree(), []string{"userdb.Ping ok"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
