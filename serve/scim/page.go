package scim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

// mostSteps is how often a request reads entries at most for a page of a listing. What it does not
// come to, the next one goes on with. Tests lower it.
var mostSteps = 40

const (
	datedStep   = 500 // entries that one of them passes over
	undatedStep = 250 // entries that one reads to find those without a date, beside 100 keys for each
)

// A mark is where a listing goes on. Entries come as they were added, and then those of which
// nobody knows when that was, in no order.
type mark struct {
	total   int64
	at      time.Time
	passed  int64  // entries that come before
	undated bool   // all that have a date come before
	next    string // Query.After
	skip    int    // of the entries without a date that come after next, so many come before
	ended   bool
}

const (
	markAge   = time.Minute
	mostMarks = 1000
)

// mark remembers where a listing goes on for those who ask for it from a place on, so that they
// need not begin at the first entry.
func (h *Handler) mark(name string, start int64, m mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.marks) >= mostMarks {
		clear(h.marks)
	}
	h.marks[fmt.Sprint(name, "\x00", start)] = m
}

func (h *Handler) marked(name string, start int64) (mark, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, has := h.marks[fmt.Sprint(name, "\x00", start)]
	return m, has && time.Since(m.at) < markAge
}

// errFar says that a request read as much as it may and did not reach its page.
var errFar = fmt.Errorf("%w: the page lies far behind many entries: ask again, it goes on from there", userdb.ErrUnavailable)

// page returns the entries from a place on, and how many there are. Damaged ones are left out. It
// may have fewer than count, and more after them.
func (c *call) page(t *userdb.Type, start, count int64) (page []userdb.Entry, total int64, err error) {
	name := fmt.Sprint(c.name, "\x00", t == c.groups) // and not by the name of the type, which may be that of groups
	m, known := c.h.marked(name, start)
	if !known {
		total, err := c.total(t, name)
		if err != nil {
			return nil, 0, err
		}
		m = mark{total: total, at: time.Now()}
	}
	if count == 0 || start >= m.total {
		return nil, m.total, nil
	}
	for range mostSteps {
		if m.ended || int64(len(page)) == count {
			break
		}
		some, err := c.step(t, &m, start, count-int64(len(page)))
		if err != nil {
			return nil, 0, err
		}
		page = append(page, some...)
	}
	m.at = time.Now()
	if len(page) > 0 {
		c.h.mark(name, m.passed, m)
		return page, m.total, nil
	}
	c.h.mark(name, start, m)
	if !m.ended {
		return nil, 0, errFar
	}
	return nil, m.total, nil
}

// step reads some of the entries that come after a mark, moves it, and returns those from a place
// on, at most so many.
func (c *call) step(t *userdb.Type, m *mark, start, most int64) ([]userdb.Entry, error) {
	q := userdb.Query{After: m.next}
	if m.undated {
		q.Limit, q.MostRead = undatedStep, undatedStep
	} else {
		q.Order, q.Limit = addedField, int(most)
		if m.passed < start {
			q.Limit = int(min(start-m.passed, datedStep))
		}
	}
	p, err := t.Page(c.ctx, q)
	if err != nil && !errors.Is(err, userdb.ErrCorrupt) {
		return nil, err
	}
	if !m.undated {
		before := m.passed
		m.passed += int64(len(p.Entries))
		m.next, m.undated = p.Next, p.Next == ""
		m.ended = m.undated && m.passed >= m.total
		if before < start {
			return nil, nil
		}
		return p.Entries, nil
	}
	rest := undated(p.Entries)
	rest = rest[min(m.skip, len(rest)):]
	pass := int(min(max(start-m.passed, 0), int64(len(rest))))
	some := rest[pass:min(int64(pass)+most, int64(len(rest)))]
	m.passed += int64(pass + len(some))
	if m.skip += pass + len(some); pass+len(some) == len(rest) {
		m.next, m.skip, m.ended = p.Next, 0, p.Next == ""
	}
	return some, nil
}

// undated are the entries that no order has, as nobody knows when they were added, each once.
func undated(all []userdb.Entry) (some []userdb.Entry) {
	for _, e := range all {
		if _, dated := e.Get(addedField); !dated {
			some = append(some, e)
		}
	}
	return distinct(some)
}

// total counts the entries of a type, once for all who ask at the same time. Damaged ones are left
// out.
func (c *call) total(t *userdb.Type, name string) (int64, error) {
	all := userdb.Query{}
	if t == c.groups { // of which there are few; users are counted by their keys
		all.Order = addedField
	}
	total, err := figures.Gather(c.ctx, &c.h.figures, name, 0, func(ctx context.Context) (int64, error) {
		sum, err := t.Count(ctx, all)
		if errors.Is(err, userdb.ErrCorrupt) {
			err = nil
		}
		return sum.Entries, err
	})
	if errors.Is(err, figures.ErrBusy) {
		err = fmt.Errorf("%w: %w", userdb.ErrUnavailable, err)
	}
	return total.Value, err
}
