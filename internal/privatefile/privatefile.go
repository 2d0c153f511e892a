// Package privatefile opens files that belong to this user only: it prevents other users from
// reading them, and does not trust files that others put in their place. On systems without owners
// and modes (Windows), the system's own rules for folders apply.
package privatefile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// ErrUntrusted means that another user may write a file or may have created it.
var ErrUntrusted = errors.New("others may write the file")

// ErrReadable means that another user may read a file.
var ErrReadable = errors.New("others may read the file")

var errKind = errors.New("not a regular file")

// Create creates a file that only this user can read, and opens it for writing. It first removes a
// file or link with the same name, which may lead elsewhere or be open in another process. It
// returns an error for anything else, such as a folder or a device.
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

// Write writes text to a new file that only this user can read. If it fails, or the process or the
// machine dies meanwhile, there is either no file or a whole one. It returns [fs.ErrExist] if there
// is already a file. Only one process at a time may call it for a path.
func Write(path, text string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return cmp.Or(err, error(&fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}))
	}
	temp := path + ".tmp"
	f, err := Create(temp)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // if this fails, the next Write removes it
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names of new files in a directory durable, if the system supports that.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// Reopen opens a file that Create made earlier, and makes sure that only this user can read it. It
// does not follow links. It returns ErrUntrusted if the file belongs to another user or has a
// second hard link.
func Reopen(path string, flag int) (*os.File, error) {
	return openChecked(path, flag, 0, "open "+path, checkMine)
}

// Open opens a file. If flag contains os.O_CREATE and there is no file, Open creates one that only
// this user can read. It does not follow links. It returns ErrUntrusted if the file belongs to a
// user other than this one and root, or if others may write it, and ErrReadable if others may read
// it.
func Open(path string, flag int) (*os.File, error) {
	return openChecked(path, flag, 0o600, path, checkPrivate)
}

// Readlink returns the target of a link. A system may refuse to follow links of other users in
// folders such as /tmp, but that does not protect a program that reads a link and follows it
// itself. So Readlink returns ErrUntrusted if the link belongs to a user other than this one and
// root.
func Readlink(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if err := checkOwner(info); err != nil {
		return "", fmt.Errorf("link %s: %w", path, err)
	}
	return os.Readlink(path)
}

// openChecked opens a file and returns an error if it is not regular or check refuses it. The text
// of that error begins with lead.
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

// CheckOwner returns nil if this user or root owns a file, such as a socket, and ErrUntrusted
// otherwise.
func CheckOwner(info fs.FileInfo) error { return checkOwner(info) }
