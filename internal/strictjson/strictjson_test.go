package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestMarshal checks that control and format characters and line separators are escaped, and that
// all characters are read back unchanged.
func TestMarshal(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r < 0xd800 || r > 0xdfff {
			all.WriteRune(r)
		}
	}
	v := map[string][]string{all.String(): {all.String()}}
	for name, marshal := range map[string]func(map[string][]string) ([]byte, error){"line": Marshal[map[string][]string], "indent": Indent[map[string][]string]} {
		text, err := marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); (n == 1) != (name == "line") || !strings.HasSuffix(string(text), "\n") {
			t.Errorf("%s: the text has %d newlines; want one at its end, and more only with indentation", name, n)
		}
		for _, r := range string(text) {
			if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Bidi_Control)) {
				t.Errorf("%s: %U is not escaped", name, r)
			}
		}
		var back map[string][]string
		if err := json.Unmarshal(text, &back); err != nil || len(back[all.String()]) != 1 || back[all.String()][0] != all.String() {
			t.Errorf("%s: the text does not read back unchanged, error %v", name, err)
		}
	}
	if text, err := Marshal("<a&b>é😀"); string(text) != "\"<a&b>é😀\"\n" || err != nil {
		t.Errorf("Marshal returns %s, %v; want all these characters unescaped", text, err)
	}
	if _, err := Marshal(func() {}); err == nil {
		t.Error("Marshal of a function: no error")
	}
}

func TestValidUnicode(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":"b"}`: true, `"\ud83d\ude00"`: true, `"\\ud800"`: true, `"\n"`: true, `["\ufffd","�"]`: true, `{"\uD83D\uDE00":1}`: true, ``: true, `"\u00e9\u0000"`: true,
		`"\ud800"`: false, `{"\udc00":1}`: false, `["x","\\\ud800x"]`: false, `"\ud83d\ud83d\ude00"`: false, `"\ud83d\n"`: false, "\"a\xff\"": false, "\"\xed\xa0\x80\"": false,
	} {
		if ValidUnicode([]byte(text)) != want {
			t.Errorf("ValidUnicode(%s) = %v, want %v", text, !want, want)
		}
	}
}

func TestHasDuplicateNames(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":"a"}]}`: false, `{"a":"a","b":"a"}`: false, `{"a":"b","b":"a"}`: false, `["a","a"]`: false, `"a"`: false, ``: false, `{"A":1,"a":2}`: false,
		`{"a":1,"a":1}`: true, `{"a":{"b":[]},"a":1}`: true, `{"x":[[{"a":1,"\u0061":2}]]}`: true, `{"x":{},"y":[{"b":{"c":1},"b":2}]}`: true,
		`{"a":1,`: false, `}`: false, `]]`: false,
	} {
		if HasDuplicateNames([]byte(text)) != want {
			t.Errorf("HasDuplicateNames(%s) = %v, want %v", text, !want, want)
		}
	}
}

func TestHasDuplicateNamesFold(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":"A","b":["a","A",{"a":1},{"A":1}]}`: false, `{"a":{"A":1}}`: false, `"a"`: false,
		`{"a":1,"a":1}`: true, `{"userName":1,"USERNAME":2}`: true, `[{"x":{"É":1,"\u00e9":2}}]`: true, `{"s":1,"ſ":2}`: true,
	} {
		if HasDuplicateNamesFold([]byte(text)) != want {
			t.Errorf("HasDuplicateNamesFold(%s) = %v, want %v", text, !want, want)
		}
	}
}

func TestCountValues(t *testing.T) {
	for text, want := range map[string]int{
		`1`: 0, `"[{,"`: 0, `{"a":1}`: 1, `{"a":1,"b":2}`: 2, `[[1],[2]]`: 4, `{"a,[":"x\",{","b":["\\",1]}`: 4, `[]`: 1, `{"a":{}}`: 2,
	} {
		if got := CountValues([]byte(text)); got != want {
			t.Errorf("CountValues(%s) = %d, want %d", text, got, want)
		}
	}
}

func TestDecodedSize(t *testing.T) {
	few, many := DecodedSize([]byte(`{"a":"`+strings.Repeat("{},", 1000)+`"}`)), DecodedSize([]byte(`{"a":[`+strings.Repeat("{},", 1000)+`{}]}`))
	if few > 10_000 || many < 250_000 {
		t.Errorf("a text takes %d bytes, and a thousand objects take %d; want at most 10,000, and at least 250,000", few, many)
	}
}
