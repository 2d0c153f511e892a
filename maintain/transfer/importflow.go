package transfer

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
)

// A batch is some lines in a row. Batches are used again: what they hold is most of an import's memory.
type batch struct {
	lines []*line
	held  []line // what lines point to
	sum   string // of the input up to here

	ready   chan struct{} // closed when they are parsed: then the next ones stand
	due     []*line       // those that are to be written
	parts   []*part
	needs   store.Needs // what their creation needs to be absent
	scratch reading

	made chan struct{} // closed when what can be made ahead is
	bulk context.Context
	end  func(context.Context) error
}

// blank is a batch without lines.
func (im *importer) blank() *batch {
	var b *batch
	select {
	case b = <-im.free:
	default:
		b = &batch{held: make([]line, 0, max(im.first, im.most)), needs: store.Needs{}}
	}
	for _, p := range b.parts {
		p.lines, p.changes, p.alone, p.errs = p.lines[:0], p.changes[:0], p.alone[:0], nil
	}
	clear(b.needs)
	b.lines, b.held, b.due, b.ready = b.lines[:0], b.held[:0], b.due[:0], make(chan struct{})
	return b
}

// again gives back a batch that is done with.
func (im *importer) again(b *batch) {
	select {
	case im.free <- b:
	default:
	}
}

// room is where the next line goes.
func (b *batch) room() *line {
	b.held = append(b.held, line{})
	return &b.held[len(b.held)-1]
}

// A part is the lines of a batch whose entries are of one type.
type part struct {
	t       *change.Type
	lines   []*line
	changes []store.Change
	alone   []bool  // no line before it in the batch needs one of its keys
	errs    []error // what became of the changes; nil: none was made yet
}

// parts lays out the changes that create the entries of lines, in addition to parts that there are. A line that
// makes none is refused.
func (im *importer) parts(ps []*part, lines []*line, attempt int) []*part {
	for _, l := range lines {
		c, err := im.creation(l, attempt)
		if err != nil {
			l.refuse(err)
			continue
		}
		i := slices.IndexFunc(ps, func(p *part) bool { return p.t == l.t })
		if i < 0 {
			i, ps = len(ps), append(ps, &part{t: l.t})
		}
		p := ps[i]
		p.lines, p.changes = append(p.lines, l), append(p.changes, c)
	}
	return ps
}

// choose notes what the creates of a batch need, and which of them stand alone in it.
func (b *batch) choose() {
	for _, p := range b.parts {
		for i := range p.changes {
			p.alone = append(p.alone, b.needs.Add(&p.changes[i]))
		}
	}
}

// ahead makes entries that no line before in the batch can exclude.
func (im *importer) ahead(ctx context.Context, b *batch) {
	defer close(b.made)
	for _, p := range b.parts {
		im.apply(ctx, p, true)
	}
}

// apply makes the entries of a part that stand alone in the batch, or the others.
func (im *importer) apply(ctx context.Context, p *part, alone bool) {
	if !slices.Contains(p.alone, !alone) {
		_, p.errs = im.ApplyAll(ctx, p.t, p.changes)
		return
	}
	var some []store.Change
	var of []int
	for i := range p.changes {
		if p.alone[i] == alone {
			some, of = append(some, p.changes[i]), append(of, i)
		}
	}
	if p.errs == nil {
		p.errs = make([]error, len(p.changes))
	}
	_, errs := im.ApplyAll(ctx, p.t, some)
	for j, err := range errs {
		p.errs[of[j]] = err
	}
}

// mostAhead is how many batches are under way at once, so that the server never waits for us.
const mostAhead = 4

// A window is the batches under way, in order, and the one that comes next.
type window struct {
	most   int
	under  []*batch
	next   *batch
	parsed bool // the next one is
}

// fits says whether the next batch may begin: it needs no key that one before it may take or give back.
func (w *window) fits() bool {
	if w.next == nil || !w.parsed || len(w.under) == w.most {
		return false
	}
	for _, b := range w.under {
		if b.needs.Meets(w.next.needs) {
			return false
		}
	}
	return true
}

// write begins batches ahead, and brings each to its end, in their order.
func (im *importer) write(ctx context.Context, order <-chan *batch) error {
	w := window{most: 1}
	begun := context.WithoutCancel(ctx)
	for order != nil || w.next != nil || len(w.under) > 0 {
		if ctx.Err() != nil {
			break
		}
		if w.fits() {
			im.begin(begun, &w)
			continue
		}
		from, ready, made := w.waits(order)
		select {
		case <-ctx.Done(): // what is parsed meanwhile may be cut off
		case b, more := <-from:
			if w.next, w.parsed = b, false; !more {
				order = nil
			}
		case <-ready:
			w.parsed = true
		case <-made:
			if err := im.conclude(begun, &w, false); err != nil {
				return err
			}
			if !im.bulks && !im.o.DryRun {
				w.most = mostAhead // the first batch has stored the schema, without which there is no short way
			}
		}
	}
	return im.conclude(begun, &w, true)
}

// waits are what a window waits for: another batch, the next one to be parsed, the first one to be made.
func (w *window) waits(order <-chan *batch) (from <-chan *batch, ready, made <-chan struct{}) {
	switch {
	case w.next == nil:
		from = order
	case !w.parsed:
		ready = w.next.ready
	}
	if len(w.under) > 0 {
		made = w.under[0].made
	}
	return from, ready, made
}

func (im *importer) begin(ctx context.Context, w *window) {
	b := w.next
	w.under, w.next = append(w.under, b), nil
	b.bulk, b.end = im.Engine.Bulk(ctx)
	b.made = make(chan struct{})
	go im.ahead(b.bulk, b)
}

// conclude brings the first batch of a window to its end, or all of them.
func (im *importer) conclude(ctx context.Context, w *window, all bool) (err error) {
	for len(w.under) > 0 {
		b := w.under[0]
		w.under = w.under[1:]
		<-b.made
		if err == nil {
			err = im.finish(b.bulk, b)
		}
		serr := b.end(ctx)
		if serr == nil {
			serr = im.follow(ctx, b)
		}
		if serr != nil {
			err = serr
		}
		if err == nil {
			err = im.record(b)
		}
		if !all && err == nil {
			return nil
		}
	}
	return err
}
