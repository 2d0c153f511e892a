package console

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/userdb"
)

// A statusPage holds the state of the store and the numbers of logins.
type statusPage struct {
	Known  bool
	At     time.Time
	Status inspect.Status
	Plot   plot
}

func (c *Console) status(w http.ResponseWriter, r *http.Request) {
	db, err := c.view(r.Context())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	waitCtx, cancel := withFigureTimeout(r.Context())
	defer cancel()
	var p statusPage
	p.Status, p.At = gatherFigure(waitCtx, &c.figures, "status", figureAge, func(ctx context.Context) (inspect.Status, error) { return inspect.StatusOf(ctx, db, nil) })
	p.Known = !p.At.IsZero()
	hours, at := gatherFigure(waitCtx, &c.figures, "logins", 5*time.Second, func(ctx context.Context) (map[int64]tally, error) { return c.logins.read(ctx, db, time.Now()) })
	p.Plot = draw(hours, !at.IsZero(), time.Now())
	c.show(w, r, http.StatusOK, page{Name: "status", Title: "Status", Data: p})
}

// A tally counts the logins in an hour.
type tally struct{ Good, Failed int }

// A loginCounter counts the logins in the feed by hour. Each read continues after the previous one.
// The zero value is ready to use.
type loginCounter struct {
	mu    sync.Mutex
	after string
	hours map[int64]tally // by hours since 1970
}

// plotHours is the number of hours in the plot. The feed keeps logins for just as many.
const plotHours = 7 * 24

// read counts the events that are new in the feed and returns all hours of the plot.
func (l *loginCounter) read(ctx context.Context, db *userdb.DB, now time.Time) (map[int64]tally, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hours == nil {
		l.hours = map[int64]tally{}
	}
	for {
		found, err := db.Events(ctx, userdb.EventQuery{After: l.after, Kinds: []userdb.EventKind{userdb.EventLogin, userdb.EventLoginFailed, userdb.EventThrottle}, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, e := range found.Events {
			one := l.hours[hourOf(e.Time)]
			if e.Kind == "login" {
				one.Good++
			} else {
				one.Failed++
			}
			l.hours[hourOf(e.Time)] = one
		}
		if l.after == found.Next {
			break
		}
		l.after = found.Next
	}
	all := map[int64]tally{}
	for hour, one := range l.hours {
		if hour <= hourOf(now)-plotHours {
			delete(l.hours, hour)
			continue
		}
		all[hour] = one
	}
	return all, nil
}

func hourOf(at time.Time) int64 { return at.Unix() / 3600 }

// A plot holds the numbers of successful and failed logins as bars and in words.
type plot struct {
	Known        bool
	Bars         []bar
	Width        int
	Days         []day
	Most         int
	Good, Failed int
}

// A bar represents one hour. Lengths are in units of the picture, whose height is plotHeight.
type bar struct {
	X, GoodY, GoodHeight, FailedY, FailedHeight int
	Title                                       string
}

type day struct {
	X            int
	Name         string
	Good, Failed int
}

const (
	plotHeight = 160
	barWidth   = 4
)

// draw returns the plot of the last seven days.
func draw(hours map[int64]tally, known bool, now time.Time) plot {
	p := plot{Known: known, Width: plotHours * barWidth}
	first := hourOf(now) - plotHours + 1
	for _, one := range hours {
		p.Most = max(p.Most, one.Good+one.Failed)
	}
	for i := range int64(plotHours) {
		at, one := time.Unix((first+i)*3600, 0).UTC(), hours[first+i]
		x := int(i) * barWidth
		if at.Hour() == 0 || len(p.Days) == 0 {
			p.Days = append(p.Days, day{X: x, Name: at.Format("Mon 2 Jan")})
		}
		d := &p.Days[len(p.Days)-1]
		d.Good, d.Failed = d.Good+one.Good, d.Failed+one.Failed
		p.Good, p.Failed = p.Good+one.Good, p.Failed+one.Failed
		if one == (tally{}) {
			continue
		}
		good, failed := barHeight(one.Good, p.Most), barHeight(one.Failed, p.Most)
		p.Bars = append(p.Bars, bar{
			X: x, GoodY: plotHeight - good, GoodHeight: good, FailedY: plotHeight - good - failed, FailedHeight: failed,
			Title: fmt.Sprintf("%s: %d successful, %d failed", at.Format("Mon 2 Jan 15:04 UTC"), one.Good, one.Failed),
		})
	}
	return p
}

// barHeight returns the height of a bar. It is large enough to be seen unless n is 0.
func barHeight(n, most int) int {
	if n == 0 {
		return 0
	}
	return max(2, n*(plotHeight-4)/max(most, 1))
}
