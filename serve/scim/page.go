package scim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/userdb"
)

// maxSteps limits the reads for one page of a list. One read is enough unless entries are damaged
// or large. A request that reaches the limit returns the entries that it has found, or errTooFar if
// it has found none. The next request continues where it stopped. Tests lower it.
var maxSteps = 8

// A position is a place in a list. A list begins with the entries for which the store does not know
// when they were added. The others follow in the order in which they were added.
type position struct {
	total  int64 // known entries of the list; more than passed unless the list has ended
	saved  time.Time
	passed int64  // entries before the position
	next   string // Query.After; "" means to find the entries by their number
	ended  bool
}

// A listIndex is a list, and the index of an entry in it.
type listIndex struct {
	list  string
	start int64
}

const (
	positionAge  = time.Minute
	maxPositions = 1000
)

// savePosition stores the position of a list at start. So the page that begins there continues
// where the previous page ended, even if entries were deleted or added meanwhile.
func (h *Handler) savePosition(name string, start int64, pos position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := listIndex{name, start}
	if _, has := h.positions[at]; !has && len(h.positions) >= maxPositions {
		h.dropPosition()
	}
	h.positions[at] = pos
}

// dropPosition forgets the oldest position of the list that has the most, so that one directory
// does not displace the positions of others.
func (h *Handler) dropPosition() {
	counts := map[string]int{}
	for at := range h.positions {
		counts[at.list]++
	}
	var oldest listIndex
	for at, pos := range h.positions {
		more := counts[at.list] - counts[oldest.list]
		if more > 0 || more == 0 && pos.saved.Before(h.positions[oldest].saved) {
			oldest = at
		}
	}
	delete(h.positions, oldest)
}

func (h *Handler) loadPosition(name string, start int64) (position, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pos, has := h.positions[listIndex{name, start}]
	return pos, has && time.Since(pos.saved) < positionAge
}

// errTooFar reports that a request reached its limit of steps before it found an entry.
var errTooFar = fmt.Errorf("%w: the page begins with too many damaged records for one request; repeat the request to continue from there", userdb.ErrUnavailable)

// page returns up to count entries beginning at start, and the number of all entries. It leaves out
// damaged entries. There may be more entries even if it returns fewer than count. A client that
// asks for pages until it has all entries gets each of them once, even if other entries are added
// or deleted meanwhile, unless the position was dropped or over positionAge passed between two
// pages.
func (c *call) page(t *userdb.Type, start, count int64) (page []userdb.Entry, total int64, err error) {
	// The name of the type is not enough: the types of users and of groups may have the same name.
	name := fmt.Sprint(c.name, "\x00", t == c.groups)
	loaded, saved := c.h.loadPosition(name, start)
	pos, outside := loaded, false
	err = c.underStoredSchema(func() error {
		pos, page = loaded, nil
		if !saved {
			total, err := c.total(t, name)
			if err != nil {
				return err
			}
			pos = position{total: total, saved: time.Now(), passed: start}
		}
		if outside = count == 0 || start >= pos.total; outside {
			return nil
		}
		page, err = c.pageFrom(t, &pos, count)
		return err
	})
	if err != nil || outside {
		return nil, pos.total, err
	}
	pos.saved = time.Now()
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

// pageFrom returns up to count entries at a position, and moves the position past them.
func (c *call) pageFrom(t *userdb.Type, pos *position, count int64) (page []userdb.Entry, err error) {
	for range maxSteps {
		if pos.ended || int64(len(page)) == count || c.used.bytes >= maxBytes {
			break
		}
		some, err := c.step(t, pos, count-int64(len(page)))
		if err != nil {
			return nil, err
		}
		page = append(page, some...)
		c.used.add(some)
	}
	return page, nil
}

// step reads up to limit entries at a position and moves the position past them.
func (c *call) step(t *userdb.Type, pos *position, limit int64) ([]userdb.Entry, error) {
	q := userdb.Query{Order: addedField, Limit: int(limit), MaxRead: int(limit), MaxBytes: stepBytes, After: pos.next}
	if pos.next == "" {
		q.Skip = pos.passed
	}
	p, err := t.Page(c.ctx, q)
	if err != nil && !errors.Is(err, userdb.ErrCorrupt) {
		return nil, err
	}
	pos.passed += int64(len(p.Entries))
	pos.next, pos.ended = p.Next, p.Next == ""
	if pos.total = max(pos.total, pos.passed+1); pos.ended {
		pos.total = pos.passed
	}
	return p.Entries, nil
}

// total returns the number of entries of a type. Concurrent requests share one count.
func (c *call) total(t *userdb.Type, name string) (int64, error) {
	total, err := figures.GatherFor(c.ctx, &c.h.figures, c.name, name, 0, func(ctx context.Context) (int64, error) {
		sum, err := t.Count(ctx, userdb.Query{Order: addedField})
		return sum.Entries, err
	})
	if errors.Is(err, figures.ErrBusy) {
		err = fmt.Errorf("%w: %w", userdb.ErrUnavailable, err)
	}
	return total.Value, err
}
