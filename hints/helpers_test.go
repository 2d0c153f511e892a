package hints_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from %s (-update to renew); got\n%s", file, got)
	}
}

// checkErr checks the text of err, and that it is an *Error.
func checkErr(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("got no error, want %q", want)
		return
	}
	if err.Error() != want {
		t.Errorf("got error  %s\nwant error %s", err, want)
	}
	var hint *hints.Error
	if !errors.Is(err, hints.ErrHint) || !errors.As(err, &hint) {
		t.Errorf("%v is not an *Error that matches ErrHint", err)
	}
}

func key(s string) recordkey.Key {
	k, err := recordkey.Parse(s)
	if err != nil {
		panic(err)
	}
	return k
}

func naughtyStrings(t testing.TB) []string {
	text, err := os.ReadFile("../test/testdata/blns.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}
