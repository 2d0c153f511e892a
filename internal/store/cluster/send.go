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
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// The scripts of the protocol. All keys of a script lie in one slot.
var (
	//go:embed scripts
	scripts embed.FS

	claimScript       = redisx.NewScript(redisx.IsNumber|redisx.IsText, source("claim"))
	swapScript        = redisx.NewScript(redisx.IsNumber, source("swap"))
	holdScript        = redisx.NewScript(redisx.IsNumber, source("hold"))
	fenceScript       = redisx.NewScript(redisx.IsNumber, source("fence"))
	prepareScript     = redisx.NewScript(redisx.IsTexts, source("prepare"))
	commitScript      = redisx.NewScript(redisx.IsVerdict, source("create"), history.Lua, token.Lua, onekey.TombstoneLua, source("commit"))
	dyingScript       = redisx.NewScript(redisx.IsNumber, source("dying"))
	stageScript       = redisx.NewScript(redisx.IsNumber, source("stage"))
	addScript         = redisx.NewScript(redisx.IsVerdict, onekey.CommandLua, source("add"))
	schemaScript      = redisx.NewScript(redisx.IsVerdict, source("schema"))
	actScript         = redisx.NewScript(redisx.IsVerdict, onekey.ChangesLua, onekey.CommandLua, source("act"))
	wouldChangeScript = redisx.NewScript(redisx.IsNumber, onekey.ChangesLua, source("would_change"))
)

func source(name string) string { return redisx.Source(scripts, name) }

// allScripts lists the scripts that every node loads.
var allScripts = []redisx.Script{
	claimScript, swapScript, holdScript, fenceScript, prepareScript, commitScript, dyingScript,
	stageScript, wouldChangeScript, actScript, addScript, onekey.DroppedScript, onekey.PromoteScript, onekey.FilledScript, schemaScript, onekey.IssueScript, onekey.PeekScript, onekey.RemoveScript,
	onekey.EpochScript, onekey.SessionScript, onekey.InviteScript, onekey.LimitScript, onekey.NoteScript, onekey.FeedLineScript, onekey.FeedScript, onekey.TrimScript,
	onekey.FinishTombstoneScript, onekey.ForgetScript,
}

const maxAttempts = 8

// sendUntilAnswered calls send until the server answers or another try is pointless, and measures
// the round trip. unsure reports whether an earlier try may have been carried out.
func sendUntilAnswered[T any](ctx context.Context, e *Engine, send func() (T, error)) (reply T, unsure bool, err error) {
	_, unsure, err = e.client.Retry.Do(ctx, func(bool) (_ any, err error) {
		begin := time.Now()
		if reply, err = send(); err == nil {
			e.latency.observe(time.Since(begin))
		}
		return nil, err
	})
	return reply, unsure, err
}

// run sends a script until it is answered. Every script may safely arrive twice. The error says
// whether the script may have been carried out (ErrOutcomeUnknown) or certainly was not. run does
// not share a round trip with other callers, because a shared one continues after a caller has
// given up. removeClaims and dyingTime rely on nothing being sent after that.
func (e *Engine) run(ctx context.Context, s redisx.Script, keys []string, args ...string) (reply any, unsure bool, err error) {
	return sendUntilAnswered(ctx, e, func() (any, error) { return s.Write(ctx, e.client.UniversalClient.Process, keys, args) })
}

// runBatched works like run, but may share a round trip with other callers if there are many. A
// caller that gives up can wait for the script with redisx.WaitAbandoned.
func (e *Engine) runBatched(ctx context.Context, s redisx.Script, keys []string, args ...string) (reply any, unsure bool, err error) {
	return sendUntilAnswered(ctx, e, func() (any, error) { return s.Write(ctx, e.client.Process, keys, args) })
}

// runMultiKey works like run, for a script with several keys. If a node cannot serve the keys
// together (redisx.TryAgain), it returns that error instead of sending the script again.
func (e *Engine) runMultiKey(ctx context.Context, s redisx.Script, keys []string, args ...string) (any, bool, error) {
	retry := e.client.Retry
	retry.Retryable = func(err error) bool { return e.client.Retry.Retryable(err) && !redisx.TryAgain(err) }
	return retry.Do(ctx, func(bool) (any, error) { return s.Write(ctx, e.client.UniversalClient.Process, keys, args) })
}

// runBool runs a script on one key, and reports whether it returned 1.
func (e *Engine) runBool(ctx context.Context, s redisx.Script, key string, args ...string) (bool, error) {
	reply, _, err := e.run(ctx, s, []string{key}, args...)
	return reply == int64(1), redisx.IgnoreUnknownOutcome(err)
}

