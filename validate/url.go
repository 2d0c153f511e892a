package validate

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

const urlExpr = `\A(?i:https?)://(?:[^\x00-\x20"#%/:<>?@\[\\\]^` + "`" + `{|}\x7f]+|\[` + ipv6Expr + `\])(?::[0-9]+)?` +
	`(?:[/?#][^\x00-\x20"<>\\^` + "`" + `{|}\x7f]*)?\z`

func urlKind() kind {
	return kind{
		refuse:  refuseURL,
		phrases: []phrase{{expr: urlExpr, reason: "a character that no URL has"}},
		max:     recordkey.MaxCrumb,
	}
}

// refuseURL says why value is no absolute http or https URL (RFC 3986, 3987) with
// a host. One that holds a user's name is refused: it may hold a password.
func refuseURL(value string) string {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return "not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "neither http:// nor https://"
	case u.Host == "":
		return "no host"
	case u.User != nil:
		return "a user in it"
	case strings.ContainsFunc(value, func(r rune) bool { return !visible(r) }):
		return "a character that no URL has"
	}
	return refuseHost(u)
}

func refuseHost(u *url.URL) string {
	if port, found := afterHost(u); found && !isPort(port) {
		return "a port that is none"
	}
	if strings.HasPrefix(u.Host, "[") {
		ip, err := netip.ParseAddr(u.Hostname())
		return reasonUnless(err == nil && ip.Is6() && ip.Zone() == "", "a host in brackets that is not IPv6")
	}
	return refuseDomain(u.Hostname())
}

// afterHost returns what stands behind the colon that ends the host.
func afterHost(u *url.URL) (port string, found bool) {
	_, port, found = strings.Cut(u.Host[strings.LastIndexByte(u.Host, ']')+1:], ":")
	return port, found
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
