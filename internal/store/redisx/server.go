package redisx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// CheckOneSlot returns an error if the client of one server talks to a node of a cluster, or to an
// endpoint that spreads keys over several servers. No script could change all records of an entry
// there.
func CheckOneSlot(ctx context.Context, c redis.Cmdable) error {
	err := c.Eval(ctx, "return 1", []string{"~/probe/1", "~/probe/2"}).Err()
	if Moved(err) || strings.HasPrefix(replyText(err), "CROSSSLOT") {
		return fmt.Errorf("%w: it spreads records over several servers; open a cluster with its own URL, redis+cluster://HOST:PORT, "+
			"or with a redis.ClusterClient: %w", store.ErrUnsuitable, err)
	}
	return nil
}

// probes lists commands that together cover the ways in which engines send commands, each with the
// kind of its reply. They use a key that nobody writes.
var probes = []struct {
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

// VerifyTransparent returns an error if commands or replies are changed on the way, so that a reply
// has another kind or belongs to another command. A router or a hook of the caller may do that, and
// a ClusterClient with a dynamic command-info resolver does. An engine could then conclude from a
// missing reply that a record does not exist.
func VerifyTransparent(ctx context.Context, c redis.UniversalClient) error {
	for _, probe := range probes {
		cmd := NewNoRetryCmd(ctx, probe.args)
		_, err := Answer(cmd.Cmd, c.Process(ctx, cmd), probe.reply)
		if err := probeError(probe.args[0], err); err != nil {
			return err
		}
	}
	nonce := store.NewRev()
	echo := NewNoRetryCmd(ctx, []any{"eval", "return {KEYS[1], ARGV[1]}", 1, "~/probe/1", nonce})
	pipe := c.Pipeline()
	_ = pipe.Process(ctx, echo)
	exists := pipe.Exists(ctx, "~/probe/1")
	hash := pipe.HGetAll(ctx, "~/probe/1")
	_, err := pipe.Exec(ctx)
	if err == nil && !slices.Equal(Texts(echo.Val()), []string{"~/probe/1", nonce}) {
		err = IsTexts.Check(nil)
	}
	if err == nil && (hash.Val() == nil || exists.Err() != nil) {
		err = IsList.Check(nil)
	}
	return probeError("eval", err)
}

// probeError returns the error for a command that VerifyTransparent sent. It ignores error replies
// of the server, for example for a missing permission, because the operations that need the command
// report them.
func probeError(command any, err error) error {
	switch {
	case err == nil, IsServerReply(err):
		return nil
	case errors.Is(err, store.ErrReply):
		return fmt.Errorf("%w: the client alters %v or its reply: %w; use one without a command-info resolver and without hooks of your own",
			store.ErrUnsuitable, command, err)
	}
	return Fail(err)
}

// A Cursor says where a SCAN continues, and which server process made the cursor. After a restart,
// or on the replica that replaced a server, the server's hash tables are in another order, and an
// old cursor means nothing. As text, a cursor looks like this:
//
//	42_9f0c3a1e
type Cursor struct {
	At      uint64
	Process string // "" if the server does not say
}

// ParseCursor parses the result of String; "" is the beginning.
func ParseCursor(text string) (Cursor, error) {
	if text == "" {
		return Cursor{}, nil
	}
	number, process, _ := strings.Cut(text, "_")
	at, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return Cursor{}, store.ErrCursor
	}
	return Cursor{at, process}, nil
}

// String returns the cursor as text, "" at the end.
func (p Cursor) String() string {
	if p.At == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%d_%s", p.At, p.Process), "_")
}

// Scan takes one step of a SCAN on a server. If the cursor belongs to another process, it starts
// again: keys may be returned twice, but none is missed.
func Scan(ctx context.Context, server redis.Cmdable, p Cursor, s store.Scan) ([]string, Cursor, error) {
	for {
		pipe := server.Pipeline()
		info, step := pipe.Info(ctx, "server"), queueScan(ctx, pipe, p.At, s)
		if cmds, err := pipe.Exec(ctx); Unanswered(cmds, err) {
			return nil, Cursor{}, err
		}
		keys, next, err := step.Result()
		// Some servers do not let scripts read keys that the call does not name. On those, count
		// without a script.
		if tally := s.Tally; tally != "" && IsServerReply(err) {
			s.Tally = ""
			if keys, p, err = Scan(ctx, server, p, s); err == nil {
				keys, err = Tally(ctx, server, keys, tally)
			}
			return keys, p, err
		}
		if err != nil {
			return nil, Cursor{}, err
		}
		process := infoField(info.Val(), "run_id")
		process = process[:min(8, len(process))]
		if p.At == 0 || p.Process == "" || process == "" || p.Process == process {
			return keys, Cursor{next, process}, nil
		}
		p = Cursor{}
	}
}

