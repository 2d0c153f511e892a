package userdb

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// An Actor says who does something, for histories.
type Actor struct {
	// Name names the actor, such as "key:web" or "operator:Alice", cut to 80 bytes. If "", it is
	// recorded as "library".
	Name string

	// Origin is the address that the request came from, cut to 80 bytes. Methods that take an
	// Attempt or SessionOptions use that origin instead.
	Origin string
}

// WithActor returns a copy of ctx for which histories record the actor a. If a field of a is "",
// the copy keeps the one of ctx.
func WithActor(ctx context.Context, a Actor) context.Context {
	return view.WithActor(ctx, view.Actor(a))
}

// A HistoryEvent describes something that was done to an entry. It holds names of fields, never
// values. These are the kinds in histories and feeds:
//
//	create         the entry was created with Fields
//	update         Fields were changed
//	identifier     Fields, by which the entry can be found, were changed
//	delete         the entry was deleted
//	tags           the tertiary records in Fields were changed
//	password       the password was set or changed
//	disable        the entry was disabled: it may not log in
//	enable         the entry was enabled again
//	session_start  a session began
//	session_end    one session was ended, or all were
//	issue          a token for Purpose, bound to Fields, was issued
//	redeem         a token for Purpose was redeemed
//
// These are only in feeds:
//
//	login          a login succeeded
//	login_failed   the identifier (then Key is zero) or the password was wrong
//	throttle       nothing was checked, because of too many failures before
//
// These describe what operators of 'userdb serve', commands, and programs with an API key did. They
// are recorded even if histories are not kept. Purpose is the name of what was acted on:
//
//	waits                  the failed logins of an entry were cleared
//	key_create             an API key was created
//	key_revoke             an API key was revoked
//	import                 an import of entries of type Purpose began
//	export                 an export of entries of type Purpose began, of all types if "",
//	                       or of one entry if Key is set; if Purpose is JOB/FILE, an operator
//	                       downloaded a file of a job in the console
//	repair                 a repair began, with Purpose and Key as for export
//	operator_add           an operator was added
//	operator_disable       an operator was disabled: they may not sign in
//	operator_enable        an operator was enabled again
//	operator_password      the password of an operator was set
//	operator_login         an operator signed in
//	operator_login_failed  a login as an operator failed
type HistoryEvent struct {
	ID      string // unique in the feed; "" in a history
	Next    string // EventQuery.After for the events that follow in the feed; "" in a history
	Kind    EventKind
	Time    time.Time
	Actor   string        // as in Actor
	Origin  string        // as in Actor
	Key     recordkey.Key // the key of the entry without a namespace
	Fields  []string      // sorted; the last is "…" if there was no room for more
	Purpose string
}

// An EventKind says what happened. The comments of [Event] and [HistoryEvent] list the kinds.
type EventKind = view.EventKind

// Kinds of events. The last four are only passed to Options.OnEvent; feeds use other kinds for
// them or do not have them.
const (
	EventCreate       = view.EventCreate
	EventUpdate       = view.EventUpdate
	EventDelete       = view.EventDelete
	EventIdentifier   = view.EventIdentifier
	EventTags         = view.EventTags
	EventPassword     = view.EventPassword
	EventDisable      = view.EventDisable
	EventEnable       = view.EventEnable
	EventLogin        = view.EventLogin
	EventLoginFailed  = view.EventLoginFailed
	EventThrottle     = view.EventThrottle
	EventSessionStart = view.EventSessionStart
	EventSessionEnd   = view.EventSessionEnd
	EventIssue        = view.EventIssue
	EventRedeem       = view.EventRedeem

	EventThrottleReset       = view.EventWaits
	EventKeyCreate           = view.EventKeyCreate
	EventKeyRevoke           = view.EventKeyRevoke
	EventImport              = view.EventImport
	EventExport              = view.EventExport
	EventRepair              = view.EventRepair
	EventOperatorAdd         = view.EventOperatorAdd
	EventOperatorDisable     = view.EventOperatorDisable
	EventOperatorEnable      = view.EventOperatorEnable
	EventOperatorPassword    = view.EventOperatorPassword
	EventOperatorLogin       = view.EventOperatorLogin
	EventOperatorLoginFailed = view.EventOperatorLoginFailed

	EventFailure EventKind = "failure"
	EventRefuse  EventKind = "refuse"
	EventStart   EventKind = "start"
	EventEnd     EventKind = "end"
)

// maxLoginEvents limits how many successful logins to one account the feed records in an hour.
// Otherwise, somebody who keeps logging in to one account would push out the logins to all others.
const maxLoginEvents = 60

