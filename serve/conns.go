package serve

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// maxPeerConns is how many connections a client may have at the same time, and maxPeerRequests how
// many requests: with HTTP/2, a connection has up to 250. Tests lower them.
var (
	maxPeerConns    = 1000
	maxPeerRequests = 4000
)

// maxUnread is how many bytes of unread bodies an HTTP/2 connection may hold.
const maxUnread = 128 << 10

// peers counts something by client, but not for proxies or unknown addresses. It is safe for
// concurrent use.
type peers struct {
	proxies []netip.Prefix
	max     int

	mu sync.Mutex
	n  map[string]int // by client
}

func newPeers(proxies []netip.Prefix, max int) *peers {
	return &peers{proxies: proxies, max: max, n: map[string]int{}}
}

// limitRequests returns a handler that ends a request at once if its client already has as many as
// it may. A request takes memory while its client sends the body or receives the response slowly.
// The handler sends no response, because the client could read that slowly as well.
func limitRequests(next http.Handler, proxies []netip.Prefix) http.Handler {
	requests := newPeers(proxies, maxPeerRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave := requests.add(r.RemoteAddr)
		if leave == nil {
			panic(http.ErrAbortHandler)
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}

// A peerListener closes a new connection of a client that already has as many as it may. A
// connection takes memory and a file even while it sends no request. The connections of proxies,
// and those whose address is unknown, are not counted.
type peerListener struct {
	net.Listener
	conns *peers
}

func newPeerListener(l net.Listener, proxies []netip.Prefix) *peerListener {
	return &peerListener{l, newPeers(proxies, maxPeerConns)}
}

// Accept implements [net.Listener].
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave := l.conns.add(c.RemoteAddr().String()); leave != nil {
			return &peerConn{c, leave}, nil
		}
		_ = c.Close() // nobody uses it, whatever this returns
	}
}

// clientOf returns the name under which the client at an address is counted: the IPv4 address, or
// the /64 prefix of an IPv6 address. It returns "" if the client is not counted.
func (p *peers) clientOf(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return ""
	}
	address := at.Addr().WithZone("").Unmap()
	if slices.ContainsFunc(p.proxies, func(proxy netip.Prefix) bool { return proxy.Contains(address) }) {
		return ""
	}
	if address.Is6() {
		prefix, _ := address.Prefix(64) // never fails for an IPv6 address
		return prefix.String()
	}
	return address.String()
}

// add counts one more from an address until leave is called. It returns nil if there are too many.
// Calling leave again does nothing.
func (p *peers) add(addr string) (leave func()) {
	client := p.clientOf(addr)
	if client == "" {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n[client] >= p.max {
		return nil
	}
	p.n[client]++
	return sync.OnceFunc(func() { p.remove(client) })
}

func (p *peers) remove(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n[client]--; p.n[client] == 0 {
		delete(p.n, client)
	}
}

// A peerConn is a connection that is counted until it is closed.
type peerConn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *peerConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
