package validate

import (
	"strings"
	"testing"

	"golang.org/x/net/idna"

	"github.com/coffeenode/userdb/schema"
)

func TestDomain(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	longest := strings.Join([]string{label63, label63, label63, label63}, ".") // 255 bytes
	for _, c := range []struct{ domain, want string }{
		{"a", ""},
		{"example.org", ""},
		{"EXAMPLE.org", ""},
		{"1.2.3.4", ""},
		{"xn--bcher-kva.example", ""},
		{"a--b", ""},
		{"bücher.example", ""},
		{"BÜCHER.example", ""},
		{"faß.example", ""},
		{"نامه\u200cای.com", ""},
		{"א1.example", ""},
		{"ا١.example", ""},
		{longest, ""},
		{longest + ".a", "a domain longer than 255 bytes"},
		{"", "no domain"},
		{".", "a dot without text on both sides in the domain"},
		{".a", "a dot without text on both sides in the domain"},
		{"-", "a part of the domain that begins or ends with a hyphen"},
		{"-ü", "a part of the domain that begins or ends with a hyphen"},
		{"ü-", "a part of the domain that begins or ends with a hyphen"},
		{"a*", "a character that domains cannot contain"},
		{"ü_", "a character that domains cannot contain"},
		{"a\x7f", "a character that domains cannot contain"},
		{"a\u00a0b", "a part of the domain that IDNA does not allow"},
		{"a。b", "a part of the domain that IDNA does not allow"},
		{"ا1١.example", "a part of the domain that IDNA does not allow"},
		{"1א.example", "a part of the domain that IDNA does not allow"},
		{"a\u200cb.example", "a part of the domain that IDNA does not allow"},
		{"\u0378.example", "a part of the domain that IDNA does not allow"},
		{strings.Repeat("ü", 63), "a part of the domain longer than 63 bytes"},
	} {
		if got := refuseDomain(c.domain); got != c.want {
			t.Errorf("%.40q: got %q, want %q", c.domain, got, c.want)
		}
	}
	if len(longest) != 255 {
		t.Errorf("the longest domain has %d bytes, want 255", len(longest))
	}
}

func TestIPv6(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"::", true},
		{"::1", true},
		{"1::", true},
		{"1:2:3:4:5:6:7:8", true},
		{"1:2:3:4:5:6:192.0.2.1", true},
		{"1:2:3::4:5:6", true},
		{"1:2:3:4::192.0.2.1", true},
		{"1:2:3:4:5::192.0.2.1", false},
		{"1:2:3:4:5:6:7::", false},
		{"::2:3:4:5:6:7:8", false},
		{"1:2:3:4:5:6:7", false},
		{"1:2:3:4:5:6:7:8:9", false},
		{"1::2::3", false},
		{"12345::", false},
		{"fe80::1%eth0", false},
		{"192.0.2.1", false},
		{"", false},
	} {
		if got := isIPv6(c.text); got != c.want {
			t.Errorf("%q: got %v, want %v", c.text, got, c.want)
		}
		if !c.want {
			continue
		}
		for _, value := range []string{"a@[IPv6:" + c.text + "]", "http://[" + c.text + "]/"} {
			r := mustCompile(t, fields(schema.FoldExact, everyKind))
			if accepting := acceptedBy(r, value); len(accepting) != 1 {
				t.Errorf("%q is accepted by the fields %q, want one", value, accepting)
			}
		}
	}
}

func TestVisible(t *testing.T) {
	for r, want := range map[rune]bool{
		'é': true, '中': true, '☃': true, '\u0301': true, '\u200c': true, '\u200d': true,
		'\u0080': false, '\u00a0': false, '\u00ad': false, '\u200b': false, '\u200e': false, '\u2028': false,
		'\u3000': false, '\ue000': false, '\ufeff': false, '\u0378': false, '\U000e0041': false,
	} {
		if got := visible(r); got != want {
			t.Errorf("%+q: got %v, want %v", r, got, want)
		}
	}
}

