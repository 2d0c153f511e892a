package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// A NamespaceCount counts the records of one namespace, without namespaces inside it.
type NamespaceCount struct {
	Namespace recordkey.Namespace // absolute
	Entries   int64               // live entries
	Records   int64               // records of any kind, including the store's own
}

// Namespaces returns the namespaces inside that of db, at any depth, that hold records, ordered by
// path. It does not include db's own. It reads the keys of all records inside them and keeps the
// counts in memory. Records written meanwhile may be missed, and a record may be counted twice if
// the server's tables grow or shrink.
func Namespaces(ctx context.Context, db *userdb.DB) ([]NamespaceCount, error) {
	v, counts := view.Of(db), map[recordkey.Namespace]NamespaceCount{}
	err := keysUnder(v.NS.String()+"~").Each(ctx, v, func(ctx context.Context, keys []string) error {
		var reads []store.RawRead
		var of []recordkey.Namespace
		for _, raw := range keys {
			ns := namespaceOf(raw)
			if ns == v.NS || view.IsReserved(ns) {
				continue // the store's own
			}
			n := counts[ns]
			n.Namespace, n.Records = ns, n.Records+1
			counts[ns] = n
			if key, _ := recordkey.Parse(raw); key.Kind() == recordkey.KindPRK {
				reads, of = append(reads, store.RawRead{Key: raw, As: store.RawField, Field: store.FieldType}), append(of, ns)
			}
		}
		isas, err := v.Engine.ReadRaw(ctx, reads)
		for i, isa := range isas {
			if n := counts[of[i]]; isa.Wire != "" {
				n.Entries++
				counts[of[i]] = n
			}
		}
		return err
	})
	byPath := func(a, b NamespaceCount) int { return cmp.Compare(a.Namespace.Path(), b.Namespace.Path()) }
	return slices.SortedFunc(maps.Values(counts), byPath), err
}

// namespaceOf returns the namespace of a raw key, even if the rest of the key does not parse.
func namespaceOf(raw string) (ns recordkey.Namespace) {
	for strings.HasPrefix(raw, "~") {
		escaped, rest, found := strings.Cut(raw[1:], "/")
		name, err := recordkey.Unescape(escaped)
		sub, subErr := ns.Sub(name) // fails for the store's own ~/…
		if !found || cmp.Or(err, subErr) != nil {
			break
		}
		ns, raw = sub, rest
	}
	return ns
}

// keysUnder returns a walk over the keys that begin with prefix.
func keysUnder(prefix string) records.Walk {
	return records.Walk{Pattern: recordkey.Glob(prefix) + "*", Size: records.ScanBatch, AtOnce: 1}
}

// forEachKey calls f for the raw keys of a namespace and of those inside it, several at once, and
// counts the keys for which f returns true.
func forEachKey(ctx context.Context, v *view.View, ns recordkey.Namespace, f func(context.Context, string) (bool, error)) (int64, error) {
	var n atomic.Int64
	w := keysUnder(ns.String())
	w.Size, w.AtOnce = 1, concurrentRewrites
	err := w.Each(ctx, v, func(ctx context.Context, keys []string) error {
		if !strings.HasPrefix(keys[0], ns.String()) {
			return nil // no server returns such a key, but make sure that it is not touched
		}
		done, err := f(ctx, keys[0])
		if done {
			n.Add(1)
		}
		return err
	})
	return n.Load(), err
}

// CopyNamespace copies all records of a namespace, and of those inside it, to a namespace without
// records. It returns the number of records copied. Values inside records are relative, so they are
// copied unchanged, with their times to live. Tokens, sessions and histories of entries are left
// out, since they are valid in one namespace only. The secrets of second factors are encrypted
// anew, for the target, with the first of Options.Keys. If CopyNamespace was stopped, calling it
// again continues the copy. If a server restarts or a replica takes over, which may lose copies,
// CopyNamespace copies all records again. Records that are written meanwhile may or may not be
// copied: stop writers to the source, or check the copy. To move a namespace, copy it and then drop
// it.
//
// It returns ErrNotEmpty if the target holds records, which are left alone; ErrNamespace if either
// is the whole store or the store's own, both are the same, or one is inside the other; ErrNotFound
// if the source holds nothing; and ErrCorrupt if a second factor is damaged or none of Options.Keys
// decrypts it. Call it again with all keys, or after the factor has been removed.
func CopyNamespace(ctx context.Context, db *userdb.DB, from, to recordkey.Namespace) (int64, error) {
	if strings.HasPrefix(from.String(), to.String()) || strings.HasPrefix(to.String(), from.String()) {
		return 0, fmt.Errorf("%w: %q to %q: want two namespaces, neither inside the other", ErrNamespace, from.Path(), to.Path())
	}
	if view.IsReserved(from) || view.IsReserved(to) {
		return 0, fmt.Errorf("%w: it is the store's own", ErrNamespace)
	}
	v := view.Of(db)
	mark, _ := recordkey.Own(records.CopyMark) // a valid constant
	mark = mark.In(to)
	if err := markCopy(ctx, v, mark, from, to); err != nil {
		return 0, err
	}
	n := int64(0)
	err := v.UntilKept(ctx, func() (err error) {
		n, err = copyKeys(ctx, v, from, to)
		return err
	})
	if err == nil {
		_, err = v.Engine.Repair(ctx, store.Remove{Key: mark.String()})
	}
	return n, err
}

