package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A line of an export holds the second factors of its entry as they are stored, by the names of
// their members, but with secrets that are sealed for the line: an import seals them for the entry
// that it creates.

// sealedFor returns the place for which the secret of a factor in an export line is sealed. No
// entry of a store has this place.
func sealedFor(prk recordkey.Key, name string) []string {
	return []string{"export", prk.Type(), prk.Value(), name}
}

// factorsOf returns the second factors of an entry for its line.
func (x *exporter) factorsOf(ctx context.Context, r store.Record) (map[string]string, error) {
	names := r.Factors().Names()
	_, values, err := x.Engine.ReadFactors(ctx, r.Key, names, x.StoreTime())
	if err != nil {
		return nil, err
	}
	sealed := make(map[string]string, len(names))
	for i, name := range names {
		f, err := factor.Parse(name, values[i])
		if err == nil {
			f.Sealed, err = x.Config.Keys.Reseal(f.Sealed, factor.Place(r.Key, name), sealedFor(r.Key, name))
		}
		if err != nil {
			return nil, records.Corrupt(r.Key, "its second factor "+records.Quoted(name)+" cannot be exported: "+err.Error())
		}
		sealed[name] = f.Value()
	}
	return sealed, nil
}

// digestFields returns the fields whose values are all digests by which the passkeys of an entry
// are found.
func digestFields(t *change.Type, r store.Record) (fields []string) {
	for _, field := range t.Secondary {
		values := t.Values(r.Fields, field)
		others := slices.ContainsFunc(values, func(value store.Further) bool {
			return !slices.ContainsFunc(r.Factors().Passkeys(), func(name string) bool { return factor.IsOfDigest(name, value.Written) })
		})
		if len(values) > 0 && !others && !slices.Contains(t.Typed, field) {
			fields = append(fields, field)
		}
	}
	return fields
}

// addFactors adds the second factors of a line to its draft.
func (im *importer) addFactors(l *line, r *reading) error {
	if len(r.factors) == 0 {
		return nil
	}
	switch {
	case !l.t.Schema.Factors:
		return errors.New(`the line has second factors, which the schema does not allow ("factors": true)`)
	case len(r.factors) > factor.Max+1:
		return fmt.Errorf("the line has over %d second factors", factor.Max+1)
	}
	prk, err := l.t.PRK(l.draft.UID)
	if err != nil {
		return errors.New("the line has second factors, but no UID")
	}
	names := slices.Sorted(maps.Keys(r.factors))
	for _, name := range names {
		f, err := factor.Parse(name, r.factors[name])
		if err == nil {
			f.Sealed, err = im.Config.Keys.Reseal(f.Sealed, sealedFor(prk, name), factor.Place(prk, name))
		}
		if err != nil {
			return fmt.Errorf("second factor %s: %w; give the keys of the store that wrote the line (userdb import --key-file)", records.Quoted(name), err)
		}
		if f.Kind == factor.Passkey && !l.hasDigest(name) {
			return fmt.Errorf("the line has the passkey %s without the value by which it is found", records.Quoted(name))
		}
		l.factors = append(l.factors, f)
	}
	mark := factor.Mark("").With(names...)
	if mark.Without("") == "" {
		return errors.New("the line has recovery codes alone, which are no second factor")
	}
	l.setOwn(factor.FieldMark, string(mark))
	return nil
}

// hasDigest reports whether a value of a line is the digest of a passkey. Without it the passkey
// would sign nobody in, and another entry could have the digest.
func (l *line) hasDigest(passkey string) bool {
	for _, field := range l.t.Secondary {
		if factor.IsOfDigest(passkey, l.draft.Facets[field]) {
			return true
		}
	}
	return slices.ContainsFunc(l.values, func(v fieldValues) bool {
		return slices.ContainsFunc(v.all, func(value change.Value) bool { return factor.IsOfDigest(passkey, value.Text) })
	})
}

// storeFactors stores the second factors of the entries that a batch created, or that an
// interrupted import created without them. Until then such an entry lets nobody in. Factors that
// are already stored stay, because their owner may have used them since.
func (im *importer) storeFactors(ctx context.Context, b *batch) error {
	var group errgroup.Group
	group.SetLimit(concurrentFollowUps)
	for _, l := range b.toWrite {
		if len(l.factors) == 0 || l.done == refusedLine || im.o.DryRun {
			continue
		}
		group.Go(func() error { return im.storeLineFactors(ctx, l) })
	}
	return group.Wait()
}

// storeLineFactors stores the factors of a line, unless its entry is gone or lists others by now.
func (im *importer) storeLineFactors(ctx context.Context, l *line) error {
	if l.done != createdLine {
		r, err := im.rawRecord(ctx, l.create.Key)
		if err != nil || !r.Live() || string(r.Factors()) != l.draft.Own[factor.FieldMark] {
			return err
		}
	}
	for _, f := range l.factors {
		if err := im.Engine.StoreFactors(ctx, l.create.Key, "", []factor.Factor{f}, im.StoreTime()); err != nil {
			return err
		}
	}
	return nil
}
