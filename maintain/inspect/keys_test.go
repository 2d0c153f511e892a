package inspect

import "testing"

func TestIsOwnKey(t *testing.T) {
	for key, want := range map[string]bool{
		"~/schema/user": true, "~acme/~/schema/user": true, "~acme/~eu/~/x": true,
		"user/uid:1": false, "~acme/user/uid:1": false, "~acme": false, "~": false, "": false, "a/~/b": false,
	} {
		if got := isOwnKey(key); got != want {
			t.Errorf("isOwnKey(%q) = %v, want %v", key, got, want)
		}
	}
}
