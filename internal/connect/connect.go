// Package connect makes the engine for a store's URL or for a caller's client.
package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/single"
)

// ErrURL means that a text is not the URL of a store.
var ErrURL = errors.New("bad store URL")

// Open returns the engine for a URL. Closing the engine closes its connections.
//
// The cache needs one server that the URL names: embedded stores ignore it, and Open returns
// ErrCache if the URL names Sentinels or a cluster and the cache has room for entries.
func Open(ctx context.Context, text string, cache store.Cache) (store.Engine, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok {
		return nil, badURL("it has no scheme, such as redis://; if it is the path of a file, write file:PATH")
	}
	if u, err := url.Parse(text); err == nil && strings.Contains(u.Host, ",") {
		return nil, badURL("it names several hosts; write the others as ?addr=HOST:PORT&addr=HOST:PORT")
	}
	switch scheme {
	case "memory":
		return openEmbedded(ctx, "")
	case "file":
		return openFile(ctx, rest)
	case "redis", "rediss", "unix":
		return openServer(text, cache)
	case "redis+sentinel", "rediss+sentinel":
		return openSentinel(strings.Replace(text, "+sentinel", "", 1), cache)
	case "redis+cluster", "rediss+cluster":
		return openCluster(strings.Replace(text, "+cluster", "", 1), cache)
	}
	return nil, badURL("unknown scheme; want redis, rediss, unix, redis+cluster, redis+sentinel, file or memory")
}

// Use returns an engine that uses the caller's client. Closing the engine does not close the
// client.
func Use(c redis.UniversalClient, cache store.Cache) (store.Engine, error) {
	if cache.Entries > 0 {
		return nil, fmt.Errorf("%w: a cache needs a client of its own; open the store by its URL", store.ErrCache)
	}
	const stale = "it answers from a cache, which may be behind; leave ClientSideCache out, and see userdb.Options.CacheSize"
	switch c := c.(type) {
	case *redis.Client:
		if o := c.Options(); o.ClientSideCache != nil || o.ClientSideCacheConfig != nil {
			return nil, fmt.Errorf("%w: %s", store.ErrUnsuitable, stale)
		}
		limitReplies(c)
		return single.New(c, single.Options{}), nil
	case *redis.ClusterClient:
		if err := checkReadsMasters(c.Options()); err != nil {
			return nil, err
		}
		return cluster.New(c, cluster.Options{OnNode: limitReplies}), nil
	case nil:
		return nil, fmt.Errorf("%w: nil", store.ErrUnsuitable)
	}
	return nil, fmt.Errorf("%w: %T; want *redis.Client or *redis.ClusterClient", store.ErrUnsuitable, c)
}

// Clients returns the clients through which an engine made by Open or Use sends its commands.
func Clients(e store.Engine) []redis.UniversalClient {
	switch e := e.(type) {
	case *single.Engine:
		return []redis.UniversalClient{e.Client()}
	case *single.Cached:
		return []redis.UniversalClient{e.Client(), e.Reader()}
	case *cluster.Engine:
		return []redis.UniversalClient{e.Client()}
	}
	return nil
}

// ReportClients calls the method Client of each observer that has one, once for each client of e.
// redisdb.Observer describes that method.
func ReportClients[O any](e store.Engine, opened bool, observers []O) {
	for _, o := range observers {
		if w, is := any(o).(interface {
			Client(c redis.UniversalClient, opened bool)
		}); is {
			for _, c := range Clients(e) {
				w.Client(c, opened)
			}
		}
	}
}

// File returns the path of the embedded store's file that a URL names, or "" for any other URL.
func File(text string) string {
	rest, is := strings.CutPrefix(text, "file:")
	if !is {
		return ""
	}
	path, _ := filePath(rest) // Open reports a bad path
	return path
}

// filePath parses the text after "file:", which is a path, or ///PATH as browsers write it.
func filePath(rest string) (string, error) {
	if strings.HasPrefix(rest, "///") {
		u, err := url.Parse("file:" + rest)
		if err != nil {
			return "", badURL("not a file URL")
		}
		rest = u.Path
	}
	if rest == "" {
		return "", badURL("file: names no file")
	}
	return rest, nil
}

func openFile(ctx context.Context, rest string) (store.Engine, error) {
	path, err := filePath(rest)
	if err != nil {
		return nil, err
	}
	return openEmbedded(ctx, path)
}

func openEmbedded(ctx context.Context, path string) (store.Engine, error) {
	s, err := embedded.Open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return single.New(s.Client(), single.Options{
		FeedEntries: history.EmbeddedEntries,
		Close:       s.Close, Embedded: true, File: path, Bulk: s.Bulk, Lazy: embedded.Lazy, Share: s.Serve,
		NotRun: func(err error) bool {
			return errors.Is(err, embedded.ErrUnsaved) || errors.Is(err, embedded.ErrClosed)
		},
		MayHaveRun: func(err error) bool {
			return errors.Is(err, embedded.ErrWaiting) || errors.Is(err, embedded.ErrPartlySaved)
		},
	}), nil
}

