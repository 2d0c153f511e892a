package cluster

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// slotCount is the number of slots of a cluster.
const slotCount = 1 << 14

// A placement is where the keys of a slot are: on their master or, if they are being moved away, on
// both masters.
type placement struct {
	master string // its address; "" if it is another one than the client knows
	open   string // what the master says about the move, which names the other master
}

// passPause is the pause before the first repeated pass. Each further pause is twice as long as the
// one before, up to maxPassPause.
const (
	passPause    = 20 * time.Millisecond
	maxPassPause = 2 * time.Second
)

// ScanAll implements [store.Engine]. If slots move between masters during the scan, it scans all
// masters again for the keys of these slots, until none moves. A slot that is left open takes one
// more pass: a key that the first pass missed has left the slot's master, and does not go back.
// With a Tally, keys of slots that move may be missed or counted twice.
func (e *Engine) ScanAll(ctx context.Context, s store.Scan) iter.Seq2[[]string, error] {
	steps := store.ScanSteps(ctx, e, s)
	if e.cc == nil || s.Index.IsValid() || s.Tally != "" {
		return steps
	}
	return func(yield func([]string, error) bool) {
		before, err := e.placements(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for keys, err := range steps {
			if !yield(keys, err) || err != nil {
				return
			}
		}
		for pass, pause := 1, passPause; ; pass, pause = pass+1, min(2*pause, maxPassPause) {
			after, err := e.placements(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			again := unsettled(before, after, pass)
			if len(again) == 0 {
				return
			}
			if err := e.sleep(ctx, pause); err != nil {
				yield(nil, redisx.Fail(err))
				return
			}
			if before = after; !e.rescan(ctx, s, again, yield) {
				return
			}
		}
	}
}

// unsettled returns the slots whose keys a pass between two placements may have missed. pass is the
// number of the pass, from 1.
func unsettled(before, after []placement, pass int) map[int]bool {
	slots := map[int]bool{}
	for slot, at := range after {
		if at != before[slot] || at.master == "" || at.open != "" && pass == 1 {
			slots[slot] = true
		}
	}
	return slots
}

// rescan scans all masters for the keys of some slots. It reports whether yield wants more.
func (e *Engine) rescan(ctx context.Context, s store.Scan, slots map[int]bool, yield func([]string, error) bool) bool {
	masters, err := e.masters(ctx)
	if err != nil {
		yield(nil, err)
		return false
	}
	for _, m := range masters {
		for at, more := (redisx.Cursor{}), true; more; more = at.At != 0 {
			var keys []string
			if keys, at, err = redisx.Scan(ctx, m.client, at, s); err != nil {
				yield(nil, redisx.Fail(err))
				return false
			}
			keys = slices.DeleteFunc(keys, func(key string) bool { return !slots[slotOf(key)] })
			if len(keys) > 0 && !yield(keys, nil) {
				return false
			}
		}
	}
	return true
}

// placements asks the master of each slot for a key that does not exist. The master of a slot that
// is being moved answers ASK, and a server that is not the slot's master answers MOVED.
func (e *Engine) placements(ctx context.Context) ([]placement, error) {
	var all []placement
	_, _, err := e.client.Retry.Do(ctx, func(bool) (any, error) {
		// ForEachMaster reads the state first.
		err := e.cc.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
		if err == nil {
			all, err = e.askForPlacements(ctx)
		}
		return nil, err
	})
	return all, redisx.IgnoreUnknownOutcome(err)
}

func (e *Engine) askForPlacements(ctx context.Context) ([]placement, error) {
	all, pipes := make([]placement, slotCount), map[*redis.Client]redis.Pipeliner{}
	answers := make([]*redis.IntCmd, slotCount)
	for slot, key := range absentKeys() {
		node, err := e.cc.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		if pipes[node] == nil {
			pipes[node] = node.Pipeline()
		}
		all[slot].master, answers[slot] = node.Options().Addr, pipes[node].Exists(ctx, key)
	}
	nodes := slices.Collect(maps.Values(pipes))
	err := parallel(len(nodes), func(i int) error {
		cmds, err := nodes[i].Exec(ctx)
		if !redisx.Unanswered(cmds, err) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for slot, answer := range answers {
		switch err := answer.Err(); {
		case err == nil:
		case !redisx.Moved(err) || redisx.Retryable(err):
			return nil, err
		case strings.HasPrefix(err.Error(), "ASK "):
			all[slot].open = err.Error()
		default:
			all[slot].master = ""
		}
	}
	return all, nil
}

// absentKeys returns a key for each slot, none of which is ever written.
var absentKeys = sync.OnceValue(func() []string {
	keys := make([]string, slotCount)
	for n, left := 0, slotCount; left > 0; n++ {
		key := "~/absent/" + strconv.Itoa(n)
		if slot := slotOf(key); keys[slot] == "" {
			keys[slot] = key
			left--
		}
	}
	return keys
})

// slotOf returns the slot of a key: the CRC-16 (XMODEM) of the text in its first pair of braces or,
// if that is empty or missing, of the whole key.
func slotOf(key string) int {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(after, "}"); found && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			high := crc&0x8000 != 0
			if crc <<= 1; high {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % slotCount
}
