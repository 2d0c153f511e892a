package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressBar(t *testing.T) { synctest.Test(t, testProgressBar) }

func testProgressBar(t *testing.T) {
	var seen strings.Builder
	m := &progress{w: &seen, what: "checking", last: time.Now().Add(-time.Hour)}
	for _, tt := range []struct {
		done, about int64
		after       time.Duration
		want        string
	}{
		{0, 200, 0, "\r\x1b[Kchecking [..............................]   0 %"},
		{50, 200, time.Millisecond, ""}, // too soon
		{100, 200, time.Second, "\r\x1b[Kchecking [###############...............]  50 %"},
		{300, 200, time.Second, "\r\x1b[Kchecking [##############################] 100 %"},
		{0, 0, time.Second, "\r\x1b[Kchecking [##############################] 100 %"},
	} {
		time.Sleep(tt.after)
		seen.Reset()
		if m.bar(tt.done, tt.about); seen.String() != tt.want {
			t.Errorf("%d of %d shows %q, want %q", tt.done, tt.about, seen.String(), tt.want)
		}
	}
	seen.Reset()
	m.clear()
	m.clear()
	if seen.String() != "\r\x1b[K" {
		t.Errorf("clearing twice writes %q, want one empty line", seen.String())
	}
	nobody := (&session{std: stdio{err: &seen}}).progress("checking", true)
	seen.Reset()
	if nobody.bar(1, 2); seen.Len() > 0 {
		t.Errorf("without a terminal it shows %q, want nothing", seen.String())
	}
}
