package redisx

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
)

// TestOutage checks that changes after an outage are not attempted, and that their errors do not
// say that a server did not answer: the clocks of servers may have been apart.
func TestOutage(t *testing.T) {
	var o Outage
	apart := fmt.Errorf("%w: clocks are apart", store.ErrUnavailable)
	if err := o.Do(false, func() error { return apart }); !errors.Is(err, apart) {
		t.Errorf("the first change: got error %v, want %v", err, apart)
	}
	err := o.Do(false, func() error { t.Error("another change was attempted"); return nil })
	if !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "answer") {
		t.Errorf("another change: got error %v, want ErrUnavailable without a word about answers", err)
	}
	if err := o.Do(true, nil); !errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("a change that may have been made: got error %v, want ErrOutcomeUnknown", err)
	}
}
