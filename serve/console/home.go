package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// A homePage holds the data of the home page.
type homePage struct {
	URL      string    // of the service, as the browser names it; empty behind a proxy
	Type     string    // the type in the example of a command that creates an account
	At       time.Time // when the totals were counted; zero if they are not known yet
	Empty    bool      // there are no accounts
	Warnings []inspect.Warning
	Types    []inspect.TypeStatus
	Today    today
	Failures []event
	Opened   []event // the accounts that the operator opened last
	Running  []admin.Job
}

// homeFailures is how many failures home reads, and maxFailures how many lines it shows of them.
const (
	homeFailures = 200
	maxFailures  = 8
)

// home shows totals, sign-ins, recent failures and the accounts that the operator opened last.
func (c *Console) home(w http.ResponseWriter, r *http.Request) {
	db, err := c.view(r.Context())
	var found userdb.EventPage
	if err == nil {
		kinds := []userdb.EventKind{userdb.EventLoginFailed, userdb.EventThrottle, userdb.EventFactorLock, userdb.EventPasskeyClone}
		found, err = db.Events(r.Context(), userdb.EventQuery{Latest: true, Limit: homeFailures, Kinds: kinds})
	}
	var jobs []admin.Job
	if err == nil {
		jobs, err = c.jobs.jobs.In(operatorNamespace(r)).All(r.Context())
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	waitCtx, cancel := withFigureTimeout(r.Context())
	defer cancel()
	p := homePage{URL: ownURL(r), Type: db.Schema().Names()[0]}
	p.Running = slices.DeleteFunc(jobs, func(j admin.Job) bool { return j.State != admin.JobRunning })
	status, at := gatherFigure(waitCtx, &c.figures, "status", figureAge, func(ctx context.Context) (inspect.Status, error) { return inspect.StatusOf(ctx, db, nil) })
	p.At, p.Warnings, p.Types = at, status.Warnings, status.Types
	if !at.IsZero() && !slices.ContainsFunc(p.Types, func(t inspect.TypeStatus) bool { return t.Entries != nil && *t.Entries > 0 }) {
		p.Empty = c.hasNoAccounts(r.Context(), db)
	}
	hours, at := gatherFigure(waitCtx, &c.figures, "logins", 5*time.Second, func(ctx context.Context) (map[int64]tally, error) { return c.logins.read(ctx, db, time.Now()) })
	p.Today = drawToday(hours, !at.IsZero(), time.Now())
	failed, opened := groupFailures(found.Events), c.opened.latest(r)
	labelled := withLabels(r.Context(), db, slices.Concat(failed.events, opened))
	for i, one := range labelled[:len(failed.events)] {
		one.Count = failed.counts[i]
		p.Failures = append(p.Failures, one)
	}
	p.Opened = labelled[len(failed.events):]
	c.show(w, r, http.StatusOK, page{Name: "home", Title: "Home", Searching: true, Data: p})
}

// ownURL returns the URL of the service, as the browser names it. If a proxy passed the request on,
// ownURL returns "": the proxy may serve only the console under that name, as nginx.conf does.
func ownURL(r *http.Request) string {
	switch {
	case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("X-Forwarded-Proto") != "":
		return ""
	case r.TLS != nil:
		return "https://" + r.Host
	default:
		return "http://" + r.Host
	}
}

// hasNoAccounts reports whether the store has no accounts now. The figures may be minutes old, so
// they cannot show this.
func (c *Console) hasNoAccounts(ctx context.Context, db *userdb.DB) bool {
	for _, name := range db.Schema().Names() {
		t, err := db.Type(name)
		if err != nil {
			return false
		}
		if found, err := t.Page(ctx, userdb.Query{Limit: 1, MaxRead: 1}); err != nil || len(found.Entries) > 0 || found.Next != "" {
			return false
		}
	}
	return true
}

// grouped holds the latest of equal failures, and how many there were of each.
type grouped struct {
	events []userdb.HistoryEvent
	counts []int
}

// groupFailures joins failures of the same kind, account and origin, whatever lies between them.
// all begins with the newest.
func groupFailures(all []userdb.HistoryEvent) (g grouped) {
	for _, e := range all {
		at := slices.IndexFunc(g.events, func(o userdb.HistoryEvent) bool { return o.Key == e.Key && o.Origin == e.Origin && o.Kind == e.Kind })
		switch {
		case at >= 0:
			g.counts[at]++
		case len(g.events) < maxFailures:
			g.events, g.counts = append(g.events, e), append(g.counts, 1)
		}
	}
	return g
}

// today compares the sign-ins of the last 24 hours, by hour, with the average of the same hours on
// the six days before.
type today struct {
	Known                      bool
	Good, Failed               int // in the last 24 hours
	UsualGood, UsualFailed     int // in 24 hours of the days before, on average
	Most                       int // in an hour
	Bars                       []hourBar
	Labels                     []axisLabel
	Width, Height, Base, HalfY int
}

// An hourBar draws one hour. If Usual is set, a mark for the days before is drawn at UsualY.
type hourBar struct {
	X, GoodY, GoodHeight, FailedY, FailedHeight, UsualY int
	Usual                                               bool
	Title                                               string
}

type axisLabel struct {
	X    int
	Text string
}

// Sizes of the picture of today.
const (
	todayHours  = 24
	todayBar    = 24 // from one bar to the next
	todayLeft   = 72 // room for the numbers, which are large on a phone
	todayHeight = 100
)

func drawToday(hours map[int64]tally, known bool, now time.Time) today {
	t := today{Known: known, Width: todayLeft + todayHours*todayBar, Height: todayHeight + 24, Base: todayHeight + 4, HalfY: todayHeight/2 + 4}
	first := hourOf(now) - todayHours + 1
	days := plotHours/todayHours - 1
	var usual [todayHours]tally
	for i := range usual {
		for day := 1; day <= days; day++ {
			one := hours[first+int64(i-day*todayHours)]
			usual[i].Good, usual[i].Failed = usual[i].Good+one.Good, usual[i].Failed+one.Failed
		}
		now := hours[first+int64(i)]
		t.Good, t.Failed = t.Good+now.Good, t.Failed+now.Failed
		t.UsualGood, t.UsualFailed = t.UsualGood+usual[i].Good, t.UsualFailed+usual[i].Failed
		t.Most = max(t.Most, now.Good+now.Failed, (usual[i].Good+usual[i].Failed)/days)
	}
	t.UsualGood, t.UsualFailed = t.UsualGood/days, t.UsualFailed/days
	height := func(n int) int {
		if n == 0 {
			return 0
		}
		return max(2, n*todayHeight/max(t.Most, 1))
	}
	for i, before := range usual {
		at, one := time.Unix((first+int64(i))*3600, 0).UTC(), hours[first+int64(i)]
		x, average := todayLeft+i*todayBar, (before.Good+before.Failed)/days
		if i%6 == 0 {
			t.Labels = append(t.Labels, axisLabel{x, at.Format("15:04")})
		}
		if one == (tally{}) && average == 0 {
			continue
		}
		good, failed := height(one.Good), height(one.Failed)
		t.Bars = append(t.Bars, hourBar{
			X: x, GoodY: t.Base - good, GoodHeight: good, FailedY: t.Base - good - failed, FailedHeight: failed, UsualY: t.Base - height(average), Usual: average > 0,
			Title: fmt.Sprintf("%s UTC: %d successful, %d failed; usually %d", at.Format("15:04"), one.Good, one.Failed, average),
		})
	}
	return t
}

// HalfMost returns the number in the middle of the axis, or 0 if that is not a whole number.
func (t today) HalfMost() int {
	if t.Most%2 != 0 {
		return 0
	}
	return t.Most / 2
}

// Limits on how many accounts are remembered for each operator, and for how many operators.
const (
	maxOpened          = 8
	maxOpenedOperators = 1000
)

// openedAccounts remembers which accounts each operator opened last in this process. The zero value
// is ready to use.
type openedAccounts struct {
	mu  sync.Mutex
	all map[recordkey.Key][]recordkey.Key // the latest first
}

// add remembers that the operator who sent a request has opened an account. If there are too many
// operators to remember, it first forgets all of them.
func (o *openedAccounts) add(r *http.Request, e userdb.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	operator := web.Entry(r.Context()).Key()
	if _, known := o.all[operator]; o.all == nil || !known && len(o.all) >= maxOpenedOperators {
		o.all = map[recordkey.Key][]recordkey.Key{}
	}
	keys := slices.DeleteFunc(slices.Clone(o.all[operator]), func(k recordkey.Key) bool { return k == e.Key() })
	o.all[operator] = slices.Insert(keys, 0, e.Key())[:min(len(keys)+1, maxOpened)]
}

// latest returns the accounts that the operator who sent a request opened last, as events without a
// kind.
func (o *openedAccounts) latest(r *http.Request) (all []userdb.HistoryEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range o.all[web.Entry(r.Context()).Key()] {
		all = append(all, userdb.HistoryEvent{Key: key})
	}
	return all
}
