package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Ops configure Serve. The zero Ops are ready to use.
type Ops struct {
	// Addr is where /livez, /readyz and /metrics are served, such as 127.0.0.1:9090. Visitors must
	// not reach it. If "", they are not served.
	Addr string
	// Ready returns an error if requests cannot be answered now, as userdb.DB.Ping does. If nil,
	// they always can.
	Ready func(context.Context) error
	// Metrics serves /metrics, such as promhttp.Handler(). If nil, there are none.
	Metrics http.Handler
	// Grace limits the time for requests in progress, and then the time for Close. If zero, it is
	// 10 seconds. Let both pass, and some seconds more, before you kill the process.
	Grace time.Duration
	// Close, such as MailQueue.Close, is called when no request is left. Its context ends after
	// Grace.
	Close func(context.Context) error
	// Listener, if not nil, is where visitors are served, in place of the address; Serve closes it.
	Listener net.Listener
}

// Serve serves visitors at an address until ctx ends, or until a server fails. It limits how long a
// client may take to send a request. After ctx ends, /readyz answers 503, requests in progress are
// finished, Ops.Close is called, and the error says what was not done in time. End ctx with
// signal.NotifyContext.
func Serve(ctx context.Context, addr string, h http.Handler, o Ops) error {
	listener, err := o.Listener, error(nil)
	if listener == nil {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
	}
	if err != nil {
		return err
	}
	site := newServer(h)
	servers := []*http.Server{site}
	ended := make(chan error, 2)
	var ending atomic.Bool
	if o.Addr != "" {
		operations, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Addr)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		servers = append(servers, newServer(o.handler(&ending)))
		go func() { ended <- servers[1].Serve(operations) }()
	}
	slog.InfoContext(ctx, "listening", slog.String("address", listener.Addr().String()))
	go func() { ended <- site.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	ending.Store(true)
	if left := o.within(ctx, site.Shutdown); left != nil {
		err = errors.Join(err, fmt.Errorf("requests were cut off: %w", left), site.Close())
	}
	if o.Close != nil { // slow requests must not take its time
		err = errors.Join(err, o.within(ctx, o.Close))
	}
	for _, s := range servers[1:] {
		err = errors.Join(err, s.Close())
	}
	return err
}

// within calls f with a context that ends after Grace, and not with ctx.
func (o Ops) within(ctx context.Context, f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(o.Grace, 10*time.Second))
	defer cancel()
	return f(limited)
}

// newServer returns a server on which slow clients cannot hold connections.
func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
}

// readyTimeout limits a call of Ops.Ready.
const readyTimeout = 2 * time.Second

// handler returns the handler for operators.
func (o Ops) handler(ending *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if ending.Load() || o.Ready != nil && o.Ready(ctx) != nil {
			http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		}
	})
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
	return mux
}
