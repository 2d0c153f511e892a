package userdb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// A ticketDesk issues and uses the tickets of one entry, at a time that the test sets.
type ticketDesk struct {
	t      *testing.T
	engine store.Factors
	prk    recordkey.Key
	now    time.Time
}

// ticketEntry is the entry that all first steps read.
var ticketEntry = session.Entry{Epoch: "e", Changed: "2026 x"}

func newTicketDesk(t *testing.T, s *site, uid string) *ticketDesk {
	prk, err := recordkey.PRK("user", "uid", uid)
	must(t, err)
	return &ticketDesk{t: t, engine: view.Of(s.open(userdb.Options{})).Engine, prk: prk, now: time.Now().Truncate(time.Millisecond)}
}

func (d *ticketDesk) issue(id, origin string) (factor.Ticket, error) {
	return d.engine.IssueTicket(d.t.Context(), factor.Issue{PRK: d.prk, Seen: ticketEntry, ID: id, Step: "pass word", Origin: origin, Now: d.now})
}

func (d *ticketDesk) attempt(id, attempt string) factor.Try {
	return factor.Try{PRK: d.prk, ID: id, Generation: ticketEntry.Generation(), Attempt: attempt, Now: d.now}
}

func (d *ticketDesk) spending(id, attempt string) factor.Spend {
	return factor.Spend{PRK: d.prk, ID: id, Generation: ticketEntry.Generation(), Attempt: attempt, Now: d.now}
}

// try counts an attempt, and returns the number of attempts or 0 if there is no such ticket.
func (d *ticketDesk) try(id, attempt string) int {
	d.t.Helper()
	tried, err := d.engine.TryTicket(d.t.Context(), d.attempt(id, attempt))
	d.check(err)
	return tried.Ticket.Tries
}

// spend spends a ticket, and reports whether it could be spent.
func (d *ticketDesk) spend(id, attempt string) bool {
	d.t.Helper()
	err := d.engine.SpendTicket(d.t.Context(), d.spending(id, attempt))
	d.check(err)
	return err == nil
}

// check fails the test for an error other than ErrNotFound.
func (d *ticketDesk) check(err error) {
	d.t.Helper()
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		d.t.Errorf("got error %v, want none or %v", err, store.ErrNotFound)
	}
}

// mustIssue issues tickets.
func (d *ticketDesk) mustIssue(origin string, ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		_, err := d.issue(id, origin)
		must(d.t, err)
	}
}

// expect checks which tickets are valid. It counts an attempt with each of them.
func (d *ticketDesk) expect(all []string, want ...string) {
	d.t.Helper()
	got := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return d.try(id, "expect") == 0 })
	if !slices.Equal(got, want) {
		d.t.Errorf("valid tickets: got %q, want %q", got, want)
	}
}

// TestTickets checks the lifetime of a ticket, and the number of its uses.
func TestTickets(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		d := newTicketDesk(t, s, "desk")
		want := factor.Ticket{
			ID: "a", Until: d.now.Add(factor.TicketLife), Generation: ticketEntry.Generation(), Step: "pass word", Origin: "o/1\n",
		}
		for range 2 { // the second call repeats the first
			if got, err := d.issue("a", "o/1\n"); err != nil || got != want {
				t.Errorf("got %+v, error %v, want %+v", got, err, want)
			}
		}
		if !want.ValidFor(ticketEntry) || want.ValidFor(session.Entry{Epoch: "f", Changed: "2026 x"}) {
			t.Error("the ticket is not valid for exactly its entry")
		}
		if d.spend("a", "first") {
			t.Error("an attempt that was not counted spent the ticket")
		}
		for n := 1; n <= factor.MaxTries; n++ {
			for range 2 { // the second call repeats the first
				if got := d.try("a", fmt.Sprint("try", n)); got != n {
					t.Errorf("attempt %d was counted as %d, want %d", n, got, n)
				}
			}
		}
		if d.try("a", "more") != 0 || d.spend("a", "more") || d.spend("a", "try") {
			t.Error("the ticket allows more attempts than MaxTries")
		}
		other, spending := d.attempt("a", "try1"), d.spending("a", "try1")
		other.Generation = session.Entry{Epoch: "f"}.Generation()
		spending.Generation = other.Generation
		_, err := d.engine.TryTicket(t.Context(), other)
		if err2 := d.engine.SpendTicket(t.Context(), spending); !errors.Is(err, store.ErrNotFound) || !errors.Is(err2, store.ErrNotFound) {
			t.Errorf("another generation: got errors %v and %v, want %v", err, err2, store.ErrNotFound)
		}
		first, again := d.spend("a", "try2"), d.spend("a", "try2")
		if !first || !again || d.spend("a", "try1") || d.try("a", "try1") != 0 {
			t.Error("the ticket was not spent by exactly one attempt")
		}
		if _, err := d.issue("a", "o"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a ticket that was spent was issued again: got error %v, want %v", err, store.ErrNotFound)
		}
		d.mustIssue("o", "b")
		d.try("b", "early")
		d.now = d.now.Add(factor.TicketLife)
		if d.try("b", "early") != 0 || d.spend("b", "early") {
			t.Error("an expired ticket was used")
		}
		d.now = d.now.Add(2 * time.Hour)
		d.mustIssue("o", "c")
		key, err := factor.Key(d.prk)
		must(t, err)
		if got, err := s.raw.HKeys(t.Context(), key.String()).Result(); err != nil || !slices.Equal(got, []string{"ticket/c"}) {
			t.Errorf("the record holds %q, error %v, want ticket/c alone", got, err)
		}
	})
}

