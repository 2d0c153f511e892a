package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// A rejectFile writes refused lines to a file or a device. The first Write creates the file, which
// only this user may read because it contains entries.
type rejectFile struct {
	path   string
	std    stdio
	w      io.Writer // f, or a stream of the process; nil before the first Write
	f      *os.File
	failed bool // a refused line could not be written
}

// reopen opens the file that an interrupted import created, if there is one.
func (r *rejectFile) reopen() error {
	if isDevice(r.path) {
		return nil
	}
	f, err := privatefile.Reopen(r.path, os.O_WRONLY|os.O_APPEND)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return usagef("cannot add refused lines: %v; move that file away, or name another one with --rejects", err)
	}
	r.f, r.w = f, f
	return nil
}

// discard removes the file that reopen opened. The next Write creates it again.
func (r *rejectFile) discard() {
	if r.f == nil {
		return
	}
	_ = r.f.Close() // nothing was written
	r.f, r.w = nil, nil
	_ = os.Remove(r.path) // if this fails, Write replaces the file
}

func (r *rejectFile) Write(p []byte) (n int, err error) {
	defer func() { r.failed = r.failed || err != nil }()
	if r.w == nil {
		if err := r.create(); err != nil {
			return 0, err
		}
	}
	if n, err = r.w.Write(p); err != nil && n > 0 && !isDevice(r.path) {
		r.cut(int64(n))
	}
	return n, err
}

// create creates the file or opens the device. It does not open standard output and standard error
// again: a second open file has a position of its own, from which it would overwrite a log.
func (r *rejectFile) create() (err error) {
	switch filepath.Clean(r.path) {
	case "/dev/stdout", "/dev/fd/1":
		r.w = r.std.out
		return nil
	case "/dev/stderr", "/dev/fd/2":
		r.w = r.std.err
		return nil
	}
	if isDevice(r.path) {
		r.f, err = os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND, 0)
	} else {
		r.f, err = privatefile.Create(r.path)
	}
	if err == nil {
		r.w = r.f
	}
	return err
}

// cut removes the last n bytes, which are a part of a line that did not fit on the disk. A resumed
// import would write another line right after it, and neither could be read. If cut fails, the
// error of the write is reported all the same.
func (r *rejectFile) cut(n int64) {
	if end, err := r.f.Seek(-n, io.SeekCurrent); err == nil {
		_ = r.f.Truncate(end)
	}
}

// isStream reports whether the name of an input is that of standard input or a device, such as the
// /dev/fd/63 of <(COMMAND). No files are made beside it.
func isStream(path string) bool { return path == "-" || isDevice(path) }

// isDevice reports whether a path is that of a device, such as /dev/stderr.
func isDevice(path string) bool { return strings.HasPrefix(filepath.Clean(path), "/dev/") }

func (r *rejectFile) close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}
