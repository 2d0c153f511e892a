package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

const eventsPerPage = 50

// A historyPage holds events, the newest first.
type historyPage struct {
	Events []event
	Kinds  []userdb.EventKind // the kinds to choose from
	Kind   userdb.EventKind   // the chosen kind, or "" for all
	Filter eventFilter
	Newest string // path of the newest page
	Older  string // path of the page with older events, or ""
	Since  string // position after which to ask for newer events; "" on older pages or with Filter

	Conditions []condition // what all events have in common
}

// historyConditions returns the conditions in the parameters of a page of the history.
func historyConditions(params url.Values) (all []condition) {
	const path = "/console/history"
	add := func(name, label, value string) {
		if value != "" {
			all = append(all, condition{label, value, strings.TrimSpace(label + " " + value), path + prefixIfAny("?", cleanParams(params, "after", name).Encode())})
		}
	}
	add("kind", "", kindTexts[userdb.EventKind(params.Get("kind"))])
	for _, one := range [][2]string{{"account", "account"}, {"by", "by"}, {"origin", "address"}, {"from", "from"}, {"until", "until"}} {
		add(one[0], one[1], params.Get(one[0]))
	}
	return all
}

// An eventFilter holds the inputs that select events, except their kind, as somebody entered them.
// Spaces around them make no difference.
type eventFilter struct {
	Account, By, Origin, From, Until string
	begin                            time.Time // the first moment of From
	end                              time.Time // the first moment after Until
}

// newEventFilter reads a filter from a request, and adds it to params, the parameters of links. It
// also returns what is wrong with the dates.
func newEventFilter(r *http.Request, params url.Values) (f eventFilter, problems []web.Problem) {
	for name, field := range map[string]*string{"account": &f.Account, "by": &f.By, "origin": &f.Origin, "from": &f.From, "until": &f.Until} {
		if entered := r.FormValue(name); strings.TrimSpace(entered) != "" {
			*field = entered
			params.Set(name, entered)
		}
	}
	var err error
	refuse := func(field, text string) {
		problems = append(problems, web.Problem{Code: userdb.CodeInvalid, Field: field, Text: text})
	}
	if f.begin, _, err = parseWhen(strings.TrimSpace(f.From)); f.From != "" && err != nil {
		refuse("from", notWhen)
	}
	if _, f.end, err = parseWhen(strings.TrimSpace(f.Until)); f.Until != "" && err != nil {
		refuse("until", notWhen)
	}
	if !f.end.IsZero() && !f.begin.Before(f.end) {
		refuse("until", "This is before the date from which events are shown.")
	}
	return f, problems
}

const notWhen = "Not a date: write 2026-11-20 or 2026-11-20 08:02."

var errWhen = errors.New("not a date")

// whenLayouts are the layouts in which people type a time, each with the length of time that it
// denotes. parseWhen also accepts a date alone. A time without a zone is in UTC.
var whenLayouts = []struct {
	layout string
	lasts  time.Duration
}{
	{"2006-01-02 15:04", time.Minute},
	{"2006-01-02T15:04", time.Minute},
	{"2006-01-02T15:04Z07:00", time.Minute},
	{time.DateTime, time.Second},
	{"2006-01-02T15:04:05", time.Second},
	{time.RFC3339, time.Second},
}

// parseWhen returns the first moment of a day, minute or second that was entered, and the first one
// after it.
func parseWhen(text string) (begin, end time.Time, err error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, day.AddDate(0, 0, 1), nil
	}
	for _, one := range whenLayouts {
		at, err := time.Parse(one.layout, text)
		switch {
		case err != nil:
		case at.Nanosecond() != 0: // a fraction of a second
			return at, at.Add(time.Nanosecond), nil
		default:
			return at, at.Add(one.lasts), nil
		}
	}
	return begin, end, errWhen
}

// selects reports whether the filter selects an event. It ignores the account of the filter, which
// is part of the query.
func (f eventFilter) selects(e userdb.HistoryEvent) bool {
	_, name, _ := strings.Cut(e.Actor, ":")
	by, origin := strings.TrimSpace(f.By), strings.TrimSpace(f.Origin)
	return (by == "" || strings.EqualFold(name, by)) && (origin == "" || e.Origin == origin) && (f.end.IsZero() || e.Time.Before(f.end)) && !e.Time.Before(f.begin)
}

// isEmpty reports whether the filter selects all events.
func (f eventFilter) isEmpty() bool { return f == eventFilter{} }

// isPlain reports whether the filter selects by nothing but the account.
func (f eventFilter) isPlain() bool { return f == eventFilter{Account: f.Account} }

// maxEventPages is how many pages of events are read for one filtered page.
const maxEventPages = 5

