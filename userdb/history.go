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

// An Actor is who does something, as histories tell it.
type Actor struct {
	Who    string // such as "key:web" or "operator:Alice", at most 80 bytes of it; "": library
	Origin string // the address that it came from, at most 80 bytes of it; verbs that take an Attempt or SessionOptions tell theirs
}

// WithActor is a context under which verbs are done by an actor. What is "" stays as the context had it.
func WithActor(ctx context.Context, a Actor) context.Context {
	return view.WithActor(ctx, view.Actor(a))
}

// A HistoryEvent is something that was done to an entry. It holds names, and no values. Its kinds are
//
//	create         it was made, with Fields
//	update         Fields were set or unset
//	identifier     the same for those Fields by which it is found
//	delete         it is gone
//	tags           Fields are tertiary records that were changed
//	password       it was set or changed
//	disable        it may not log in any more
//	enable         it may again
//	session_start  a session began
//	session_end    one was ended, or all were
//	issue          a token of Purpose was issued, which is bound to Fields
//	redeem         it was spent
//
// and, in feeds alone,
//
//	login          a good one
//	login_failed   a wrong identifier or password; without Key: nobody has the identifier
//	throttle       nothing was checked: too many failures before
//
// and, whether or not histories are kept, what operators of 'userdb serve' did, or a command, or a
// program with an API key, with Purpose for the name of what they did it to
//
//	waits                  the failed logins of an entry were forgotten
//	key_create             an API key was made
//	key_revoke             it was revoked
//	import                 an import of entries of type Purpose was begun
//	export                 an export of those entries was begun; "": of all, and with Key of that entry
//	repair                 a repair was begun, as with export
//	operator_add           an operator was made
//	operator_disable       one may not sign in any more
//	operator_enable        one may again
//	operator_password      the password of one was set
//	operator_login         one signed in
//	operator_login_failed  somebody failed to sign in as one
type HistoryEvent struct {
	ID      string // in a feed: no other event of it has the same
	Next    string // in a feed: EventQuery.After for what follows
	Kind    EventKind
	At      time.Time
	Who     string
	Origin  string
	Key     recordkey.Key // of the entry, without a namespace
	Fields  []string      // sorted; the last one is "…" where there are more than have room
	Purpose string
}

// An EventKind says what happened. The comments of [Event] and [HistoryEvent] say what each means.
type EventKind = view.EventKind

// Kinds of events. The last four are told to Options.OnEvent alone: feeds call them otherwise, or have none of them.
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

	EventWaits               = view.EventWaits
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

// tellLogin puts a login, or the failure of one, into its feed.
func (db *DB) tellLogin(ctx context.Context, e Event) {
	kind := map[EventKind]EventKind{EventLogin: EventLogin, EventFailure: EventLoginFailed, EventThrottle: EventThrottle}[e.Kind]
	v := db.view()
	if kind == "" || !v.Config.History {
		return
	}
	n := v.Note(view.WithActor(ctx, view.Actor{Origin: e.Origin}), kind, "")
	if err := v.Engine.Tell(ctx, v.NS, view.FeedOf(kind), e.PRK, n); err != nil {
		v.Config.Log.WarnContext(ctx, "a login is missing in the feed", "error", err)
	}
}

// History is what was done to an entry since Options.History is set, the latest first: at most a hundred events of the last 90
// days. Each change that was acknowledged stands there once, and nothing that was not done. On a cluster a command on a tertiary
// record is noted right after it: if the process dies in between, it is missing, but nobody was told of it either.
// ErrNotFound: there is no such entry.
func (t *Type) History(ctx context.Context, h hints.Hint) (all []HistoryEvent, err error) {
	ctx, v := t.db.begin(ctx, "History", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return nil, public(err)
	}
	lines, err := t.view.Engine.History(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	since := t.view.Now().Add(-historyLife)
	for _, line := range slices.Backward(lines) {
		e, ok := parseLine(line)
		if !ok || e.At.Before(since) {
			continue
		}
		e.Key = r.Key.In(recordkey.Namespace{})
		all = append(all, e)
	}
	return all, nil
}

const historyLife = 90 * 24 * time.Hour

// parseLine reads a line of a history: see history.lua.
func parseLine(line string) (e HistoryEvent, ok bool) {
	words := strings.Split(line, " ")
	if len(words) < 6 {
		return e, false
	}
	e.At = time.UnixMicro(store.LineTime(line))
	e.Kind, e.Who, e.Origin, e.Purpose = EventKind(words[1]), cmp.Or(unword(words[2]), "library"), unword(words[3]), unword(words[5])
	for name := range strings.SplitSeq(words[4], "/") {
		if name != "" {
			e.Fields = append(e.Fields, unword(name))
		}
	}
	return e, true
}

func unword(escaped string) string {
	text, err := recordkey.Unescape(escaped)
	if err != nil { // there is none
		return ""
	}
	return text
}

// An EventQuery says what of a feed is read.
type EventQuery struct {
	After string        // EventPage.Next of an earlier page of the same query; "": from the oldest event; EventsEnd: nothing that has happened before
	Until string        // EventPage.Next of another page, beyond which nothing is read; "": all there is. Not with Latest
	Kinds []EventKind   // none: all
	Key   recordkey.Key // of an entry, without a namespace, whose events are meant; the zero Key: all
	Limit int           // at most so many events; 0: 100, and never more than 1000

	// Latest reads backwards: the newest events first, and with After those that are older. What comes in meanwhile is not among them.
	Latest bool
}

// EventsEnd, as After, is the end of a feed.
const EventsEnd = "end"

// An EventPage is a part of a feed. Of few among many events it may have fewer than Limit, or none, and a Next.
type EventPage struct {
	Events []HistoryEvent
	Next   string // where to go on, also where there is nothing more yet; of EventQuery.Latest "" where there is nothing older
	Gap    bool   // events are missing around After: it was trimmed, or a failover lost it. Reading goes on at the last event before it
	End    string // of the first page of EventQuery.Latest: After for what comes in after it, without Latest
}

// Events reads the feed of what has happened in the namespace since Options.History is set, the
// oldest first, or the newest: all that histories have, and logins. The events of one entry come in
// their order. Changes are kept for 90 days and up to 256 MiB, good logins for 7 days and up to 48
// MiB, failed ones for 7 days and up to 16 MiB, so that neither pushes the others out; an embedded
// store keeps 2,000 of each.
//
// On one server an event stands in the feed by the same command that made the change. On a cluster
// that comes right after it. A process that dies in between, or a master that does not answer for
// a minute, leaves it out until the next change of the entry, or a check with a repair that reads
// it: within a day, if the entry was deleted. ErrCursor: After is none.
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
	for range mostReads {
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

// mostReads is how often a feed is read for one page of few kinds.
const mostReads = 10

// feeds are those that Events reads as one.
var feeds = [...]string{store.FeedChanges, store.FeedLogins, store.FeedFailures}

// A feedReader reads a page.
type feedReader struct {
	view  *view.View
	q     EventQuery
	after position
	until position
	page  EventPage
}

// A position is, for each feed and part of it, the ID of the event that was read last; "": none was.
type position [len(feeds)][store.FeedParts]string

// begin finds the position.
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
			r.after.beyond()
		}
		return nil
	}
	r.after, err = parsePosition(r.q.After)
	return err
}

