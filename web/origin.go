package web

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Origin is the address of the visitor who sent a request, of IPv6 its /64 prefix: what a visitor cannot choose. It is that of the
// connection, unless a proxy of yours made that. Then it is the last one in X-Forwarded-For that is no proxy's: each proxy appends
// the address that it was sent the request from, and what comes before that is whatever the visitor wrote. "": it is not known, as
// with a connection over a Unix socket.
func Origin(r *http.Request, proxies []netip.Prefix) string {
	address, ok := connected(r)
	var before []string
	if ok && trusted(address, proxies) { // else it is whatever the visitor wrote, however long
		before = forwarded(r)
	}
	for _, text := range slices.Backward(before) {
		if !ok || !trusted(address, proxies) {
			break
		}
		address, ok = parse(text)
	}
	switch {
	case !ok:
		return ""
	case address.Is4():
		return address.String()
	}
	prefix, _ := address.Prefix(64) // every IPv6 address has one
	return prefix.String()
}

// connected is the address at the other end of the connection.
func connected(r *http.Request) (netip.Addr, bool) { return parse(r.RemoteAddr) }

// forwarded are the addresses in X-Forwarded-For, in the order in which proxies have appended them.
func forwarded(r *http.Request) []string {
	text := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// parse takes an address with or without a port, and without a zone.
func parse(text string) (netip.Addr, bool) {
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

// secure reports whether the visitor sent the request over TLS, as far as that is known: to this process, or to a proxy that says so
// in X-Forwarded-Proto.
func (a Auth) secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	address, ok := connected(r)
	if !ok || !trusted(address, a.Proxies) {
		return false
	}
	all := strings.Split(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","), ",")
	return strings.EqualFold(strings.TrimSpace(all[len(all)-1]), "https")
}