// queueScan queues a SCAN, or a script with the same kind of reply.
func queueScan(ctx context.Context, pipe redis.Pipeliner, at uint64, s store.Scan) *redis.ScanCmd {
	if s.Tally == "" {
		return pipe.Scan(ctx, at, s.Pattern, int64(s.Count))
	}
	step := redis.NewScanCmd(ctx, pipe.Process, "eval", tallyScript, 0, at, s.Pattern, s.Count, s.Tally)
	_ = pipe.Process(ctx, step)
	return step
}

// tallyScript takes a step of SCAN for a store.Scan with a Tally. Among the keys without a slash
// after Tally, it counts those of live entries and lists the others, such as tombstones. It replies
// like SCAN: the next cursor, then the count followed by the listed keys. Its arguments are the
// cursor, the pattern, COUNT and Tally.
const tallyScript = `local found, counted, listed = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3]), 0, {''}
local from, find, pcall = #ARGV[4] + 1, string.find, redis.pcall
for _, key in ipairs(found[2]) do
  if not find(key, '/', from, true) then -- the key of an entry, not of a record beside one
    local isa = pcall('HGET', key, '~isa')
    if type(isa) == 'string' and isa ~= '' then
      counted = counted + 1
    else
      listed[#listed + 1] = key
    end
  end
end
listed[1] = tostring(counted)
return {found[1], listed}`

// Tally does for keys, the result of a SCAN, what tallyScript does, on a server that cannot run the
// script. It returns the number of live entries, in digits, followed by the other keys.
func Tally(ctx context.Context, server redis.Cmdable, keys []string, prefix string) ([]string, error) {
	pipe := server.Pipeline()
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.Contains(strings.TrimPrefix(key, prefix), "/") })
	isas := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		isas[i] = pipe.HGet(ctx, key, store.FieldType)
	}
	if err := Exec(ctx, pipe); err != nil {
		return nil, err
	}
	counted, listed := 0, []string{""}
	for i, isa := range isas {
		if isa.Val() != "" {
			counted++
		} else {
			listed = append(listed, keys[i])
		}
	}
	listed[0] = strconv.Itoa(counted)
	return listed, nil
}

// rewriteRev writes an entry's rev again without changing it. WAIT waits only for the writes of its
// own connection. After this write, it therefore also waits for all earlier writes on the server. A
// server that took over meanwhile without the change does not know the change's rev.
//
// KEYS[1] is the entry, ARGV[1] the rev that was written.
// The reply is 1 if the server has the change.
const rewriteRev = `local past = redis.call('HGET', KEYS[1], '~rev')
if not past then return 0 end
for i = 1, #past, 12 do
  if string.sub(past, i, i + 11) == ARGV[1] then
    redis.call('HSET', KEYS[1], '~rev', past)
    return 1
  end
end
return 0`

// rewriteSRV writes the value of an SRK again in the same way. KEYS[1] is the SRK, ARGV[1] its
// value.
const rewriteSRV = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1`

// Confirm waits until n replicas have what was written at key: the rev of an entry, or the value of
// an SRK.
func Confirm(ctx context.Context, c redis.Cmdable, key recordkey.Key, written string, n int, timeout time.Duration) error {
	script := rewriteSRV
	if key.Kind() == recordkey.KindPRK {
		script = rewriteRev
	}
	pipe := c.Pipeline()
	confirmed := pipe.Eval(ctx, script, []string{key.String()}, written)
	replicas := pipe.Do(ctx, "wait", n, max(timeout.Milliseconds(), 1))
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnconfirmed, err)
	}
	if found, _ := confirmed.Int(); found != 1 {
		return fmt.Errorf("%w: the server no longer has the change", store.ErrUnconfirmed)
	}
	if got, _ := replicas.Int(); got < n {
		return fmt.Errorf("%w: on %d of %d replicas after %v", store.ErrUnconfirmed, got, n, timeout)
	}
	return nil
}
