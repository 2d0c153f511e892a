package cluster

import (
	"cmp"
	"context"
	"embed"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// The scripts of the protocol, each on keys of one slot.
var (
	//go:embed scripts
	scripts embed.FS

	claimScript   = redisx.NewScript(scripts, "claim", redisx.IsNumber|redisx.IsText)
	swapScript    = redisx.NewScript(scripts, "swap", redisx.IsNumber)
	fenceScript   = redisx.NewScript(scripts, "fence", redisx.IsNumber)
	prepareScript = redisx.NewScript(scripts, "prepare", redisx.IsTexts)
	commitScript  = redisx.NewScript(scripts, "commit", redisx.IsVerdict, onekey.HistoryLua, onekey.TokensLua, onekey.TombstoneLua)
	dyingScript   = redisx.NewScript(scripts, "dying", redisx.IsNumber)
	readyScript   = redisx.NewScript(scripts, "ready", redisx.IsNumber)
	addScript     = redisx.NewScript(scripts, "add", redisx.IsVerdict, onekey.FullLua)
	schemaScript  = redisx.NewScript(scripts, "schema", redisx.IsVerdict)
	actScript     = redisx.NewScript(scripts, "act", redisx.IsVerdict, onekey.ChangesLua, onekey.FullLua)
	wouldScript   = redisx.NewScript(scripts, "would", redisx.IsNumber, onekey.ChangesLua)
)

// allScripts are loaded on every node.
var allScripts = []redisx.Script{
	claimScript, swapScript, fenceScript, prepareScript, commitScript, dyingScript,
	readyScript, wouldScript, actScript, addScript, onekey.DroppedScript, onekey.PromoteScript, onekey.FilledScript, schemaScript, onekey.IssueScript, onekey.PeekScript, onekey.RemoveScript,
	onekey.EpochScript, onekey.SessionScript, onekey.InviteScript, onekey.LimitScript, onekey.NoteScript, onekey.TellScript, onekey.FeedScript, onekey.TrimScript,
	onekey.BuryScript,
}

const attempts = 8

// again does something until the server answers, as long as it makes sense, and learns how long a round trip takes. unsure
// reports whether an earlier attempt may have been carried out.
func again[T any](ctx context.Context, e *Engine, send func() (T, error)) (reply T, unsure bool, err error) {
	_, unsure, err = e.client.Retry.Do(ctx, func(bool) (_ any, err error) {
		begin := time.Now()
		if reply, err = send(); err == nil {
			e.latency.took(time.Since(begin))
		}
		return nil, err
	})
	return reply, unsure, err
}

// run sends a script until it is answered: every one may arrive twice. The error keeps whether it
// may have been carried out (ErrOutcomeUnknown) or certainly was not. It shares no round trip with others: what is shared goes on when the
// caller has given up, and giveBack and dyingTime count on it that nothing is sent then.
func (e *Engine) run(ctx context.Context, s redisx.Script, keys []string, args ...string) (reply any, unsure bool, err error) {
	return again(ctx, e, func() (any, error) { return s.Write(ctx, e.client.UniversalClient.Process, keys, args) })
}

// runWithOthers is run in one round trip with other callers, where there are many: redisx.Over tells when it is over.
func (e *Engine) runWithOthers(ctx context.Context, s redisx.Script, keys []string, args ...string) (reply any, unsure bool, err error) {
	return again(ctx, e, func() (any, error) { return s.Write(ctx, e.client.Process, keys, args) })
}

// runOnce is run for a script of two keys that a node may not serve together: it is not sent again then.
func (e *Engine) runOnce(ctx context.Context, s redisx.Script, keys []string, args ...string) (any, bool, error) {
	retry := e.client.Retry
	retry.Passing = func(err error) bool { return e.client.Retry.Passing(err) && !redisx.TryAgain(err) }
	return retry.Do(ctx, func(bool) (any, error) { return s.Write(ctx, e.client.UniversalClient.Process, keys, args) })
}

// yes runs a script on one key, and reports whether it answered 1.
func (e *Engine) yes(ctx context.Context, s redisx.Script, key string, args ...string) (bool, error) {
	reply, _, err := e.run(ctx, s, []string{key}, args...)
	return reply == int64(1), redisx.Harmless(err)
}

// command sends a command that may arrive twice.
func (e *Engine) command(ctx context.Context, reply redisx.Shape, args ...any) (any, error) {
	return e.send(ctx, e.client.UniversalClient.Process, reply, args)
}

// ask sends a command that only reads, in one round trip with other callers, where there are many.
func (e *Engine) ask(ctx context.Context, reply redisx.Shape, args ...any) (any, error) {
	return e.send(ctx, e.client.Process, reply, args)
}

func (e *Engine) send(ctx context.Context, process redisx.Process, reply redisx.Shape, args []any) (any, error) {
	value, _, err := again(ctx, e, func() (any, error) {
		cmd := redisx.NewOnce(ctx, args)
		return redisx.Answer(cmd.Cmd, process(ctx, cmd), reply)
	})
	return value, redisx.Harmless(err)
}

// get reads a string that may be empty, and reports whether it exists.
func (e *Engine) get(ctx context.Context, key recordkey.Key) (string, bool, error) {
	value, err := e.ask(ctx, redisx.IsText|redisx.IsNil, "get", key.String())
	text, is := value.(string)
	return text, is, err
}

// read is ask, where a record of another Redis type counts as absent, and is answered by nil.
func (e *Engine) read(ctx context.Context, reply redisx.Shape, args ...any) (any, error) {
	value, err := e.ask(ctx, reply, args...)
	if redisx.WrongType(err) {
		return nil, nil
	}
	return value, err
}

// field reads one field of an entry, and reports whether the entry is live. The zero key is no entry.
func (e *Engine) field(ctx context.Context, entry recordkey.Key, name string) (live bool, value store.Text, err error) {
	if !entry.IsValid() {
		return false, value, nil
	}
	reply, err := e.read(ctx, redisx.IsList, "hmget", entry.String(), store.FieldType, name)
	if err != nil || reply == nil {
		return false, value, err
	}
	words := redisx.Items(reply)
	if err := redisx.AsMany(len(words), 2); err != nil {
		return false, value, redisx.Fail(err)
	}
	value.Wire, value.Is = words[1].(string)
	return redisx.Text(words, 0) != "", value, nil
}

// live reports whether there is such an entry.
func (e *Engine) live(ctx context.Context, entry recordkey.Key) (bool, error) {
	isa, err := e.read(ctx, redisx.IsText|redisx.IsNil, "hget", entry.String(), store.FieldType)
	return isa != nil && isa != "", err
}

// How long one node is asked which node serves which slots, and how many are asked: the client takes any of them, and one
// that is stopped answers nothing.
const (
	reloadTime = 500 * time.Millisecond
	reloads    = 4
)

// reload has the client read anew which node serves which slots, before a command is sent again: a dead master does not
// tell. Where a node answered, the client does so by itself, and the command does not wait.
func (e *Engine) reload(ctx context.Context, err error) {
	switch {
	case e.cc == nil:
		return
	case redisx.IsAnswer(err):
		e.cc.ReloadState(ctx)
		return
	}
	failed := time.Now()
	var last time.Time
	select {
	case <-ctx.Done():
		return
	case last = <-e.reloaded:
	}
	defer func() { e.reloaded <- last }()
	for n := 0; n < reloads && last.Before(failed); n++ {
		begun := time.Now()
		limited, cancel := context.WithTimeout(ctx, reloadTime)
		_ = e.cc.ForEachMaster(limited, func(context.Context, *redis.Client) error { return nil }) // which reads it first
		if limited.Err() == nil {
			last = begun
		}
		cancel()
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
	return cmp.Or(errs...)
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
	done := make(chan struct{})
	background(ctx, most, func(ctx context.Context) {
		defer close(done)
		do(ctx)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// background does something for a while, and the caller goes on.
func background(ctx context.Context, most time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	go func() {
		defer cancel()
		do(ctx)
	}()
}
