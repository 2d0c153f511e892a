package throttle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/throttle"
)

// TestUnreadable checks that Unreadable finds a field if, and only if, the script rejects the
// record.
func TestUnreadable(t *testing.T) {
	raw, ctx := redistest.Shared(t).Client(), t.Context()
	const call = "twelve_bytes" + "0" + "1234567890"
	for name, h := range map[string]struct{ field, value, bad string }{
		"a counter":             {"sn", "12", ""},
		"a text":                {"sn", "many", "sn"},
		"an empty counter":      {"su", "", "su"},
		"a negative counter":    {"sa", "-1", "sa"},
		"fifteen digits":        {"o:home", strings.Repeat("1", 15), ""},
		"sixteen digits":        {"o:home", strings.Repeat("1", 16), "o:home"},
		"an origin's failures":  {"n:home", "x", "n:home"},
		"a foreign field":       {"foreign", "x", ""},
		"two calls":             {"k", call + call, ""},
		"part of a call":        {"k", call + "twelve", "k"},
		"a call without a time": {"k", "twelve_bytes0123456789x", "k"},
	} {
		c := throttle.Counters{Account: countersKey(t, "unreadable", name), Now: epoch}
		key := c.Account.String()
		if err := raw.HSet(ctx, key, h.field, h.value).Err(); err != nil {
			t.Fatal(err)
		}
		look := throttle.NewCall(throttle.Look, "twelve_bytes", c, throttle.Admission{})
		args := make([]any, len(look.Args))
		for i := range args {
			args[i] = look.Args[i]
		}
		reply, err := raw.Eval(ctx, throttle.Lua, look.Keys, args...).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		_, err = look.State(reply)
		var damaged throttle.DamagedError
		if errors.As(err, &damaged) != (h.bad != "") {
			t.Errorf("%s: the script replies %v, want the record rejected: %v", name, reply, h.bad != "")
		}
		if field, value := throttle.Unreadable(map[string]string{h.field: h.value}); field != h.bad || field != "" && value != h.value {
			t.Errorf("%s: got %q, %q, want %q", name, field, value, h.bad)
		}
	}
}

// TestReplies checks which replies of the script are errors.
func TestReplies(t *testing.T) {
	c := throttle.Counters{Account: countersKey(t, "replies"), Origin: countersKey(t, "replies", "origin"), Now: epoch}
	call := throttle.NewCall(throttle.Admit, "twelve_bytes", c, throttle.Admission{})
	as, err := call.Admission([]int64{1500, 0, 1})
	if want := (throttle.Admission{Wait: 1500 * time.Millisecond, AtOrigin: true}); err != nil || as != want {
		t.Errorf("got %+v, %v, want %+v", as, err, want)
	}
	for _, n := range []int64{1, 2} {
		_, err := call.Admission([]int64{-2, n})
		if damaged, is := errors.AsType[throttle.DamagedError](err); !is || int64(damaged) != n-1 {
			t.Errorf("KEYS[%d] is damaged: got %v, want the DamagedError %d", n, err, n-1)
		}
	}
	if _, err := call.Admission([]int64{-1}); !errors.Is(err, throttle.ErrMaybeCounted) {
		t.Errorf("got %v, want ErrMaybeCounted", err)
	}
	for _, reply := range [][]int64{nil, {-2, 0}, {-2, 3}, {0, 0}, {0, 0, 0, 0}} {
		_, err := call.Admission(reply)
		if _, damaged := errors.AsType[throttle.DamagedError](err); err == nil || damaged || errors.Is(err, throttle.ErrMaybeCounted) {
			t.Errorf("Admission of %v: got %v, want another error", reply, err)
		}
		if s, err := call.State(reply); err == nil {
			t.Errorf("State of %v: got %+v, want an error", reply, s)
		}
	}
}
