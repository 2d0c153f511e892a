package figures

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestFourFigures checks that only four figures are gathered at the same time, and that a request
// for another one does not wait.
func TestFourFigures(t *testing.T) {
	var f Cache
	defer f.Close()
	release := make(chan struct{})
	gather := func(context.Context) (any, error) { <-release; return 1, nil }
	var running []chan struct{}
	for i := range maxConcurrent {
		_, one, _, err := f.start("", fmt.Sprint(i), time.Minute, gather)
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, one)
	}
	if _, _, _, err := f.start("", "another", time.Minute, gather); !errors.Is(err, ErrBusy) {
		t.Errorf("a fifth figure: got %v, want ErrBusy", err)
	}
	close(release)
	for _, done := range running {
		<-done
	}
	one, err := Gather(t.Context(), &f, "another", time.Minute, func(context.Context) (int, error) { return 1, nil })
	if err != nil || one.Value != 1 || one.StartedAt.IsZero() {
		t.Errorf("after the others: got %+v, %v; want 1 and a time", one, err)
	}
}

// TestOneForEachClient checks that figures of one client are gathered one after the other, that
// they do not keep out figures of others, and that a figure that is being gathered is shared.
func TestOneForEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Cache
		defer f.Close()
		begun := time.Now()
		var all sync.WaitGroup
		ask := func(client, name string, want time.Duration) {
			all.Go(func() {
				one, err := GatherFor(t.Context(), &f, client, name, 0, func(context.Context) (string, error) {
					time.Sleep(time.Second / 2)
					return name, nil
				})
				if took := time.Since(begun); err != nil || one.Value != name || took != want {
					t.Errorf("%s for %s: got %q, %v after %v, want it after %v", name, client, one.Value, err, took, want)
				}
			})
			synctest.Wait()
		}
		ask("a", "first", time.Second/2)
		ask("a", "second", time.Second)
		ask("a", "first", time.Second/2)
		for _, client := range []string{"b", "c", "d"} {
			ask(client, "of "+client, time.Second/2)
		}
		all.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		ask("a", "third", 3*time.Second/2)
		if _, err := GatherFor(ctx, &f, "a", "fourth", 0, func(context.Context) (int, error) { return 4, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while another one is gathered: got %v, want DeadlineExceeded", err)
		}
		all.Wait()
	})
}

// TestManyFiguresOfOneClient checks that a client that asks for more figures than fit displaces
// only its own: figures of others are reused, and a figure that is being gathered is shared.
func TestManyFiguresOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Cache
		defer f.Close()
		gathered := 0
		ask := func(client, name string, duration time.Duration) {
			_, err := GatherFor(t.Context(), &f, client, name, 0, func(context.Context) (int, error) {
				gathered++
				time.Sleep(duration)
				return 0, nil
			})
			if err != nil {
				t.Errorf("%s for %s: got %v, want no error", name, client, err)
			}
		}
		ask("", "status", time.Minute)
		ask("b", "slow", time.Minute)
		var all sync.WaitGroup
		all.Go(func() { ask("c", "running", time.Minute) })
		synctest.Wait()
		for i := range 2 * maxFigures {
			ask("a", fmt.Sprint(i), 0)
		}
		if len(f.all) != maxFigures {
			t.Errorf("%d figures are kept, want %d", len(f.all), maxFigures)
		}
		gathered = 0
		ask("", "status", 0)
		ask("b", "slow", 0)
		all.Go(func() { ask("d", "running", 0) })
		all.Wait()
		if gathered != 0 {
			t.Errorf("%d figures of other clients were gathered again, want none", gathered)
		}
	})
}

// TestOneForAll checks that a figure is gathered once for many concurrent clients.
func TestOneForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Cache
		defer f.Close()
		var gathered atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				one, err := Gather(t.Context(), &f, "n", 0, func(context.Context) (int64, error) {
					time.Sleep(time.Millisecond)
					return gathered.Add(1), nil
				})
				if err != nil || one.Value != 1 {
					t.Errorf("got %+v, %v; want 1", one, err)
				}
			})
		}
		all.Wait()
	})
}

// TestSlowFigures checks that a slow figure is reused for ten times as long as it took, that a fast
// one is gathered for every call, and that a failure is reported and keeps the previous value.
func TestSlowFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Cache
		defer f.Close()
		gathered := 0
		ask := func(took time.Duration, err error) (Value[int], error) {
			return Gather(t.Context(), &f, "n", 0, func(context.Context) (int, error) {
				gathered++
				time.Sleep(took)
				return gathered, err
			})
		}
		for i, tt := range []struct {
			took, pass time.Duration
			want       int
		}{
			{time.Millisecond, 0, 1},
			{2 * time.Second, 19 * time.Second, 2},
			{2 * time.Second, time.Second + 1, 2},
			{time.Millisecond, 0, 3},
		} {
			one, err := ask(tt.took, nil)
			if err != nil || one.Value != tt.want {
				t.Errorf("call %d: got %+v, %v, want %d", i, one, err, tt.want)
			}
			time.Sleep(tt.pass)
		}
		failed := errors.New("failed")
		if one, err := ask(0, failed); one.Value != 3 || !errors.Is(err, failed) {
			t.Errorf("after a failure: got %+v, %v; want 3 and the failure", one, err)
		}
	})
}
