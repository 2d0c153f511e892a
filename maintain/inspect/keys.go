package inspect

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// Keys yields the record keys of the view that match a Redis glob, relative to its namespace. They
// come in the order of SCAN, which is no particular order; a key may appear twice. Keys of
// namespaces inside the view's are included; tombstones and the store's own records are left out.
// The pattern must come from an operator: never pass on user input.
func Keys(ctx context.Context, db *userdb.DB, pattern string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		v := view.Of(db)
		if pattern == "" { // go-redis would omit it, and SCAN would return every record
			return
		}
		at := store.Scan{Pattern: recordkey.Glob(v.NS.String()) + pattern, Count: records.ScanBatch}
		for found, err := range v.Engine.ScanAll(ctx, at) {
			if err == nil {
				found, err = visibleKeys(ctx, v, found)
			}
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range found {
				if !yield(key, nil) {
					return
				}
			}
		}
	}
}

// RemoveKeys removes the records that match a Redis glob, and returns how many fewer of them there
// are afterwards. It preserves I1 to I5: an entry is removed with everything that belongs to it,
// and a tertiary record with its index members, but the SRK or index set of an entry that remains
// is kept. It also keeps the store's own records, and whatever belongs to a type that the schema
// does not declare. If it fails, it returns how many records it had removed, or kept for one of
// these reasons, until then: another call removes the rest.
func RemoveKeys(ctx context.Context, db *userdb.DB, pattern string) (int, error) {
	before, err := countKeys(ctx, db, pattern)
	if err != nil {
		return 0, err
	}
	done := 0
	for key, err := range Keys(ctx, db, pattern) {
		if err == nil {
			err = removeKey(ctx, view.Of(db), key)
		}
		if err != nil && !store.IsEntryError(err) {
			return done, err
		}
		done++
	}
	after, err := countKeys(ctx, db, pattern)
	if err != nil {
		return done, err
	}
	return max(before-after, 0), nil
}

func countKeys(ctx context.Context, db *userdb.DB, pattern string) (n int, err error) {
	for _, err := range Keys(ctx, db, pattern) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// visibleKeys makes keys relative, and leaves out tombstones and the store's own records.
func visibleKeys(ctx context.Context, v *view.View, keys []string) ([]string, error) {
	var shown []string
	var prks []store.Lookup
	prefix := v.NS.String()
	for _, k := range keys {
		switch key, err := recordkey.Parse(k); {
		case isOwnKey(strings.TrimPrefix(k, prefix)), strings.HasPrefix(k, view.Reserved.String()):
		case err == nil && key.Kind() == recordkey.KindPRK:
			prks = append(prks, store.Lookup{PRK: key})
		default:
			shown = append(shown, strings.TrimPrefix(k, prefix))
		}
	}
	found, err := v.Engine.Find(ctx, prks)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		if !errors.Is(f.Err, store.ErrNotFound) {
			shown = append(shown, strings.TrimPrefix(prks[i].PRK.String(), prefix))
		}
	}
	return shown, nil
}

// isOwnKey reports whether key is one of the store's own records in any namespace, that is, ~/…
// after any number of ~NAME/.
func isOwnKey(key string) bool {
	for strings.HasPrefix(key, "~") && !strings.HasPrefix(key, "~/") {
		_, key, _ = strings.Cut(key, "/")
	}
	return strings.HasPrefix(key, "~/")
}

