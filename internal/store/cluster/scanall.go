package cluster

import (
	"context"
	"fmt"
	"iter"
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
	master  string // its ID
	masters int    // how many nodes say that they are the master; just after a move, none or two
	open    string // what the master says about the move, which names the other master
}

// passPause is the pause before the first repeated pass. Each further pause is twice as long as the
// one before, up to maxPassPause.
const (
	passPause    = 20 * time.Millisecond
	maxPassPause = 2 * time.Second
)

// ScanAll implements [store.Engine]. If slots move between masters during the scan, it scans all
// masters again for the keys of these slots, until it has seen each of them on one master. Other
// slots that move meanwhile do not matter, because the first pass has seen their keys. A slot that
// is left open takes one more pass: a key that a pass missed has left the slot's master, and does
// not go back. With a Tally, keys of slots that move may be missed or counted twice.
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
		var again map[int]bool // see unsettled; nil means all slots
		for pause := passPause; ; pause = min(2*pause, maxPassPause) {
			after, err := e.placements(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if again = unsettled(again, before, after); len(again) == 0 {
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

// unsettled returns the slots whose keys the passes so far may have missed. It compares the
// placements before and after the last pass. The value of a slot is true if it had the same master
// both times, so that missed keys have left the master. scanned holds the slots that the last pass
// scanned, with their values, or is nil if that pass scanned all slots.
func unsettled(scanned map[int]bool, before, after []placement) map[int]bool {
	slots := map[int]bool{}
	for slot, at := range after {
		stayed, due := scanned[slot]
		if scanned != nil && !due {
			continue
		}
		if at != before[slot] || at.masters != 1 || at.open != "" && !stayed {
			slots[slot] = at.masters == 1 && before[slot].masters == 1 && at.master == before[slot].master
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
			keys = slices.DeleteFunc(keys, func(key string) bool { _, due := slots[slotOf(key)]; return !due })
			if len(keys) > 0 && !yield(keys, nil) {
				return false
			}
		}
	}
	return true
}

// placements asks each master which slots it has, and which of them it is moving away.
func (e *Engine) placements(ctx context.Context) ([]placement, error) {
	var all []placement
	_, _, err := e.client.Retry.Do(ctx, func(bool) (any, error) {
		all = make([]placement, slotCount)
		var mu sync.Mutex
		// ForEachMaster first asks which masters there are.
		err := e.cc.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			nodes, err := master.ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			return addPlacements(all, nodes)
		})
		if err == nil {
			err = e.checkServed(ctx, all)
		}
		return nil, err
	})
	return all, redisx.IgnoreUnknownOutcome(err)
}

// addPlacements adds the slots of a node, which it lists in its own line of CLUSTER NODES: as 7, as
// 7-9, and as [7->-ID] if 7 is being moved to the node ID.
func addPlacements(all []placement, nodes string) error {
	for line := range strings.Lines(nodes) {
		words := strings.Fields(line)
		if len(words) < 8 || !strings.Contains(words[2], "myself") {
			continue
		}
		for _, word := range words[8:] {
			slot, _, open := strings.Cut(strings.TrimPrefix(word, "["), "->-")
			if strings.Contains(slot, "-<-") {
				continue // another node says that it moves the slot here
			}
			first, last, isRange := strings.Cut(slot, "-")
			from, err := strconv.Atoi(first)
			to := from
			if err == nil && isRange {
				to, err = strconv.Atoi(last)
			}
			if err != nil || from < 0 || to >= slotCount {
				return fmt.Errorf("%w: CLUSTER NODES lists the slots %q", store.ErrReply, word)
			}
			for slot := from; slot <= to; slot++ {
				if open {
					all[slot].open = word
				} else {
					all[slot].master = words[0]
					all[slot].masters++
				}
			}
		}
	}
	return nil
}

// checkServed asks for a key of a slot of each master, since masters of a cluster that is down, or
// that have lost the others, answer scans but refuse commands with keys. It does the same for a
// slot without a master, if there is one. The keys are never written.
func (e *Engine) checkServed(ctx context.Context, all []placement) error {
	left := map[string]bool{}
	for _, at := range all {
		left[at.master] = true
	}
	for n := 0; len(left) > 0; n++ {
		key := "~/absent/" + strconv.Itoa(n)
		master := all[slotOf(key)].master
		if !left[master] {
			continue
		}
		if err := e.cc.Exists(ctx, key).Err(); err != nil {
			return err
		}
		delete(left, master)
	}
	return nil
}

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
