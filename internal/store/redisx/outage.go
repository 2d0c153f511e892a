package redisx

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/coffeenode/userdb/internal/store"
)

// An Outage spares many changes the wait for a store that is not available, because a server does
// not answer or clocks are apart: once one of them has waited in vain, the others are not
// attempted. The zero value is ready to use.
type Outage struct{ noticed atomic.Bool }

// Do calls apply and returns its error, unless the outage has been noticed. unsure reports whether
// an earlier attempt at this change may have been carried out.
func (o *Outage) Do(unsure bool, apply func() error) error {
	if o.noticed.Load() {
		err := fmt.Errorf("%w: not attempted, because the store was not available for another change", store.ErrUnavailable)
		if unsure {
			return &UnknownError{err}
		}
		return err
	}
	err := apply()
	lost := errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown)
	if lost && !IsServerReply(err) {
		o.noticed.Store(true)
	}
	return err
}
