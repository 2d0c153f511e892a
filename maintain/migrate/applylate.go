package migrate

import (
	"errors"
	"sync"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// lateEntries are entries that get a value which another one has by the old schema and not by the new one:
// they can be brought over only after that one was.
type lateEntries struct {
	mu   sync.Mutex
	prks []recordkey.Key
	why  error // the last duplicate
}

// unless puts an entry aside that met a duplicate, and passes other errors on.
func (l *lateEntries) unless(prk recordkey.Key, err error) error {
	if !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prks, l.why = append(l.prks, prk), err
	return nil
}

// again does what was put aside, one after another, until nothing is left or nothing more can be done.
func (l *lateEntries) again(do func(recordkey.Key) error) error {
	for len(l.prks) > 0 {
		waiting := l.prks
		l.prks = nil
		for _, prk := range waiting {
			if err := l.unless(prk, do(prk)); err != nil {
				return err
			}
		}
		if len(l.prks) == len(waiting) {
			return l.why
		}
	}
	return nil
}
