package validate

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestURL(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"http://a", ""},
		{"https://example.org", ""},
		{"HTTPS://Example.org:8443/a/b?c=d&e#f", ""},
		{"http://example.org?q", ""},
		{"http://example.org#f", ""},
		{"http://192.0.2.1/", ""},
		{"http://[2001:db8::1]:80/x", ""},
		{"http://[::1]", ""},
		{"https://bücher.example/é?ü", ""},
		{"https://example.org/%C3%A9", ""},
		{"https://example.org/a@b", ""},

		{"", "neither http:// nor https://"},
		{"example.org", "neither http:// nor https://"},
		{"//example.org", "neither http:// nor https://"},
		{"ftp://example.org", "neither http:// nor https://"},
		{"javascript:alert(1)", "neither http:// nor https://"},
		{"mailto:a@example.org", "neither http:// nor https://"},
		{"http:", "no host"},
		{"http:example.org", "no host"},
		{"http://", "no host"},
		{"http:///a", "no host"},
		{"http://:80", "no domain"},
		{"http://alice@example.org", "contains a user name"},
		{"http://alice:secret@example.org", "contains a user name"},
		{"http://@example.org", "contains a user name"},
		{"http://example.org:", "no valid port"},
		{"http://example.org:0", "no valid port"},
		{"http://example.org:65536", "no valid port"},
		{"http://example.org:x", "not a URL"},
		{"http://exa mple.org", "not a URL"},
		{"http://example.org/%zz", "not a URL"},
		{"http://example.org/\x00", "not a URL"},
		{"http://example.org/a\u200bb", "a character that URLs cannot contain"},
		{"http://example.org/a\u2028b", "a character that URLs cannot contain"},
		{"http://exa_mple.org", "a character that domains cannot contain"},
		{"http://example..org", "a dot without text on both sides in the domain"},
		{"http://example.org.", "a dot without text on both sides in the domain"},
		{"http://" + strings.Repeat("a.", 128) + "a", "a domain longer than 255 bytes"},
		{"http://[192.0.2.1]", "not a URL"},
		{"http://[fe80::1%25eth0]", "a host in brackets that is not IPv6"},
	} {
		if got := refuseURL(c.url); got != c.want {
			t.Errorf("%.60q: got %q, want %q", c.url, got, c.want)
		}
	}
}

// TestURLCharacters checks that a URL is refused if it contains a character that url.Parse accepts
// but urlExpr does not.
func TestURLCharacters(t *testing.T) {
	r := mustCompile(t, shop)
	for _, c := range `<>"{}|\^` + "` " {
		value := "http://example.org/a" + string(c)
		err := r.fields["site"].check(r.typ, value)
		if want := "site: url: a character that URLs cannot contain"; text(err) != want {
			t.Errorf("%q: got %q, want %q", value, text(err), want)
		}
	}
}

// TestURLsMatchExpression checks that every URL that refuseURL accepts matches urlExpr. Otherwise
// the rule would refuse the URL, with the wrong reason.
func TestURLsMatchExpression(t *testing.T) {
	described := regexp.MustCompile(urlExpr)
	host := rapid.OneOf(
		rapid.StringMatching(`[a-zé0-9.-]{1,10}`),
		rapid.StringMatching(`\[[0-9a-f]{0,2}(:[0-9a-f]{0,2}){1,8}(:192\.0\.2\.1)?\]`),
	)
	rest := rapid.StringMatching(`(:[0-9]{1,5})?([/?#][a-zé0-9/?#@:%;=&+~!$'()*,.-]*)?`)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{"http://", "https://", "HTTP://"}).Draw(t, "scheme") + host.Draw(t, "host") + rest.Draw(t, "rest")
		if refuseURL(value) != "" {
			return
		}
		accepted++
		if !described.MatchString(value) {
			t.Fatalf("%q is accepted, but does not match urlExpr", value)
		}
	})
	if accepted == 0 {
		t.Error("no URL was accepted: the test proves nothing")
	}
}
