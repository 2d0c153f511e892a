package single

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A station stands in for a server. Its scripts wait until leave is closed.
type station struct {
	*Engine
	mu    sync.Mutex
	sizes []int // the number of creates in each script
	made  map[string]int
	leave chan bool
}

func newStation() *station {
	s := &station{Engine: &Engine{}, made: map[string]int{}, leave: make(chan bool)}
	s.creates = redisx.NewBatcher(groupMost, func(_ context.Context, all []*creation) {
		<-s.leave
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, g := range groups(firsts(all)) {
			s.sizes = append(s.sizes, len(g.of))
			for _, c := range g.of {
				c.got.done = true
				s.made[c.c.Key.Value()]++
			}
		}
	})
	return s
}

// create makes an entry with a name, as one of many callers.
func (s *station) create(t *testing.T, ctx context.Context, uid string) (done, maybe bool, err error) {
	c := newcomer(t, uid)
	got, err := s.createWithOthers(ctx, &c, "rev")
	return got.done, errors.Is(err, store.ErrOutcomeUnknown), err
}

// newcomer returns a create of an entry.
func newcomer(t *testing.T, uid string) store.Change {
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

// TestCreateBatch has many callers create entries at once. Each learns of its own entry, and few
// scripts make them all.
func TestCreateBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		const callers = 200
		errs := make([]error, callers)
		for i := range callers {
			go func() {
				done, maybe, err := s.create(t, t.Context(), strconv.Itoa(i))
				if !done || maybe || err != nil {
					errs[i] = errors.New(strconv.FormatBool(done) + strconv.FormatBool(maybe))
				}
			}()
		}
		synctest.Wait()
		close(s.leave)
		synctest.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if len(s.made) != callers {
			t.Errorf("made %d entries", len(s.made))
		}
		for _, n := range s.sizes {
			if n > groupMost {
				t.Errorf("a script of %d", n)
			}
		}
		if n := len(s.sizes); n > redisx.Flushes+callers/groupMost+1 {
			t.Errorf("%d scripts: %v", n, s.sizes)
		}
	})
}

// TestCreateBatchLeft cancels the contexts of callers. Creates that wait are never sent; the
// outcome of those under way is unknown.
func TestCreateBatchLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		ctx, cancel := context.WithCancel(t.Context())
		maybes := make([]bool, 4)
		for i := range maybes {
			go func() {
				done, maybe, err := s.create(t, ctx, strconv.Itoa(i))
				if maybes[i] = maybe; done || !errors.Is(err, context.Canceled) {
					t.Errorf("%d: %v, %v", i, done, err)
				}
			}()
			synctest.Wait() // the first two are under way
		}
		cancel()
		synctest.Wait()
		close(s.leave)
		synctest.Wait()
		for i, maybe := range maybes {
			if under := i < redisx.Flushes; maybe != under || s.made[strconv.Itoa(i)] > 0 != under {
				t.Errorf("%d: unknown %v, made %d times", i, maybe, s.made[strconv.Itoa(i)])
			}
		}
	})
}

// TestCreateBatchCollision sends two creates of one value at once. One script makes the first, and
// leaves the other to a script of its own.
func TestCreateBatchCollision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		var mu sync.Mutex
		made := 0
		for i := range redisx.Flushes + 2 {
			go func() {
				uid := "same"
				if i < redisx.Flushes {
					uid = strconv.Itoa(i)
				}
				done, maybe, err := s.create(t, t.Context(), uid)
				mu.Lock()
				defer mu.Unlock()
				if done && uid == "same" {
					made++
				}
				if maybe || err != nil {
					t.Error(maybe, err)
				}
			}()
			synctest.Wait()
		}
		close(s.leave)
		synctest.Wait()
		if made != 1 || s.made["same"] != 1 {
			t.Errorf("%d callers got the entry, which was made %d times", made, s.made["same"])
		}
	})
}
