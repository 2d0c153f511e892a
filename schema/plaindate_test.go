package schema

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What plainDate takes, readDate reads; and it takes what Date writes, but for the ends of months.
func TestPlainDate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-6]\d:[0-6]\d\.\d{3}Z`),
			rapid.StringMatching(`\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}.\d{3}[Zz+]`),
		).Draw(t, "text")
		if _, reason := readDate(text); plainDate(text) && reason != "" {
			t.Fatalf("%q: readDate says %q", text, reason)
		}
		at := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "at")).UTC()
		if wire := Date(at).Wire(); at.Day() <= 28 && !plainDate(wire) {
			t.Fatalf("%q is not taken", wire)
		}
	})
}
