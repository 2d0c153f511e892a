package userdb

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// An EventQuery selects a page of a feed. The zero EventQuery selects the 100 oldest events.
type EventQuery struct {
	// After is EventPage.Next of an earlier page of the same query, or EventsEnd to skip all events
	// so far. If "", reading starts at the oldest event.
	After string

	// Until is EventPage.Next of another page; nothing after that page is read. If "", there is no
	// such bound. It cannot be used with Latest.
	Until string

	// Kinds selects events of these kinds. If empty, it selects all.
	Kinds []EventKind

	// Key selects the events of one entry. It has no namespace. If zero, it selects all. Events
	// then reads only the parts of the feed that may have them, so After, Until and the positions
	// in the page are only for queries with the same Key.
	Key recordkey.Key

	// Limit is the maximum number of events. If zero, it is 100; it is never more than 1000.
	Limit int

	// Latest reads backwards: the newest events first and then, with After, older ones. Events that
	// happen after the first page is read are not included.
	Latest bool
}

// EventsEnd is the value of EventQuery.After that stands for the current end of the feed.
const EventsEnd = "end"

// An EventPage is a part of a feed. If few events match the query, it may hold fewer than Limit, or
// none, although it has a Next.
type EventPage struct {
	Events []HistoryEvent

	// Next is EventQuery.After for the next page. It is set even if there are no more events yet,
	// but with EventQuery.Latest it is "" if there are no older events.
	Next string

	// Gap reports whether events around EventQuery.After are missing, because they were trimmed or
	// a failover lost them. Reading continues at the last event before the gap.
	Gap bool

	// End is set on the first page of a query with EventQuery.Latest. It is EventQuery.After,
	// without Latest, for the events that happen after this page.
	End string
}

// Events reads the feed of events in the namespace since Options.History was set, oldest first, or
// newest first with q.Latest. The feed has the events of all histories, and logins. The changes of
// one entry come in the order in which they happened; logins and sessions are sorted by their time.
// An embedded store keeps 2,000 events of each of the following groups; other stores keep
//
//   - changes for 90 days and up to 256 MiB,
//   - successful logins and sessions for 7 days and up to 48 MiB,
//   - failed logins for 7 days and up to 16 MiB,
//   - actions of operators for 90 days and up to 16 MiB, and
//   - failed logins of operators for 7 days and up to 16 MiB,
//
// so that no group displaces another. Each process records at most 60 logins and sessions of one
// entry in an hour. For each type, it records the tokens that IssueForVisitor issues until they
// fill a fiftieth of the feed of changes in a day. Histories have all sessions and tokens.
//
// The error is ErrCursor if q.After or q.Until is invalid.
//
// On one server, an event is written by the same command as the change. On a cluster, it is written
// right after the change. If the process crashes in between, or a master does not answer for a
// minute, the event is missing until the next change of the entry, or until check.Run repairs the
// entry; a login or an event of a session stays missing. For a deleted entry, check.Run must run
// within a day.
func (db *DB) Events(ctx context.Context, q EventQuery) (page EventPage, err error) {
	ctx, v := db.begin(ctx, "Events", &err)
	defer v.end(&err)
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	r := feedReader{view: db.view(), q: q, parts: history.PartsOf(q.Key)}
	if q.Key.IsValid() {
		r.about = q.Key.String() + " "
	}
	if err := r.begin(ctx); err != nil {
		return EventPage{}, err
	}
	if r.until, err = parsePosition(q.Until); err != nil {
		return EventPage{}, err
	}
	more := true
	for n := range maxReads {
		more, err = r.read(ctx, r.nextCount(n))
		if err != nil && len(r.page.Events) == 0 {
			return EventPage{}, err
		}
		if err != nil { // so that readers of a slow store make progress
			more, err = true, nil
			break
		}
		if !more || len(r.page.Events) == q.Limit {
			break
		}
	}
	if more || !q.Latest {
		r.page.Next = r.after.String()
	}
	return r.page, nil
}

// maxReads limits the reads of the feed for one page. maxReadAdded limits how much one read takes
// from each part, on average over all parts; lines that were added together count once. There may
// be many of those, for example after an import, so maxLines limits the lines of each read but the
// first. A page then takes a few megabytes of memory at most, although a cluster has eighty parts.
// All limits suffice for a page of 1000 events.
const (
	maxReads     = 10
	maxReadAdded = 100
	maxLines     = maxReadAdded * history.FeedParts * len(feeds)
)

// feeds lists the feeds that Events merges.
var feeds = [...]string{history.FeedChanges, history.FeedLogins, history.FeedFailures, history.FeedOperators, history.FeedGuesses}

// A feedReader reads one page of the feed.
type feedReader struct {
	view  *view.View
	q     EventQuery
	about string // how lines about the entry of q.Key begin, or ""
	parts []int
	after position
	until position
	dense int // lines that the last read returned, divided by its count
	page  EventPage
}

// nextCount returns the count for the next read, after n earlier ones. Most lines are not about the
// entry of a query with a key, so after its first read such a query reads more from each of its few
// parts.
func (r *feedReader) nextCount(n int) int {
	count := maxReadAdded
	switch {
	case !r.q.Key.IsValid():
		count = min(r.q.Limit, maxReadAdded)
	case n > 0:
		count = maxReadAdded * history.FeedParts / len(r.parts)
	}
	return min(count, max(maxLines/max(r.dense, 1), 1))
}

// A position holds, for each feed and each of its parts, the ID of the last event read, or "" if
// none was.
type position [len(feeds)][history.FeedParts]string

