package cluster

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A step is one script of the protocol, on keys of one slot.
type step struct {
	script redisx.Script
	keys   []string
	args   []string
}

func on(s redisx.Script, key string, args ...string) step { return step{s, []string{key}, args} }

// A result is the answer to a step.
type result struct {
	value  any
	unsure bool // an earlier attempt to send it may have been carried out
}

// yes reports whether a script answered 1.
func (r result) yes() bool { return r.value == int64(1) }

const attempts = 8

// run sends one step until it is answered: every step may arrive twice. The error keeps whether it
// may have been carried out (ErrOutcomeUnknown) or certainly was not.
func (e *Engine) run(ctx context.Context, s step) (result, error) {
	return e.again(ctx, func() (any, error) {
		return s.script.Write(ctx, e.client.UniversalClient.Process, s.keys, s.args)
	})
}

// command sends a command that may arrive twice.
func (e *Engine) command(ctx context.Context, reply redisx.Shape, args ...string) (any, error) {
	call := make([]any, len(args))
	for i, a := range args {
		call[i] = a
	}
	r, err := e.again(ctx, func() (any, error) {
		cmd := redisx.NewOnce(ctx, call)
		return redisx.Answer(cmd.Cmd, e.client.UniversalClient.Process(ctx, cmd), reply)
	})
	return r.value, err
}

// again does something until the server answers, as long as it makes sense, and learns how long a round trip takes.
func (e *Engine) again(ctx context.Context, send func() (any, error)) (result, error) {
	value, unsure, err := e.client.Retry.Do(ctx, func(bool) (any, error) {
		begin := time.Now()
		value, err := send()
		if err == nil {
			e.latency.took(time.Since(begin))
		}
		return value, err
	})
	return result{value, unsure}, err
}

// get reads a string, "" where there is none.
func (e *Engine) get(ctx context.Context, key string) (string, error) {
	text, _, err := e.there(ctx, key)
	return text, err
}

// exists reports whether there is a record.
func (e *Engine) exists(ctx context.Context, key string) (bool, error) {
	value, err := e.command(ctx, redisx.IsNumber, "exists", key)
	return value == int64(1), redisx.Harmless(err)
}

// there reads a string that may be empty, and reports whether there is one.
func (e *Engine) there(ctx context.Context, key string) (string, bool, error) {
	value, err := e.command(ctx, redisx.IsText|redisx.IsNil, "get", key)
	text, is := value.(string)
	return text, is, redisx.Harmless(err)
}

// write sends a command that may arrive twice.
func (e *Engine) write(ctx context.Context, args ...string) error {
	_, err := e.command(ctx, redisx.IsNumber, args...)
	return redisx.Harmless(err)
}

// pipeline sends commands that may arrive twice, all at once.
func (e *Engine) pipeline(ctx context.Context, n int, queue func(p redis.Pipeliner, i int)) error {
	const most = 1000
	for first := 0; first < n; first += most {
		_, err := e.again(ctx, func() (any, error) {
			pipe := e.client.Pipeline()
			for i := first; i < min(first+most, n); i++ {
				queue(pipe, i)
			}
			_, err := pipe.Exec(ctx)
			return nil, err
		})
		if err != nil {
			return redisx.Harmless(err)
		}
	}
	return nil
}

// read reads something, again until a server answers. A record of another Redis type counts as absent.
func (e *Engine) read(ctx context.Context, read func() error) error {
	_, err := e.again(ctx, func() (any, error) {
		err := read()
		if redisx.WrongType(err) {
			return nil, nil
		}
		return nil, err
	})
	return redisx.Harmless(err)
}

// How long one node is asked which node serves which slots, and how many are asked: the client takes any of them, and one
// that is stopped answers nothing.
const (
	reloadTime = 500 * time.Millisecond
	reloads    = 4
)

// A reloading is what is known of the last time that the client read the cluster's state.
type reloading struct {
	turn  chan struct{} // has room for the one caller that reads it now
	begun time.Time
}

// reload has the client read anew which node serves which slots, before a command is sent again: a dead master does not
// tell. Where a node answered, the client does so by itself, and the command does not wait.
func (e *Engine) reload(ctx context.Context, err error) {
	cc, ok := e.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return
	}
	if redisx.IsAnswer(err) {
		cc.ReloadState(ctx)
		return
	}
	failed := time.Now()
	select {
	case <-ctx.Done():
		return
	case e.reloading.turn <- struct{}{}:
	}
	defer func() { <-e.reloading.turn }()
	if e.reloading.begun.After(failed) {
		return
	}
	for range reloads {
		begun := time.Now()
		limited, cancel := context.WithTimeout(ctx, reloadTime)
		_ = cc.ForEachMaster(limited, func(context.Context, *redis.Client) error { return nil }) // which reads it first
		over := limited.Err() != nil
		cancel()
		if !over {
			e.reloading.begun = begun
			return
		}
	}
}

// parallel runs one function for each of n things at the same time and, when all have ended, returns
// the error of the first of them that has one.
func parallel(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// latency is how long a round trip takes, on average. It learns quickly that one takes longer, as under contention: there,
// waits that are too short make contenders fence each other.
type latency struct{ mean atomic.Int64 }

func (l *latency) took(d time.Duration) {
	mean := l.mean.Load()
	step := (int64(d) - mean) / 32
	if int64(d) > mean {
		step = (int64(d) - mean) / 2
	}
	l.mean.Store(mean + step)
}

// several is the time of some round trips, with jitter: so that contenders part.
func (l *latency) several(least, most int) time.Duration {
	one := max(time.Duration(l.mean.Load()), 200*time.Microsecond)
	return time.Duration(least)*one + rand.N(time.Duration(most-least)*one)
}

// pause waits for d, give or take half of it.
func (e *Engine) pause(ctx context.Context, d time.Duration) error {
	return e.sleep(ctx, d/2+rand.N(d))
}

// afterwards does what is left to do once it is decided how a verb ends. When the caller's time is over it goes on for a
// while, but the caller does not wait for it.
func afterwards(ctx context.Context, most time.Duration, do func(ctx context.Context)) {
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	if ctx.Done() == nil {
		defer cancel()
		do(long)
		return
	}
	done := make(chan struct{})
	go func() {
		defer cancel()
		defer close(done)
		do(long)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
