package serve

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxPeerConns is how many connections a client may have at the same time. Tests lower it.
var maxPeerConns = 1000

// A peerListener closes a new connection of a client that has as many as it may. A connection takes
// memory and a file even while it sends no request. The connections of proxies, and those whose
// address is unknown, are not counted.
type peerListener struct {
	net.Listener
	proxies []netip.Prefix
	max     int

	mu    sync.Mutex
	conns map[string]int // by client
}

func newPeerListener(l net.Listener, proxies []netip.Prefix) *peerListener {
	return &peerListener{Listener: l, proxies: proxies, max: maxPeerConns, conns: map[string]int{}}
}

// Accept implements [net.Listener].
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := l.clientOf(c.RemoteAddr())
		if client == "" {
			return c, nil
		}
		if l.add(client) {
			return &peerConn{c, sync.OnceFunc(func() { l.remove(client) })}, nil
		}
		_ = c.Close() // the client has it no longer, whatever this returns
	}
}

// clientOf returns the name under which connections from an address are counted, which is the /64
// prefix of an IPv6 address, or "" if they are not counted.
func (l *peerListener) clientOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	address := at.Addr().WithZone("").Unmap()
	if slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(address) }) {
		return ""
	}
	if address.Is6() {
		prefix, _ := address.Prefix(64) // never fails for an IPv6 address
		return prefix.String()
	}
	return address.String()
}

// add counts a connection of a client. It returns false if the client has too many.
func (l *peerListener) add(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[client] >= l.max {
		return false
	}
	l.conns[client]++
	return true
}

func (l *peerListener) remove(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[client]--; l.conns[client] == 0 {
		delete(l.conns, client)
	}
}

// A peerConn is a connection that is counted until it is closed.
type peerConn struct {
	net.Conn
	closed func()
}

// Close implements [net.Conn].
func (c *peerConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
