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

// How a service ends.
const (
	breakTime = time.Second            // that requests have to end after drainTime, when they have been told to
	newTime   = 5 * time.Second        // that a connection has to begin its first request
	lullTime  = 500 * time.Millisecond // without a request, after which none is on its way
	shutTime  = time.Second            // in which a door is closed
)

// Run serves connections of a listener until ctx ends. Then it lets the requests that have come end, for twenty seconds at most.
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
		s.options.Logger.WarnContext(ctx, "requests that were still running after 20 seconds are cut off")
		err = server.Close()
	}
	return err
}

// ends are when the requests of a service that ends must end, too. What waits for a server that does not answer hears of it only when its
// own time is over, after 5 seconds: so it has to end soon, while what streams has until it is late.
type ends struct{ soon, late context.Context }

type endsKey struct{}

func endsOf(ctx context.Context) ends {
	if e, is := ctx.Value(endsKey{}).(ends); is {
		return e
	}
	return ends{context.Background(), context.Background()}
}

// within is a context for what a request asks of the store: it ends in time for an answer.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	stop := context.AfterFunc(endsOf(ctx).soon, cancel)
	return ctx, func() { stop(); cancel() }
}

// empty returns when no request is on its way, or ctx ends. A server that is shutting down drops requests that it reads meanwhile: so it
// goes on until then, and connections end with their answers.
func (s *Service) empty(ctx context.Context, g *guests) {
	begun := time.Now()
	for quiet := begun; time.Since(quiet) < lullTime && ctx.Err() == nil; time.Sleep(lullTime / 100) {
		if s.running.Load() > 0 || g.any() && time.Since(begun) < newTime {
			quiet = time.Now()
		}
	}
}

// guests are the connections that have sent no request yet.
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

// A door is a listener that closes at a moment when nobody waits to be accepted: the system cuts off those who do.
type door struct {
	net.Listener
	closing atomic.Pointer[time.Time] // by when it is closed; nil: it is open
}

type timed interface{ SetDeadline(t time.Time) error }

// shut begins to close it. Accept, which must be called again and again, ends that.
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
			_ = l.(timed).SetDeadline(time.Now().Add(100 * time.Microsecond)) // one that is closed says so at Accept
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
