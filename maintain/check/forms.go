package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An otherForm is a type whose records were made by another version of the canonical form: what is
// stored says which.
type otherForm struct {
	t      *change.Type
	stored schema.Type
}

// otherForms reports the entries of such types that this program does not find by a value they have, and
// ends in an error. Nothing else is looked at: by this form it would all seem damaged, and another one
// the program does not know.
func (c *checker) otherForms(ctx context.Context, o Options, others []otherForm) error {
	for _, other := range others {
		if o.Repair || !c.whole {
			break
		}
		err := c.stream(ctx, other.t.Guard().Entries, o.Progress, func(c *checker, ctx context.Context, keys []string) error {
			return chunks(ctx, c, other.entries(keys), func(ctx context.Context, prks []recordkey.Key) (findings, error) {
				return c.lookAtForms(ctx, other, prks)
			}, nil)
		})
		if err != nil {
			return err
		}
	}
	t, stored := others[0].t, others[0].stored
	return fmt.Errorf("%w: type %s: %s; bring the records over with 'userdb schema apply' while no other program writes: until then nothing else can be checked",
		store.ErrSchemaMismatch, records.Quoted(t.Name), t.Schema.Difference(stored))
}

// entries are the PRKs among keys.
func (f otherForm) entries(keys []string) []recordkey.Key {
	slices.Sort(keys)
	var prks []recordkey.Key
	for _, raw := range slices.Compact(keys) {
		k, err := recordkey.Parse(raw)
		if err == nil && k.Kind() == recordkey.KindPRK && k.Type() == f.t.Name && k.Field() == f.t.Schema.Primary {
			prks = append(prks, k)
		}
	}
	return prks
}

// lookAtForms compares the canonical values that are kept with those that this program makes (I1).
func (c *checker) lookAtForms(ctx context.Context, f otherForm, prks []recordkey.Key) (findings, error) {
	hashes, err := store.Hashes(ctx, c.Engine, records.Texts(prks))
	if err != nil {
		return nil, err
	}
	var fs findings
	for i, h := range hashes {
		r := store.Record{Key: prks[i], Fields: h.Fields}
		if h.Other || !r.Live() {
			continue
		}
		for _, field := range f.t.Secondary {
			facet, has := r.Fields[field]
			if value := f.t.Schema.Canonical(facet); has && r.SKV(field) != value {
				fs.add(i, codeFormOther, prks[i], field+" "+r.Fields[store.FieldRev],
					"%s is kept as %s, by version %s of the canonical form, and this program looks for %s: 'userdb schema apply' brings it over",
					records.Quoted(field), records.Quoted(r.SKV(field)), f.stored.Form, records.Quoted(value))
			}
		}
	}
	return fs, nil
}
