package throttle_test

import (
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/throttle"
)

// TestThrottleForgets sends a call again after more other calls than the counters remember. The
// repetition must not be counted, and its reply must say that it is unknown whether the call was
// counted before.
func TestThrottleForgets(t *testing.T) {
	raw, ctx, key := redistest.Shared(t).Client(), t.Context(), "~/throttle/forgets"
	call := func(token, since string) []int64 {
		t.Helper()
		args := []any{"admit", "1000000", "", "0", 86400000, 1000, 1000, 8, 5, 1, 1, 1000, 1000, token, since, "account"}
		reply, err := raw.Eval(ctx, throttle.Lua, []string{key}, args...).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	token := func(i int) string { return "token_" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + "____" }
	call("first_______", "")
	if again := call("first_______", "10"); len(again) != 3 || again[0] != 0 {
		t.Errorf("sent again: got %v, want the first reply, {0, 0, 0}", again)
	}
	for i := range 64 {
		call(token(i), "")
	}
	for _, since := range []string{"10", "60000"} {
		if again := call("first_______", since); len(again) != 1 {
			t.Errorf("sent again after 64 others: got %v, want {-1}, which means unknown", again)
		}
	}
	if n := raw.HGet(ctx, key, "sn").Val(); n != "65" {
		t.Errorf("counted %s, want 65", n)
	}
	if again := call(token(1), "10"); len(again) != 3 {
		t.Errorf("sent again while it is remembered: got %v, want the first reply", again)
	}
}
