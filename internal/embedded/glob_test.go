package embedded

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/redistest"
)

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
		if got := matchGlob(tt.pattern, tt.key); got != tt.want {
			t.Errorf("matchGlob(%q, %q) = %v, want %v", tt.pattern, tt.key, got, tt.want)
		}
	}
}

// TestMatchAsRedis compares matchGlob with the command KEYS of a real server.
func TestMatchAsRedis(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	ctx := context.Background()
	// A range with a byte beyond ASCII depends on whether char is signed for the server's compiler.
	piece := rapid.SampledFrom([]string{"a", "b", "c", "-", "]", "[", "^", "*", "?", `\`})
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
			return concat(rapid.SliceOfN(piece, 1, 5).Draw(t, "key"))
		}), 1, 8, rapid.ID).Draw(t, "keys")
		pattern := concat(rapid.SliceOfN(piece, 1, 6).Draw(t, "pattern"))
		client.FlushDB(ctx)
		for _, k := range keys {
			client.Set(ctx, k, "x", 0)
		}
		want, err := client.Keys(ctx, pattern).Result()
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(keys, func(k string) bool { return !matchGlob(pattern, k) })
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("pattern %q matches %q, want %q as in Redis", pattern, got, want)
		}
	})
}

func concat(parts []string) string {
	text := ""
	for _, p := range parts {
		text += p
	}
	return text
}
