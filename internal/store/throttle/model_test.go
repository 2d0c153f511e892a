package throttle_test

import (
	"time"

	"github.com/coffeenode/userdb/internal/store/throttle"
)

// A throttleModel implements the documented rules for counting attempts without Redis and without
// the script.
type throttleModel struct {
	accounts map[string]*account
	origins  map[string]*window
}

// A window counts the failures of one origin, or the failures of strangers at an account. Strangers
// are origins that have not logged in to the account.
type window struct {
	failures   int
	ends, next time.Time
}

// An account holds the failures of strangers and, for each origin that logged in before, its own.
type account struct {
	strangers window
	seen      map[string]time.Time // the last login from each origin
	own       map[string]int       // the failures of each origin on its own budget
	ownEnds   time.Time            // when the window of these failures ends
}

func newThrottleModel() *throttleModel {
	return &throttleModel{accounts: map[string]*account{}, origins: map[string]*window{}}
}

func (m *throttleModel) account(name string, now time.Time) *account {
	a := m.accounts[name]
	if a == nil {
		a = &account{seen: map[string]time.Time{}, own: map[string]int{}}
		m.accounts[name] = a
	}
	a.strangers.refresh(now)
	for o, last := range a.seen {
		if !now.Before(last.Add(throttle.FamiliarLife)) {
			delete(a.seen, o)
			delete(a.own, o)
		}
	}
	if !now.Before(a.ownEnds) {
		clear(a.own)
	}
	return a
}

func (m *throttleModel) origin(name string, now time.Time) *window {
	if m.origins[name] == nil {
		m.origins[name] = &window{}
	}
	m.origins[name].refresh(now)
	return m.origins[name]
}

// refresh clears a window that has ended or has no failures.
func (w *window) refresh(now time.Time) {
	if w.failures == 0 || !now.Before(w.ends) {
		*w = window{}
	}
}

// wait returns how long the window delays an attempt. limit is the maximum number of failures; 0
// means no limit.
func (w *window) wait(now time.Time, limit int) time.Duration {
	if limit > 0 && w.failures >= limit {
		return w.ends.Sub(now)
	}
	return max(w.next.Sub(now), 0)
}

// fail counts one more failure. Failure number free causes the first delay, and each further one
// doubles the delay.
func (w *window) fail(now time.Time, length time.Duration, free int) {
	if w.failures++; w.failures == 1 {
		w.ends = now.Add(length)
	}
	delay := time.Second
	for range w.failures - free {
		delay = min(2*delay, throttle.MaxDelay)
	}
	if w.failures >= free {
		w.next = now.Add(delay)
	}
}

// undoFailure takes back a failure and its delay.
func (w *window) undoFailure(now time.Time) {
	w.failures, w.next = max(w.failures-1, 0), time.Time{}
	w.refresh(now)
}

// hasOwn reports whether an origin may still fail on its own budget.
func (a *account) hasOwn(origin string) bool {
	_, familiar := a.seen[origin]
	return familiar && a.own[origin] < throttle.FamiliarMax
}

func (m *throttleModel) admit(name, origin string, now time.Time) throttle.Admission {
	a := m.account(name, now)
	originWait := time.Duration(0)
	if origin != "" {
		originWait = m.origin(origin, now).wait(now, 0)
	}
	as := throttle.Admission{OwnBudget: a.hasOwn(origin), AtOrigin: origin != "" && originWait == 0}
	if !as.OwnBudget {
		if as.Wait = max(originWait, a.strangers.wait(now, throttle.StrangerMax)); as.Wait > 0 {
			return throttle.Admission{Wait: as.Wait}
		}
		a.strangers.fail(now, throttle.Window, throttle.StrangerFree)
	} else {
		if len(a.own) == 0 {
			a.ownEnds = now.Add(throttle.Window)
		}
		a.own[origin]++
	}
	if as.AtOrigin {
		m.origin(origin, now).fail(now, throttle.OriginWindow, throttle.OriginFree)
	}
	return as
}

func (m *throttleModel) withdraw(name, origin string, now time.Time, as throttle.Admission) {
	a := m.account(name, now)
	if !as.OwnBudget {
		a.strangers.undoFailure(now)
	} else if a.own[origin]--; a.own[origin] <= 0 {
		delete(a.own, origin)
	}
	if as.AtOrigin {
		m.origin(origin, now).undoFailure(now)
	}
}

// undo records a successful login. Without an origin, it clears the failures of strangers. With an
// origin, it withdraws the attempt, clears the failures on that origin's own budget, and makes the
// origin familiar. If there are then too many familiar origins, it forgets the one that logged in
// longest ago.
func (m *throttleModel) undo(name, origin string, now time.Time, as throttle.Admission) {
	a := m.account(name, now)
	if origin == "" {
		a.strangers = window{}
		return
	}
	m.withdraw(name, origin, now, as)
	delete(a.own, origin)
	a.seen[origin] = now
	for len(a.seen) > throttle.FamiliarOrigins {
		oldest := ""
		for o, last := range a.seen {
			older := oldest == "" || last.Before(a.seen[oldest]) || last.Equal(a.seen[oldest]) && o < oldest
			if o != origin && older {
				oldest = o
			}
		}
		delete(a.seen, oldest)
		delete(a.own, oldest)
	}
}

func (m *throttleModel) reset(name string, now time.Time) {
	a := m.account(name, now)
	a.strangers = window{}
	clear(a.own)
}

// timeToLive returns how long an account's counters are still needed, or 0 if they are not.
func (m *throttleModel) timeToLive(name string, now time.Time) time.Duration {
	a := m.account(name, now)
	last := now
	for _, seen := range a.seen {
		last = latest(last, seen.Add(throttle.FamiliarLife))
	}
	if len(a.own) > 0 {
		last = latest(last, a.ownEnds)
	}
	if a.strangers.failures > 0 {
		last = latest(last, a.strangers.ends)
	}
	return last.Sub(now)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
