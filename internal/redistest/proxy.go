package redistest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A Proxy sits between clients and servers and loses requests and replies on demand. At first it
// forwards everything. All methods may be called at any time, from any goroutine.
type Proxy struct {
	t      testing.TB
	target *Server
	listen net.Listener

	mu    sync.Mutex
	fault fault
	delay time.Duration
	mute  bool // drop push messages
	cuts  int
	conns map[*link]bool // nil if the test is over
}

type fault struct {
	replies    bool // cut the reply instead of the request
	left       int  // how many more cuts; negative means unlimited
	containing []byte
}

// NewProxy returns a proxy in front of s that ends with the test.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, target: s, listen: l, conns: map[*link]bool{}}
	t.Cleanup(p.close)
	go p.accept()
	return p
}

// Addr returns the proxy's HOST:PORT.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// URL returns the redis: URL of the server through the proxy.
func (p *Proxy) URL() string { return fmt.Sprintf("redis://%s/%d", p.Addr(), p.target.db) }

// Dialer returns a dialer for client options. It connects through the proxy to whatever address the
// client asks for, so one proxy serves all nodes of a cluster.
func (p *Proxy) Dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		server, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		client, ours, err := loopback(ctx)
		if err != nil {
			server.Close()
			return nil, err
		}
		p.join(ours, server)
		return client, nil
	}
}

// loopback returns both ends of a connection. They are real sockets, because a client checks a
// socket before it uses it again and discards one that was cut; it cannot do that with a net.Pipe.
func loopback(ctx context.Context) (client, ours net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var d net.Dialer
	if client, err = d.DialContext(ctx, "tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if ours, err = l.Accept(); err != nil {
		client.Close()
	}
	return client, ours, err
}

// Pass ends all faults and delays.
func (p *Proxy) Pass() { p.set(fault{}); p.Delay(0); p.LosePushes(false) }

// CutRequests closes the connection instead of forwarding the next n requests that contain the
// text. If n is negative, it cuts all of them. An empty text matches every request. CutRequests
// replaces earlier cuts.
func (p *Proxy) CutRequests(n int, containing string) {
	p.set(fault{left: n, containing: []byte(containing)})
}

// CutReplies forwards the next n requests that contain the text, but closes the connection instead
// of forwarding their replies. n and containing mean the same as for CutRequests.
func (p *Proxy) CutReplies(n int, containing string) {
	p.set(fault{replies: true, left: n, containing: []byte(containing)})
}

// Delay delays every request and every reply by d. Those on one connection wait one after another,
// so their delays add up.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// LosePushes makes the proxy drop push messages, such as invalidations of keys, and nothing else.
func (p *Proxy) LosePushes(lose bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = lose
}

// CutAll closes all open connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.close()
	}
}

// Cuts returns how many requests and replies have been cut, so that a test can check that a cut
// happened.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *Proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *Proxy) close() {
	p.listen.Close()
	p.CutAll()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.target.port)))
		if err != nil {
			client.Close() // as if the server had refused the connection
			continue
		}
		p.join(client, server)
	}
}

// join forwards requests and replies between two connections.
func (p *Proxy) join(client, server net.Conn) {
	l := &link{proxy: p, client: client, server: server}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		l.close()
		return
	}
	p.conns[l] = true
	go l.run(l.passRequest, client, server)
	go l.run(l.passReply, server, client)
}

// A link is one connection through the proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	// Guarded by proxy.mu: the number of requests and of replies so far, the number of the reply to
	// cut (0 means none), and whether a request or a reply was cut. A link that was cut is about to
	// close: it forwards no more requests, and takes no cut that was meant for another link.
	requests, replies, cut int
	ended                  bool
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// run forwards values from one side to the other until pass returns false or a connection fails.
func (l *link) run(pass func(value []byte) bool, from, to net.Conn) {
	defer func() {
		l.close()
		l.proxy.mu.Lock()
		defer l.proxy.mu.Unlock()
		delete(l.proxy.conns, l)
	}()
	in := bufio.NewReader(from)
	for {
		value, err := readValue(in)
		if err != nil || !pass(value) {
			return
		}
		if l.proxy.drops(value) {
			continue
		}
		l.proxy.wait()
		if _, err := to.Write(value); err != nil {
			return
		}
	}
}

func (p *Proxy) drops(value []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mute && isPush(value)
}

func (p *Proxy) wait() {
	p.mu.Lock()
	d := p.delay
	p.mu.Unlock()
	time.Sleep(d)
}

// passRequest reports whether to forward a request. It also marks the reply to cut.
func (l *link) passRequest(value []byte) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.ended {
		return false
	}
	l.requests++
	if p.fault.left == 0 || !bytes.Contains(value, p.fault.containing) {
		return true
	}
	p.fault.left = max(p.fault.left-1, -1)
	if p.fault.replies {
		l.cut = l.requests
		return true
	}
	p.cuts++
	l.ended = true
	return false
}

// passReply reports whether to forward a reply. Push messages are not replies.
func (l *link) passReply(value []byte) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if isPush(value) {
		return true
	}
	l.replies++
	if l.replies != l.cut {
		return true
	}
	p.cuts++
	l.ended = true
	return false
}
