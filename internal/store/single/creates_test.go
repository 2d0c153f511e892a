package single

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A fakeServer stands in for a server. Its scripts wait until release is closed.
type fakeServer struct {
	*Engine
	mu      sync.Mutex
	sizes   []int // the number of creates in each script
	made    map[string]int
	release chan bool
}

func newFakeServer() *fakeServer {
	s := &fakeServer{Engine: &Engine{}, made: map[string]int{}, release: make(chan bool)}
	s.creates = redisx.NewBatcher(maxGroup, func(_ context.Context, all []*creation) {
		<-s.release
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, g := range groupCreations(withoutConflicts(all)) {
			s.sizes = append(s.sizes, len(g.creations))
			for _, c := range g.creations {
				c.result.made = true
				s.made[c.c.Key.Value()]++
			}
		}
	})
	return s
}

// create makes an entry in a script shared with other callers.
func (s *fakeServer) create(t *testing.T, ctx context.Context, uid string) (made, unsure bool, err error) {
	c := newCreate(t, uid)
	result, err := s.createWithOthers(ctx, &c, "rev")
	return result.made, errors.Is(err, store.ErrOutcomeUnknown), err
}

// newCreate returns a create of an entry.
func newCreate(t *testing.T, uid string) store.Change {
	t.Helper()
	prk, err := recordkey.PRK("user", "uid", uid)
	if err != nil {
		t.Fatal(err)
	}
	srk, err := recordkey.SRK("user", "name", "n"+uid)
	if err != nil {
		t.Fatal(err)
	}
	return store.Change{Key: prk, Create: true, Claim: []recordkey.Key{srk}, Set: []store.Facet{{Field: "uid", Wire: uid}}}
}

// TestCreateBatch has many callers create entries at once. Each caller gets the outcome of its own
// create, and few scripts make all the entries.
func TestCreateBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		const callers = 200
		errs := make([]error, callers)
		for i := range callers {
			go func() {
				made, unsure, err := s.create(t, t.Context(), strconv.Itoa(i))
				if !made || unsure || err != nil {
					errs[i] = fmt.Errorf("caller %d: made %v, outcome unknown %v, error %v; want true, false, no error", i, made, unsure, err)
				}
			}()
		}
		synctest.Wait()
		close(s.release)
		synctest.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if len(s.made) != callers {
			t.Errorf("%d entries were made, want %d", len(s.made), callers)
		}
		for _, n := range s.sizes {
			if n > maxGroup {
				t.Errorf("a script made %d entries, want at most %d", n, maxGroup)
			}
		}
		if n, most := len(s.sizes), redisx.MaxFlushes+callers/maxGroup+1; n > most {
			t.Errorf("%d scripts ran, of %v entries; want at most %d", n, s.sizes, most)
		}
	})
}

// TestCreateBatchCanceled cancels the contexts of callers. A create that waits must never be sent,
// and the outcome of one that is under way must be unknown.
func TestCreateBatchCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		ctx, cancel := context.WithCancel(t.Context())
		unknown := make([]bool, 4)
		for i := range unknown {
			go func() {
				made, unsure, err := s.create(t, ctx, strconv.Itoa(i))
				if unknown[i] = unsure; made || !errors.Is(err, context.Canceled) {
					t.Errorf("create %d: made %v, error %v; want false, context.Canceled", i, made, err)
				}
			}()
			synctest.Wait() // the first MaxFlushes creates are under way
		}
		cancel()
		synctest.Wait()
		close(s.release)
		synctest.Wait()
		for i, unsure := range unknown {
			if sent := i < redisx.MaxFlushes; unsure != sent || s.made[strconv.Itoa(i)] > 0 != sent {
				t.Errorf("create %d: outcome unknown %v, made %d times; want both only if it was sent (%v)", i, unsure, s.made[strconv.Itoa(i)], sent)
			}
		}
	})
}

// TestCreateBatchCollision sends two creates of one entry at once. A shared script must make the
// entry once, and the other caller must learn that its create was not made.
func TestCreateBatchCollision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer()
		var mu sync.Mutex
		successes := 0
		for i := range redisx.MaxFlushes + 2 {
			go func() {
				uid := "same"
				if i < redisx.MaxFlushes {
					uid = strconv.Itoa(i)
				}
				made, unsure, err := s.create(t, t.Context(), uid)
				mu.Lock()
				defer mu.Unlock()
				if made && uid == "same" {
					successes++
				}
				if unsure || err != nil {
					t.Errorf("create %d: outcome unknown %v, error %v; want false, no error", i, unsure, err)
				}
			}()
			synctest.Wait()
		}
		close(s.release)
		synctest.Wait()
		if successes != 1 || s.made["same"] != 1 {
			t.Errorf("%d callers got the entry, which was made %d times; want 1, 1", successes, s.made["same"])
		}
	})
}
