package password

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// packed holds 30,000 common passwords, lower case, in rank order, one a line.
//
//go:embed common-passwords.gz
var packed []byte

// common is the list sorted, unpacked when it is first needed.
var common = sync.OnceValues(func() ([]string, error) {
	text, err := unpack(packed)
	words := strings.Fields(text)
	slices.Sort(words)
	return words, err
})

func unpack(packed []byte) (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", fmt.Errorf("reading the common passwords: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("reading the common passwords: %w", err)
	}
	return string(text), nil
}

// isCommon reports whether a folded password is on the list.
func isCommon(folded string) (bool, error) {
	words, err := common()
	_, found := slices.BinarySearch(words, folded)
	return found, err
}
