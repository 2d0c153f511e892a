package validate

import (
	"encoding/xml"
	"os"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// An isemailCase is a case from the tests of is_email, a validator of e-mail addresses. Its
// diagnosis names the grammar that the address follows.
type isemailCase struct {
	ID        string `xml:"id,attr"`
	Address   string `xml:"address"`
	Diagnosis string `xml:"diagnosis"`
}

func isemailCases(t *testing.T) []isemailCase {
	raw, err := os.ReadFile("testdata/isemail-tests.xml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []isemailCase `xml:"test"`
	}
	if err := xml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Tests) != 164 {
		t.Fatalf("%d tests in the file, want 164", len(file.Tests))
	}
	return file.Tests
}

// restoreControls replaces Unicode's pictures of control characters, which the file contains, with
// the control characters.
func restoreControls(s string) string {
	return strings.Map(func(r rune) rune {
		if 0x2400 <= r && r <= 0x2420 {
			return r - 0x2400
		}
		return r
	}, s)
}

// isemailAccepts reports whether an address with the diagnosis may be used in SMTP. It is true for
// the categories up to RFC 5321.
func isemailAccepts(diagnosis string) bool {
	name := strings.TrimPrefix(diagnosis, "ISEMAIL_")
	return name == "VALID" || strings.HasPrefix(name, "DNSWARN_") || strings.HasPrefix(name, "RFC5321_")
}

// isemailDeviations lists the diagnoses for which the kind email decides differently.
var isemailDeviations = map[string]string{
	"ISEMAIL_RFC5321_IPV6DEPRECATED": `RFC 5321 lets "::" stand only for two groups or more; older RFCs also let it stand for one`,
}

func TestEmailAgainstIsemail(t *testing.T) {
	used := make(map[string]bool)
	for _, c := range isemailCases(t) {
		want := isemailAccepts(c.Diagnosis)
		if _, deviates := isemailDeviations[c.Diagnosis]; deviates {
			used[c.Diagnosis] = true
			want = !want
		}
		address := restoreControls(c.Address)
		reason := "empty" // the rules refuse an empty value before they apply a kind
		if address != "" {
			reason = refuseEmail(address)
		}
		if (reason == "") != want {
			t.Errorf("test %s, %s: %q: got the reason %q, want accepted: %v", c.ID, c.Diagnosis, address, reason, want)
		}
	}
	for diagnosis := range isemailDeviations {
		if !used[diagnosis] {
			t.Errorf("no test deviates for %s", diagnosis)
		}
	}
}

