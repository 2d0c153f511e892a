package redistest

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startProxied returns a proxy, a client that connects through it and does not retry, and a client
// that connects directly.
func startProxied(t *testing.T) (*Proxy, *redis.Client, *redis.Client) {
	s := Shared(t)
	p := NewProxy(t, s)
	o, err := redis.ParseURL(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return p, c, s.Client()
}

func TestProxyPasses(t *testing.T) {
	p, c, direct := startProxied(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
				for range 200 {
					pipe.HSet(t.Context(), fmt.Sprint(i), "f", "v")
					pipe.HGetAll(t.Context(), fmt.Sprint(i))
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := direct.DBSize(t.Context()).Val(); n != 8 || p.Cuts() != 0 {
		t.Errorf("%d keys, %d cuts; want 8, 0", n, p.Cuts())
	}
}

// TestProxyCutsOpenLinks sends another request on a connection whose reply was just cut. That
// request must not use up the next cut, which is meant for an open connection.
func TestProxyCutsOpenLinks(t *testing.T) {
	p, _, _ := startProxied(t)
	ping := []byte("*1\r\n$4\r\nPING\r\n")
	cut, open := &link{proxy: p}, &link{proxy: p}
	p.CutReplies(1, "")
	if !cut.passRequest(ping) || cut.passReply([]byte("+PONG\r\n")) {
		t.Fatal("the first reply was not cut")
	}
	p.CutReplies(1, "")
	if cut.passRequest(ping) {
		t.Error("a request was forwarded on a connection that was cut")
	}
	if !open.passRequest(ping) || open.passReply([]byte("+PONG\r\n")) || p.Cuts() != 2 {
		t.Errorf("%d cuts; want 2, the second on the open connection", p.Cuts())
	}
}

func TestProxyCuts(t *testing.T) {
	tests := []struct {
		name   string
		cut    func(*Proxy)
		failed []int  // indexes of those commands among INCR a, INCR b, INCR a, INCR b that fail
		done   string // the values of a and b afterwards
		cuts   int
	}{
		{"no cuts", (*Proxy).Pass, nil, "2 2", 0},
		{"one request", func(p *Proxy) { p.CutRequests(1, "INCR") }, []int{0}, "1 2", 1},
		{"text in another case", func(p *Proxy) { p.CutReplies(1, "incr") }, nil, "2 2", 0},
		{"one reply to any request", func(p *Proxy) { p.CutReplies(1, "") }, []int{0}, "2 2", 1},
		{"replies about b", func(p *Proxy) { p.CutReplies(2, "\r\nb\r\n") }, []int{1, 3}, "2 2", 2},
		{"all requests about a", func(p *Proxy) { p.CutRequests(-1, "\r\na\r\n") }, []int{0, 2}, "0 2", 2},
		{"cuts ended by Pass", func(p *Proxy) { p.CutReplies(3, ""); p.Pass() }, nil, "2 2", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, c, direct := startProxied(t)
			if err := c.Ping(t.Context()).Err(); err != nil { // completes the handshake
				t.Fatal(err)
			}
			test.cut(p)
			var failed []int
			for i, key := range []string{"a", "b", "a", "b"} {
				if err := c.Do(t.Context(), "INCR", key).Err(); err != nil {
					failed = append(failed, i)
				}
			}
			a, _ := direct.Get(t.Context(), "a").Int()
			b, _ := direct.Get(t.Context(), "b").Int()
			if fmt.Sprint(failed) != fmt.Sprint(test.failed) || fmt.Sprint(a, b) != test.done || p.Cuts() != test.cuts {
				t.Errorf("failed %v, done %d %d, %d cuts; want %v, %s, %d", failed, a, b, p.Cuts(), test.failed, test.done, test.cuts)
			}
		})
	}
}

// TestProxyCutsInPipeline checks that the replies before the one that is cut arrive.
func TestProxyCutsInPipeline(t *testing.T) {
	s := Shared(t)
	p := NewProxy(t, s)
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.CutReplies(1, "third")
	if _, err := fmt.Fprintf(conn, "SELECT %d\r\nSET first 1\r\nSET third 1\r\nSET fourth 1\r\n", s.db); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "+OK\r\n+OK\r\n" {
		t.Errorf("got %q, %v; want the replies to SELECT and to the first SET only", got, err)
	}
	if n := s.Client().Exists(t.Context(), "third").Val(); n != 1 {
		t.Error("SET third did not run")
	}
}

func TestProxyCutAll(t *testing.T) {
	p, c, _ := startProxied(t)
	conn := c.Conn()
	defer conn.Close()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.CutAll()
	if err := conn.Ping(t.Context()).Err(); err == nil {
		t.Error("the connection still works")
	}
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

func TestProxyDelays(t *testing.T) {
	p, c, _ := startProxied(t)
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	const d = 20 * time.Millisecond
	p.Delay(d)
	start := time.Now()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*d {
		t.Errorf("took %v, want at least %v", took, 2*d)
	}
}

func TestProxyDialer(t *testing.T) {
	s := Start(t)
	p := NewProxy(t, s)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: p.Dialer(), MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.CutReplies(1, "SET")
	if err := c.Do(t.Context(), "SET", "k", "v").Err(); err == nil {
		t.Error("SET whose reply is cut: no error")
	}
	if got := c.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("got %q, want the value that was set, v", got)
	}
	s.Kill()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("Ping of a killed server: no error")
	}
}

// TestProxyDialerCutWhileIdle checks that a client that dials through the proxy discards
// connections that were cut while idle.
func TestProxyDialerCutWhileIdle(t *testing.T) {
	s := Start(t)
	p := NewProxy(t, s)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: p.Dialer()})
	defer c.Close()
	for i := range 20 {
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatalf("ping %d: %v", i, err)
		}
		p.CutAll()
	}
}

func TestProxyLosesPushes(t *testing.T) {
	p, c, direct := startProxied(t)
	sub := c.Subscribe(t.Context(), "news")
	defer sub.Close()
	received := func() any {
		t.Helper()
		m, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	received() // the confirmation of the subscription
	p.LosePushes(true)
	direct.Publish(t.Context(), "news", "lost")
	if err := sub.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m, is := received().(*redis.Pong); !is {
		t.Errorf("got %v, want only the answer to the ping", m)
	}
	p.Pass()
	direct.Publish(t.Context(), "news", "kept")
	if m, is := received().(*redis.Message); !is || m.Payload != "kept" {
		t.Errorf("got %v, want the message kept", m)
	}
}
