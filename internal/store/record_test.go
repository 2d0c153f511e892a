package store

import (
	"strings"
	"testing"
)

func TestNewRev(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		one := NewRev()
		if len(one) != RevLen || strings.ContainsAny(one, " +/=-") || seen[one] {
			t.Fatalf("NewRev() = %q: want %d characters, new, without space or hyphen", one, RevLen)
		}
		seen[one] = true
	}
}

func rev(c byte) string { return strings.Repeat(string(c), RevLen) }

func TestAccounts(t *testing.T) {
	four := rev('d') + rev('c') + rev('b') + rev('a')
	for _, tt := range []struct {
		name, past, rev string
		want            bool
	}{
		{"never there", "", "", true},
		{"a short history is complete", rev('b') + rev('a'), "", true},
		{"the rev is still remembered", four, rev('a'), true},
		{"forgotten", four, rev('z'), false},
		{"four writes since it was absent", four, "", false},
		{"only across two revs", four, "aaaaaaaaaaab", false},
	} {
		if got := HistoryComplete(tt.past, tt.rev); got != tt.want {
			t.Errorf("%s: Accounts(%q, %q) = %v, want %v", tt.name, tt.past, tt.rev, got, tt.want)
		}
	}
}

func TestRevAndOwner(t *testing.T) {
	if got := Rev(rev('b') + rev('a')); got != rev('b') {
		t.Errorf("Rev = %q, want the newest", got)
	}
	if got := Rev(""); got != "" {
		t.Errorf("Rev of nothing = %q", got)
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
