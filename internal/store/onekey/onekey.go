// Package onekey is what both engines do alike: single commands, pipelines of them, and scripts on records of one slot.
package onekey

import (
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	//go:embed scripts
	scripts embed.FS

	removeScript  = redisx.NewScript(scripts, "remove", redisx.IsNumber)
	RestateScript = redisx.NewScript(scripts, "restate", redisx.IsNumber)
)

// Keys are those methods of an engine that need one slot at a time.
type Keys struct {
	client  *redisx.Client
	finds   *redisx.Batcher[*reading]
	options Options
}

// Options say what the server of a client can do.
type Options struct {
	// OneSlot: one command may read many strings.
	OneSlot bool
	// WholeSets: a set is read at once. The embedded server's cursors count members, so that one which leaves the set
	// would make another be missed.
	WholeSets bool
}

// New returns them for what a client speaks to.
func New(client *redisx.Client, o Options) *Keys {
	ks := &Keys{client: client, options: o}
	ks.finds = redisx.NewBatcher(redisx.BatchMost, ks.findBatch)
	return ks
}

// Client is the client that the engine was given, for tests that look at the records themselves.
func (ks *Keys) Client() redis.UniversalClient { return ks.client.UniversalClient }

// Ping implements [store.Engine].
func (ks *Keys) Ping(ctx context.Context) error { return redisx.Fail(ks.client.Ping(ctx).Err()) }

// Mend makes the steps that need one slot: store.Restate and, in a cluster for a record that belongs to no entry,
// store.Remove.
func (ks *Keys) Mend(ctx context.Context, s store.Step) (bool, error) {
	switch s := s.(type) {
	case store.Remove:
		return ks.remove(ctx, s)
	case store.Restate:
		return ks.restate(ctx, s)
	}
	return false, fmt.Errorf("no step that mends: %T", s)
}

func (ks *Keys) remove(ctx context.Context, r store.Remove) (bool, error) {
	keys := []string{r.Key}
	if r.Owner != "" {
		keys = append(keys, r.Owner)
	}
	return ks.Yes(ctx, removeScript, keys, r.Kind, Flag(r.Seen.Is), r.Seen.Wire, r.Member, r.Field, r.Value)
}

// restate has every later change of another writer compare with the new state.
func (ks *Keys) restate(ctx context.Context, r store.Restate) (bool, error) {
	g := r.Guard
	if err := ks.client.SAdd(ctx, g.Types.String(), g.Key.Parts()[1]).Err(); err != nil {
		return false, redisx.Fail(err)
	}
	args := []string{r.Seen}
	for _, f := range r.State {
		args = append(args, f.Field, f.Wire)
	}
	return ks.Yes(ctx, RestateScript, []string{g.Key.String()}, args...)
}

// Yes runs a script that may arrive twice, and reports whether it answered 1.
func (ks *Keys) Yes(ctx context.Context, s redisx.Script, keys []string, args ...string) (bool, error) {
	reply, _, err := ks.client.Write(ctx, s, keys, args)
	return reply == int64(1), redisx.Harmless(err)
}

// Flag is a boolean as scripts read it.
func Flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// readError is the error of reading a record, which is damaged for that reason where it is of another Redis type.
func readError(key recordkey.Key, err error, reason string) error {
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: key.String(), Reason: reason}
	}
	return redisx.Fail(err)
}
