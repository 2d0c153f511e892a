package check

import (
	"context"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A hold is a value that an entry, or a tombstone, has given up and still holds.
type hold struct {
	*entry
	store.HeldValue
	srk recordkey.Key
}

// holds returns the values that the entry holds now and that have an SRK. A field that is no longer
// secondary holds none: the change of the schema ended its holds.
func (e *entry) holds() (all []hold) {
	for _, h := range store.HeldIn(e.fields) {
		if !h.Until.After(time.Now()) || e.t == nil || !slices.Contains(e.t.Secondary, h.Field) {
			continue
		}
		if srk, ok := e.t.SRK(h.Field, h.Canonical); ok {
			all = append(all, hold{e, h, srk})
		}
	}
	return all
}

// checkHolds checks that the SRKs of held values name the entries that hold them (I2). Otherwise
// another entry can take the value, or has taken it.
func (c *checker) checkHolds(ctx context.Context, r *report, holds []hold) {
	srvs := read(ctx, r, c.Engine, records.Map(holds, func(h hold) string { return h.srk.String() }), store.Texts)
	for i, h := range holds {
		switch owner := store.Owner(srvs[i].Wire); {
		case !srvs[i].Exists:
			h.add(r, heldMissing, h.srk, records.Printable(h.prk)).step = store.RestoreHeld{Entry: h.key, SRK: h.srk, Until: h.Until}
		case owner != h.prk:
			f := h.add(r, heldTaken, h.srk, records.Printable(h.prk), records.Quoted(owner))
			f.seen += " " + srvs[i].Wire
		}
	}
}

// sweepHolds removes the fields of holds that ended at least store.HeldMargin ago, which HeldIn
// lists first. The next write of an entry also removes them, but nothing is written to the
// tombstone of a retired UID, which stays forever.
func (c *checker) sweepHolds(ctx context.Context, r *report, key recordkey.Key, fields map[string]string) {
	for _, h := range store.HeldIn(fields) {
		if r.err != nil || time.Since(h.Until) < store.HeldMargin {
			return
		}
		r.err = c.applyStep(ctx, store.MoveHeld{Entry: key, From: h, Seen: fields[h.Name()]})
	}
}
