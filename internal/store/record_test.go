package store

import (
	"strings"
	"testing"
)

func TestNewToken(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		tok := NewRev()
		if len(tok) != RevLen || strings.ContainsAny(tok, " +/=-") || seen[tok] {
			t.Fatalf("NewRev() = %q: want %d characters, new, without space or hyphen", tok, RevLen)
		}
		seen[tok] = true
	}
}

func tok(c byte) string { return strings.Repeat(string(c), RevLen) }

func TestAccounts(t *testing.T) {
	four := tok('d') + tok('c') + tok('b') + tok('a')
	for _, tt := range []struct {
		name, past, rev string
		want            bool
	}{
		{"never there", "", "", true},
		{"a short history is a whole one", tok('b') + tok('a'), "", true},
		{"the version is still remembered", four, tok('a'), true},
		{"forgotten", four, tok('z'), false},
		{"four writes since it was absent", four, "", false},
		{"only at a version's place", four, "aaaaaaaaaaab", false},
	} {
		if got := Accounts(tt.past, tt.rev); got != tt.want {
			t.Errorf("%s: Accounts(%q, %q) = %v, want %v", tt.name, tt.past, tt.rev, got, tt.want)
		}
	}
}

func TestRevAndOwner(t *testing.T) {
	if got := Rev(tok('b') + tok('a')); got != tok('b') {
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
		{map[string]string{"~rev": "x", "name": "Bob"}, false},
	} {
		if got := Tombstone(tt.fields); got != tt.want {
			t.Errorf("Tombstone(%v) = %v, want %v", tt.fields, got, tt.want)
		}
	}
}
