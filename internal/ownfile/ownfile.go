// Package ownfile opens files that are for this user alone: no other user may read them, and what others put in
// their place is not trusted. Where a system has no owners and modes (Windows), its own rules for folders hold.
package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrOthers is a file that others than this user may write, or have put there.
var ErrOthers = errors.New("others may write the file")

var errKind = errors.New("not a regular file")

// Create makes a file for this user alone, and opens it for writing. A file or a link of that name is unlinked before:
// it could lead elsewhere, or be open somewhere else. What is neither, such as a folder or a device, is refused.
func Create(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err == nil {
		if !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
			return nil, &fs.PathError{Op: "create", Path: path, Err: errKind}
		}
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// Reopen opens a file that Create made before, and makes sure that it is still for this user alone. It follows no
// link. ErrOthers: the file is another user's, or has a second name.
func Reopen(path string, flag int) (*os.File, error) {
	return openChecked(path, flag, 0, "open "+path, checkMine)
}

// Open opens a file, or makes it for this user alone where flag has os.O_CREATE. It follows no link. ErrOthers: it
// belongs to another user than this one and root, or others may write it. That others may read it is no error.
func Open(path string, flag int) (*os.File, error) {
	return openChecked(path, flag, 0o600, path, checkNotWritable)
}

// Readlink is os.Readlink for a link that is followed by name, which no system guards as it does those in folders for
// all. ErrOthers: it belongs to another user than this one and root.
func Readlink(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if err := trusted(info); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return os.Readlink(path)
}

// checked opens a file, and refuses what is no regular one and what check refuses. The error for that begins with lead.
func openChecked(path string, flag int, mode fs.FileMode, lead string, check func(*os.File, fs.FileInfo) error) (*os.File, error) {
	f, err := open(path, flag, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errKind
	default:
		err = check(f, info)
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w", lead, err)
	}
	return f, nil
}

// Trusted is nil for what this user or root has made, such as a socket; else ErrOthers.
func Trusted(info fs.FileInfo) error { return trusted(info) }
