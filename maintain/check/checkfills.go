package check

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// What was laid ready for entries on a cluster and is not in its place yet (store.Fill) belongs to an entry that is there
// and acknowledged, to a create that is under way, or to nobody.

const (
	// A create is done, or has given up, in less time than this after its commit.
	fillTime = 10 * time.Second
	// Nobody commits what he laid ready longer ago.
	longestAttempt = time.Hour + fillTime
	firstFillPause = 20 * time.Millisecond
)

// A staged record lies ready.
type staged struct {
	raw   string
	set   recordkey.Key
	token string
}

// stagedAmong are those of some keys that are staged records of the view.
func (c *checker) stagedAmong(keys []string) (all []staged) {
	for _, raw := range keys {
		if set, token, ok := store.ParseStage(raw); ok && set.Namespace() == c.NS {
			all = append(all, staged{raw, set, token})
		}
	}
	return all
}

// stagedFor are those that entries wait for.
func (c *checker) stagedFor(ctx context.Context, prks []recordkey.Key) (all []staged, err error) {
	reads := make([]store.FacetRead, len(prks))
	for i, prk := range prks {
		reads[i] = store.FacetRead{Key: prk.String(), Field: store.FieldFill}
	}
	fills, err := store.Facets(ctx, c.Engine, reads)
	for i, text := range fills {
		f := store.ParseFill(prks[i], text.Wire)
		for _, p := range f.Parts {
			all = append(all, staged{store.StageKey(p.Set, f.Token), p.Set, f.Token})
		}
	}
	return all, err
}

// lookAtStaged judges staged records. Of those that a create may be putting in their place at this moment it waits
// for the end.
func (c *checker) lookAtStaged(ctx context.Context, all []staged) (findings, error) {
	for begin, pause := time.Now(), firstFillPause; ; pause *= 2 {
		fs, young, err := c.judgeStaged(ctx, all)
		if err != nil || !young || time.Since(begin) > fillTime {
			return fs, err
		}
		select {
		case <-ctx.Done():
			return nil, redisx.Fail(ctx.Err())
		case <-time.After(min(pause, time.Second)):
		}
	}
}

func (c *checker) judgeStaged(ctx context.Context, all []staged) (fs findings, young bool, err error) {
	keys := make([]string, len(all))
	reads := make([]store.FacetRead, 2*len(all))
	for i, s := range all {
		keys[i] = s.raw
		prk := s.set.PRK().String()
		reads[2*i], reads[2*i+1] = store.FacetRead{Key: prk, Field: store.FieldType}, store.FacetRead{Key: prk, Field: store.FieldFill}
	}
	raws, err := store.Inspect(ctx, c.Engine, keys, 1)
	if err != nil {
		return nil, false, err
	}
	texts, err := store.Facets(ctx, c.Engine, reads)
	if err != nil {
		return nil, false, err
	}
	for i, s := range all {
		fill := texts[2*i+1].Wire
		age := store.StageLife - time.Duration(raws[i].TTL)*time.Millisecond
		live := texts[2*i].Wire != ""
		switch {
		case raws[i].Type == store.KindNone:
		case live && store.ParseFill(s.set.PRK(), fill).Token == s.token:
			young = young || age < fillTime
			fs.add(i, codeFillWaiting, s.set, fill, "%d elements that were born with the entry are not in place yet", raws[i].Size)
		case age > longestAttempt:
			fs.addRaw(i, codeFillOrphan, relativeRaw(s.raw, c.NS), fill, "elements of a record of %s that no change of it put in place", records.Printable(records.Relative(s.set.PRK())))
		}
	}
	return fs, young, nil
}

func relativeRaw(raw string, ns recordkey.Namespace) string { return raw[len(ns.String()):] }

// mendStaged puts a staged record in its place, with all others that its entry waits for, or removes what nobody waits for.
func (c *checker) mendStaged(ctx context.Context, s staged, fs findings) error {
	for _, f := range fs {
		var err error
		if f.Code == codeFillWaiting {
			_, err = c.Engine.Mend(ctx, store.Complete{Entry: s.set.PRK(), Fill: f.seen})
		} else {
			_, err = c.Engine.Mend(ctx, store.Remove{Key: s.raw})
		}
		if err != nil && !redisx.WrongType(err) { // a record of another Redis type is in its place: tertiary_kind
			return err
		}
	}
	return nil
}
