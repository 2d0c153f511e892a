package schema_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/text/cases"
	"golang.org/x/text/secure/precis"
	"golang.org/x/text/unicode/bidi"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

func TestCanonicalHosts(t *testing.T) {
	tests := []struct{ give, want string }{
		{"bob@straße.de", "bob@xn--strae-oqa.de"},
		{"Bob@STRAßE.de", "bob@xn--strae-oqa.de"},
		{"Bob@STRAẞE.de", "bob@xn--strae-oqa.de"},
		{"bob@XN--STRAE-OQA.DE", "bob@xn--strae-oqa.de"},
		{"bob@strasse.de", "bob@strasse.de"},
		{"bob@STRASSE.de", "bob@strasse.de"},
		{"straße@strasse.de", "strasse@strasse.de"}, // case folding applies before the @
		{"a@ΣΊΣΥΦΟΣ.gr", "a@xn--kxa6akbbkh.gr"},
		{"a@σίσυφος.gr", "a@xn--kxa6ajbbmh.gr"},
		{"a@σίσυφοσ.gr", "a@xn--kxa6akbbkh.gr"},
		{"a@bücher.example", "a@xn--bcher-kva.example"},
		{"a@BU\u0308CHER.example", "a@xn--bcher-kva.example"},
		{"ａ＠ｘ．ｏｒｇ", "a@x.org"},
		{"a@x。org", "a@x.org"},
		{"a@x｡org", "a@x.org"},
		{"a@x.org.", "a@x.org"},
		{"a@x.org。", "a@x.org"},
		{"a@x.org..", "a@x.org.."}, // not a valid domain
		{"a@x..straße", "a@x..strasse"},
		{"a@-ß", "a@xn----qfa"}, // not registrable, but still different from -ss
		{"a@i❤.ws", "a@xn--i-7iq.ws"},
		{"a@xn--i-7iq.ws", "a@xn--i-7iq.ws"},
		// begin like A-labels, but encode no U-label
		{"a@xn--strasse-.de", "a@xn--strasse-.de"},
		{"a@xn--zzzzzzzzzzzz.de", "a@xn--zzzzzzzzzzzz.de"},
		{"a@نامه\u200cای.com", "a@xn--mgba3gch31f060k.com"},
		{"a@نامهای.com", "a@xn--mgba3gch31f.com"},
		{"a@exa\u200dmple\u200c.com", "a@example.com"},
		{"a@exa\u00admple.com", "a@example.com"},
		{"a@stra\u202eße.de", "a@xn--strae-oqa.de"},
		{"a@straße\u3164.de", "a@xn--strae-oqa.de"},
		{"a@[192.0.2.1]", "a@[192.0.2.1]"},
		{"a@[IPv6:2001:DB8:0:0::1]", "a@[ipv6:2001:db8::1]"},
		{"a@[IPv6:0:0:0:0:0:FFFF:c000:201]", "a@[ipv6:::ffff:192.0.2.1]"},
		{"a@[IPv6:fe80::1%eth0]", "a@[ipv6:fe80::1%eth0]"},
		{"a@[x", "a@[x"},

		{`"bob"@x.org`, "bob@x.org"},
		{`"BOB"@X.org`, "bob@x.org"},
		{`＂bob＂@x.org`, "bob@x.org"},
		{`"b\o\b"@x.org`, "bob@x.org"},
		{`"a.b"@x.org`, "a.b@x.org"},
		{`"björn"@x.org`, "björn@x.org"},
		{`"bob smith"@x.org`, `"bob smith"@x.org`},
		{`"bob\ smith"@x.org`, `"bob smith"@x.org`},
		{`"a@b"@x.org`, `"a@b"@x.org`},
		{`"a\"\\b"@x.org`, `"a\"\\b"@x.org`},
		{`".a"@x.org`, `".a"@x.org`},
		{`""@x.org`, `""@x.org`},
		{`"a"b"@x.org`, `"a"b"@x.org`},
		{`"a\"@x.org`, `"a\"@x.org`},
		{`"@x.org`, `"@x.org`},
		{`a"b"@x.org`, `a"b"@x.org`},
		{`"bob"`, `"bob"`}, // not an address
		{`"bob"@`, `"bob"@`},
		{"bo\u034fb@x.org", "bob@x.org"},
		{"bo\u3164b@x.org", "bob@x.org"},
		{"bo\u115fb\uffa0@x.org", "bob@x.org"},
		{"bo\u00adb@x.org", "bob@x.org"},
		{"bo\u200d\u200cb@x.org", "bob@x.org"},
		{"bob\ufe0f\U000e0100@x.org", "bob@x.org"},
		{"bo\u2060\ufeff\u200b\u202eb@x.org", "bob@x.org"},
		{"\u200d@x.org", "@x.org"},
		// not an address to a mailer, but to a lax pattern
		{"a@b@straße.de", "a@b@xn--strae-oqa.de"},
		{"@straße.de", "@strasse.de"},

		{"http://straße.de/Straße", "http://xn--strae-oqa.de/strasse"},
		{"HTTPS://BÜCHER.example.:80/?q=A@straße.de", "https://xn--bcher-kva.example:80/?q=a@strasse.de"},
		{"http://u@straße.de#ß", "http://u@xn--strae-oqa.de#ss"},
		{"http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"},
		{"http://x.org:80", "http://x.org:80"},
		{"http://a b/ß", "http://a b/ss"},
		{"ftp://straße.de/", "ftp://strasse.de/"},

		{"Stra\u00adße", "strasse"},
		{"می\u200cخواهم", "میخواهم"},
		{"o\u034fb", "ob"},
		{"a\u034f\u0301", "á"},
		// unassigned, so they may become anything
		{"\U000e0fff\u2065\ufff0", "\U000e0fff\u2065\ufff0"},
		{"\u0600\ufff9\U00013430", "\u0600\ufff9\U00013430"}, // visible, although of category Cf
	}
	for _, test := range tests {
		if got := casefold.Canonical(test.give); got != test.want {
			t.Errorf("%+q: got %+q, want %+q", test.give, got, test.want)
		}
		checkCanonical(t, test.give)
		if got := exact.Canonical(test.give); got != test.give {
			t.Errorf("%+q: the exact fold changes it to %+q", test.give, got)
		}
	}
}

