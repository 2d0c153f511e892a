package userdb

import (
	"bytes"
	"testing"
)

// TestHashCodeIgnoresSpelling checks that case, white space, hyphens and letters that look like
// digits do not change the hash of a recovery code.
func TestHashCodeIgnoresSpelling(t *testing.T) {
	want := hashCode("01abc-23xyz")
	for _, code := range []string{"01ABC-23XYZ", "01abc23xyz", " 01abc 23xyz ", "01abc-23xyz\n", "01abc\u00a023xyz", "O1abc-23xyz", "oIabc-23xyz", "0labc-23xyz"} {
		if !bytes.Equal(hashCode(code), want) {
			t.Errorf("%q has another hash", code)
		}
	}
	if bytes.Equal(hashCode("11abc-23xyz"), want) {
		t.Error("another code has the same hash")
	}
}
