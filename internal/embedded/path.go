package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/coffeenode/userdb/internal/ownfile"
)

// DefaultPath is where the records of this user are when nobody says where:
// userdb/userdb.jsonl under $XDG_DATA_HOME or, where that is not set to an
// absolute path, under the platform's directory for user data. It touches
// nothing. It fails where the environment names no home directory.
func DefaultPath() (string, error) {
	dir, err := dataDir(runtime.GOOS)
	if err != nil {
		return "", fmt.Errorf("finding the user's data directory: %w; set XDG_DATA_HOME, or name a store", err)
	}
	return filepath.Join(dir, "userdb", "userdb.jsonl"), nil
}

func dataDir(goos string) (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if goos == "windows" {
		if dir := os.Getenv("LOCALAPPDATA"); dir != "" {
			return dir, nil
		}
		return "", errors.New("LOCALAPPDATA is not set")
	}
	home, err := os.UserHomeDir()
	if goos == "darwin" {
		return filepath.Join(home, "Library", "Application Support"), err
	}
	return filepath.Join(home, ".local", "share"), err
}

// resolve returns the real path of the file at path, so that a link is not
// replaced by a file and two names of one file share one lock. The file need
// not exist; its directory is made.
func resolve(path string) (string, error) {
	const maxLinks = 40
	for range maxLinks {
		dir, err := makeDir(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := readLink(path)
		if err != nil || target == "" {
			return path, err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many links", path)
}

func makeDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// readLink returns where the link at path points, or "" for what is a file or
// nothing yet.
func readLink(path string) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := ownfile.Readlink(path)
		return target, exposed(err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is no regular file", path)
	}
	return "", nil
}