// assigned yields the code points of all planes with characters outside private use.
func assigned(yield func(rune) bool) {
	for r := rune(0); r < 0xe1000; r++ {
		if r == 0x32000 {
			r = 0xe0000
		}
		if !yield(r) {
			return
		}
	}
}

// TestIgnorables compares how many code points Canonical removes with the count in Unicode 15.0's
// DerivedCoreProperties.txt: 4174 code points, of which 3769 are not assigned.
func TestIgnorables(t *testing.T) {
	n := 0
	for r := range assigned {
		if casefold.Canonical("a"+string(r)+"b") == "ab" {
			n++
			if schema.Invisible(string(r)) == (r == '\u200c' || r == '\u200d') {
				t.Errorf("%U: Invisible returns %t, want false only for the two joiners", r, schema.Invisible(string(r)))
			}
		}
	}
	if n != 4174-3769 {
		t.Errorf("%d code points are removed, want %d", n, 4174-3769)
	}
}

func TestUnassigned(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "bob": false, "é中\u200d\ue000": false, "\U0010fffd": false,
		"a\u0378": true, "\ufffe": true, "\U000e0fff": true,
		"\U0001fae9": true, // assigned in Unicode 16
	} {
		if got := schema.Unassigned(text); got != want {
			t.Errorf("%+q: got %t, want %t", text, got, want)
		}
	}
}

// TestFormVersion fails if a change of the code or of the tables changes a result of Canonical,
// because the records of existing databases could no longer be found. If the code changed, raise
// formRules; the version of the tables is part of the form's version anyway. Then update the pinned
// digest.
func TestFormVersion(t *testing.T) {
	versions := []string{
		unicode.Version, norm.Version, cases.UnicodeVersion, width.UnicodeVersion, bidi.UnicodeVersion, precis.UnicodeVersion, idna.UnicodeVersion,
	}
	for _, v := range versions {
		if v != "15.0.0" {
			t.Errorf("the Unicode tables have versions %q, want only 15.0.0, which the pinned form has", versions)
		}
	}
	sum := sha256.New()
	for r := range assigned {
		for _, s := range []string{"a%cb", "a%cb@x.org", "a@b%cb.org", "%c"} {
			fmt.Fprintln(sum, casefold.Canonical(fmt.Sprintf(s, r)))
		}
	}
	const pinned = "7bea2ba65b2bdf9f"
	if got := hex.EncodeToString(sum.Sum(nil)[:8]); got != pinned || schema.FormVersion() != "3/15.0.0" {
		t.Errorf("version %s of the canonical form has digest %s; want 3/15.0.0, %s", schema.FormVersion(), got, pinned)
	}
}

