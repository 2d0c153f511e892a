package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Times for shutting down.
const (
	firstRequestTimeout = 5 * time.Second        // for a connection to begin its first request
	quietTime           = 500 * time.Millisecond // without a request, after which none is expected
	closeTimeout        = time.Second            // for the listener to close
)

// Run serves connections from l until ctx ends. It then closes l and lets the requests that have
// arrived finish, for up to twenty seconds.
func (s *Service) Run(ctx context.Context, l net.Listener) error {
	streamCtx, endStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer endStreams()
	storeCtx, endStoreCalls := context.WithCancel(streamCtx)
	defer endStoreCalls()
	conns := &connTracker{all: map[net.Conn]bool{}}
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: responseTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), drainContextsKey{}, drainContexts{storeCtx, streamCtx})
		},
		ConnState: conns.track,
	}
	listener := &drainListener{Listener: l}
	l = listener
	if s.options.TLS != nil { // otherwise all connections come from a proxy or from this machine
		l = tls.NewListener(newPeerListener(l, s.options.Proxies), s.options.TLS)
		server.Handler = limitRequests(s, s.options.Proxies)
		server.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: maxUnread, MaxReceiveBufferPerStream: maxUnread}
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	defer time.AfterFunc(drainTimeout, endStreams).Stop()
	defer time.AfterFunc(drainTimeout*2/3, endStoreCalls).Stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout+abortTimeout)
	defer cancel()
	listener.startClose()
	<-ended
	s.draining.Store(true)
	s.end()
	if s.console != nil {
		go s.console.Close(last)
	}
	s.waitIdle(streamCtx, conns)
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		s.options.Logger.WarnContext(ctx, "cutting off requests that are still running after 20 seconds")
		err = server.Close()
	}
	return err
}

// drainContexts holds the contexts that end the requests of a service that shuts down. A request
// that waits for an unresponsive server of the store notices the end only when its call times out,
// after 5 seconds. Calls to the store therefore end earlier than streams.
type drainContexts struct{ store, stream context.Context }

type drainContextsKey struct{}

// drainContextsOf returns the contexts of the service that runs a request. They never end for a
// request that [Service.Run] does not serve.
func drainContextsOf(ctx context.Context) drainContexts {
	if e, ok := ctx.Value(drainContextsKey{}).(drainContexts); ok {
		return e
	}
	return drainContexts{context.Background(), context.Background()}
}

// withStoreTimeout returns a context for calls to the store. It ends early enough for the request
// to be answered.
func withStoreTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	stop := context.AfterFunc(drainContextsOf(ctx).store, cancel)
	return ctx, func() { stop(); cancel() }
}

// waitIdle waits until no request is running or on its way, or ctx ends. [http.Server.Shutdown]
// drops requests that are still being read, so Run calls it only after waitIdle. In the meantime,
// connections close after their responses.
func (s *Service) waitIdle(ctx context.Context, conns *connTracker) {
	begun := time.Now()
	for quiet := begun; time.Since(quiet) < quietTime && ctx.Err() == nil; time.Sleep(quietTime / 100) {
		if s.active.Load() > 0 || conns.hasNew() && time.Since(begun) < firstRequestTimeout {
			quiet = time.Now()
		}
	}
}

// A connTracker holds the connections that have not sent a request yet.
type connTracker struct {
	mu  sync.Mutex
	all map[net.Conn]bool
}

// track records a change of the state of a connection, as [http.Server] reports it.
func (t *connTracker) track(c net.Conn, state http.ConnState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state == http.StateNew {
		t.all[c] = true
	} else {
		delete(t.all, c)
	}
}

// hasNew reports whether there are connections that have not sent a request yet.
func (t *connTracker) hasNew() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) > 0
}

// A drainListener is a listener that, before it closes, accepts the connections that are waiting,
// for up to closeTimeout. Otherwise the operating system would reset them.
type drainListener struct {
	net.Listener
	closing atomic.Pointer[time.Time] // when to close it at the latest; nil while it is open
}

type deadliner interface{ SetDeadline(t time.Time) error }

// startClose starts to close the listener. The caller must keep calling Accept, which closes it.
func (d *drainListener) startClose() {
	deadline := time.Now().Add(closeTimeout)
	d.closing.Store(&deadline)
	if l, ok := d.Listener.(deadliner); !ok || l.SetDeadline(time.Now()) != nil {
		d.Close()
	}
}

// Accept implements [net.Listener].
func (d *drainListener) Accept() (net.Conn, error) {
	for {
		deadline, l := d.closing.Load(), d.Listener
		if deadline != nil {
			if time.Now().After(*deadline) {
				d.Close()
			}
			// If l is closed, Accept returns the error.
			_ = l.(deadliner).SetDeadline(time.Now().Add(100 * time.Microsecond))
		}
		c, err := l.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		if deadline != nil {
			d.Close()
		}
	}
}