// TestTicketLimits checks which tickets are dropped if there are too many, and that spent ones do
// not make the record grow.
func TestTicketLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		d, all := newTicketDesk(t, s, "limits"), []string{"owner"}
		d.mustIssue("home", "owner")
		for i := range factor.MaxTickets + 2 {
			d.now = d.now.Add(time.Second)
			all = append(all, fmt.Sprint("guess", i))
			d.mustIssue("away", all[i+1])
		}
		d.expect(all, append([]string{"owner"}, all[4:]...)...)
		key, err := factor.Key(d.prk)
		must(t, err)
		for i := range 105 {
			id := fmt.Sprint("spent", i)
			d.now = d.now.Add(time.Millisecond)
			d.mustIssue("away", id)
			if d.try(id, "x") != 1 || !d.spend(id, "x") {
				t.Fatalf("ticket %s is not valid", id)
			}
		}
		d.mustIssue("away", "last")
		got, err := s.raw.HKeys(t.Context(), key.String()).Result()
		must(t, err)
		spent := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return !strings.HasPrefix(name, "ticket/spent") })
		if len(spent) != 100 || !slices.Contains(spent, "ticket/spent104") || slices.Contains(spent, "ticket/spent4") {
			t.Errorf("the record remembers %d spent tickets, want the 100 last ones: %q", len(spent), spent)
		}
	})
}

// TestTicketRaces checks that attempts made at the same time do not exceed the limit, and that only
// one of them spends the ticket.
func TestTicketRaces(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		d := newTicketDesk(t, s, "races")
		d.mustIssue("o", "a")
		var counted, spent atomic.Int64
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				attempt := fmt.Sprint("try", i)
				if d.try("a", attempt) == 0 {
					return
				}
				counted.Add(1)
				if d.spend("a", attempt) {
					spent.Add(1)
				}
			})
		}
		all.Wait()
		if n := counted.Load(); n < 1 || n > factor.MaxTries || spent.Load() != 1 {
			t.Errorf("%d attempts were counted and %d spent the ticket, want 1 to %d and 1", n, spent.Load(), factor.MaxTries)
		}
		d.mustIssue("o", "b")
		counted.Store(0)
		for i := range 20 {
			all.Go(func() {
				if d.try("b", fmt.Sprint("try", i)) != 0 {
					counted.Add(1)
				}
			})
		}
		all.Wait()
		if n := counted.Load(); n != factor.MaxTries {
			t.Errorf("%d attempts were counted, want %d", n, factor.MaxTries)
		}
	})
}

// TestTicketNeighbors checks that tickets neither change other members of the record nor let them
// expire.
func TestTicketNeighbors(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		d := newTicketDesk(t, s, "neighbors")
		key, err := factor.Key(d.prk)
		must(t, err)
		persists := func() bool {
			t.Helper()
			ttl, err := s.raw.PTTL(t.Context(), key.String()).Result()
			must(t, err)
			return ttl == -1
		}
		d.mustIssue("o", "a")
		if persists() {
			t.Error("a record that holds only a ticket never expires")
		}
		must(t, s.raw.Del(t.Context(), key.String()).Err())
		for _, name := range []string{"factor/x", "ticket"} {
			must(t, s.raw.HSet(t.Context(), key.String(), name, "- 1 text").Err())
		}
		d.mustIssue("o", "b")
		if d.try("b", "x") != 1 || !d.spend("b", "x") {
			t.Error("the ticket is not valid")
		}
		d.now = d.now.Add(2 * time.Hour)
		d.mustIssue("o", "c")
		got, err := s.raw.HKeys(t.Context(), key.String()).Result()
		must(t, err)
		if slices.Sort(got); !slices.Equal(got, []string{"factor/x", "ticket", "ticket/c"}) || !persists() {
			t.Errorf("the record holds %q and never expires: %v; want factor/x, ticket and ticket/c, and true", got, persists())
		}
		must(t, s.raw.Del(t.Context(), key.String()).Err())
		must(t, s.raw.Set(t.Context(), key.String(), "a text", 0).Err())
		if _, err := d.issue("d", "o"); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("a record that is not a hash: got error %v, want one other than ErrNotFound", err)
		}
		if d.try("c", "x") != 0 || d.spend("c", "x") {
			t.Error("a ticket in a record that is not a hash is valid")
		}
		must(t, s.raw.Del(t.Context(), key.String()).Err())
	})
}
