package userdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
)

// TestEventsAfterClockWasAhead adds an event to each part of the feed as if the server's clock were
// 400 days ahead. Later events must have the right times, in histories and in the feed, and earlier
// ones must stay in the history.
func TestEventsAfterClockWasAhead(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s.Edit(t, func(c *view.Config) { c.History = true })
		users, early := s.Type(t, "user"), userdb.WithActor(s.Ctx, userdb.Actor{Name: "early", Origin: "192.0.2.1"})
		_, err := users.Create(early, userdb.NewEntry{UID: "u1"})
		must(t, err)
		readFeed(t, s.DB, 1) // waits until the feed has it
		addAhead(t, s)
		hyphen := userdb.Actor{Name: "-", Origin: "-"} // a word like the one in place of a number
		late := userdb.WithActor(s.Ctx, hyphen)
		must(t, users.Disable(late, uid("u1")))
		_, err = users.Create(late, userdb.NewEntry{UID: "u2"})
		must(t, err)
		lines, err := users.History(s.Ctx, uid("u1"))
		if must(t, err); len(lines) != 2 {
			t.Errorf("the history has %d events, want 2: %v", len(lines), lines)
		}
		found := 0
		for _, e := range append(readFeed(t, s.DB, history.FeedParts+3), lines...) {
			if e.Key.Value() == "other" {
				continue
			}
			found++
			if e.Time.After(time.Now().Add(time.Hour)) {
				t.Errorf("%s of %s has the time %v", e.Kind, e.Key, e.Time)
			}
			if e.Actor != "early" && (e.Actor != hyphen.Name || e.Origin != hyphen.Origin) {
				t.Errorf("%s of %s has the actor %q and the origin %q, want hyphens", e.Kind, e.Key, e.Actor, e.Origin)
			}
		}
		if found != 5 {
			t.Errorf("got %d events of the feed and the history, want 5", found)
		}
	})
}

// addAhead adds an event to each part of the feed as if the server's clock were 400 days ahead.
func addAhead(t *testing.T, s *testdb.Site) {
	t.Helper()
	ahead := time.Now().Add(400 * 24 * time.Hour)
	for part := range history.FeedParts {
		stream, err := history.FeedKey(s.NS, history.FeedChanges, part)
		must(t, err)
		must(t, s.Raw.Do(s.Ctx, "XADD", stream.String(), fmt.Sprint(ahead.UnixMilli(), "-0"), "e", "user/uid:other - update library / name /").Err())
	}
}

// TestProgressAfterClockWasAhead checks that a cluster remembers, for as long as it keeps the
// history, which lines are in a part of the feed, if that part has later IDs because the server's
// clock was ahead. It could not find these lines again by their times, and would add them twice.
func TestProgressAfterClockWasAhead(t *testing.T) {
	for name, ahead := range map[string]bool{"right": false, "ahead": true} {
		t.Run(name, func(t *testing.T) {
			s := testdb.AsCluster(t, testdb.DefaultSchema())
			s.Edit(t, func(c *view.Config) { c.History = true })
			want := 1
			if ahead {
				addAhead(t, s)
				want += history.FeedParts
			}
			e, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "u1"})
			must(t, err)
			readFeed(t, s.DB, want)
			key, err := history.FeedProgressKey(e.Key(), history.FeedChanges, history.FeedPart(e.Key()))
			must(t, err)
			left, err := s.Raw.PTTL(s.Ctx, key.String()).Result()
			must(t, err)
			if long := left > 2*time.Hour; left <= 0 || long != ahead {
				t.Errorf("%s is kept for %v, want more than two hours: %v", key, left, ahead)
			}
		})
	}
}
