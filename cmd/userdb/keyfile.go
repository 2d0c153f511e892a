package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/privatefile"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// keyFile returns the path of the file with the keys of second factors: that of --key-file, else
// the one beside the file of the store, else "".
func (s *session) keyFile(url string) string {
	if s.KeyFile != "" {
		return s.KeyFile
	}
	if file := connect.File(url); file != "" {
		return file + ".keys"
	}
	return ""
}

// readKeys returns the keys of second factors. It returns nil if --key-file is not given and no
// file of keys is beside the store.
func (s *session) readKeys(url string) ([][]byte, error) {
	path := s.keyFile(url)
	if path == "" {
		return nil, nil
	}
	keys, err := userdb.ReadKeys(path)
	if err != nil && s.KeyFile == "" && (errors.Is(err, fs.ErrNotExist) || !isDir(filepath.Dir(path))) {
		return nil, nil // opening the store says what is wrong with its directory
	}
	if err != nil {
		return nil, usagef("%v", err)
	}
	return keys, nil
}

// checkKeys returns an error if the store has second factors and the keys that encrypt them are
// missing: a service would make or use another key, with which no existing app works. If the store
// is not a file and no keys are given, checkKeys only prints a warning, because other programs may
// be the ones that use factors.
func (s *session) checkKeys(ctx context.Context) error {
	missing, err := admin.FactorKeysMissing(ctx, s.db)
	if err != nil || !missing {
		return err
	}
	const remedy = "if it is lost for good, 'userdb factor remove-lost' removes these factors"
	path := s.keyFile(s.url)
	switch {
	case s.hasKeys:
		return usagef("the store has second factors, and none of the keys in %s encrypted them: put the right key into it; %s", printable(path), remedy)
	case path != "":
		return usagef("the store has second factors, and %s with their key is missing: bring it back from its copy; %s", printable(path), remedy)
	}
	fmt.Fprintln(s.std.err, "userdb: warning: the store has second factors, and without their key (--key-file) nobody who has one can sign in here")
	return nil
}

// makeKeys makes the file of keys beside an embedded store that has none, if a service offers
// second factors or the schema allows them. It prints the path, and opens the store again with the
// file.
func (s *session) makeKeys(ctx context.Context, offered bool) error {
	path := s.keyFile(s.url)
	if path == "" || s.KeyFile != "" || s.hasKeys || !offered && !s.allowsFactors() {
		return nil
	}
	key := make([]byte, sealed.KeySize)
	rand.Read(key) // never returns an error
	if err := privatefile.Write(path, base64.StdEncoding.EncodeToString(key)+"\n"); err != nil {
		return fmt.Errorf("the file of keys: %w", embedded.MarkFull(err))
	}
	fmt.Fprintf(s.std.err, "made %s with the key of second factors: keep a copy of it, apart from those of the store\n", printable(path))
	if err := s.close(); err != nil {
		return err
	}
	return s.open(ctx)
}

// remindOfKeys prints that a copy of the store's file also needs the file of keys, if the original
// has one beside it.
func (s *session) remindOfKeys(copied string) error {
	url, err := s.storeURL()
	if err != nil || s.KeyFile != "" {
		return err
	}
	path := s.keyFile(url)
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	_, err = fmt.Fprintf(s.std.err, "the keys of second factors are not in %s: before you use it, copy %s to %s\n",
		printable(copied), printable(path), printable(copied+".keys"))
	return err
}

// allowsFactors reports whether entries of the open store may enrol second factors.
func (s *session) allowsFactors() bool {
	for _, t := range s.db.Schema().Types {
		if t.Factors {
			return true
		}
	}
	return false
}