// copyKeys copies all records once, and returns their number.
func copyKeys(ctx context.Context, v *view.View, from, to recordkey.Namespace) (int64, error) {
	return forEachKey(ctx, v, from, func(ctx context.Context, key string) (bool, error) {
		if own, err := recordkey.Parse(key); err == nil && own.Kind() == recordkey.KindOwn && own.PRK().IsValid() {
			// It belongs to an entry, such as the entry's tokens.
			if factors, err := factor.Key(own.PRK()); err != nil || own != factors {
				return false, nil
			}
			return copyFactors(ctx, v, own.PRK(), copyKey(own.PRK().String(), from, to))
		}
		return v.Engine.Repair(ctx, store.Copy{From: key, To: copyKey(key, from, to)})
	})
}

// copyFactors copies the second factors of an entry to the record of its copy, and reports whether
// it has any. Tickets and counters of attempts stay behind.
func copyFactors(ctx context.Context, v *view.View, from recordkey.Key, toKey string) (bool, error) {
	to, err := recordkey.Parse(toKey)
	if err != nil {
		return false, err
	}
	marks, err := v.Engine.ReadRaw(ctx, []store.RawRead{{Key: from.String(), As: store.RawField, Field: factor.FieldMark}})
	if err != nil {
		return false, err
	}
	names := factor.Mark(marks[0].Wire).Names()
	if len(names) == 0 {
		return false, nil
	}
	_, values, err := v.Engine.ReadFactors(ctx, from, names, v.StoreTime())
	if err != nil {
		return false, err
	}
	copied := make([]factor.Factor, len(names))
	for i, name := range names {
		f, err := factor.Parse(name, values[i])
		if err == nil {
			f.Sealed, err = v.Config.Keys.Reseal(f.Sealed, factor.Place(from, name), factor.Place(to, name))
		}
		if err != nil {
			return false, records.Corrupt(from, "its second factor "+records.Quoted(name)+" cannot be copied: "+err.Error())
		}
		copied[i] = f
	}
	return true, v.Engine.StoreFactors(ctx, to, "", copied, v.StoreTime())
}

// markCopy marks the target as a copy in progress. It returns an error if the target holds anything
// except an unfinished copy of the same source.
func markCopy(ctx context.Context, v *view.View, mark recordkey.Key, from, to recordkey.Namespace) error {
	if holds, err := hasKeys(ctx, v, from); err != nil {
		return err
	} else if !holds {
		return fmt.Errorf("namespace %q: %w", from.Path(), store.ErrNotFound)
	}
	marks, err := store.Texts(ctx, v.Engine, []string{mark.String()})
	if err != nil || marks[0].Exists && marks[0].Wire == from.Path() {
		return err
	}
	if holds, err := hasKeys(ctx, v, to); err != nil {
		return err
	} else if holds {
		return fmt.Errorf("%w: %q", ErrNotEmpty, to.Path())
	}
	marked, err := v.Engine.Secret(ctx, mark, from.Path())
	if err == nil && marked != from.Path() { // another copy began meanwhile
		err = fmt.Errorf("%w: %q", ErrNotEmpty, to.Path())
	}
	return err
}

// hasKeys reports whether a namespace, or one inside it, holds a record.
func hasKeys(ctx context.Context, v *view.View, ns recordkey.Namespace) (bool, error) {
	for keys, err := range v.Engine.ScanAll(ctx, store.Scan{Pattern: keysUnder(ns.String()).Pattern, Count: records.ScanBatch}) {
		if err != nil || len(keys) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// copyKey returns the key of a copied record. The key of a record that is prepared or to be dropped
// contains the key of its tertiary record, whose namespace changes as well.
func copyKey(key string, from, to recordkey.Namespace) string {
	if set, rev, ok := store.ParsePreparedKey(key); ok {
		if copied, err := recordkey.Parse(to.String() + strings.TrimPrefix(set.String(), from.String())); err == nil {
			return store.PreparedKey(copied, rev)
		}
	}
	if record, rev, ok := store.ParseDropKey(key); ok {
		if copied, err := recordkey.Parse(to.String() + strings.TrimPrefix(record.String(), from.String())); err == nil {
			return store.DropKey(copied, rev)
		}
	}
	return to.String() + strings.TrimPrefix(key, from.String())
}

// DropNamespace removes all records of a namespace and of those inside it, and returns their
// number. It touches nothing outside. It can be stopped and called again. Nobody should write to
// the namespace meanwhile, since part of what is written may be removed. It returns ErrNamespace
// for the whole store and for the store's own namespaces.
func DropNamespace(ctx context.Context, db *userdb.DB, ns recordkey.Namespace) (int64, error) {
	if ns == (recordkey.Namespace{}) {
		return 0, fmt.Errorf("%w: it is the whole store", ErrNamespace)
	}
	if view.IsReserved(ns) {
		return 0, fmt.Errorf("%w: it is the store's own", ErrNamespace)
	}
	v, n := view.Of(db), int64(0)
	// Remove entries first: an entry without its identifiers could get a rival.
	for entries := true; ; entries = false {
		some, err := forEachKey(ctx, v, ns, func(ctx context.Context, key string) (bool, error) {
			if k, err := recordkey.Parse(key); entries && (err != nil || k.Kind() != recordkey.KindPRK) {
				return false, nil
			}
			return v.Engine.Repair(ctx, store.Remove{Key: key})
		})
		if n += some; err != nil || some == 0 && !entries {
			return n, err
		}
	}
}

// CountNamespace counts all records of a namespace and of those inside it.
func CountNamespace(ctx context.Context, db *userdb.DB, ns recordkey.Namespace) (n int64, err error) {
	err = keysUnder(ns.String()).Each(ctx, view.Of(db), func(_ context.Context, keys []string) error {
		n += int64(len(keys))
		return nil
	})
	return n, err
}
