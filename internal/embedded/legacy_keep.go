package embedded

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// legacySuffix ends the name under which a file of JSON lines is kept after a new file replaced it.
const legacySuffix = ".old"

// A keptFile identifies a file of JSON lines that was kept, by its size in bytes and its CRC-32C.
// The zero value means that there is none.
type keptFile struct {
	size int64
	sum  uint32
}

func sumFile(file io.ReaderAt, size int64) (keptFile, error) {
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, io.NewSectionReader(file, 0, min(size, maxFile)))
	return keptFile{n, sum.Sum32()}, err
}

// keepLegacy gives the file of JSON lines a second name, or copies it if it cannot have another
// hard link. It replaces no other file.
func (s *Store) keepLegacy() error {
	old := s.path + legacySuffix
	temp := old + ".tmp"
	_, err := os.Lstat(old)
	switch {
	case err == nil && s.isKept(old): // kept by a process that was then killed
		return s.disk.syncDir(filepath.Dir(old))
	case err == nil:
		return fmt.Errorf("the file %s cannot be kept as %s: there is another file of that name; move it away", s.path, old)
	case ignoreMissing(err) != nil:
		return err
	}
	if err := ignoreMissing(s.disk.remove(temp)); err != nil {
		return err
	}
	err = s.disk.link(s.path, temp)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EMLINK) {
		err = s.copyLegacy(temp)
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
	if !s.isKept(old) {
		return "", nil
	}
	if err := s.disk.remove(old); err != nil {
		return "", ignoreMissing(err) // nil if somebody else has removed it
	}
	return old, s.disk.syncDir(filepath.Dir(old))
}

// isKept reports whether the file at path is the one that s.kept identifies.
func (s *Store) isKept(path string) bool {
	info, err := os.Lstat(path)
	if s.kept == (keptFile{}) || err != nil || !info.Mode().IsRegular() || info.Size() != s.kept.size {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	got, err := sumFile(file, info.Size())
	return err == nil && got == s.kept
}
