package scim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

// maxSteps limits the number of reads of entries for one page of a list. A request that reaches the
// limit returns the entries that it has found, or errTooFar if it has found none. The next request
// continues from there. Tests lower it.
var maxSteps = 40

const (
	// datedStep is the number of entries with a date that one step skips.
	datedStep = 500
	// undatedStep is the number of entries that one step reads to find those without a date. It
	// looks through up to 100 times as many keys.
	undatedStep = 250
)

// A position is a place in a list. A list has the entries in the order in which they were added,
// followed by those without a date, in no particular order.
type position struct {
	total   int64
	at      time.Time
	passed  int64  // entries before the position
	undated bool   // whether all entries with a date are before the position
	next    string // Query.After
	skip    int    // entries without a date that come after next but are before the position
	ended   bool
}

const (
	positionAge  = time.Minute
	maxPositions = 1000
)

// savePosition stores the position of a list at start, so that a request for the page that begins
// there need not read the entries before it.
func (h *Handler) savePosition(name string, start int64, pos position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.positions) >= maxPositions {
		clear(h.positions)
	}
	h.positions[fmt.Sprint(name, "\x00", start)] = pos
}

func (h *Handler) loadPosition(name string, start int64) (position, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pos, has := h.positions[fmt.Sprint(name, "\x00", start)]
	return pos, has && time.Since(pos.at) < positionAge
}

// errTooFar reports that a request reached its limit of steps before it reached its page.
var errTooFar = fmt.Errorf("%w: the page lies behind too many entries for one request; repeat the request to continue from there", userdb.ErrUnavailable)

// page returns up to count entries beginning at start, and the number of all entries. It leaves out
// damaged entries. There may be more entries even if it returns fewer than count.
func (c *call) page(t *userdb.Type, start, count int64) (page []userdb.Entry, total int64, err error) {
	// The name of the type is not enough: the types of users and of groups may have the same name.
	name := fmt.Sprint(c.name, "\x00", t == c.groups)
	pos, saved := c.h.loadPosition(name, start)
	if !saved {
		total, err := c.total(t, name)
		if err != nil {
			return nil, 0, err
		}
		pos = position{total: total, at: time.Now()}
	}
	if count == 0 || start >= pos.total {
		return nil, pos.total, nil
	}
	for range maxSteps {
		if pos.ended || int64(len(page)) == count || c.used.bytes >= maxBytes {
			break
		}
		some, err := c.step(t, &pos, start, count-int64(len(page)))
		if err != nil {
			return nil, 0, err
		}
		page = append(page, some...)
		c.used.add(some)
	}
	pos.at = time.Now()
	if len(page) > 0 {
		c.h.savePosition(name, pos.passed, pos)
		return page, pos.total, nil
	}
	c.h.savePosition(name, start, pos)
	if !pos.ended {
		return nil, 0, errTooFar
	}
	return nil, pos.total, nil
}

// step reads entries at a position and moves the position past them. It returns at most limit
// entries, beginning at start.
func (c *call) step(t *userdb.Type, pos *position, start, limit int64) ([]userdb.Entry, error) {
	q := userdb.Query{After: pos.next, MaxBytes: stepBytes}
	if pos.undated {
		q.Limit, q.MaxRead = undatedStep, undatedStep
	} else {
		q.Order, q.Limit = addedField, int(limit)
		if pos.passed < start {
			q.Limit = int(min(start-pos.passed, datedStep))
		}
	}
	p, err := t.Page(c.ctx, q)
	if err != nil && !errors.Is(err, userdb.ErrCorrupt) {
		return nil, err
	}
	if !pos.undated {
		before := pos.passed
		pos.passed += int64(len(p.Entries))
		pos.next, pos.undated = p.Next, p.Next == ""
		pos.ended = pos.undated && pos.passed >= pos.total
		if before < start {
			return nil, nil
		}
		return p.Entries, nil
	}
	rest := filterUndated(p.Entries)
	rest = rest[min(pos.skip, len(rest)):]
	pass := int(min(max(start-pos.passed, 0), int64(len(rest))))
	some := rest[pass:min(int64(pass)+limit, int64(len(rest)))]
	pos.passed += int64(pass + len(some))
	if pos.skip += pass + len(some); pass+len(some) == len(rest) {
		pos.next, pos.skip, pos.ended = p.Next, 0, p.Next == ""
	}
	return some, nil
}

// filterUndated returns the entries without a date, which the order by date does not contain. It
// removes duplicates.
func filterUndated(all []userdb.Entry) (some []userdb.Entry) {
	for _, e := range all {
		if _, dated := e.Get(addedField); !dated {
			some = append(some, e)
		}
	}
	return dedupe(some)
}

// total returns the number of entries of a type, except damaged ones. Concurrent requests share one
// count.
func (c *call) total(t *userdb.Type, name string) (int64, error) {
	all := userdb.Query{}
	if t == c.groups { // there are few groups; users are counted by their keys
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
