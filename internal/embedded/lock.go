package embedded

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/filelock"
	"github.com/coffeenode/userdb/internal/privatefile"
)

// lockFile locks the store whose data file is at the path dataFile. The lock is a separate file,
// because compaction replaces the data file. lockFile waits for other holders until ctx ends.
// Closing the returned file, or the death of the process, releases the lock. The lock file stays,
// since removing it would let two processes lock two files of the same name. If the process that
// holds the lock serves the file, lockFile returns a client of that process instead.
func lockFile(ctx context.Context, dataFile string) (*os.File, *redis.Client, error) {
	path := dataFile + ".lock"
	f, err := privatefile.Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, nil, fmt.Errorf("locking the embedded store: %w", exposedError(err))
	}
	pause := 5 * time.Millisecond
	for {
		locked, err := filelock.TryLock(f)
		if locked {
			writeHolder(f)
			return f, nil, nil
		}
		if err != nil {
			f.Close()
			return nil, nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if client := dialServed(ctx, dataFile); client != nil {
			f.Close()
			return nil, client, nil
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		case <-ctx.Done():
			f.Close()
			return nil, nil, fmt.Errorf("%w by %s (%s): %w", ErrLocked, cmp.Or(Holder(dataFile), "another process"), path, context.Cause(ctx))
		}
	}
}

// writeHolder writes the name and the number of this process into a lock file that it has locked.
// If this fails, other processes cannot tell who holds the lock.
func writeHolder(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(ownName()+"\n"), 0)
	}
}

// ownName returns the name and the number of this process.
func ownName() string {
	return fmt.Sprintf("%s (process %d)", filepath.Base(os.Args[0]), os.Getpid())
}

// OtherHolder returns what Holder returns, or "" if this process has the store locked, as while it
// reads a large file.
func OtherHolder(path string) string {
	if holder := Holder(path); holder != ownName() {
		return holder
	}
	return ""
}

// Holder returns the name and the number of the process that has the store at path locked, or
// "another process" if it is unknown. It returns "" if no process has the store locked, or if the
// lock file cannot be opened.
func Holder(path string) string {
	path, err := resolve(path)
	if err != nil {
		return ""
	}
	f, err := privatefile.Open(path+".lock", os.O_RDWR)
	if err != nil {
		return ""
	}
	defer f.Close() // also releases the lock
	if locked, err := filelock.TryLock(f); locked || err != nil {
		return ""
	}
	const unknown = "another process"
	name := make([]byte, 256)
	n, _ := f.ReadAt(name, 0)
	text, isLine := strings.CutSuffix(string(name[:n]), "\n")
	if !isLine || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return unknown
	}
	return text
}