func TestEmail(t *testing.T) {
	local64, local65 := strings.Repeat("a", 64), strings.Repeat("a", 65)
	label63, label64 := strings.Repeat("a", 63), strings.Repeat("a", 64)
	// 254 bytes: 64, the @, two labels with their dots, and a last label.
	longest := local64 + "@" + label63 + "." + label63 + "." + strings.Repeat("a", 61)
	for _, c := range []struct{ address, want string }{
		{"alice@hotmail.com", ""},
		{"alice@localhost", ""},
		{"alice+tag@example.org", ""},
		{`"alice bob"@example.org`, ""},
		{`"a@b"@example.org`, ""},
		{`"a\"b"@example.org`, ""},
		{"用户@例子.中国", ""},
		{"josé.müller@bücher.example", ""},
		{`"用 户"@例子.中国`, ""},
		{"a@נתניה.example", ""},
		{"a@[192.0.2.1]", ""},
		{"a@[IPv6:2001:db8::1]", ""},
		{"a@[ipv6:::ffff:192.0.2.1]", ""},
		{longest, ""},
		{local64 + "@a", ""},
		{"a@" + label63, ""},

		{"", "no @ in the address"},
		{"alice", "no @ in the address"},
		{"@example.org", "nothing before the @"},
		{"alice@", "no domain"},
		{local65 + "@a", "more than 64 bytes before the @"},
		{strings.Repeat("é", 33) + "@a", "more than 64 bytes before the @"},
		{longest + "a", "longer than 254 bytes"},
		{"a@" + label64, "a part of the domain longer than 63 bytes"},
		{".a@b", "a dot without text on both sides before the @"},
		{"a..b@c", "a dot without text on both sides before the @"},
		{"a b@c", "a character before the @ that needs quotes"},
		{"a@b@c", "a character before the @ that needs quotes"},
		{"a\u200bb@c", "a character before the @ that needs quotes"},
		{"a\u0085b@c", "a character before the @ that needs quotes"},
		{"\ue000@c", "a character before the @ that needs quotes"},
		{`"@a`, "an unclosed quoted part before the @"},
		{`"a"b"@a`, "an unclosed quoted part before the @"},
		{`"a\"@a`, "an unclosed quoted part before the @"},
		{`"a"b@a`, "an unclosed quoted part before the @"},
		{"\"\t\"@a", "a character before the @ that is not allowed"},
		{"\"\\é\"@a", "a character before the @ that is not allowed"},
		{"a@b..c", "a dot without text on both sides in the domain"},
		{"a@b.c.", "a dot without text on both sides in the domain"},
		{"a@-b", "a part of the domain that begins or ends with a hyphen"},
		{"a@b-.c", "a part of the domain that begins or ends with a hyphen"},
		{"a@b_c", "a character that domains cannot contain"},
		{"a@b c", "a character that domains cannot contain"},
		{"a@b(c)", "a character that domains cannot contain"},
		{"a@☃.net", "a part of the domain that IDNA does not allow"},
		{"a@e\u0301.net", "a part of the domain that IDNA does not allow"},
		{"a@\u0301e.net", "a part of the domain that IDNA does not allow"},
		{"a@ａ.net", "a part of the domain that IDNA does not allow"},
		{"a@aא.net", "a part of the domain that IDNA does not allow"},
		{"a@[192.0.2.256]", "an address in brackets that is neither IPv4 nor IPv6"},
		{"a@[192.0.2.1", "an address in brackets that is neither IPv4 nor IPv6"},
		{"a@[2001:db8::1]", "an address in brackets that is neither IPv4 nor IPv6"},
		{"a@[IPv6:fe80::1%25eth0]", "an address in brackets that is neither IPv4 nor IPv6"},
		{"a@[IPv6:192.0.2.1]", "an address in brackets that is neither IPv4 nor IPv6"},
		{"a@[IPv6:]", "an address in brackets that is neither IPv4 nor IPv6"},
		{"a@[x:y]", "an address in brackets that is neither IPv4 nor IPv6"},
		{"a@[]", "an address in brackets that is neither IPv4 nor IPv6"},
	} {
		if got := refuseEmail(c.address); got != c.want {
			t.Errorf("%q: got %q, want %q", c.address, got, c.want)
		}
	}
	if len(longest) != 254 {
		t.Errorf("the longest address has %d bytes, want 254", len(longest))
	}
}

// TestEmailsMatchExpression checks that every address that refuseEmail accepts matches emailExpr.
// Otherwise the rule would refuse the address, with the wrong reason.
func TestEmailsMatchExpression(t *testing.T) {
	described := regexp.MustCompile(emailExpr)
	local := rapid.OneOf(rapid.StringMatching(`[a-z!#&'*+/=?^_{|}~é中.-]{1,8}`), rapid.StringMatching(`"([ !#-\[\]-~é]|\\[ -~])*"`))
	ipv6 := rapid.StringMatching(`[0-9a-f]{0,2}(:[0-9a-f]{0,2}){1,8}(:192\.0\.2\.1)?`)
	domain := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9é中.-]{1,12}`),
		rapid.StringMatching(`\[[12]?[0-9]?[0-9](\.[12]?[0-9]?[0-9]){3}\]`),
		rapid.Map(ipv6, func(s string) string { return "[IPv6:" + s + "]" }),
	)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		address := local.Draw(t, "local") + "@" + domain.Draw(t, "domain")
		if refuseEmail(address) != "" {
			return
		}
		accepted++
		if !described.MatchString(address) {
			t.Fatalf("%q is accepted, but does not match emailExpr", address)
		}
	})
	if accepted == 0 {
		t.Error("no address was accepted: the test proves nothing")
	}
}
