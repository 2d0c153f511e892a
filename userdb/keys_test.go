package userdb

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/privatefile"
)

func TestReadKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	first, second := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	encode := base64.StdEncoding.EncodeToString
	for text, want := range map[string]string{
		"# new\n" + encode(first) + " # July\n\n" + encode(second): "",
		"# none\n":                               "has no key",
		encode(first) + "\n" + encode(first[1:]): "key 2 is not 32 bytes",
		encode(first) + "\n" + encode(first):     "appears twice",
		strings.Repeat("#", maxKeyFile+1):        "over",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		switch keys, err := ReadKeys(path); {
		case want == "" && (err != nil || len(keys) != 2 || !bytes.Equal(keys[0], first) || !bytes.Equal(keys[1], second)):
			t.Errorf("a file with two keys: got %d keys, %v; want both, in order", len(keys), err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), encode(first))):
			t.Errorf("%.20q: got %v, want %q and no key", text, err, want)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	link := path + ".link"
	if err := errors.Join(os.WriteFile(path, []byte(encode(first)), 0o600), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(link); err == nil {
		t.Error("a link was read")
	}
	if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // it must be refused
		t.Fatal(err)
	}
	if _, err := ReadKeys(path); !errors.Is(err, privatefile.ErrReadable) {
		t.Errorf("a file that others may read: got %v, want %v", err, privatefile.ErrReadable)
	}
}