// begin sets the position to start from.
func (r *feedReader) begin(ctx context.Context) (err error) {
	switch {
	case r.q.After == "" && !r.q.Latest:
		return nil
	case r.q.After == EventsEnd || r.q.After == "":
		for i, name := range feeds {
			if r.after[i], err = r.view.Engine.FeedEnd(ctx, r.view.NS, name, r.parts); err != nil {
				return err
			}
		}
		if r.q.Latest {
			r.page.End = r.after.String()
			r.after.includeLast()
		}
		return nil
	}
	r.after, err = parsePosition(r.q.After)
	return err
}

// includeLast moves the position past the last event of each part, so that a backward read includes
// that event. It does not move parts without events.
func (p *position) includeLast() {
	for i := range p {
		for part, id := range p[i] {
			at, line, _ := strings.Cut(id, ":")
			if n, err := strconv.Atoi(line); err == nil {
				p[i][part] = at + ":" + strconv.Itoa(n+1)
			}
		}
	}
}

// wantsFeed reports whether a feed has events of the selected kinds.
func (r *feedReader) wantsFeed(feed string) bool {
	if len(r.q.Kinds) == 0 {
		return true
	}
	return slices.ContainsFunc(r.q.Kinds, func(kind EventKind) bool { return slices.Contains(view.FeedsOf(kind), feed) })
}

// matches reports whether the query selects an event.
func (r *feedReader) matches(e HistoryEvent) bool {
	return (len(r.q.Kinds) == 0 || slices.Contains(r.q.Kinds, e.Kind)) && (!r.q.Key.IsValid() || e.Key == r.q.Key)
}

// String encodes the position: "FEED.PART.ID," for each part from which an event was read, in
// base64.
func (p *position) String() string {
	var b strings.Builder
	for i := range p {
		for part, id := range p[i] {
			if id != "" {
				fmt.Fprintf(&b, "%d.%d.%s,", i, part, id)
			}
		}
	}
	return base64.RawURLEncoding.EncodeToString([]byte(b.String()))
}

func parsePosition(text string) (p position, err error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(decoded) > 4096 {
		return p, ErrCursor
	}
	for item := range strings.SplitSeq(strings.TrimSuffix(string(decoded), ","), ",") {
		if item == "" {
			continue
		}
		words := strings.Split(item, ".")
		if len(words) != 3 {
			return p, ErrCursor
		}
		feed, err1 := strconv.Atoi(words[0])
		part, err2 := strconv.Atoi(words[1])
		if _, _, ok := history.ParseID(words[2]); err1 != nil || err2 != nil || !ok || feed < 0 || feed >= len(feeds) || part < 0 || part >= history.FeedParts {
			return p, ErrCursor
		}
		p[feed][part] = words[2]
	}
	return p, nil
}

// includes reports whether an event is at or before the position.
func (p *position) includes(feed, part int, ms, n uint64) bool {
	atMS, atN, ok := history.ParseID(p[feed][part])
	return ok && (ms < atMS || ms == atMS && n <= atN)
}

// A feedEvent is an event with its place in the feeds.
type feedEvent struct {
	feed  int
	line  history.FeedLine
	ms, n uint64
}

// read appends the events that follow, in order of time, and reports whether there may be more.
// From each part it reads about count lines, of which those that were added together count once.
func (r *feedReader) read(ctx context.Context, count int) (more bool, err error) {
	var all []feedEvent
	var unread [len(feeds)][history.FeedParts]int // lines of each part that have not been appended
	for i, name := range feeds {
		if !r.wantsFeed(name) {
			continue
		}
		p, err := r.view.Engine.Feed(ctx, history.Feed{NS: r.view.NS, Name: name, Parts: r.parts, After: r.after[i], Reverse: r.q.Latest, Count: count})
		if err != nil {
			return false, err
		}
		for part, gap := range p.Gap {
			if gap {
				r.page.Gap = true
				r.after[i][part] = p.At[part]
			}
		}
		for _, f := range p.Lines {
			ms, n, _ := history.ParseID(f.ID)
			if r.q.Until != "" && !r.until.includes(i, f.Part, ms, n) {
				continue
			}
			all = append(all, feedEvent{i, f, ms, n})
			unread[i][f.Part]++
		}
	}
	r.dense = len(all) / count
	slices.SortStableFunc(all, func(a, b feedEvent) int {
		return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.feed, b.feed), cmp.Compare(a.line.Part, b.line.Part), cmp.Compare(a.n, b.n))
	})
	if r.q.Latest {
		slices.Reverse(all)
	}
	fetched := unread // lines of each part that this call has read
	for _, f := range all {
		if len(r.page.Events) == r.q.Limit {
			return true, nil
		}
		r.after[f.feed][f.line.Part] = f.line.ID
		if e, ok := r.event(f); ok {
			e.Next = r.after.String()
			r.page.Events = append(r.page.Events, e)
		}
		unread[f.feed][f.line.Part]--
		if fetched[f.feed][f.line.Part] >= count && unread[f.feed][f.line.Part] == 0 {
			return true, nil // lines of that part that were not read may come before others
		}
	}
	return false, nil
}

// event returns the event that a line describes, if the query selects it. If the query has a key,
// it does not parse lines about other entries.
func (r *feedReader) event(f feedEvent) (e HistoryEvent, ok bool) {
	if !strings.HasPrefix(f.line.Text, r.about) {
		return e, false
	}
	prk, l, ok := f.line.Parse()
	e = eventOf(l)
	e.Key = prk
	e.ID = fmt.Sprintf("%c%d-%s", feeds[f.feed][0], f.line.Part, f.line.ID)
	return e, ok && r.matches(e)
}
