package userdb

import (
	"context"
	"net/netip"
	"strings"
)

// originDigest returns the name under which attempts from an origin are counted. The caller must
// have called loadSecret.
func (db *DB) originDigest(origin string) string {
	return db.digest("origin", normalOrigin(origin))
}

// countedOrigin returns the originDigest of an origin, or "" if there is no origin. It loads the
// secret that this needs.
func (db *DB) countedOrigin(ctx context.Context, origin string) (string, error) {
	if origin == "" {
		return "", nil
	}
	if err := db.loadSecret(ctx); err != nil {
		return "", err
	}
	return db.originDigest(origin), nil
}

// normalOrigin returns the canonical spelling of an origin: an address without its port and zone,
// and for IPv6 its /64 prefix, because a single visitor has the whole prefix. Text that is neither
// an address nor a prefix is returned as it is.
func normalOrigin(text string) string {
	trimmed := strings.TrimSpace(text)
	if prefix, err := netip.ParsePrefix(trimmed); err == nil {
		if prefix.Addr().Is6() && prefix.Bits() > 64 {
			prefix = netip.PrefixFrom(prefix.Addr(), 64)
		}
		return prefix.Masked().String()
	}
	address, err := netip.ParseAddr(strings.Trim(trimmed, "[]"))
	if at, badPort := netip.ParseAddrPort(trimmed); badPort == nil {
		address, err = at.Addr(), nil
	}
	if err != nil {
		return text
	}
	if address = address.WithZone("").Unmap(); address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, 64).Masked().String()
}
