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

// A Proxy stands between clients and servers, and loses requests and replies on
// demand. It passes everything on until told otherwise, and may be told so at
// any time, from any goroutine.
type Proxy struct {
	t      testing.TB
	target *Server
	listen net.Listener

	mu    sync.Mutex
	fault fault
	delay time.Duration
	mute  bool
	cuts  int
	conns map[*link]bool // nil: the test is over
}

type fault struct {
	replies bool // cut the reply, not the request
	left    int  // how many times more; below 0: always
	holding []byte
}

// NewProxy returns a proxy before s, ended with the test.
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

// Dialer returns a dialer for client options, which connects through the proxy
// to whatever address the client asks for. So one proxy serves all nodes of a
// cluster.
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

// loopback returns both ends of a connection. They are sockets, as in life: a client looks at one before it uses it again,
// and passes over one that was cut, which it cannot do with a net.Pipe.
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

// CutRequests ends the connection instead of passing on the next n requests
// that hold the text; n below 0 means all of them, an empty text any request.
// It replaces the cuts asked for before.
func (p *Proxy) CutRequests(n int, holding string) {
	p.set(fault{left: n, holding: []byte(holding)})
}

// CutReplies passes the next n such requests on, and ends the connection once
// the server has answered, instead of passing on the answer.
func (p *Proxy) CutReplies(n int, holding string) {
	p.set(fault{replies: true, left: n, holding: []byte(holding)})
}

// Delay makes every request and every reply wait, in turn on each connection.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// LosePushes swallows what servers send unasked, as of keys that changed, and nothing else.
func (p *Proxy) LosePushes(lose bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = lose
}

// CutAll ends all connections there are.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.close()
	}
}

// Cuts returns how many requests and replies were cut so far. A test that cuts
// asks, so that it knows that it did.
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
			client.Close() // as if the server had refused
			continue
		}
		p.join(client, server)
	}
}

// join passes requests and replies between two connections.
func (p *Proxy) join(client, server net.Conn) {
	l := &link{proxy: p, client: client, server: server}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		l.close()
		return
	}
	p.conns[l] = true
	go l.run(l.request, client, server)
	go l.run(l.reply, server, client)
}

// A link is one connection through the proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	// Under proxy.mu: how many requests and replies came by, and the reply that
	// is cut; 0 means none.
	requests, replies, cut int
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

// run passes values from one side to the other for as long as pass lets it.
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
		if l.proxy.swallows(value) {
			continue
		}
		l.proxy.wait()
		if _, err := to.Write(value); err != nil {
			return
		}
	}
}

func (p *Proxy) swallows(value []byte) bool {
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

// request reports whether to pass a request on, and marks the reply to cut.
func (l *link) request(value []byte) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	l.requests++
	if p.fault.left == 0 || !bytes.Contains(value, p.fault.holding) {
		return true
	}
	p.fault.left = max(p.fault.left-1, -1)
	if p.fault.replies {
		l.cut = l.requests
		return true
	}
	p.cuts++
	return false
}

// reply reports whether to pass a reply on. What a server sends unasked is not a reply.
func (l *link) reply(value []byte) bool {
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
	return false
}