// countLogin counts a successful login and reports whether the feed should record it.
func (db *DB) countLogin(ctx context.Context, prk recordkey.Key) bool {
	v := db.view()
	counter, err := recordkey.Own("visits", prk.Type(), "login", db.digest("account", prk.In(v.NS).String()))
	if err != nil {
		return true
	}
	wait, err := v.Engine.Limit(ctx, store.Limit{Counter: counter.In(v.NS), Max: maxLoginEvents, Window: visitorWindow, Now: v.StoreTime()})
	return err != nil || wait == 0
}

// appendLogin appends a successful, failed or throttled login to its feed.
func (db *DB) appendLogin(ctx context.Context, e Event) {
	kind := map[EventKind]EventKind{EventLogin: EventLogin, EventFailure: EventLoginFailed, EventThrottle: EventThrottle}[e.Kind]
	v := db.view()
	if kind == "" || !v.Config.History || kind == EventLogin && !db.countLogin(ctx, e.Key) {
		return
	}
	n := v.Note(view.WithActor(ctx, view.Actor{Origin: e.Origin}), kind, "")
	if err := v.Engine.AppendFeed(ctx, v.NS, view.FeedOf(kind), e.Key, n); err != nil {
		v.Config.Log.WarnContext(ctx, "a login is missing from the feed", "error", err)
	}
}

