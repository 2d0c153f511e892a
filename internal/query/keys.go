package query

import (
	"context"
	"iter"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// KeysWithTag yields the PRKs of the live entries of a type that have a tag, in batches of about a
// thousand. Of the entries, it reads only what LiveKeys reads, so its cost does not depend on their
// sizes. A key may be yielded twice. KeysWithTag ends after an error.
func (rd *Reader) KeysWithTag(ctx context.Context, t *change.Type, tag string) iter.Seq2[[]recordkey.Key, error] {
	return func(yield func([]recordkey.Key, error) bool) {
		s, err := Select(t, Query{Tags: []string{tag}})
		from := store.Scan{Count: scanBatch}
		if err == nil {
			from.Index = s.indexes[0]
		}
		for more := err == nil; more; more = err == nil && from.Cursor != "" {
			var keys []recordkey.Key
			if keys, from.Cursor, err = rd.candidates(ctx, s, from); err != nil {
				break
			}
			if keys, err = rd.LiveKeys(ctx, keys); err != nil {
				break
			}
			if len(keys) == 0 {
				continue
			}
			if keys, err = rd.filterByTag(ctx, keys, tag); err == nil && !yield(keys, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// LiveKeys returns the PRKs that have a live entry, in the same order. It reads only the entries
// whose tertiary records are not in place yet.
func (rd *Reader) LiveKeys(ctx context.Context, prks []recordkey.Key) ([]recordkey.Key, error) {
	if len(prks) == 0 {
		return nil, nil
	}
	reads := make([]store.RawRead, 0, 2*len(prks))
	for _, prk := range prks {
		for _, field := range []string{store.FieldType, store.FieldFill} {
			reads = append(reads, store.RawRead{Key: prk.String(), As: store.RawField, Field: field})
		}
	}
	raws, err := rd.Engine.ReadRaw(ctx, reads)
	if err != nil {
		return nil, err
	}
	var live, unfilled []recordkey.Key
	for i, prk := range prks {
		if raws[2*i].Wire != "" {
			live = append(live, prk)
		}
		if raws[2*i+1].Wire != "" {
			unfilled = append(unfilled, prk)
		}
	}
	// Reading an entry puts its tertiary records in place.
	for batch := range slices.Chunk(unfilled, sizedBatch) {
		if _, err := rd.FindMany(ctx, lookups(batch)); err != nil {
			return nil, err
		}
	}
	return live, nil
}

// KeysWithField returns the PRKs whose records have a field, in the same order. It does not read
// the entries.
func (rd *Reader) KeysWithField(ctx context.Context, prks []recordkey.Key, field string) (with []recordkey.Key, err error) {
	reads := make([]store.RawRead, len(prks))
	for i, prk := range prks {
		reads[i] = store.RawRead{Key: prk.String(), As: store.RawField, Field: field}
	}
	if len(reads) == 0 {
		return nil, nil
	}
	raws, err := rd.Engine.ReadRaw(ctx, reads)
	if err != nil {
		return nil, err
	}
	for i, prk := range prks {
		if raws[i].Wire != "" {
			with = append(with, prk)
		}
	}
	return with, nil
}

// filterByTag returns the PRKs whose entries have a tag.
func (rd *Reader) filterByTag(ctx context.Context, prks []recordkey.Key, tag string) (withTag []recordkey.Key, err error) {
	members := make([]store.Member, len(prks))
	for i, prk := range prks {
		if members[i].Set, err = prk.Tertiary(change.TagsName); err != nil {
			return nil, err
		}
		members[i].Value = tag
	}
	has, err := rd.Engine.HasMembers(ctx, members, false)
	if err != nil {
		return nil, err
	}
	for i, prk := range prks {
		if has[i] {
			withTag = append(withTag, prk)
		}
	}
	return withTag, nil
}
