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
	breakTime = time.Second            // for canceled requests to end after drainTime
	newTime   = 5 * time.Second        // for a connection to begin its first request
	lullTime  = 500 * time.Millisecond // without a request, after which none is expected
	shutTime  = time.Second            // for a door to close
)

// Run serves connections from l until ctx ends. It then closes l and lets the requests that have
// arrived finish, for up to twenty seconds.
func (s *Service) Run(ctx context.Context, l net.Listener) error {
	late, isLate := context.WithCancel(context.WithoutCancel(ctx))
	defer isLate()
	soon, isSoon := context.WithCancel(late)
	defer isSoon()
	guests := &guests{all: map[net.Conn]bool{}}
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader,
		ErrorLog: slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), endsKey{}, ends{soon, late})
		},
		ConnState: guests.note,
	}
	entrance := &door{Listener: l}
	l = entrance
	if s.options.TLS != nil {
		l = tls.NewListener(l, s.options.TLS)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	defer time.AfterFunc(drainTime, isLate).Stop()
	defer time.AfterFunc(drainTime*2/3, isSoon).Stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime+breakTime)
	defer cancel()
	entrance.shut()
	<-ended
	s.ending.Store(true)
	s.end()
	if s.console != nil {
		go s.console.Close(last)
	}
	s.empty(late, guests)
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		s.options.Logger.WarnContext(ctx, "cutting off requests that are still running after 20 seconds")
		err = server.Close()
	}
	return err
}

// ends holds the contexts that end the requests of a service that shuts down. A request that waits
// for an unresponsive server of the store notices the end only when its own timeout expires, after
// 5 seconds. Such requests therefore end with soon, and streams end with late.
type ends struct{ soon, late context.Context }

type endsKey struct{}

func endsOf(ctx context.Context) ends {
	if e, is := ctx.Value(endsKey{}).(ends); is {
		return e
	}
	return ends{context.Background(), context.Background()}
}

// within returns a context for calls to the store. It ends early enough for the request to be
// answered.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	stop := context.AfterFunc(endsOf(ctx).soon, cancel)
	return ctx, func() { stop(); cancel() }
}

// empty waits until no request is running or on its way, or ctx ends. A server that is shutting
// down drops requests that it is still reading, so the service keeps running until then, and
// connections close after their responses.
func (s *Service) empty(ctx context.Context, g *guests) {
	begun := time.Now()
	for quiet := begun; time.Since(quiet) < lullTime && ctx.Err() == nil; time.Sleep(lullTime / 100) {
		if s.running.Load() > 0 || g.any() && time.Since(begun) < newTime {
			quiet = time.Now()
		}
	}
}

// guests holds the connections that have not sent a request yet.
type guests struct {
	mu  sync.Mutex
	all map[net.Conn]bool
}

func (g *guests) note(c net.Conn, state http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if state == http.StateNew {
		g.all[c] = true
	} else {
		delete(g.all, c)
	}
}

func (g *guests) any() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.all) > 0
}

// A door is a listener that closes when no connection is waiting to be accepted, because the
// operating system resets those that are.
type door struct {
	net.Listener
	closing atomic.Pointer[time.Time] // when to close it at the latest; nil while it is open
}

type timed interface{ SetDeadline(t time.Time) error }

// shut starts to close the door. The caller must keep calling Accept, which closes it.
func (d *door) shut() {
	by := time.Now().Add(shutTime)
	d.closing.Store(&by)
	if l, is := d.Listener.(timed); !is || l.SetDeadline(time.Now()) != nil {
		d.Close()
	}
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	for {
		by, l := d.closing.Load(), d.Listener
		if by != nil {
			if time.Now().After(*by) {
				d.Close()
			}
			// If l is closed, Accept returns the error.
			_ = l.(timed).SetDeadline(time.Now().Add(100 * time.Microsecond))
		}
		c, err := l.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		if by != nil {
			d.Close()
		}
	}
}
