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
		const callers, limit = 200, 16
		var mu sync.Mutex
		var sizes []int
		release := make(chan bool)
		b := NewBatcher(limit, func(_ context.Context, items []int) {
			<-release
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(items))
		})
		for i := range callers {
			go func() {
				if err := b.Do(t.Context(), i); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		answered := 0
		for _, n := range sizes {
			if answered += n; n > limit {
				t.Errorf("a flush of %d calls, want at most %d", n, limit)
			}
		}
		if answered != callers || len(sizes) > MaxFlushes+callers/limit+1 {
			t.Errorf("answered %d calls in flushes of %v, want %d in at most %d flushes", answered, sizes, callers, MaxFlushes+callers/limit+1)
		}
		if b.flushes != 0 || len(b.waiting) != 0 {
			t.Errorf("%d flushes and %d waiting calls are left, want none", b.flushes, len(b.waiting))
		}
	})
}

// TestBatcherPanic makes a flush panic or end its goroutine, as a hook of the client may. Each of
// its callers must panic, and later flushes must work.
func TestBatcherPanic(t *testing.T) {
	b := NewBatcher(2, func(_ context.Context, items []int) {
		switch {
		case items[0] == -1:
			panic("a hook")
		case items[0] == -2:
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
			t.Errorf("Do(%d) panicked with %v, want %v", n, got, want[n])
		}
	}
}
