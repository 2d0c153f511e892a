package userdb

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// maxLoginEvents limits the successful logins to one account, and the starts and ends of its
// sessions, that the feed records in an hour. Otherwise, repeated logins to one account would push
// out the logins to all others.
const maxLoginEvents = 60

// visitorShare limits the tokens that visitors ask for: in a day, those for entries of one type may
// fill 1/visitorShare of the feed of changes. Otherwise, they would push out the changes of
// operators and owners.
const visitorShare = 50

// A feedLimit limits how many events of one kind the feed records in a period.
type feedLimit struct {
	name   string // what is counted, such as the account
	max    int
	period time.Duration
}

// loginLimit returns the limit on the logins to an account, and on starts and ends of its sessions.
func (db *DB) loginLimit(prk recordkey.Key) feedLimit {
	return feedLimit{"login " + prk.In(db.view().NS).String(), maxLoginEvents, time.Hour}
}

// cheapLimits returns the limits on attempts that cost no password hash, so that anybody can make
// any number of them. The feed records one an hour for each origin, and one for each account or
// identifier.
func (db *DB) cheapLimits(kind string, e Event) []feedLimit {
	account := e.Identifier
	if e.Key.IsValid() {
		account = e.Key.In(db.view().NS).String()
	}
	all := []feedLimit{{kind + " " + account, 1, time.Hour}}
	if e.Origin != "" {
		all = append(all, feedLimit{kind + " at " + normalOrigin(e.Origin), 1, time.Hour})
	}
	return all
}

// visitorLimit returns the limit on tokens that visitors ask for.
func (t *Type) visitorLimit() feedLimit {
	share := t.view.Engine.FeedEntries(history.FeedChanges) / visitorShare
	return feedLimit{"visitor " + t.view.NS.String() + t.Name(), int(share), 24 * time.Hour}
}

// recordLimited calls do, which records an event in a history and, unless the limit is reached, in
// the feed. do reports whether there was an event to count.
func (db *DB) recordLimited(ctx context.Context, l feedLimit, do func(context.Context) bool) {
	now := db.view().Now()
	if !db.options.tally.allows(l, now) {
		ctx = view.WithoutFeed(ctx)
	}
	if do(ctx) {
		db.options.tally.count(l, now)
	}
}

// countEvent counts an event, and reports whether the feed should record it.
func (db *DB) countEvent(limits ...feedLimit) bool {
	now := db.view().Now()
	for _, l := range limits {
		if !db.options.tally.allows(l, now) {
			return false
		}
	}
	for _, l := range limits {
		db.options.tally.count(l, now)
	}
	return true
}

// An eventTally counts the events that a process has recorded in feeds. Counting in the store would
// cost a round trip and a record for each event, and anybody can cause any number of them. An
// eventTally is safe for concurrent use.
type eventTally struct {
	seed maphash.Seed

	mu sync.Mutex
	// young and old hold the tallies by the hashes of their names. When young has maxTallied of
	// them, it replaces old, and a new young begins.
	young, old map[uint64]tally
}

// A tally holds the number n of events with one name since begun.
type tally struct {
	begun time.Time
	n     int
}

// maxTallied limits the memory of an eventTally to a few megabytes.
const maxTallied = 50_000

func newEventTally() *eventTally {
	return &eventTally{seed: maphash.MakeSeed(), young: map[uint64]tally{}}
}

// allows reports whether the feed may record one more event.
func (t *eventTally) allows(l feedLimit, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(maphash.String(t.seed, l.name), l.period, now).n < l.max
}

func (t *eventTally) count(l feedLimit, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := maphash.String(t.seed, l.name)
	c := t.find(name, l.period, now)
	c.n++
	if len(t.young) >= maxTallied {
		t.old, t.young = t.young, map[uint64]tally{}
	}
	t.young[name] = c
}

// find returns the count of a name in the period that includes now.
func (t *eventTally) find(name uint64, period time.Duration, now time.Time) tally {
	c, ok := t.young[name]
	if !ok {
		c = t.old[name]
	}
	if since := now.Sub(c.begun); since < 0 || since >= period {
		return tally{begun: now}
	}
	return c
}
