package query

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

func prks(t *rapid.T, uids []string) []recordkey.Key {
	var all []recordkey.Key
	for _, uid := range uids {
		k, err := recordkey.PRK("user", "uid", uid)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	return all
}

// TestBookmark checks that a bookmark keeps its position when it becomes text and is parsed again:
// the keys that were added to it are not returned again, and all others are.
func TestBookmark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uids := rapid.SliceOfNDistinct(rapid.StringN(1, 8, -1), 1, 20, rapid.ID).Draw(t, "uids")
		batch := prks(t, uids)
		slices.SortFunc(batch, func(a, b recordkey.Key) int { return strings.Compare(a.String(), b.String()) })
		n := rapid.IntRange(1, len(batch)).Draw(t, "taken")
		complete := rapid.Bool().Draw(t, "complete")
		b := bookmark{}
		if !complete {
			b.cursor = rapid.StringMatching(`[0-9]{1,20}|[0-9]-[a-z0-9_:]+-[0-9]+`).Draw(t, "cursor")
		}
		b.add(batch[:n], complete)
		read, err := parseBookmark(b.String(), false)
		if err != nil {
			t.Fatal(err)
		}
		if read.cursor != b.cursor {
			t.Fatalf("got the cursor %q, want %q", read.cursor, b.cursor)
		}
		if got := read.notReturned(slices.Clone(batch)); !slices.Equal(got, batch[n:]) {
			t.Fatalf("the rest is %v, want %v", got, batch[n:])
		}
	})
}

func TestBookmarkRefusals(t *testing.T) {
	for _, text := range []string{"x", "..", "1.!.", "1..!", "1..AAAA", "1.2.3.4", "o.AA."} {
		if b, err := parseBookmark(text, false); !errors.Is(err, store.ErrCursor) {
			t.Errorf("parseBookmark(%q) = %v, %v; want ErrCursor", text, b, err)
		}
	}
	for _, text := range []string{"x", "..", "o..", "o.AA", "o.!.", "o.AA.", "o.AA.AAAAAAAAAAAAAAAAAAAAAA", "1.AA.", "1.AA.AAAAAAAAAAA", ".AA."} {
		if b, err := parseBookmark(text, true); !errors.Is(err, store.ErrCursor) {
			t.Errorf("parseBookmark(%q) of a listing in order = %v, %v; want ErrCursor", text, b, err)
		}
	}
	if b, err := parseBookmark("o.AA.AAAAAAAAAAA", true); err != nil || b.last != "\x00" {
		t.Errorf("a bookmark of a listing in order: got %v, %v; want the last member \\x00", b, err)
	}
	if b, err := parseBookmark("", false); err != nil || !b.atEnd() {
		t.Errorf("parseBookmark of an empty text = %v, %v; want a bookmark at the end", b, err)
	}
}
