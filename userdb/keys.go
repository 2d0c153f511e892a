package userdb

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/coffeenode/userdb/internal/privatefile"
	"github.com/coffeenode/userdb/internal/sealed"
)

// maxKeyFile limits a file of keys, in bytes.
const maxKeyFile = 16 << 10

// ReadKeys returns the keys in a file, for Options.Keys: one in base64 on each line, and comments
// after #. It is the file that the command line takes as --key-file. It must be a regular file, not
// a link, that belongs to this user or root and that nobody else can read; on Windows its owner and
// rights are not checked. The errors do not quote its lines.
func ReadKeys(path string) ([][]byte, error) {
	f, err := privatefile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("the file of keys: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("it has over %d bytes", maxKeyFile)
	}
	var keys [][]byte
	if err == nil {
		keys, err = parseKeys(string(text))
	}
	if err == nil {
		_, err = sealed.New(keys)
	}
	if err != nil {
		return nil, fmt.Errorf("the file of keys %q: %w", path, err)
	}
	return keys, nil
}

func parseKeys(text string) (keys [][]byte, err error) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != sealed.KeySize {
			return nil, fmt.Errorf("key %d is not %d bytes in base64; 'head -c 32 /dev/urandom | base64' makes one", len(keys)+1, sealed.KeySize)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key")
	}
	return keys, nil
}
