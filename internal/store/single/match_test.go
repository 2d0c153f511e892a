package single

import "testing"

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, key string
		want         bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"**", "abc", true},
		{"a*c", "abbc", true},
		{"a*c", "abbd", false},
		{"a*b*c*d", "axbxcxcxd", true},
		{"?", "", false},
		{"h?llo", "hello", true},
		{"?", "\xff", true},
		{"??", "é", true},
		{"h[ae]llo", "hallo", true},
		{"h[ae]llo", "hillo", false},
		{"h[^e]llo", "hallo", true},
		{"h[^e]llo", "hello", false},
		{"[a-c]", "b", true},
		{"[c-a]", "b", true},
		{"[c-a]", "d", false},
		{"[a-]", "-", false}, // the bracket ends the range, not the class
		{"[a-]", "_", true},
		{`[\]]`, "]", true},
		{`[\^a]`, "^", true},
		{"[]", "x", false},
		{"[^]", "x", true},
		{"[ab", "b", true},
		{"[ab", "bc", false},
		{`[\d]`, "5", false},
		{`[\d]`, "d", true},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{`a\`, `a\`, true},
		{"user/*:x/~prk", "user/name:x/~prk", true},
		{"a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	} {
		if got := match(tt.pattern, tt.key); got != tt.want {
			t.Errorf("match(%q, %q) = %v, want %v", tt.pattern, tt.key, got, tt.want)
		}
	}
}
