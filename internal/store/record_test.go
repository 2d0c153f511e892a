package store

import (
	"strings"
	"testing"
)

func TestNewRev(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		rev := NewRev()
		if len(rev) != RevLen || strings.ContainsAny(rev, " +/=-") || seen[rev] {
			t.Fatalf("NewRev() = %q, want a new text of %d characters without any of \" +/=-\"", rev, RevLen)
		}
		seen[rev] = true
	}
}

// rev returns a rev that repeats one character.
func rev(c byte) string { return strings.Repeat(string(c), RevLen) }

func TestRevsComplete(t *testing.T) {
	four := rev('d') + rev('c') + rev('b') + rev('a')
	for _, tt := range []struct {
		name, past, rev string
		want            bool
	}{
		{"there is no entry", "", "", true},
		{"a short history is complete", rev('b') + rev('a'), "", true},
		{"the rev is still remembered", four, rev('a'), true},
		{"the rev is no longer remembered", four, rev('z'), false},
		{"four writes since there was no entry", four, "", false},
		{"the text spans two revs", four, "aaaaaaaaaaab", false},
	} {
		if got := RevsComplete(tt.past, tt.rev); got != tt.want {
			t.Errorf("%s: RevsComplete(%q, %q) = %v, want %v", tt.name, tt.past, tt.rev, got, tt.want)
		}
	}
}

func TestRevAndOwner(t *testing.T) {
	if got := Rev(rev('b') + rev('a')); got != rev('b') {
		t.Errorf("Rev = %q, want the newest rev, %q", got, rev('b'))
	}
	if got := Rev(""); got != "" {
		t.Errorf("Rev(\"\") = %q, want \"\"", got)
	}
	for srv, want := range map[string]string{"user/uid:1": "user/uid:1", "user/uid:1 abc": "user/uid:1", "": ""} {
		if got := Owner(srv); got != want {
			t.Errorf("Owner(%q) = %q, want %q", srv, got, want)
		}
	}
}

func TestTombstone(t *testing.T) {
	for _, tt := range []struct {
		fields map[string]string
		want   bool
	}{
		{nil, false},
		{map[string]string{"~rev": "x"}, true},
		{map[string]string{"~rev": "x", "~fence": "3", "~dying": "1"}, true},
		{map[string]string{"~rev": "x", "~isa": "user"}, false},
		{map[string]string{"~rev": "x", "~isa": "", "name": "Bob"}, true},
		{map[string]string{"~rev": "x", "name": "Bob"}, false},
	} {
		if got := Tombstone(tt.fields); got != tt.want {
			t.Errorf("Tombstone(%v) = %v, want %v", tt.fields, got, tt.want)
		}
	}
}
