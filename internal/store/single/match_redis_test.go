package single

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/redistest"
)

// The engine's own matching, for the embedded store, is that of a real server's SCAN.
func TestMatchAsRedis(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	ctx := context.Background()
	// A range with a byte beyond ASCII depends on how the server's compiler takes characters.
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
		got := slices.DeleteFunc(keys, func(k string) bool { return !match(pattern, k) })
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("pattern %q: got %q, Redis has %q", pattern, got, want)
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
