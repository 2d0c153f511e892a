package history_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/internal/store/history"
)

// TestFeedLines checks which lines of stream entries come after and before a position.
func TestFeedLines(t *testing.T) {
	a := history.StreamEntry{ID: "5-0", Text: "user/uid:a - create / / / /\nuser/uid:a - disable / / / /"}
	b := history.StreamEntry{ID: "7-1", Text: "user/uid:b 6000001 create / / / /"}
	ids := func(lines []history.FeedLine) string {
		var all []string
		for _, l := range lines {
			all = append(all, l.ID)
		}
		return fmt.Sprint(all)
	}
	for _, c := range []struct {
		found    []history.StreamEntry
		position string
		after    string
		gap      bool
	}{
		{[]history.StreamEntry{a, b}, "", "[5-0:1 5-0:2 7-1:1]", false},
		{[]history.StreamEntry{a, b}, "5-0:1", "[5-0:2 7-1:1]", false},
		{[]history.StreamEntry{a, b}, a.Position(), "[7-1:1]", false},
		{[]history.StreamEntry{a, b}, "5-0:9", "[7-1:1]", false},
		{[]history.StreamEntry{b}, "5-0:1", "[7-1:1]", true},
		{nil, b.Position(), "[]", true},
	} {
		lines, gap := history.LinesAfter(0, c.found, c.position)
		if got := ids(lines); got != c.after || gap != c.gap {
			t.Errorf("after %q: got %s, gap %v, want %s, %v", c.position, got, gap, c.after, c.gap)
		}
	}
	for position, want := range map[string]string{
		"9-9:1": "[7-1:1 5-0:2 5-0:1]", "7-1:1": "[5-0:2 5-0:1]", "7-1:2": "[7-1:1 5-0:2 5-0:1]",
	} {
		if got := ids(history.LinesBefore(0, []history.StreamEntry{b, a}, position)); got != want {
			t.Errorf("before %q: got %s, want %s", position, got, want)
		}
	}
	c := history.StreamEntry{ID: "7-1003", Text: "user/uid:c - create / / / /"}
	lines, _ := history.LinesAfter(3, []history.StreamEntry{a, b, c}, "")
	var times []int64
	for _, f := range lines {
		prk, l, ok := f.Parse()
		if !ok || f.Part != 3 || prk.Type() != "user" {
			t.Errorf("%+v is parsed as %v, %+v, %v; want part 3, a user and true", f, prk, l, ok)
		}
		times = append(times, l.Time.UnixMicro())
	}
	if want := []int64{5000, 5001, 6000001, 7003}; !slices.Equal(times, want) {
		t.Errorf("got times %v, want %v", times, want)
	}
	for _, text := range []string{"user/uid:d - create - - / /", "user/uid:d 8001 create - - / /", " - create - - / /"} {
		found := []history.StreamEntry{{ID: "8-1001", Text: text}}
		lines, _ := history.LinesAfter(0, found, "")
		if _, l, _ := lines[0].Parse(); l.Time.UnixMicro() != 8001 || l.Who != "-" || l.Origin != "-" {
			t.Errorf("%q is parsed as %+v, want the time 8001, and hyphens as the actor and the origin", text, l)
		}
	}
}
