package main

import (
	"slices"
	"testing"

	"github.com/coffeenode/userdb/userdb"
)

// TestCompleteIDs checks that the beginning of an ID stands for the only session that has it.
func TestCompleteIDs(t *testing.T) {
	all := []string{"abcd", "abxy", "-q"}
	for _, tt := range []struct {
		texts, want []string
		code        userdb.Code
	}{
		{[]string{"abcd", "-"}, []string{"abcd", "-q"}, ""},
		{[]string{"abx"}, []string{"abxy"}, ""},
		{[]string{"abcd", "ab"}, nil, userdb.CodeUsage},
		{[]string{"abcde"}, nil, userdb.CodeNotFound},
		{[]string{""}, nil, userdb.CodeNotFound},
	} {
		got, err := completeIDs(all, tt.texts)
		if !slices.Equal(got, tt.want) || (err != nil) != (tt.code != "") || err != nil && userdb.CodeOf(err) != tt.code {
			t.Errorf("completeIDs(%q) = %q, %v; want %q and code %q", tt.texts, got, err, tt.want, tt.code)
		}
	}
}
