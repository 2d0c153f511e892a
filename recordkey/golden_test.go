package recordkey_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestGoldenKeys fails if the text of a key changes, because existing records would then be lost.
func TestGoldenKeys(t *testing.T) {
	const file = "testdata/keys.golden"
	var b strings.Builder
	for _, value := range []string{
		"9a4c88dbc084", "john@example.com", "Just A. User", "http://example.com/foo/bar/", "a+_b", "~prk", "*",
		"{slot}", "tab\there", "\x00\x1f\x7f", "\u0085\u00a0\u2028\u3000", "\ufeff\u200b", "é e\u0301 ☃ 😀", "\xc3(\xed\xa0\x80",
	} {
		prk := must(recordkey.PRK("user", "uid", value))
		for _, k := range []recordkey.Key{
			prk,
			must(recordkey.SRK("user", "name", value)),
			must(recordkey.Index("user", "job", value)),
			must(prk.Tertiary(strings.TrimLeft(value, "~"))),
			must(recordkey.Own("throttle", value)),
			must(prk.Own("token")),
		} {
			fmt.Fprintf(&b, "%-12s %q\n\t%s\n", k.Kind(), value, k)
		}
		ns, err := namespace("acme").Sub(value)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%-12s %q\n\t%s\n", "namespace", value, must(recordkey.PRK("user", "uid", "x")).In(ns))
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("keys differ from %s (-update to renew); got\n%s", file, b.String())
	}
	for line := range strings.Lines(string(want)) {
		if key, ok := strings.CutPrefix(line, "\t"); ok {
			key = strings.TrimSuffix(key, "\n")
			if parse(key).String() != key {
				t.Errorf("%s is not read back", key)
			}
		}
	}
}