// TestStoredForms checks how FromStore and WithCurrentForm set the version of the canonical form,
// and which versions HasOtherForm distinguishes.
func TestStoredForms(t *testing.T) {
	old := schema.Type{Primary: "id"}.FromStore()
	if old.Form != "1" || old.WithCurrentForm().Form != schema.FormVersion() {
		t.Errorf("a type stored without a form version has form %q, want 1; WithCurrentForm makes it %q, want %q", old.Form, old.WithCurrentForm().Form, schema.FormVersion())
	}
	if e := exact.FromStore().WithCurrentForm(); e.Form != "" {
		t.Errorf("a type with the exact fold has form %q, want none", e.Form)
	}
	if loaded := old.WithCurrentForm().FromStore(); loaded.Form != "" {
		t.Errorf("a type stored with a form version is loaded with form %q, want none", loaded.Form)
	}
	ordered := map[string]schema.Field{"age": {Role: schema.RoleOrdered}}
	for stored, listsUnset := range map[string]bool{"": false, "1": false, "2": true, "3": true} {
		loaded := schema.Type{Primary: "id", Fields: ordered, Orders: stored}.FromStore()
		again := loaded.WithCurrentForm().FromStore()
		if loaded.ListsUnset() != listsUnset || again.Orders != loaded.Orders {
			t.Errorf("orders of version %q: loaded as %q, which lists unset values: %v, want %v; stored and loaded again as %q, want no change",
				stored, loaded.Orders, loaded.ListsUnset(), listsUnset, again.Orders)
		}
	}
	if loaded := (schema.Type{Primary: "id"}).FromStore(); !loaded.ListsUnset() || loaded.WithCurrentForm().Orders != "" {
		t.Errorf("a type without ordered fields has version %q of ordered indexes, want the current one, which is not stored", loaded.Orders)
	}
	for _, test := range []struct {
		stored schema.Type
		want   bool
	}{
		{old, true},
		{schema.Type{Primary: "id", Form: "3/17.0.0"}, true},
		{casefold, false},
		{exact, false},
		{schema.Type{Primary: "uid", Form: "1"}, false},
	} {
		if got := casefold.HasOtherForm(test.stored); got != test.want {
			t.Errorf("%+v: got %t, want %t", test.stored, got, test.want)
		}
	}
	if exact.HasOtherForm(old) || old.HasOtherForm(exact) {
		t.Error("HasOtherForm reports types with different folds")
	}
}

// drawHost generates texts that are hosts or resemble them.
func drawHost(t *rapid.T) string {
	label := rapid.OneOf(
		rapid.StringMatching(`[a-zA-ZäÖßẞςΣσé中ａ0-9-]{1,8}`), rapid.StringMatching(`xn--[a-z0-9-]{1,12}`),
		rapid.StringMatching(`[a-zא-ת\x{200c}\x{200d}\x{ad}\x{34f}\x{3164}ه\x{94d}क_ ]{1,6}`), rapid.String(),
	)
	dot := rapid.SampledFrom([]string{".", ".", "。", "．", "｡", ".."})
	host := label.Draw(t, "label")
	for range rapid.IntRange(0, 3).Draw(t, "labels") {
		host += dot.Draw(t, "dot") + label.Draw(t, "label")
	}
	return host
}

// TestCanonicalAddressesAreStable checks random addresses and URLs.
func TestCanonicalAddressesAreStable(t *testing.T) {
	local := rapid.OneOf(
		rapid.StringMatching(`[a-zA-Zß.＂"\\@ \x{200d}\x{34f}\x{3164}-]{0,10}`), rapid.StringMatching(`"([a-zß.@ ]|\\.)*"`), rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		checkCanonical(t, local.Draw(t, "local")+rapid.SampledFrom([]string{"@", "＠", "﹫"}).Draw(t, "at")+drawHost(t))
		checkCanonical(t, rapid.SampledFrom([]string{"http://", "HTTPS://u@", "http:／/"}).Draw(t, "scheme")+drawHost(t)+rapid.StringMatching(`(:[0-9]*)?([/?#].{0,5})?`).Draw(t, "path"))
	})
}

// TestCanonicalKeepsDomainsApart compares with IDNA: domains have the same canonical form exactly
// if they have the same A-labels.
func TestCanonicalKeepsDomainsApart(t *testing.T) {
	strict := idna.New(idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(), idna.VerifyDNSLength(true))
	label := rapid.StringMatching(`[abßsςσähe]{1,4}`)
	different := 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := label.Draw(t, "a")+".de", label.Draw(t, "b")+".de"
		for _, pair := range [][2]string{{a, b}, {a, strings.ToUpper(a)}, {a, strings.ReplaceAll(a, "ß", "ss")}} {
			one, err1 := strict.ToASCII(strings.ReplaceAll(pair[0], "ẞ", "ß"))
			two, err2 := strict.ToASCII(strings.ReplaceAll(pair[1], "ẞ", "ß"))
			if err1 != nil || err2 != nil {
				t.Fatalf("converting %q to A-labels: %v, %v", pair, err1, err2)
			}
			if one != two {
				different++
			}
			for _, form := range []string{"x@%s", "https://%s/"} {
				same := casefold.Canonical(fmt.Sprintf(form, pair[0])) == casefold.Canonical(fmt.Sprintf(form, pair[1]))
				if same != (one == two) {
					t.Fatalf("%q have the same canonical form: %t, but their A-labels are %s and %s", pair, same, one, two)
				}
			}
		}
	})
	if different == 0 {
		t.Error("all domains were equal: the test proves nothing")
	}
}
