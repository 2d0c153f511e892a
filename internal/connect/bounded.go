package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// A bounded connection reads no reply that announces what no server has: go-redis makes room for it at once, and
// then the process ends. Its caller is told that the store is unavailable.
type bounded struct {
	net.Conn
	replies framing
}

// Read implements net.Conn. Behind a reply that cannot be one it reads nothing any more.
func (b *bounded) Read(p []byte) (int, error) {
	if b.replies.bad != nil {
		return 0, b.replies.bad
	}
	n, err := b.Conn.Read(p)
	if bad := b.replies.take(p[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

// NetConn is the connection inside, as go-redis asks for it.
func (b *bounded) NetConn() net.Conn { return b.Conn }

// boundedSocket is one whose socket go-redis looks at, to know whether it is still open.
type boundedSocket struct {
	bounded
	syscall.Conn
}

// bound wraps a connection, once.
func bound(conn net.Conn) net.Conn {
	switch c := conn.(type) {
	case *bounded, *boundedSocket:
		return conn
	case syscall.Conn:
		return &boundedSocket{bounded{Conn: conn}, c}
	}
	return &bounded{Conn: conn}
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func boundDialer(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return bound(conn), nil
	}
}

// dialTimeout is go-redis' own, where an URL says nothing.
const dialTimeout = 5 * time.Second

// newDialer is for the clients that Open makes.
func newDialer(timeout time.Duration, t *tls.Config) dialer {
	return boundDialer(redis.NewDialer(&redis.Options{DialTimeout: cmp.Or(timeout, dialTimeout), TLSConfig: t}))
}

// A boundHook is for the clients that New is given.
type boundHook struct{}

func (boundHook) DialHook(next redis.DialHook) redis.DialHook {
	return redis.DialHook(boundDialer(dialer(next)))
}

func (boundHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (boundHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hooked are the clients that have the hook, which New may be given more than once.
var hooked sync.Map

// boundClient bounds the connections that a client makes from now on.
func boundClient(c *redis.Client) {
	key := weak.Make(c)
	if _, known := hooked.LoadOrStore(key, true); known {
		return
	}
	runtime.AddCleanup(c, func(key weak.Pointer[redis.Client]) { hooked.Delete(key) }, key)
	c.AddHook(boundHook{})
}