// readEvents reads a page of the events that a filter selects, the newest first. The page may be
// short. Without q.Latest, readEvents ignores the filter, and the oldest events come first.
func readEvents(ctx context.Context, db *userdb.DB, q userdb.EventQuery, f eventFilter) (p userdb.EventPage, err error) {
	if f.isPlain() || !q.Latest {
		return db.Events(ctx, q)
	}
	q.Limit = 200
	for range maxEventPages {
		found, err := db.Events(ctx, q)
		if err != nil {
			return p, err
		}
		for _, e := range found.Events {
			if f.selects(e) {
				p.Events = append(p.Events, e)
			}
		}
		p.Next, q.After = found.Next, found.Next
		n := len(found.Events)
		if n > 0 && found.Events[n-1].Time.Before(f.begin) {
			p.Next = "" // all further events are older
		}
		// A short page means that Events has read as much as it may.
		if p.Next == "" || len(p.Events) >= eventsPerPage || n < q.Limit {
			break
		}
	}
	return p, nil
}

// feedKinds are the kinds of events about an account that its own history does not have.
// EventDelete is about an earlier account with the same UID.
var feedKinds = append(slices.Clone(signInKinds), userdb.EventThrottleReset, userdb.EventImport, userdb.EventExport, userdb.EventRepair,
	userdb.EventDelete, userdb.EventRelease)

// fullHistory is the maximum number of events in an account's own history.
const fullHistory = 100

// readAccountEvents reads a page of the events of one account, the newest first. The first page has
// all selected events of the account's own history. Unless that is full, the feed is searched only
// for other kinds.
func readAccountEvents(ctx context.Context, db *userdb.DB, q userdb.EventQuery, f eventFilter) (p userdb.EventPage, err error) {
	t, err := db.Type(q.Key.Type())
	if err != nil {
		return p, err
	}
	own, err := t.History(ctx, hints.Key(q.Key))
	if err != nil && !errors.Is(err, userdb.ErrNoHistory) {
		return p, err
	}
	isChosen := func(k userdb.EventKind) bool { return len(q.Kinds) == 0 || slices.Contains(q.Kinds, k) }
	search := q
	if len(own) < fullHistory {
		search.Kinds = slices.DeleteFunc(slices.Clone(feedKinds), func(k userdb.EventKind) bool { return !isChosen(k) })
	}
	if len(own) >= fullHistory || len(search.Kinds) > 0 {
		if p, err = readEvents(ctx, db, search, f); err != nil {
			return p, err
		}
	}
	p.Events = slices.DeleteFunc(p.Events, func(e userdb.HistoryEvent) bool {
		return slices.ContainsFunc(own, func(o userdb.HistoryEvent) bool { return isSameEvent(o, e) })
	})
	if q.After != "" {
		return p, nil
	}
	for _, e := range own {
		if isChosen(e.Kind) && f.selects(e) {
			p.Events = append(p.Events, e)
		}
	}
	slices.SortStableFunc(p.Events, func(a, b userdb.HistoryEvent) int { return b.Time.Compare(a.Time) })
	return p, nil
}

// readHistory reads a page of the events that a query and a filter select, the newest first.
// Without q.Latest, it ignores the filter.
func readHistory(ctx context.Context, db *userdb.DB, q userdb.EventQuery, f eventFilter) (userdb.EventPage, error) {
	if q.Key.IsValid() && q.Latest {
		return readAccountEvents(ctx, db, q, f)
	}
	found, err := readEvents(ctx, db, q, f)
	if !q.Latest {
		slices.Reverse(found.Events)
	}
	return found, err
}

// isSameEvent reports whether an event of an account's own history and one of the feed are the
// same.
func isSameEvent(own, e userdb.HistoryEvent) bool {
	return own.Kind == e.Kind && own.Time.Equal(e.Time) && own.Actor == e.Actor && own.Origin == e.Origin
}

// keyOf returns the key of the account that has a text as an identifier or UID, with or without the
// spaces at its ends, or the zero key if there is none.
func keyOf(ctx context.Context, db *userdb.DB, text string) (recordkey.Key, error) {
	all := []hints.Hint{hints.Any(text), hints.UID(text)}
	if trimmed := strings.TrimSpace(text); trimmed != text {
		all = append(all, hints.Any(trimmed), hints.UID(trimmed))
	}
	for _, name := range db.Schema().Names() {
		t, err := db.Type(name)
		if err != nil {
			return recordkey.Key{}, err
		}
		for e, err := range t.FindAll(ctx, all...) {
			if err == nil {
				return e.Key(), nil
			}
			if !isAbsent(err) {
				return recordkey.Key{}, err
			}
		}
	}
	return recordkey.Key{}, nil
}

