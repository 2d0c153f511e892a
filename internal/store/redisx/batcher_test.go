package redisx

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// TestBatcher makes many calls while the first flushes are under way. A few more flushes must
// answer all of them, and afterwards no goroutine and no call may be left.
func TestBatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, most = 200, 16
		var mu sync.Mutex
		var sizes []int
		leave := make(chan bool)
		b := NewBatcher(most, func(_ context.Context, some []int) {
			<-leave
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(some))
		})
		for i := range callers {
			go func() {
				if err := b.Do(t.Context(), i); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		close(leave)
		synctest.Wait()
		answered := 0
		for _, n := range sizes {
			if answered += n; n > most {
				t.Errorf("a flush of %d", n)
			}
		}
		if answered != callers || len(sizes) > MaxFlushes+callers/most+1 {
			t.Errorf("answered %d calls in flushes of %v", answered, sizes)
		}
		if b.flushes != 0 || len(b.waiting) != 0 {
			t.Errorf("%d runs go on, and %d calls wait", b.flushes, len(b.waiting))
		}
	})
}

// TestBatcherPanic makes a flush panic or end its goroutine, as a hook of the client may. Each of
// its callers must panic, and later flushes must work.
func TestBatcherPanic(t *testing.T) {
	b := NewBatcher(2, func(_ context.Context, some []int) {
		switch {
		case some[0] == -1:
			panic("a hook")
		case some[0] == -2:
			runtime.Goexit()
		}
	})
	do := func(n int) (panicked any) {
		defer func() { panicked = recover() }()
		if err := b.Do(t.Context(), n); err != nil {
			t.Error(err)
		}
		return nil
	}
	want := map[int]any{-1: "a hook", -2: errExited}
	for _, n := range []int{1, -1, -1, -1, -1, 2, -2, -2, -2, -2, 3} {
		if got := do(n); got != want[n] {
			t.Errorf("%d: %v, want %v", n, got, want[n])
		}
	}
}
