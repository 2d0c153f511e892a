package cluster

import (
	"context"
	"sync"
	"time"
)

// detached counts the work that goes on after its callers have left, so that Close can wait for it:
// what is due after a change, such as index members and the feed, and claims to remove. The zero
// value is ready to use.
type detached struct {
	mu   sync.Mutex
	work int           // calls under way
	idle chan struct{} // closed when work is 0 again; nil if nobody waits
}

// start calls do in a new goroutine, with a context that outlives ctx and ends after limit.
func (d *detached) start(ctx context.Context, limit time.Duration, do func(context.Context)) {
	d.add(1)
	goDetached(ctx, limit, func(ctx context.Context) {
		defer d.add(-1)
		do(ctx)
	})
}

// run calls do and waits for it. If ctx ends first, run returns, and do continues for up to limit.
// It is for work that must be done after the outcome of an operation is decided.
func (d *detached) run(ctx context.Context, limit time.Duration, do func(context.Context)) {
	done := make(chan struct{})
	d.start(ctx, limit, func(ctx context.Context) {
		defer close(done)
		do(ctx)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (d *detached) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.work += n; d.work == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// wait waits until no work is under way, or until ctx ends. It also waits for work that other work
// starts before it ends.
func (d *detached) wait(ctx context.Context) {
	d.mu.Lock()
	if d.work == 0 {
		d.mu.Unlock()
		return
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	idle := d.idle
	d.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// goDetached calls do in a new goroutine, with a context that outlives ctx and ends after limit.
func goDetached(ctx context.Context, limit time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	go func() {
		defer cancel()
		do(ctx)
	}()
}
