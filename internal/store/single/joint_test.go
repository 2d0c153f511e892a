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

// A station stands in for a server: its scripts go on when they are let go.
type station struct {
	*joint
	mu    sync.Mutex
	sizes []int // how many creates each script had
	made  map[string]int
	leave chan bool
}

func newStation() *station {
	s := &station{made: map[string]int{}, leave: make(chan bool)}
	s.joint = newJoint(func(_ context.Context, gs []*createGroup) {
		<-s.leave
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, g := range gs {
			s.sizes = append(s.sizes, len(g.of))
			for _, c := range g.of {
				c.done = true
				s.made[c.c.Key.Value()]++
			}
		}
	})
	return s
}

// newcomer is a create of an entry.
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

// TestJoint has many callers create at once: each is told of its own entry, and few scripts make them.
func TestJoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		const callers = 200
		errs := make([]error, callers)
		for i := range callers {
			go func() {
				done, maybe, err := s.apply(t.Context(), newcomer(t, strconv.Itoa(i)), "token")
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
			if n > createsMost {
				t.Errorf("a script of %d", n)
			}
		}
		if n := len(s.sizes); n > redisx.Flushes+callers/createsMost+1 {
			t.Errorf("%d scripts: %v", n, s.sizes)
		}
	})
}

// TestJointLeaves ends the contexts of two callers: what waits is never sent, and of what is under way
// nobody knows.
func TestJointLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		ctx, cancel := context.WithCancel(t.Context())
		maybes := make([]bool, 4)
		for i := range maybes {
			go func() {
				done, maybe, err := s.apply(ctx, newcomer(t, strconv.Itoa(i)), "token")
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

// TestJointCollision sends two creates of one value in one script: it makes the first, and leaves the
// other to a script of its own.
func TestJointCollision(t *testing.T) {
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
				done, maybe, err := s.apply(t.Context(), newcomer(t, uid), "token")
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
			t.Errorf("%d callers were told, %d made", made, s.made["same"])
		}
	})
}
