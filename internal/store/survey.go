package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrUnsuitable is a server or a client with which the promise cannot be kept.
var ErrUnsuitable = errors.New("unsuitable Redis server or client")

// A Surveyor looks at what it was opened over. The warnings are about what breaks the promise later; the error,
// ErrUnsuitable, is about what can never work. Servers that forbid the looking are passed over.
type Surveyor interface {
	Survey(ctx context.Context) (warnings []string, err error)
}

// OneSlot refuses a client of one server that speaks to a node of a cluster, or to an endpoint that
// spreads keys over several servers: no script could change all records of an entry there.
func OneSlot(ctx context.Context, c redis.Cmdable) error {
	err := c.Eval(ctx, "return 1", []string{"~/probe/1", "~/probe/2"}).Err()
	if hasPrefix(err, []string{"CROSSSLOT", "MOVED", "ASK", "CLUSTERDOWN"}) {
		return fmt.Errorf("%w: it spreads records over several servers; open a cluster by its own URL, redis+cluster://HOST:PORT, "+
			"or with a redis.ClusterClient: %w", ErrUnsuitable, err)
	}
	return nil
}

// faithful are commands of every way that an engine sends them, on records that nobody writes, with the kinds of
// their replies.
var faithful = []struct {
	reply Shape
	args  []any
}{
	{IsNumber, []any{"exists", "~/probe/1"}},
	{IsNumber, []any{"unlink", "~/probe/1"}},
	{IsNumber, []any{"srem", "~/probe/1", "x"}},
	{IsText | IsNil, []any{"get", "~/probe/1"}},
	{IsList, []any{"hmget", "~/probe/1", "x"}},
	{IsList, []any{"smembers", "~/probe/1"}},
}

// Faithful refuses a client through which a command does not come back as it was sent: with a reply of another
// kind, or that of another command. A router or a hook of the caller's may do that (so does a ClusterClient with a dynamic
// command-info resolver), and "not there" would be read where nothing was answered.
func Faithful(ctx context.Context, c redis.UniversalClient) error {
	for _, f := range faithful {
		cmd := unrepeated{redis.NewCmd(ctx, f.args...)}
		err := c.Process(ctx, cmd)
		if err == nil || errors.Is(err, redis.Nil) {
			err = f.reply.Check(flat(cmd.Val()))
		}
		if err := unfaithful(f.args[0], err); err != nil {
			return err
		}
	}
	token := NewToken()
	echo := unrepeated{redis.NewCmd(ctx, "eval", "return {KEYS[1], ARGV[1]}", 1, "~/probe/1", token)}
	pipe := c.Pipeline()
	_ = pipe.Process(ctx, echo)
	number := pipe.Exists(ctx, "~/probe/1")
	hash := pipe.HGetAll(ctx, "~/probe/1")
	_, err := pipe.Exec(ctx)
	if list, _ := echo.Val().([]any); err == nil && (len(list) != 2 || list[0] != "~/probe/1" || list[1] != token) {
		err = IsTexts.Check(nil)
	}
	if err == nil && (hash.Val() == nil || number.Err() != nil) {
		err = IsList.Check(nil)
	}
	return unfaithful("eval", err)
}

// unfaithful passes over what a server forbids: that is for the verbs to say.
func unfaithful(command any, err error) error {
	switch {
	case err == nil, IsAnswer(err):
		return nil
	case errors.Is(err, ErrReply):
		return fmt.Errorf("%w: %v does not come back as it was sent: %w; give a client without a command-info resolver and hooks of your own",
			ErrUnsuitable, command, err)
	}
	return Fail(err)
}

// unrepeated is sent as an engine sends its writes.
type unrepeated struct{ *redis.Cmd }

// NoRetry is asked by the client.
func (unrepeated) NoRetry() bool { return true }

// Evicts warns of a server that removes records by itself when it is full, and of a replica.
func Evicts(ctx context.Context, c redis.Cmdable, name string) []string {
	var warnings []string
	if info, err := c.Info(ctx, "memory").Result(); err == nil {
		policy := field(info, "maxmemory_policy")
		if policy != "" && policy != "noeviction" {
			warnings = append(warnings, fmt.Sprintf("%s has maxmemory-policy %s: it may remove records, so that one identifier could mean two people; "+
				"set maxmemory-policy noeviction", name, policy))
		}
	}
	if info, err := c.Info(ctx, "replication").Result(); err == nil && field(info, "role") == "slave" {
		warnings = append(warnings, name+" is a replica: it may be behind and takes no writes; open its master")
	}
	return warnings
}

// field reads one line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