// removeKey removes the record at a key relative to the view, and whatever cannot exist without it.
// An SRK is kept while its entry has the value (I1).
func removeKey(ctx context.Context, v *view.View, relative string) error {
	removal := store.Remove{Key: v.NS.String() + relative}
	key, err := recordkey.Parse(removal.Key)
	if err != nil {
		return removeRecord(ctx, v, removal)
	}
	t, err := v.TypeOf(key)
	kind := key.Kind()
	switch {
	case err != nil:
		return nil
	case kind == recordkey.KindPRK:
		return removeEntry(ctx, v, t, key)
	case kind == recordkey.KindTertiary && !t.Schema.Tertiary[key.Name()].Indexed:
		return removeRecord(ctx, v, removal)
	}
	kinds, err := store.Kinds(ctx, v.Engine, []string{removal.Key})
	if err != nil {
		return err
	}
	switch field := key.Field(); {
	case kind == recordkey.KindSRK && kinds[0] == "string":
		texts, err := store.Texts(ctx, v.Engine, []string{removal.Key})
		if err != nil {
			return err
		}
		if texts[0].Wire != "" {
			removal.Seen, removal.Field, removal.Value = texts[0].Text, field, key.Value()
			removal.Owner = key.Namespace().String() + store.Owner(texts[0].Wire)
		}
	case kind == recordkey.KindTertiary && kinds[0] == "set":
		return eachBatch(ctx, v, key, func(members []string) error { return removeMembers(ctx, v, t, key, members) })
	case kind == recordkey.KindIndex && kinds[0] == "set" && (slices.Contains(t.Indexed, field) || t.Schema.Tertiary[field].Indexed):
		return eachBatch(ctx, v, key, func(members []string) error { return removeUnowned(ctx, v, key, members) })
	}
	return removeRecord(ctx, v, removal)
}

// removeUnowned removes members from an index set, except those whose entries are live (I5).
func removeUnowned(ctx context.Context, v *view.View, set recordkey.Key, members []string) error {
	ns := set.Namespace().String()
	for _, member := range members {
		if err := removeRecord(ctx, v, store.Remove{Key: set.String(), Member: member, Owner: ns + member}); err != nil {
			return err
		}
	}
	return nil
}

// eachBatch calls do with the members of a set, in batches.
func eachBatch(ctx context.Context, v *view.View, set recordkey.Key, do func(members []string) error) error {
	for members, err := range v.Engine.ScanAll(ctx, store.Scan{Index: set, Count: store.MemberBatch}) {
		if err != nil {
			return err
		}
		for batch := range slices.Chunk(members, store.MemberBatch) {
			if err := do(batch); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeRecord(ctx context.Context, v *view.View, removal store.Remove) error {
	_, err := v.Engine.Repair(ctx, removal)
	return err
}

// removeEntry deletes an entry with everything that belongs to it. A record that cannot be read as
// an entry is removed alone, and a tombstone is kept, since it guards the key.
func removeEntry(ctx context.Context, v *view.View, t *change.Type, key recordkey.Key) error {
	_, err := v.FindOne(ctx, store.Lookup{PRK: key})
	if errors.Is(err, store.ErrCorrupt) {
		return removeRecord(ctx, v, store.Remove{Key: key.String()})
	}
	if err != nil {
		return err
	}
	deleteAs := func(t *change.Type) error {
		_, err := records.Rewrite(ctx, v, t, key, func(r store.Record) (store.Change, bool, error) { return t.Delete(r, v.Now()), r.Live(), nil })
		return err
	}
	if err = deleteAs(t); view.IsSchemaChanged(err) {
		c := v.Config
		c.NS = key.Namespace()
		var in *view.View
		if in, err = view.New(c); err == nil {
			in, err = in.Follow(ctx, view.IgnoreExtension, t.Name)
		}
		if err == nil {
			err = deleteAs(in.ByName[t.Name])
		}
	}
	return err
}

// removeMembers removes members of an indexed set of a live entry, together with their index
// members (I5). If there is no entry, it removes the set.
func removeMembers(ctx context.Context, v *view.View, t *change.Type, key recordkey.Key, members []string) error {
	op := store.Op{PRK: key.PRK(), Key: key, Command: "SREM", Args: members, Write: true}
	for _, member := range members {
		if index, ok := t.IndexKey(key.Name(), member); ok {
			op.Unindex = append(op.Unindex, index)
		}
	}
	_, err := v.Tertiary(ctx, t, op)
	if errors.Is(err, store.ErrNotFound) {
		return removeRecord(ctx, v, store.Remove{Key: key.String(), Owner: key.PRK().String()})
	}
	return err
}
