package embedded

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/coffeenode/userdb/internal/ownfile"
)

// lockFile takes the lock at path, a file of its own because the data file is
// replaced at every write. It waits for other holders until ctx ends. Closing
// the file, or dying, lets go; the file stays, since removing it would let two
// processes lock two files of one name.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := ownfile.Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("locking the embedded store: %w", exposed(err))
	}
	pause := 5 * time.Millisecond
	for {
		held, err := tryLock(f)
		if held {
			return f, nil
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("%w by another process (%s): %w", ErrLocked, path, context.Cause(ctx))
		}
	}
}
