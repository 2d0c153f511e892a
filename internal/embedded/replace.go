package embedded

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// createFile writes the first file, or replaces a file of JSON lines, which it keeps under another
// name. The new file holds the records in all, without the changes of the batch that is written
// next, so it is right even if writing that batch fails.
func (s *Store) createFile(all root) error {
	if err := s.checkUnchanged(); err != nil {
		return err
	}
	l, err := s.newFile(func(l *logFile) error { return all.records(l.append) })
	if err != nil {
		return err
	}
	if s.legacy != nil {
		err = s.keepLegacy()
	}
	if err == nil {
		err = s.replaceWith(l)
	}
	if err != nil {
		return errors.Join(err, s.discard(l))
	}
	s.legacy = nil
	return nil
}

var errReplaced = errors.New("another file is in its place")

// checkUnchanged returns an error if the path no longer holds the same file as when the store was
// opened: a file of JSON lines, or none.
func (s *Store) checkUnchanged() error {
	current, err := os.Lstat(s.path)
	switch {
	case s.legacy == nil && errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && (s.legacy == nil || !os.SameFile(current, s.legacy)):
		return errReplaced
	}
	return err
}

// newFile writes a file beside that of the store and makes it durable.
func (s *Store) newFile(fill func(*logFile) error) (*logFile, error) {
	temp := s.path + ".tmp"
	// A killed process may have left a temporary file. Writing to it is not safe, because it could
	// be a link that somebody else made.
	if err := ignoreMissing(s.disk.remove(temp)); err != nil {
		return nil, err
	}
	file, err := s.disk.create(temp)
	if err != nil {
		return nil, err
	}
	l, err := newLog(file, s.kept)
	if err == nil {
		err = fill(l)
	}
	if err == nil {
		err = l.finish()
	}
	if err != nil {
		return nil, errors.Join(err, s.discard(l))
	}
	return l, nil
}

// discard removes a new file that is not used.
func (s *Store) discard(l *logFile) error {
	return errors.Join(l.file.Close(), ignoreMissing(s.disk.remove(s.path+".tmp")))
}

// replaceWith gives a new file the name of the store's file.
func (s *Store) replaceWith(l *logFile) error {
	if runtime.GOOS == "windows" {
		return s.replaceClosed(l)
	}
	if err := s.disk.rename(s.path+".tmp", s.path); err != nil {
		return err
	}
	if s.log != nil {
		_ = s.log.file.Close() // everything in it was synced, and it no longer has a name
	}
	s.log, s.renamed = l, true
	return nil
}

// replaceClosed does what replaceWith does on a system that cannot rename an open file.
func (s *Store) replaceClosed(l *logFile) error {
	err := l.file.Close()
	if s.log != nil {
		err = cmp.Or(err, s.log.file.Close())
	}
	err = cmp.Or(err, s.disk.rename(s.path+".tmp", s.path))
	file, failed := s.disk.open(s.path)
	switch {
	case failed != nil:
		return cmp.Or(err, failed) // further writes fail until the store is opened again
	case err == nil:
		l.file, s.log, s.renamed = file, l, true
	case s.log != nil:
		s.log.file = file
	default:
		_ = file.Close()
	}
	return err
}
