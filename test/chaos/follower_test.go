//go:build linux

package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/userdb"
)

// A follower reads the feed of all events from its beginning, during the whole run.
type follower struct {
	db *userdb.DB

	mu     sync.Mutex
	after  string
	events map[string][]eventLine // by account
	ids    map[string]bool        // of all events read
	wrong  []string               // violations not yet taken
	gaps   int                    // pages that reported a gap in the feed
}

func newFollower(db *userdb.DB) *follower {
	return &follower{db: db, events: map[string][]eventLine{}, ids: map[string]bool{}}
}

// follow reads the feed until ctx ends. It tries again if the store does not answer.
func (f *follower) follow(ctx context.Context) {
	for sleep(ctx, 50*time.Millisecond) == nil {
		_ = f.read(ctx)
	}
}

// read reads the feed to its end, and records a violation for each event that it has read before.
func (f *follower) read(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		p, err := f.db.Events(ctx, userdb.EventQuery{After: f.after, Limit: 200})
		if err != nil {
			return err
		}
		if p.Gap {
			f.gaps++
		}
		for _, e := range p.Events {
			if f.ids[e.ID] {
				f.wrong = append(f.wrong, fmt.Sprintf("the follower got an event twice: %+v", e))
			}
			f.ids[e.ID] = true
			uid := e.Key.Value()
			f.events[uid] = append(f.events[uid], eventLine{uid, e.Actor, string(e.Kind)})
		}
		if f.after = p.Next; len(p.Events) == 0 {
			return nil
		}
	}
}

// eventsOf returns the events of one account.
func (f *follower) eventsOf(uid string) []eventLine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]eventLine{}, f.events[uid]...)
}

// allEvents returns the events of all accounts.
func (f *follower) allEvents() (all []eventLine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, events := range f.events {
		all = append(all, events...)
	}
	return all
}

// takeViolations returns the violations found since the last call.
func (f *follower) takeViolations() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	wrong := f.wrong
	f.wrong = nil
	return wrong
}

// historyOf returns the history of an account, the oldest line first. It returns nil if the history
// cannot be read, for example because the account does not exist.
func (r *run) historyOf(uid string) (lines []eventLine) {
	all, err := r.users.History(r.ctx, hints.UID(uid))
	if err != nil {
		return nil
	}
	for _, e := range all {
		lines = append([]eventLine{{uid, e.Actor, string(e.Kind)}}, lines...)
	}
	return lines
}

// When all faults are repaired, the feed must be complete within feedTime, or within repairTime if
// accounts have to be repaired.
const (
	feedTime   = 5 * time.Second
	repairTime = time.Minute
)

// judgeFeed compares the feed with the histories of the accounts of an epoch and with its
// operations. It waits until the feed is complete. If that takes longer than feedTime, it repairs
// the accounts: a repair adds the lines that a killed process left out or a server refused.
func (r *run) judgeFeed(e int, ops []op) (violations []string) {
	repaired := false
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if err := r.follower.read(r.ctx); err != nil {
			return []string{"the feed cannot be read: " + err.Error()}
		}
		violations = nil
		for uid := range accounts {
			history := r.historyOf(uidOf(e, uid))
			if wrong := feedDifference(history, r.follower.eventsOf(uidOf(e, uid))); history != nil && wrong != "" {
				violations = append(violations, fmt.Sprintf("account %d: %s", uid, wrong))
			}
		}
		violations = append(violations, lineViolations(ops, r.follower.allEvents())...)
		if len(violations) == 0 || time.Since(begin) > repairTime || r.ctx.Err() != nil {
			return violations
		}
		if !repaired && time.Since(begin) > feedTime {
			repaired = true
			r.repairEach(e, ops, violations[0])
		}
	}
}

// repairEach repairs each account of an epoch on its own, deleted ones included.
func (r *run) repairEach(e int, ops []op, why string) {
	var uids []string
	for uid := range accounts {
		uids = append(uids, uidOf(e, uid))
	}
	for _, o := range ops {
		if o.Ask.Verb == "accept" && o.Answer.What == "ok" {
			uids = append(uids, o.Answer.ID)
		}
	}
	r.log("epoch %d: repairing %q, for %s", e, uids, why)
	var group errgroup.Group
	// Repair all accounts at the same time, because each repair reads its account several times,
	// with pauses.
	for _, uid := range uids {
		group.Go(func() error {
			for _, err := range check.Run(r.ctx, r.db, check.Options{Only: hints.UID(uid).Of("user"), Repair: true}) {
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	r.must(group.Wait())
}

// dropLastEvents deletes the last event of each part of the feed, as a failover that loses it
// would.
func (r *run) dropLastEvents() error {
	return onMasters(r.ctx, r.client, func(ctx context.Context, node redis.UniversalClient) error {
		keys := node.Scan(ctx, 0, "~/feed/*", 1000).Iterator()
		for keys.Next(ctx) {
			last, err := node.XRevRangeN(ctx, keys.Val(), "+", "-", 1).Result()
			if err == nil && len(last) > 0 {
				err = node.XDel(ctx, keys.Val(), last[0].ID).Err()
			}
			if err != nil {
				return err
			}
		}
		return keys.Err()
	})
}
