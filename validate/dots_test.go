package validate

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// TestEmailDots checks that the kind email-dots accepts additional dots among the text before the
// @, as mobile carriers assigned them, but neither dots alone nor a second spelling of such an
// address in quotes.
func TestEmailDots(t *testing.T) {
	rules, err := Compile(schema.Type{Primary: "uid", Fields: map[string]schema.Field{"email": {Role: schema.RoleSecondary, Kind: "email-dots"}}})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"aaa..bbb.cc@docomo.ne.jp":                 "",
		"xxx.yyy.@docomo.ne.jp":                    "",
		".ggg@ezweb.ne.jp":                         "",
		"-fff@docomo.ne.jp":                        "",
		"anna@example.com":                         "",
		`"a b"@example.com`:                        "",
		`"ddd..eee."@docomo.ne.jp`:                 "quotes before the @ that are not needed: write it without them",
		"...@docomo.ne.jp":                         "a dot without text on both sides before the @",
		"@docomo.ne.jp":                            "nothing before the @",
		"kim@foo_bar.example.com":                  "a character that domains cannot contain",
		"a..b":                                     "no @ in the address",
		"a b..c@docomo.ne.jp":                      "a character before the @ that needs quotes",
		"a..@b..c":                                 "a dot without text on both sides in the domain",
		strings.Repeat("a", 64) + ".@docomo.ne.jp": "more than 64 bytes before the @",
		strings.Repeat("a", 63) + ".@docomo.ne.jp": "",
	} {
		if got := refuseEmailDots(address); got != want {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
		if err := rules.Facet("email", schema.Text(address)); (err == nil) != (want == "") {
			t.Errorf("%q: Facet returns %v, want an error: %v", address, err, want != "")
		}
	}
}