// beyond makes the position of what was read last one before which that comes, too. Where nothing was, nothing comes.
func (p *position) beyond() {
	for i := range p {
		for part, id := range p[i] {
			at, line, _ := strings.Cut(id, ":")
			if n, err := strconv.Atoi(line); err == nil {
				p[i][part] = at + ":" + strconv.Itoa(n+1)
			}
		}
	}
}

// wants reports whether a feed has events of the kinds that are asked for.
func (r *feedReader) wants(feed string) bool {
	if len(r.q.Kinds) == 0 {
		return true
	}
	return slices.ContainsFunc(r.q.Kinds, func(kind EventKind) bool { return view.FeedOf(kind) == feed })
}

// is reports whether an event is asked for.
func (r *feedReader) is(e HistoryEvent) bool {
	return (len(r.q.Kinds) == 0 || slices.Contains(r.q.Kinds, e.Kind)) && (!r.q.Key.IsValid() || e.Key == r.q.Key)
}

// String is "FEED.PART.ID," of each part of which something was read.
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

// has reports whether the position is not before an event.
func (p *position) has(feed, part int, ms, n uint64) bool {
	atMS, atN, ok := splitID(p[feed][part])
	return ok && (ms < atMS || ms == atMS && n <= atN)
}

// splitID takes the ID of an event apart: MILLISECONDS-NUMBER:LINE. n is the last two.
func splitID(id string) (ms, n uint64, ok bool) {
	first, rest, _ := strings.Cut(id, "-")
	second, third, _ := strings.Cut(rest, ":")
	ms, err1 := strconv.ParseUint(first, 10, 64)
	number, err2 := strconv.ParseUint(second, 10, 32)
	line, err3 := strconv.ParseUint(third, 10, 16)
	return ms, number<<16 + line, err1 == nil && err2 == nil && err3 == nil
}

// A found is an event with its place.
type found struct {
	feed  int
	fed   store.Fed
	ms, n uint64
}

// read takes what follows, in the order of time, and reports whether there may be more.
func (r *feedReader) read(ctx context.Context) (more bool, err error) {
	var all []found
	for i, name := range feeds {
		if !r.wants(name) {
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
		for _, f := range p.Fed {
			ms, n, _ := splitID(f.ID)
			if r.q.Until != "" && !r.until.has(i, f.Part, ms, n) {
				continue
			}
			all = append(all, found{i, f, ms, n})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.feed, b.feed), cmp.Compare(a.fed.Part, b.fed.Part), cmp.Compare(a.n, b.n))
	})
	if r.q.Latest {
		slices.Reverse(all)
	}
	for i, f := range all {
		if i == r.q.Limit || len(r.page.Events) == r.q.Limit {
			return true, nil
		}
		r.after[f.feed][f.fed.Part] = f.fed.ID
		if e, ok := eventOf(f); ok && r.is(e) {
			e.Next = r.after.String()
			r.page.Events = append(r.page.Events, e)
		}
	}
	return len(all) >= r.q.Limit, nil
}

// eventOf reads "PRK LINE".
func eventOf(f found) (HistoryEvent, bool) {
	prk, line, _ := strings.Cut(f.fed.Text, " ")
	e, ok := parseLine(line)
	if key, err := recordkey.Parse(prk); err == nil {
		e.Key = key
	}
	e.ID = fmt.Sprintf("%c%d-%s", feeds[f.feed][0], f.fed.Part, f.fed.ID)
	return e, ok
}
