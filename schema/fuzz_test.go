package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// FuzzLoad loads arbitrary files. An error must be a short *Error; a loaded schema must be valid
// and must not change when it is written and loaded again.
func FuzzLoad(f *testing.F) {
	original, err := os.ReadFile("../test/testdata/original/original_options.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(original)
	for _, file := range []string{
		wholeFile,
		fileWithType(`"primary":"id","fold":"casefold","password":{"min":0}`),
		fileWithField(`"role":"secondary","pattern":"^a{2,3}(b|c)$","reserved":["x"]`),
		`{"types":{"a":{"primary":"b"},"b":{"primary":"a"}}}`,
		`{"types":{"t":{"primary":"\ud800"}}}`,
		`{"types":[[[[[[[[[[[[[[[[[[[[`,
		`{"types":{},}`, "\ufeff{}", "{\"types\":\xff}",
	} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := schema.Load(bytes.NewReader(file))
		if err != nil {
			var bad *schema.Error
			if !errors.As(err, &bad) || bad.Reason == "" || len(err.Error()) > 3000 {
				t.Errorf("got %T %v, want a schema error with a reason", err, err)
			}
			return
		}
		if err := s.Validate(); err != nil {
			t.Errorf("the schema was loaded, but is not valid: %v", err)
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := schema.Load(strings.NewReader(string(written)))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%s\nis loaded as %+v\nwant %+v; %v", written, again, s, err)
		}
	})
}
