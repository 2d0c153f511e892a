package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// escaped is s as a JSON string in which every character is escaped.
func escaped(s string) json.RawMessage {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	return json.RawMessage(`"` + b.String() + `"`)
}

// A string that stands there as it is means what the same one means with escapes.
func TestParseJSONPlainOrEscaped(t *testing.T) {
	codecs := []schema.Codec{"text", "identity", "date", "number", "boolean", "null", "json"}
	values := rapid.OneOf(
		rapid.StringMatching(`[0-9]{4}-[01][0-9]-[0-3][0-9](T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\.[0-9]{3}Z)?`),
		rapid.SampledFrom([]string{"", "null", "true", "NaN", "42", "\u2028", "ü", "🚀", "\u007f"}),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		s, codec := values.Draw(t, "s"), rapid.SampledFrom(codecs).Draw(t, "codec")
		plain, err := json.Marshal(s)
		if err != nil || strings.ToValidUTF8(s, "") != s {
			t.Skip()
		}
		got, gotErr := schema.ParseJSON(codec, plain)
		want, wantErr := schema.ParseJSON(codec, escaped(s))
		if got != want || (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%s: %s is %v, %v; escaped %v, %v", codec, plain, got, gotErr, want, wantErr)
		}
	})
}
