package serve

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestWaitersOfAQuota checks that what is given back goes to waiters in the order in which they
// came, until it is used up, and that waiters who give up leave the queue.
func TestWaitersOfAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(40) // 10 for each client
		if err := q.take("a", 10); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var granted, refused []int
		for _, n := range []int{4, 5, 6, 3} {
			go func() {
				err := q.wait(ctx, "a", n)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					granted = append(granted, n)
				} else {
					refused = append(refused, n)
				}
			}()
			synctest.Wait()
		}
		check := func(what string, wantGranted, wantRefused []int, wantUsed, wantWaiting int) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(granted, wantGranted) || !slices.Equal(refused, wantRefused) || q.by["a"] != wantUsed || len(q.waiting) != wantWaiting {
				t.Errorf("%s: granted %d, refused %d, used %d, %d wait; want granted %d, refused %d, used %d, %d wait",
					what, granted, refused, q.by["a"], len(q.waiting), wantGranted, wantRefused, wantUsed, wantWaiting)
			}
		}
		if err := q.wait(ctx, "b", 10); err != nil {
			t.Errorf("another client: got %v, want no error", err)
		}
		check("at first", nil, nil, 10, 4)
		q.give("a", 4)
		check("after 4 were given back", []int{4}, nil, 10, 3)
		q.give("a", 6)
		check("after 6 more", []int{4, 5}, nil, 9, 2)
		q.give("a", 1)
		check("after 1 more", []int{4, 5}, nil, 8, 2)
		cancel()
		synctest.Wait()
		slices.Sort(refused)
		check("after the others gave up", []int{4, 5}, []int{3, 6}, 8, 0)
	})
}

// A watchedReader reports how much it is asked for, before it reads.
type watchedReader struct {
	io.Reader
	asked func(n int)
}

func (w watchedReader) Read(b []byte) (int, error) {
	w.asked(len(b))
	return w.Reader.Read(b)
}

// TestBodiesAreCountedFirst checks that a body counts against the quota before it is read, and that
// no more is read than a client may have.
func TestBodiesAreCountedFirst(t *testing.T) {
	q := newQuota(4 << 20)
	body := &countedBody{quota: q, client: "a"}
	body.Reader = watchedReader{strings.NewReader(strings.Repeat("x", 4<<20)), func(n int) {
		if q.used != body.n+n {
			t.Errorf("%d bytes are counted while %d are there and %d more are read, want %d", q.used, body.n, n, body.n+n)
		}
	}}
	text, err := io.ReadAll(body)
	if err == nil || err != body.refused || len(text) > 1<<20 || q.used != len(text) {
		t.Errorf("read %d bytes, %v, refused: %v; %d are counted; want at most 1 MiB, the refusal, and all bytes counted", len(text), err, body.refused, q.used)
	}
}