func openServer(text string, cache store.Cache) (store.Engine, error) {
	o, tlsOptions, err := parseOptions(text, redis.ParseURL)
	if err != nil {
		return nil, err
	}
	o.TLSConfig, o.ContextTimeoutEnabled = tlsOptions, true
	o.DialerRetries = 1 // the engine retries
	o.Dialer = newDialer(o.DialTimeout, tlsOptions)
	c := redis.NewClient(o)
	e := single.New(c, single.Options{Close: c.Close})
	if cache.Entries <= 0 {
		return e, nil
	}
	cached, err := single.NewCached(e, *o, cache)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return cached, nil
}

func openSentinel(text string, cache store.Cache) (store.Engine, error) {
	if cache.Entries > 0 {
		return nil, fmt.Errorf("%w: go-redis caches one server that a URL names, not one that Sentinels name", store.ErrCache)
	}
	o, tlsOptions, err := parseOptions(text, redis.ParseFailoverURL)
	switch {
	case err != nil:
		return nil, err
	case o.MasterName == "":
		return nil, badURL("a Sentinel URL needs ?master_name=NAME")
	case o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly:
		return nil, badURL("it reads from replicas, which may be behind; leave replica_only, route_by_latency and route_randomly out")
	}
	o.TLSConfig, o.ContextTimeoutEnabled = tlsOptions, true
	o.DialerRetries = 1 // the engine retries, and each dial asks all Sentinels, with retries
	o.Dialer = newDialer(o.DialTimeout, tlsOptions)
	c := redis.NewFailoverClient(o)
	c.AddHook(sentinelHook{})
	return single.New(c, single.Options{Close: c.Close}), nil
}

// A sentinelHook translates the errors of Sentinels.
type sentinelHook struct{ boundHook }

func (sentinelHook) DialHook(dial redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return conn, sentinelError(err)
	}
}

// noSentinel begins the error of go-redis if no Sentinel names the master.
const noSentinel = "redis: all sentinels specified in configuration are unreachable: "

// sentinelError returns the error to report when dialing fails with err. If err comes from
// Sentinels, the result says so in one line. A reply of a Sentinel must not be mistaken for one of
// the server: a nil, which means an unknown master, would mean that a key does not exist.
func sentinelError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w: no Sentinel that answers knows a master of this name", store.ErrUnsuitable)
	}
	texts, fromSentinels := strings.CutPrefix(err.Error(), noSentinel)
	if !fromSentinels {
		return err
	}
	text := "no Sentinel answers: " + strings.ReplaceAll(texts, "\n", ", ")
	if _, isReply := errors.AsType[redis.Error](err); isReply {
		return fmt.Errorf("%w: %s", store.ErrUnsuitable, text)
	}
	return dialError{text, err}
}

// A dialError replaces the text of the error of a dial.
type dialError struct {
	text  string
	cause error
}

func (e dialError) Error() string { return e.text }
func (e dialError) Unwrap() error { return e.cause }

// reloadInterval is how often a cluster client reads the topology again. Without it a client learns
// of a failover only from a node's redirect, and a dead master sends none.
const reloadInterval = 2 * time.Second

func openCluster(text string, cache store.Cache) (store.Engine, error) {
	if cache.Entries > 0 {
		return nil, fmt.Errorf("%w: go-redis caches one server that a URL names, not a cluster", store.ErrCache)
	}
	o, tlsOptions, err := parseOptions(text, redis.ParseClusterURL)
	if err != nil {
		return nil, err
	}
	if err := checkReadsMasters(o); err != nil {
		return nil, err
	}
	o.TLSConfig, o.ContextTimeoutEnabled = tlsOptions, true
	o.DialerRetries = 1 // the engine retries
	o.ClusterStateReloadInterval = reloadInterval
	o.Dialer = newDialer(o.DialTimeout, tlsOptions)
	c := redis.NewClusterClient(o)
	return cluster.New(c, cluster.Options{Close: c.Close}), nil
}

// checkReadsMasters returns an error for clients that read from replicas, which may be behind.
func checkReadsMasters(o *redis.ClusterOptions) error {
	if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		return fmt.Errorf("%w: it reads from replicas, which may be behind, so that one identifier could mean two people; "+
			"leave ReadOnly, RouteByLatency and RouteRandomly off", store.ErrUnsuitable)
	}
	return nil
}

// go-redis has one logger for the whole process. It writes to standard error what go-redis also
// returns as errors. This init disables it before main begins, so that a program that wants the log
// can set a logger of its own.
func init() { logging.Disable() }

// ErrShared is returned by [Share] if another process already shares the file.
var ErrShared = embedded.ErrServed

// Share lets other processes of this user use the file of an embedded store until stop is called.
// For other stores it does nothing.
func Share(e store.Engine) (stop func() error, err error) {
	if s, is := e.(*single.Engine); is {
		return s.Share()
	}
	return func() error { return nil }, nil
}
