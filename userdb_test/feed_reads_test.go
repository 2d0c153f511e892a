package userdb_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// A rangeHook counts the commands that read a range of a stream, and records the greatest of their
// COUNTs.
type rangeHook struct{ commands, most atomic.Int64 }

func (h *rangeHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *rangeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.record(cmd)
		return next(ctx, cmd)
	}
}

func (h *rangeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.record(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h *rangeHook) record(cmd redis.Cmder) {
	if args := cmd.Args(); cmd.Name() == "xrange" || cmd.Name() == "xrevrange" {
		n, _ := strconv.ParseInt(fmt.Sprint(args[len(args)-1]), 10, 64)
		h.commands.Add(1)
		h.most.Store(max(h.most.Load(), n))
	}
}

// TestSlowFeed checks that a page has the events that were read before the store stopped answering,
// so that a reader of a slow store makes progress.
func TestSlowFeed(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s.Edit(t, func(c *view.Config) { c.History = true })
		const acts = 250
		for range acts {
			must(t, admin.RecordEvent(s.Ctx, s.DB, userdb.EventOperatorAdd, "x"))
		}
		readFeed(t, s.DB, acts) // waits until the feed has all events
		cut := &testdb.Cut{}
		s.AddHook(cut)
		short, whole := 0, false
		for left := int64(0); !whole; left++ {
			cut.Left.Store(left)
			page, err := s.DB.Events(s.Ctx, userdb.EventQuery{Limit: 1000})
			cut.Left.Store(1 << 40)
			n := len(page.Events)
			switch whole = n == acts; {
			case err != nil && n == 0, whole && err == nil:
				continue
			case err != nil:
				t.Fatalf("after %d commands: got %d events and error %v, want no error if there are events", left, n, err)
			}
			short++
			rest, err := s.DB.Events(s.Ctx, userdb.EventQuery{After: page.Next, Limit: 1000})
			if err != nil || n+len(rest.Events) != acts {
				t.Errorf("after %d commands: %d events, and then %d, %v; want %d", left, n, len(rest.Events), err, acts)
			}
		}
		if short == 0 {
			t.Error("no page had only a part of the events")
		}
	})
}

// TestFeedReadsAreBounded checks that a page of the feed, however large, reads only some events of
// each part at a time, and that pages of any size have all events in the order in which they were
// added, forward and backward.
func TestFeedReadsAreBounded(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s.Edit(t, func(c *view.Config) { c.History = true })
		h := &rangeHook{}
		s.AddHook(h)
		users, err := s.DB.Type("user")
		must(t, err)
		const acts, creates = 250, 60
		for range acts { // all in one part of the feed, before all other events
			must(t, admin.RecordEvent(s.Ctx, s.DB, userdb.EventOperatorAdd, "x"))
		}
		for i := range creates {
			_, err := users.Create(s.Ctx, userdb.NewEntry{UID: fmt.Sprint("u", i)})
			must(t, err)
		}
		read := func(limit int, latest bool) (ids []string) {
			q := userdb.EventQuery{Limit: limit, Latest: latest}
			for {
				page, err := s.DB.Events(s.Ctx, q)
				must(t, err)
				if len(page.Events) < limit && len(ids)+len(page.Events) < acts+creates && len(page.Events) > 0 {
					t.Errorf("a page of %d events has %d, but more follow", limit, len(page.Events))
				}
				for _, e := range page.Events {
					ids = append(ids, e.ID)
				}
				if q.After = page.Next; len(page.Events) == 0 || q.After == "" {
					return ids
				}
			}
		}
		readFeed(t, s.DB, acts+creates) // waits until the feed has all events
		want := read(1000, false)
		addedAt := func(id string) int64 {
			words := strings.Split(id, "-") // FEED AND PART, MILLISECONDS, NUMBER:LINE
			ms, _ := strconv.ParseInt(words[1], 10, 64)
			return ms
		}
		if len(want) != acts+creates || !slices.IsSortedFunc(want, func(a, b string) int { return int(addedAt(a) - addedAt(b)) }) {
			t.Errorf("got %d events, want %d in the order in which they were added: %q", len(want), acts+creates, want)
		}
		if n := h.most.Load(); n == 0 || n > 101 {
			t.Errorf("a command read up to %d events of a part, want 1 to 101", n)
		}
		if got := read(7, false); !slices.Equal(got, want) {
			t.Errorf("pages of 7 events have %q, want %q", got, want)
		}
		slices.Reverse(want)
		for _, limit := range []int{7, 1000} {
			if got := read(limit, true); !slices.Equal(got, want) {
				t.Errorf("pages of %d, latest first, have %q, want %q", limit, got, want)
			}
		}
	})
}

// TestEventsOfOneEntry checks that a page of the events of one entry reads only the parts of the
// feed that can contain them, and finds an event even if thousands of events of another entry come
// after it.
func TestEventsOfOneEntry(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s.Edit(t, func(c *view.Config) { c.History = true })
		e, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "u1"})
		must(t, err)
		readFeed(t, s.DB, 1) // waits until the feed has it
		for _, part := range history.PartsOf(e.Key()) {
			stream, err := history.FeedKey(s.NS, history.FeedChanges, part)
			must(t, err)
			for range 3000 {
				must(t, s.Raw.Do(s.Ctx, "XADD", stream.String(), "*", "e", "user/uid:u2 - update library / name /").Err())
			}
		}
		h := &rangeHook{}
		s.AddHook(h)
		for _, latest := range []bool{true, false} {
			h.commands.Store(0)
			page, err := s.DB.Events(s.Ctx, userdb.EventQuery{Key: e.Key(), Kinds: []userdb.EventKind{userdb.EventCreate, userdb.EventUpdate}, Latest: latest})
			must(t, err)
			if len(page.Events) != 1 || page.Events[0].Kind != userdb.EventCreate {
				t.Errorf("latest %v: the events are %v, want the create", latest, page.Events)
			}
			// The ends of two parts are read in each of five feeds, and then two parts of one feed.
			if n := h.commands.Load(); n == 0 || n > 30 {
				t.Errorf("latest %v: %d commands read the feed, want at most 30", latest, n)
			}
		}
	})
}

// TestEventsAddedTogether checks that a page of the events of one entry reads less at a time if
// many events were added together, as by an import, and that the pages still lead to the oldest.
func TestEventsAddedTogether(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		s.Edit(t, func(c *view.Config) { c.History = true })
		e, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "u1"})
		must(t, err)
		readFeed(t, s.DB, 1) // waits until the feed has it
		stream, err := history.FeedKey(s.NS, history.FeedChanges, history.PartsOf(e.Key())[0])
		must(t, err)
		together := strings.Repeat("\nuser/uid:u2 - update library / name /", 400)[1:]
		for range 400 {
			must(t, s.Raw.Do(s.Ctx, "XADD", stream.String(), "*", "e", together).Err())
		}
		h := &rangeHook{}
		s.AddHook(h)
		q, pages, found := userdb.EventQuery{Key: e.Key(), Kinds: []userdb.EventKind{userdb.EventCreate}, Latest: true}, 0, 0
		for ok := true; ok; ok = q.After != "" {
			page, err := s.DB.Events(s.Ctx, q)
			must(t, err)
			found, pages, q.After = found+len(page.Events), pages+1, page.Next
		}
		if most := h.most.Load(); found != 1 || pages < 2 || most > 101 {
			t.Errorf("got %d events on %d pages, with COUNT up to %d; want 1 event, several pages, COUNT at most 101", found, pages, most)
		}
	})
}
