package maintain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/coffeenode/userdb/internal/store"
)

// namedExcesses is how many fields a check names: those that no schema declares can be any number, and memory
// stays flat.
const namedExcesses = 64

// A tally counts, over all goroutines of a check, the entries that the server does not keep compact, by
// what is over its limits.
type tally struct {
	limits store.CompactLimits
	mu     sync.Mutex
	looked map[string]int64 // entries by type
	found  map[excess]*extent
}

// An excess is what is over a limit: of one field, of the fields together, or of those that are not named.
type excess struct {
	typ   string
	kind  int
	field string
}

const (
	excessField = iota
	excessOthers
	excessNumber
)

// An extent is how far that goes.
type extent struct {
	first   string // PRK
	entries int64
	most    int64 // bytes, or fields
}

func newTally(limits store.CompactLimits) *tally {
	return &tally{limits: limits, looked: map[string]int64{}, found: map[excess]*extent{}}
}

// count looks at the lengths of entries that were read for other reasons.
func (t *tally) count(es []*entry) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range es {
		t.looked[e.t.Name]++
		if n := int64(len(e.fields)); n > t.limits.Fields {
			t.add(e, excess{typ: e.t.Name, kind: excessNumber}, n)
		}
		others := int64(0)
		for field, wire := range e.fields {
			n := int64(max(len(field), len(wire)))
			if n > t.limits.Bytes && !t.add(e, excess{e.t.Name, excessField, field}, n) {
				others = max(others, n)
			}
		}
		if others > 0 {
			t.add(e, excess{typ: e.t.Name, kind: excessOthers}, others)
		}
	}
}

// add counts an entry; false where there are too many fields to name one more.
func (t *tally) add(e *entry, x excess, n int64) bool {
	m := t.found[x]
	if m == nil {
		if x.kind == excessField && len(t.found) >= namedExcesses {
			return false
		}
		m = &extent{first: e.prk}
		t.found[x] = m
	}
	m.entries++
	m.most = max(m.most, n)
	m.first = min(m.first, e.prk)
	return true
}

// problems are what was counted, one for each type and field.
func (t *tally) problems() []Problem {
	var ps []Problem
	for _, x := range slices.SortedFunc(maps.Keys(t.found), excess.compare) {
		m := t.found[x]
		text := fmt.Sprintf("%s, in %d of %d entries of type %s; %s",
			x.says(t.limits, m.most), m.entries, t.looked[x.typ], quoted(x.typ), consequence(t.limits))
		p := notCompact(m.first, x.field, text)
		p.Count, p.Of = m.entries, t.looked[x.typ]
		ps = append(ps, p)
	}
	return ps
}

func (x excess) compare(y excess) int {
	return cmp.Or(cmp.Compare(x.typ, y.typ), cmp.Compare(x.kind, y.kind), cmp.Compare(x.field, y.field))
}

func notCompact(key, field, text string) Problem {
	return Problem{Code: codeEntryNotCompact, Warning: facts[codeEntryNotCompact].warning, Key: key, Field: field, Text: text}
}

func (x excess) says(limits store.CompactLimits, most int64) string {
	switch {
	case x.kind == excessNumber:
		return fmt.Sprintf("more than %d fields, up to %d", limits.Fields, most)
	case x.kind == excessOthers:
		return fmt.Sprintf("more than %d bytes, up to %d, in further fields", limits.Bytes, most)
	case int64(len(x.field)) > limits.Bytes:
		return fmt.Sprintf("the name of the field %s has %d bytes, more than %d", quoted(x.field), len(x.field), limits.Bytes)
	}
	return fmt.Sprintf("%s has more than %d bytes, up to %d", quoted(x.field), limits.Bytes, most)
}

// costly is what follows from it, by whatever limits.
const costly = "such entries are not kept compact, and take more memory"

// consequence is that, and whose limits were applied.
func consequence(limits store.CompactLimits) string {
	if limits.Told {
		return costly
	}
	return costly + " (by the usual limits of Redis; this server does not tell its own)"
}