// History returns what was done to an entry since Options.History was set, the latest first: at
// most a hundred events of the last 90 days. It holds every acknowledged change exactly once, and
// nothing that was not done. On a cluster, a command on a tertiary record is recorded right after
// it is done; if the process crashes in between, the event is missing, but then the command was
// never acknowledged either. The error is ErrNotFound if there is no such entry.
func (t *Type) History(ctx context.Context, h hints.Hint) (all []HistoryEvent, err error) {
	ctx, v := t.db.begin(ctx, "History", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return nil, publicError(err)
	}
	lines, err := t.view.Engine.History(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	since := t.view.Now().Add(-historyLife)
	for _, line := range slices.Backward(lines) {
		e, ok := parseLine(line)
		if !ok || e.Time.Before(since) {
			continue
		}
		e.Key = r.Key.In(recordkey.Namespace{})
		all = append(all, e)
	}
	return all, nil
}

// historyLife is how long histories keep an event.
const historyLife = 90 * 24 * time.Hour

// parseLine parses a line of a history. history.lua describes the format.
func parseLine(line string) (e HistoryEvent, ok bool) {
	words := strings.Split(line, " ")
	if len(words) < 6 {
		return e, false
	}
	e.Time = time.UnixMicro(store.LineTime(line))
	e.Kind, e.Actor, e.Origin, e.Purpose = EventKind(words[1]), cmp.Or(unescapeWord(words[2]), "library"), unescapeWord(words[3]), unescapeWord(words[5])
	for name := range strings.SplitSeq(words[4], "/") {
		if name != "" {
			e.Fields = append(e.Fields, unescapeWord(name))
		}
	}
	return e, true
}

func unescapeWord(escaped string) string {
	text, err := recordkey.Unescape(escaped)
	if err != nil { // the word is "/", which stands for ""
		return ""
	}
	return text
}

// An EventQuery selects a page of a feed. The zero EventQuery selects the 100 oldest events.
type EventQuery struct {
	// After is EventPage.Next of an earlier page of the same query, or EventsEnd to skip everything
	// that has happened so far. If "", reading starts at the oldest event.
	After string

	// Until is EventPage.Next of another page; nothing after that page is read. If "", there is no
	// such bound. It cannot be used with Latest.
	Until string

	// Kinds selects events of these kinds. If empty, it selects all.
	Kinds []EventKind

	// Key selects the events of one entry. It has no namespace. If zero, it selects all.
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

// Events reads the feed of what has happened in the namespace since Options.History was set, oldest
// first, or newest first with q.Latest. The feed has everything that histories have, and logins.
// The events of one entry come in the order in which they happened. Changes are kept for 90 days
// and up to 256 MiB, successful logins for 7 days and up to 48 MiB, and failed ones for 7 days and
// up to 16 MiB, so that none of them displaces the others. An embedded store keeps 2,000 of each.
// The error is ErrCursor if q.After or q.Until is invalid.
//
// On one server, an event is written by the same command as the change. On a cluster, it is written
// right after the change. If the process crashes in between, or a master does not answer for a
// minute, the event is missing until the next change of the entry, or until check.Run repairs the
// entry. If the entry was deleted, that repair must run within a day.
func (db *DB) Events(ctx context.Context, q EventQuery) (page EventPage, err error) {
	ctx, v := db.begin(ctx, "Events", &err)
	defer v.end(&err)
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	r := feedReader{view: db.view(), q: q}
	if err := r.begin(ctx); err != nil {
		return EventPage{}, err
	}
	if r.until, err = parsePosition(q.Until); err != nil {
		return EventPage{}, err
	}
	more := true
	for range maxReads {
		if more, err = r.read(ctx); err != nil {
			return EventPage{}, err
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

// maxReads is the maximum number of reads of the feed for one page.
const maxReads = 10

// feeds are the feeds that Events reads as one.
var feeds = [...]string{store.FeedChanges, store.FeedLogins, store.FeedFailures}

// A feedReader reads one page of the feed.
type feedReader struct {
	view  *view.View
	q     EventQuery
	after position
	until position
	page  EventPage
}

// A position holds, for each feed and each of its parts, the ID of the last event read, or "" if
// none was.
type position [len(feeds)][store.FeedParts]string

// begin sets the position to start from.
func (r *feedReader) begin(ctx context.Context) (err error) {
	switch {
	case r.q.After == "" && !r.q.Latest:
		return nil
	case r.q.After == EventsEnd || r.q.After == "":
		for i, name := range feeds {
			if r.after[i], err = r.view.Engine.FeedEnd(ctx, r.view.NS, name); err != nil {
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
	return slices.ContainsFunc(r.q.Kinds, func(kind EventKind) bool { return view.FeedOf(kind) == feed })
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
	for one := range strings.SplitSeq(strings.TrimSuffix(string(decoded), ","), ",") {
		if one == "" {
			continue
		}
		words := strings.Split(one, ".")
		if len(words) != 3 {
			return p, ErrCursor
		}
		feed, err1 := strconv.Atoi(words[0])
		part, err2 := strconv.Atoi(words[1])
		if _, _, ok := splitID(words[2]); err1 != nil || err2 != nil || !ok || feed < 0 || feed >= len(feeds) || part < 0 || part >= store.FeedParts {
			return p, ErrCursor
		}
		p[feed][part] = words[2]
	}
	return p, nil
}

// includes reports whether an event is at or before the position.
func (p *position) includes(feed, part int, ms, n uint64) bool {
	atMS, atN, ok := splitID(p[feed][part])
	return ok && (ms < atMS || ms == atMS && n <= atN)
}

// splitID parses the ID of an event, MILLISECONDS-NUMBER:LINE. n combines NUMBER and LINE.
func splitID(id string) (ms, n uint64, ok bool) {
	first, rest, _ := strings.Cut(id, "-")
	second, third, _ := strings.Cut(rest, ":")
	ms, err1 := strconv.ParseUint(first, 10, 64)
	number, err2 := strconv.ParseUint(second, 10, 32)
	line, err3 := strconv.ParseUint(third, 10, 16)
	return ms, number<<16 + line, err1 == nil && err2 == nil && err3 == nil
}

// A feedEvent is an event with its place in the feeds.
type feedEvent struct {
	feed  int
	line  store.FeedLine
	ms, n uint64
}

// read appends the events that follow, in order of time, and reports whether there may be more.
func (r *feedReader) read(ctx context.Context) (more bool, err error) {
	var all []feedEvent
	for i, name := range feeds {
		if !r.wantsFeed(name) {
			continue
		}
		p, err := r.view.Engine.Feed(ctx, store.Feed{NS: r.view.NS, Name: name, After: r.after[i], Reverse: r.q.Latest, Count: r.q.Limit})
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
			ms, n, _ := splitID(f.ID)
			if r.q.Until != "" && !r.until.includes(i, f.Part, ms, n) {
				continue
			}
			all = append(all, feedEvent{i, f, ms, n})
		}
	}
	slices.SortStableFunc(all, func(a, b feedEvent) int {
		return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.feed, b.feed), cmp.Compare(a.line.Part, b.line.Part), cmp.Compare(a.n, b.n))
	})
	if r.q.Latest {
		slices.Reverse(all)
	}
	for i, f := range all {
		if i == r.q.Limit || len(r.page.Events) == r.q.Limit {
			return true, nil
		}
		r.after[f.feed][f.line.Part] = f.line.ID
		if e, ok := eventOf(f); ok && r.matches(e) {
			e.Next = r.after.String()
			r.page.Events = append(r.page.Events, e)
		}
	}
	return len(all) >= r.q.Limit, nil
}

// eventOf parses an event of the form "PRK LINE".
func eventOf(f feedEvent) (HistoryEvent, bool) {
	prk, line, _ := strings.Cut(f.line.Text, " ")
	e, ok := parseLine(line)
	if key, err := recordkey.Parse(prk); err == nil {
		e.Key = key
	}
	e.ID = fmt.Sprintf("%c%d-%s", feeds[f.feed][0], f.line.Part, f.line.ID)
	return e, ok
}
