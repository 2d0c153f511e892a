package onekey

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
)

// TestMessages checks that a reply with a message of an unexpected form is refused, instead of
// being read as a stream with fewer messages.
func TestMessages(t *testing.T) {
	whole := []any{"1-0", []any{"field", "value"}}
	for name, tt := range map[string]struct {
		reply any
		want  int // messages; -1 for an error
	}{
		"two messages":            {[]any{whole, whole}, 2},
		"a message without pairs": {[]any{[]any{"1-0", nil}}, 1},
		"no messages":             {[]any{}, 0},
		"a text for pairs":        {[]any{[]any{"1-0", "x"}, whole}, -1},
		"no pairs at all":         {[]any{[]any{"1-0"}, whole}, -1},
		"a number for an ID":      {[]any{[]any{int64(1), []any{}}}, -1},
		"a text":                  {"1-0", -1},
	} {
		var r store.Raw
		err := decodeMessages(&r, tt.reply)
		if tt.want < 0 && !errors.Is(err, store.ErrReply) || tt.want >= 0 && (err != nil || len(r.Messages) != tt.want) {
			t.Errorf("%s: got %d messages, error %v; want %d messages (-1: an error)", name, len(r.Messages), err, tt.want)
		}
	}
}