func (c *Console) history(w http.ResponseWriter, r *http.Request) {
	db, err := c.view(r.Context())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	q := userdb.EventQuery{Limit: eventsPerPage, After: r.FormValue("after"), Latest: true}
	kind := userdb.EventKind(r.FormValue("kind"))
	params := url.Values{} // of the links of the page
	if slices.Contains(eventKinds, kind) {
		q.Kinds = []userdb.EventKind{kind}
		params.Set("kind", string(kind))
	}
	filter, problems := newEventFilter(r, params)
	if filter.Account != "" {
		q.Key, err = keyOf(r.Context(), db, filter.Account)
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	p := historyPage{Kinds: eventKinds, Kind: kind, Filter: filter, Conditions: historyConditions(params), Newest: "/console/history"}
	if filter.Account != "" && !q.Key.IsValid() {
		problems = append(problems, web.Problem{Code: userdb.CodeNotFound, Field: "account", Text: "Nobody has “" + filter.Account + "”."})
	}
	if len(problems) > 0 {
		c.show(w, r, statusOf(problems), page{Name: "history", Title: "History", Data: p, Problems: problems})
		return
	}
	if since := r.FormValue("since"); since != "" {
		q.After, q.Latest = since, false
	}
	found, err := readHistory(r.Context(), db, q, filter)
	if isAny(err, userdb.ErrCursor) {
		http.Redirect(w, r, "/console/history", http.StatusSeeOther)
		return
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	p.Events, p.Newest = group(withLabels(r.Context(), db, found.Events)), "/console/history?"+params.Encode()
	if !q.Latest {
		p.Since = found.Next
		c.show(w, r, http.StatusOK, page{Name: "news", Data: p})
		return
	}
	if found.Next != "" {
		params.Set("after", found.Next)
		p.Older = "/console/history?" + params.Encode()
	}
	if q.After == "" && filter.isEmpty() {
		p.Since = found.End
	}
	c.show(w, r, http.StatusOK, page{Name: "history", Title: "History", Data: p})
}

// eventKinds lists all kinds of events in the order of the form.
var eventKinds = []userdb.EventKind{
	userdb.EventCreate, userdb.EventUpdate, userdb.EventIdentifier, userdb.EventDelete, userdb.EventTags, userdb.EventPassword, userdb.EventDisable, userdb.EventEnable,
	userdb.EventSessionStart, userdb.EventSessionEnd, userdb.EventIssue, userdb.EventRedeem, userdb.EventRelease, userdb.EventFactors, userdb.EventFactorLock, userdb.EventLogin, userdb.EventLoginFailed, userdb.EventThrottle, userdb.EventPasskeyClone,
	userdb.EventThrottleReset, userdb.EventOperatorLogin, userdb.EventOperatorLoginFailed, userdb.EventOperatorAdd, userdb.EventOperatorDisable, userdb.EventOperatorEnable, userdb.EventOperatorPassword, userdb.EventOperatorLink, userdb.EventOperatorFactor, userdb.EventOperatorNoFactor, userdb.EventOperatorCodes,
	userdb.EventKeyCreate, userdb.EventKeyRevoke, userdb.EventImport, userdb.EventExport, userdb.EventRepair,
}

// labelBatch is the number of accounts that readLabels reads at a time: each may have 1 MiB.
const labelBatch = 16

// readLabels returns the current labels of the accounts that events are about. It reads at most
// labelBatch accounts of a type at a time.
func readLabels(ctx context.Context, db *userdb.DB, found []userdb.HistoryEvent) map[recordkey.Key]string {
	accounts := map[string][]hints.Hint{} // by type
	seen := map[recordkey.Key]bool{}
	for _, e := range found {
		if e.Key.IsValid() && !seen[e.Key] {
			seen[e.Key] = true
			accounts[e.Key.Type()] = append(accounts[e.Key.Type()], hints.Key(e.Key))
		}
	}
	labels := map[recordkey.Key]string{}
	for name, all := range accounts {
		t, err := db.Type(name)
		if err != nil {
			continue // the schema no longer has the type
		}
		for batch := range slices.Chunk(all, labelBatch) {
			for e, err := range t.FindAll(ctx, batch...) {
				if err == nil {
					labels[e.Key()] = accountLabel(e, db.Schema().Types[name])
				}
			}
		}
	}
	return labels
}

// withLabels adds the current label of its account to each event.
func withLabels(ctx context.Context, db *userdb.DB, found []userdb.HistoryEvent) []event {
	labels := readLabels(ctx, db, found)
	all := make([]event, len(found))
	for i, e := range found {
		all[i] = event{HistoryEvent: e, Label: labels[e.Key]}
		switch {
		case all[i].Label != "":
			all[i].Path = keyPath(e.Key)
		case e.Key.IsValid(): // the account no longer exists
			all[i].Label = e.Key.Value()
		case e.Kind.IsOperator():
			all[i].Label = "This store"
		}
	}
	return all
}
