package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestPump checks that writing never waits for a reader, that lost lines are counted, and that all
// others arrive in order.
func TestPump(t *testing.T) {
	r, w := io.Pipe()
	p := newPump(w)
	const lines = 2 * maxLines
	for i := range lines {
		fmt.Fprintf(p, "line %d\n", i)
	}
	in, arrived, lost, before := bufio.NewScanner(r), 0, 0, -1
	for arrived+lost < lines && in.Scan() {
		n := 0
		if _, after, ok := strings.Cut(in.Text(), `"lost":`); ok {
			fmt.Sscan(after, &n)
			lost += n
			continue
		}
		if _, err := fmt.Sscanf(in.Text(), "line %d", &n); err != nil || n <= before {
			t.Fatalf("got %q after line %d, want a later line", in.Text(), before)
		}
		arrived, before = arrived+1, n
	}
	if arrived < maxLines || arrived+lost != lines {
		t.Errorf("%d lines arrived and %d were lost, want at least %d and %d together", arrived, lost, maxLines, lines)
	}
	go func() { fmt.Fprint(p, "the last\n"); p.end(); w.Close() }()
	if rest, err := io.ReadAll(r); string(rest) != "the last\n" {
		t.Errorf("after the other lines: got %q, %v; want the last", rest, err)
	}
}
