package console

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coffeenode/userdb/internal/filelock"
	"github.com/coffeenode/userdb/internal/privatefile"
)

// A runner keeps its files in a temporary folder whose name begins with folderPrefix. Its process
// locks the file lockName in that folder until it ends.
const (
	folderPrefix = "userdb-console-"
	lockName     = "lock"
)

// newFolder creates a folder for a runner in the temporary folder tmp, and returns its path and its
// locked file.
func newFolder(tmp string) (folder string, lock *os.File, err error) {
	// Until the file is locked, another process may remove the folder as abandoned.
	for range 10 {
		if folder, err = os.MkdirTemp(tmp, folderPrefix+"*"); err != nil {
			return "", nil, err
		}
		if lock, err = lockFolder(folder); err == nil {
			return folder, lock, nil
		}
		_ = os.RemoveAll(folder) // it was not used
	}
	return "", nil, err
}

// lockFolder creates and locks the file of a new folder.
func lockFolder(folder string) (*os.File, error) {
	path := filepath.Join(folder, lockName)
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := filelock.TryLock(lock)
	if errors.Is(err, errors.ErrUnsupported) {
		return lock, nil // removeAbandoned removes nothing on this system
	}
	if err == nil && (!locked || !hasLock(folder, lock)) {
		err = fmt.Errorf("%s: another process is removing it", path)
	}
	if err != nil {
		_ = lock.Close() // nothing was written
		return nil, err
	}
	return lock, nil
}

// hasLock reports whether the folder still has the file that lockFolder locked. Programs that
// delete old temporary files may remove the folder, and other processes may then create one of the
// same name.
func hasLock(folder string, lock *os.File) bool {
	found, err := os.Lstat(filepath.Join(folder, lockName))
	if err != nil {
		return false
	}
	mine, err := lock.Stat()
	return err == nil && os.SameFile(found, mine)
}

// removeAbandoned removes the folders of runners in the temporary folder tmp whose processes have
// died without removing them. If something cannot be read or removed, it stays.
func removeAbandoned(tmp string) {
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	for err == nil {
		var names []string
		names, err = dir.Readdirnames(1000)
		for _, name := range names {
			if strings.HasPrefix(name, folderPrefix) {
				removeIfAbandoned(root, name)
			}
		}
		if err == io.EOF {
			return
		}
	}
}

// removeIfAbandoned removes a folder of a runner, unless it is a link, belongs to another user, or
// its file is locked. Nothing can be put in its place meanwhile: names are resolved in the folder
// that was checked.
func removeIfAbandoned(tmp *os.Root, name string) {
	found, err := tmp.Lstat(name)
	if err != nil || !found.IsDir() || privatefile.CheckOwner(found) != nil {
		return
	}
	folder, err := tmp.OpenRoot(name)
	if err != nil {
		return
	}
	defer folder.Close()
	if opened, err := folder.Stat("."); err != nil || !os.SameFile(found, opened) {
		return
	}
	// This removes only an empty folder. A process that was about to lock its file there makes
	// another folder.
	defer func() { _ = tmp.Remove(name) }()
	if info, err := folder.Lstat(lockName); err != nil || !info.Mode().IsRegular() {
		return
	}
	lock, err := folder.OpenFile(lockName, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer lock.Close()
	if locked, err := filelock.TryLock(lock); err != nil || !locked {
		return
	}
	entries, err := fs.ReadDir(folder.FS(), ".")
	for _, e := range entries {
		if e.Name() != lockName && err == nil {
			err = folder.RemoveAll(e.Name())
		}
	}
	if err == nil {
		_ = folder.Remove(lockName) // last, so that another process can go on if this one dies
	}
}
