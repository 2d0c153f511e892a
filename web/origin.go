package web

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Origin returns the address of the visitor who sent a request; for IPv6, its /64 prefix, because
// visitors can choose the rest. The visitor is the peer of the connection, unless the peer is one
// of the proxies. Then the visitor's address is the last one in X-Forwarded-For that is not a
// proxy's. Each proxy appends the address from which it received the request, and the visitor may
// have written everything before that. Origin returns "" if the address is unknown, as for a Unix
// socket.
func Origin(r *http.Request, proxies []netip.Prefix) string {
	address, ok := peerAddress(r)
	var before []string
	if ok && trusted(address, proxies) { // anyone else could write anything here, of any length
		before = forwardedFor(r)
	}
	for _, text := range slices.Backward(before) {
		if !ok || !trusted(address, proxies) {
			break
		}
		address, ok = parseAddress(text)
	}
	switch {
	case !ok:
		return ""
	case address.Is4():
		return address.String()
	}
	prefix, _ := address.Prefix(64) // never fails for an IPv6 address
	return prefix.String()
}

// peerAddress returns the address of the connection's peer.
func peerAddress(r *http.Request) (netip.Addr, bool) { return parseAddress(r.RemoteAddr) }

// forwardedFor returns the addresses in X-Forwarded-For, in the order in which proxies appended
// them.
func forwardedFor(r *http.Request) []string {
	text := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// parseAddress parses an address with or without a port, and drops its zone.
func parseAddress(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().WithZone("").Unmap(), true
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return address.WithZone("").Unmap(), err == nil
}

func trusted(address netip.Addr, proxies []netip.Prefix) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// secure reports whether the visitor is known to have sent the request over TLS: to this process,
// or to a trusted proxy that says so in X-Forwarded-Proto.
func (a Auth) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	address, ok := peerAddress(r)
	if !ok || !trusted(address, a.Proxies) {
		return false
	}
	all := strings.Split(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","), ",")
	return strings.EqualFold(strings.TrimSpace(all[len(all)-1]), "https")
}
