package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// legacySuffix ends the name under which a file of JSON lines stays that a new file replaced.
const legacySuffix = ".old"

// keepLegacy gives the file of JSON lines a second name. It replaces an earlier file of JSON lines
// of that name, but no other file.
func (s *Store) keepLegacy() error {
	old := s.path + legacySuffix
	temp := old + ".tmp"
	info, err := os.Lstat(old)
	switch {
	case err == nil && os.SameFile(info, s.legacy): // a process was killed after it did this
		return s.disk.syncDir(filepath.Dir(old))
	case err == nil && !isLegacy(old):
		return fmt.Errorf("%s is not an earlier file of the store, which would be kept there: move it away", old)
	case ignoreMissing(err) != nil:
		return err
	}
	if err := ignoreMissing(s.disk.remove(temp)); err != nil {
		return err
	}
	err = s.disk.link(s.path, temp)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EMLINK) {
		err = s.copyLegacy(temp) // the file system has no such links
	}
	if err == nil {
		err = s.disk.rename(temp, old)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(s.disk.remove(temp)))
	}
	return s.disk.syncDir(filepath.Dir(old))
}

func (s *Store) copyLegacy(to string) error {
	from, err := s.disk.open(s.path)
	if err != nil {
		return err
	}
	defer from.Close()
	file, err := s.disk.create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(file, 0), io.NewSectionReader(from, 0, s.legacy.Size()))
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// removeLegacy removes the file that keepLegacy kept, and returns its path, or "" if there is none.
func (s *Store) removeLegacy() (string, error) {
	old := s.path + legacySuffix
	if !isLegacy(old) {
		return "", nil
	}
	if err := s.disk.remove(old); err != nil {
		return "", err
	}
	return old, s.disk.syncDir(filepath.Dir(old))
}

// isLegacy reports whether the file at path begins as a file of JSON lines does.
func isLegacy(path string) bool {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	want := fmt.Sprintf(`{"userdb":%q,"version":%d,`, formatName, formatVersion)
	line := make([]byte, len(want))
	_, err = io.ReadFull(file, line)
	return err == nil && string(line) == want
}
