package validate

import (
	"encoding/json"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// TestDigitsOfOriginal checks that a whole number that JavaScript would change is refused under
// FoldExact. CoffeeNode UserDB, which is written in JavaScript, also reads and writes the entries
// of such types.
func TestDigitsOfOriginal(t *testing.T) {
	for _, fold := range []schema.Fold{schema.FoldExact, schema.FoldCasefold} {
		rules, err := Compile(schema.Type{Primary: "uid", Fold: fold, Fields: map[string]schema.Field{"n": {Codec: schema.CodecNumber}, "j": {Codec: schema.CodecJSON}}})
		if err != nil {
			t.Fatal(err)
		}
		for text, loses := range map[string]bool{"175928847299117063": true, "9007199254740992": false} {
			for field, codec := range map[string]schema.Codec{"n": schema.CodecNumber, "j": schema.CodecJSON, "undeclared": schema.CodecJSON} {
				v, err := schema.ParseJSON(codec, json.RawMessage(text))
				if err != nil {
					t.Fatal(err)
				}
				if err := rules.Facet(field, v); (err != nil) != (loses && fold == schema.FoldExact) {
					t.Errorf("%s under %s, field %s: got %v, want an error: %v", text, fold, field, err, loses && fold == schema.FoldExact)
				}
			}
		}
	}
}