// TestMaximumLengths checks that each kind accepts values of its maximum length, and no longer
// ones.
func TestMaximumLengths(t *testing.T) {
	for name, value := range map[string]string{
		"email":    strings.Repeat("a", 64) + "@" + strings.Repeat("a.", 94) + "a",
		"username": strings.Repeat("a", 1024),
		"nickname": strings.Repeat("a", 1024),
		"url":      "http://a/" + strings.Repeat("a", 1015),
		"pattern":  strings.Repeat("a", 1024),
	} {
		typ := fields(schema.FoldExact, map[string]schema.Field{"f": {Kind: name, Pattern: "a"}})
		r := mustCompile(t, typ)
		if got := r.fields["f"].kind.max; got != len(value) {
			t.Errorf("%s: got a maximum of %d bytes, want %d", name, got, len(value))
		}
		if err := r.Secondary("f", value); err != nil {
			t.Errorf("%s of %d bytes: %v", name, len(value), err)
		}
		if r.Secondary("f", value+"a") == nil {
			t.Errorf("%s of %d bytes is accepted", name, len(value)+1)
		}
	}
}

// TestALabels checks the Punycode form of labels from RFC 3492 §7.1, of registered names and, in
// the last four rows, of labels that an encoder in another language has encoded. Then it checks
// which labels are refused.
func TestALabels(t *testing.T) {
	for _, c := range []struct{ label, puny string }{
		{"ليهمابتكلموشعربي؟", "egbpdaj6bu4bxfgehfvwxn"},
		{"他们为什么不说中文", "ihqwcrb4cv8a8dqg056pqjye"},
		{"Pročprostěnemluvíčesky", "Proprostnemluvesky-uyb24dma41a"},
		{"למההםפשוטלאמדבריםעברית", "4dbcagdahymbxekheh6e0a7fei0b"},
		{"почемужеонинеговорятпорусски", "b1abfaaepdrnnbgefbadotcwatmq2g4l"},
		{"3年B組金八先生", "3B-ww4c5e180e575a65lsy2b"},
		{"安室奈美恵-with-SUPER-MONKEYS", "-with-SUPER-MONKEYS-pc58ag80a8qai00g7n9n"},
		{"MajiでKoiする5秒前", "MajiKoi5-783gue6qz075azm5e"},
		{"そのスピードで", "d9juau41awczczp"},
		{"bücher", "bcher-kva"},
		{"münchen", "mnchen-3ya"},
		{"𐀀", "2n7c"},
		{"γ日日αñ", "ida12lfa6661ha"},
		{"文ββüa", "a-dha59ra7336j"},
		{"日ββö", "nda31la8661h"},
	} {
		want := "xn--" + c.puny
		if got, err := idna.Punycode.ToASCII(c.label); got != want || err != nil {
			t.Errorf("%q: got %q, want %q: %v", c.label, got, want, err)
		}
		if one, other := refuseLabel(c.label), refuseLabel(want); one != other && strings.ToLower(c.label) == c.label {
			t.Errorf("%q is refused for %q, and its A-label for %q", c.label, one, other)
		}
	}
	for _, c := range []struct{ label, want string }{
		{strings.Repeat("中", 55), ""}, // 165 bytes, but short as an A-label
		{strings.Repeat("中", 63), tooLong},
		{"xn--n3h", notIDNA},  // a snowman
		{"xn--bcher-KVA", ""}, // DNS ignores case
		{"XN--BCHER-KVA", ""},
		{"xn--bcher-", "a part of the domain that begins or ends with a hyphen"}, // ASCII only
		{"xn--bcher-kv", notIDNA}, // truncated
		{"xn--", "a part of the domain that begins or ends with a hyphen"},
		{"xn--a", notIDNA},
		{"xn--bcher-epa", notIDNA}, // from BÜCHER, which is not a U-label
		{"xn--ab---zra", notIDNA},  // from ab--ü
		{"xn--example-j06c", notIDNA},
		{"xn", ""},
	} {
		if got := refuseLabel(c.label); got != c.want {
			t.Errorf("%.40q: got %q, want %q", c.label, got, c.want)
		}
	}
}