// do sends a command that may safely arrive twice.
func (e *Engine) do(ctx context.Context, reply redisx.Shape, args ...any) (any, error) {
	return e.send(ctx, e.client.UniversalClient.Process, reply, args)
}

// query sends a command that only reads. It may share a round trip with other callers if there are
// many.
func (e *Engine) query(ctx context.Context, reply redisx.Shape, args ...any) (any, error) {
	return e.send(ctx, e.client.Process, reply, args)
}

func (e *Engine) send(ctx context.Context, process redisx.Process, reply redisx.Shape, args []any) (any, error) {
	value, _, err := sendUntilAnswered(ctx, e, func() (any, error) {
		cmd := redisx.NewNoRetryCmd(ctx, args)
		return redisx.Answer(cmd.Cmd, process(ctx, cmd), reply)
	})
	return value, redisx.IgnoreUnknownOutcome(err)
}

// get returns a string, which may be empty, and reports whether it exists.
func (e *Engine) get(ctx context.Context, key recordkey.Key) (string, bool, error) {
	value, err := e.query(ctx, redisx.IsText|redisx.IsNil, "get", key.String())
	text, is := value.(string)
	return text, is, err
}

// queryOrNil works like query, but returns nil for a record of another Redis type, as if it were
// absent.
func (e *Engine) queryOrNil(ctx context.Context, reply redisx.Shape, args ...any) (any, error) {
	value, err := e.query(ctx, reply, args...)
	if redisx.WrongType(err) {
		return nil, nil
	}
	return value, err
}

// readField returns one field of an entry, and reports whether the entry is live. The zero key
// names no entry.
func (e *Engine) readField(ctx context.Context, entry recordkey.Key, name string) (live bool, value store.Text, err error) {
	if !entry.IsValid() {
		return false, value, nil
	}
	reply, err := e.queryOrNil(ctx, redisx.IsList, "hmget", entry.String(), store.FieldType, name)
	if err != nil || reply == nil {
		return false, value, err
	}
	words := redisx.Items(reply)
	if err := redisx.CheckLength(len(words), 2); err != nil {
		return false, value, redisx.Fail(err)
	}
	value.Wire, value.Exists = words[1].(string)
	return redisx.Text(words, 0) != "", value, nil
}

// isLive reports whether an entry is live.
func (e *Engine) isLive(ctx context.Context, entry recordkey.Key) (bool, error) {
	isa, err := e.queryOrNil(ctx, redisx.IsText|redisx.IsNil, "hget", entry.String(), store.FieldType)
	return isa != nil && isa != "", err
}

// reload asks up to maxReloads nodes which node serves which slots. It waits for each answer for at
// most reloadTimeout, because the client picks any node, and one that is stopped does not answer.
const (
	reloadTimeout = 500 * time.Millisecond
	maxReloads    = 4
)

// reload makes the client read again which node serves which slots, before a command is repeated,
// because a dead master cannot report that it was replaced. If err is an answer of a node, the
// client reads in the background, and reload does not wait.
func (e *Engine) reload(ctx context.Context, err error) {
	switch {
	case e.cc == nil:
		return
	case redisx.IsServerReply(err):
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
	for n := 0; n < maxReloads && last.Before(failed); n++ {
		begun := time.Now()
		limited, cancel := context.WithTimeout(ctx, reloadTimeout)
		// ForEachMaster reads the state first.
		_ = e.cc.ForEachMaster(limited, func(context.Context, *redis.Client) error { return nil })
		if limited.Err() == nil {
			last = begun
		}
		cancel()
	}
}

// parallel calls f for each number below n at the same time, waits for all calls, and returns the
// first error in the order of the numbers.
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

// latency measures the average time of a round trip. It rises quickly when round trips become
// slower, as they do under contention. If the waits that are derived from it were too short,
// contenders would fence each other.
type latency struct{ mean atomic.Int64 }

func (l *latency) observe(d time.Duration) {
	mean := l.mean.Load()
	step := (int64(d) - mean) / 32
	if int64(d) > mean {
		step = (int64(d) - mean) / 2
	}
	l.mean.Store(mean + step)
}

// roundTrips returns the time of a random number of round trips between least and most. The
// randomness keeps contenders apart.
func (l *latency) roundTrips(least, most int) time.Duration {
	one := max(time.Duration(l.mean.Load()), 200*time.Microsecond)
	return time.Duration(least)*one + rand.N(time.Duration(most-least)*one)
}

// pause waits for d, give or take half of it.
func (e *Engine) pause(ctx context.Context, d time.Duration) error {
	return e.sleep(ctx, d/2+rand.N(d))
}
