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
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// A NamespaceCount says what is in a namespace itself, without those inside it.
type NamespaceCount struct {
	Namespace recordkey.Namespace // absolute
	Entries   int64               // live ones
	Records   int64               // of any kind, the store's own included
}

// Namespaces returns the namespaces inside the view's, at any depth, that hold records, in the order of
// their paths; the view's own is not one of them. It goes over all records of the view, and keeps the
// counts of all namespaces in memory. What is written meanwhile may be missed, and
// as SCAN may find a record twice while the server's tables grow or shrink, so may be counted twice.
func Namespaces(ctx context.Context, db *userdb.DB) ([]NamespaceCount, error) {
	v, counts := view.Of(db), map[recordkey.Namespace]NamespaceCount{}
	err := keysUnder(v.NS.String()+"~").Each(ctx, v, func(ctx context.Context, keys []string) error {
		var reads []store.LookAt
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
				reads, of = append(reads, store.LookAt{Key: raw, As: store.LookField, Field: store.FieldType}), append(of, ns)
			}
		}
		isas, err := v.Engine.Look(ctx, reads)
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

// spaceOf is the namespace that a raw key lies in, also where the rest of the key does not parse.
func namespaceOf(raw string) (ns recordkey.Namespace) {
	for strings.HasPrefix(raw, "~") {
		crumb, rest, found := strings.Cut(raw[1:], "/")
		name, err := recordkey.Unescape(crumb)
		sub, nameless := ns.Sub(name) // as in the store's own ~/…
		if !found || cmp.Or(err, nameless) != nil {
			break
		}
		ns, raw = sub, rest
	}
	return ns
}

// within goes over the keys that begin with a text.
func keysUnder(prefix string) records.Walk {
	return records.Walk{Pattern: recordkey.Glob(prefix) + "*", Size: records.ScanBatch, AtOnce: 1}
}

// eachKey calls f for the raw keys of a namespace, several at once, and counts for how many of them it did something.
func forEachKey(ctx context.Context, v *view.View, ns recordkey.Namespace, f func(context.Context, string) (bool, error)) (int64, error) {
	var n atomic.Int64
	w := keysUnder(ns.String())
	w.Size, w.AtOnce = 1, concurrentRewrites
	err := w.Each(ctx, v, func(ctx context.Context, keys []string) error {
		if !strings.HasPrefix(keys[0], ns.String()) {
			return nil // no server would find it: nothing outside is touched
		}
		done, err := f(ctx, keys[0])
		if done {
			n.Add(1)
		}
		return err
	})
	return n.Load(), err
}

// CopyNamespace copies all records of one namespace, and of those inside it, to another that holds
// none, and says how many there were. Values inside records are relative, so they are copied as they
// are, with their times to live. Single-use tokens are left out: they are good in one namespace. It goes on where it was
// stopped if it is called again. Records that are written meanwhile may be copied or not: let nobody write to the source,
// or check the copy. To move a namespace, copy and then drop it.
//
// ErrNotEmpty: the target holds records; they are left alone. ErrNamespace: the source is the whole
// store, or one of them the store's own, or one lies inside the other. ErrNotFound: the source holds nothing.
func CopyNamespace(ctx context.Context, db *userdb.DB, from, to recordkey.Namespace) (int64, error) {
	if strings.HasPrefix(from.String(), to.String()) || strings.HasPrefix(to.String(), from.String()) {
		return 0, fmt.Errorf("%w: %q to %q: want two, of which none lies inside the other", ErrNamespace, from.Path(), to.Path())
	}
	if view.IsReserved(from) || view.IsReserved(to) {
		return 0, fmt.Errorf("%w: it is the store's own", ErrNamespace)
	}
	v := view.Of(db)
	mark, _ := recordkey.Own(records.CopyMark) // a constant: it cannot fail
	mark = mark.In(to)
	if err := markCopy(ctx, v, mark, from, to); err != nil {
		return 0, err
	}
	n, err := forEachKey(ctx, v, from, func(ctx context.Context, key string) (bool, error) {
		if own, err := recordkey.Parse(key); err == nil && own.Kind() == recordkey.KindOwn && own.PRK().IsValid() {
			return false, nil // one of an entry, such as its tokens
		}
		return v.Engine.Mend(ctx, store.Copy{From: key, To: copyKey(key, from, to)})
	})
	if err == nil {
		_, err = v.Engine.Mend(ctx, store.Remove{Key: mark.String()})
	}
	return n, err
}

// beginCopy marks the target, unless it holds anything but the beginning of the same copy.
func markCopy(ctx context.Context, v *view.View, mark recordkey.Key, from, to recordkey.Namespace) error {
	if holds, err := hasKeys(ctx, v, from); err != nil {
		return err
	} else if !holds {
		return fmt.Errorf("namespace %q: %w", from.Path(), store.ErrNotFound)
	}
	marks, err := store.Texts(ctx, v.Engine, []string{mark.String()})
	if err != nil || marks[0].Is && marks[0].Wire == from.Path() {
		return err
	}
	if holds, err := hasKeys(ctx, v, to); err != nil {
		return err
	} else if holds {
		return fmt.Errorf("%w: %q", ErrNotEmpty, to.Path())
	}
	_, err = v.Engine.Secret(ctx, mark, from.Path())
	return err
}

// anyKey reports whether a namespace, or one inside it, holds a record.
func hasKeys(ctx context.Context, v *view.View, ns recordkey.Namespace) (bool, error) {
	for keys, err := range store.ScanAll(ctx, v.Engine, store.Scan{Pattern: keysUnder(ns.String()).Pattern, Count: records.ScanBatch}) {
		if err != nil || len(keys) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// copyOf is the key of a copy. What was laid ready for an entry names that entry's record in its own key.
func copyKey(key string, from, to recordkey.Namespace) string {
	if set, rev, ok := store.ParseStage(key); ok {
		if copied, err := recordkey.Parse(to.String() + strings.TrimPrefix(set.String(), from.String())); err == nil {
			return store.StageKey(copied, rev)
		}
	}
	return to.String() + strings.TrimPrefix(key, from.String())
}

// DropNamespace removes all records of a namespace and of those inside it, and says how many. Nothing
// outside is touched. It may be stopped and called again. Let nobody write to it
// meanwhile: half of what is written may go. ErrNamespace: it is the whole store, or the store's own.
func DropNamespace(ctx context.Context, db *userdb.DB, ns recordkey.Namespace) (int64, error) {
	if ns == (recordkey.Namespace{}) {
		return 0, fmt.Errorf("%w: it is the whole store", ErrNamespace)
	}
	if view.IsReserved(ns) {
		return 0, fmt.Errorf("%w: it is the store's own", ErrNamespace)
	}
	v, n := view.Of(db), int64(0)
	for entries := true; ; entries = false { // they go first: an entry without its identifiers could get a rival
		some, err := forEachKey(ctx, v, ns, func(ctx context.Context, key string) (bool, error) {
			if k, err := recordkey.Parse(key); entries && (err != nil || k.Kind() != recordkey.KindPRK) {
				return false, nil
			}
			return v.Engine.Mend(ctx, store.Remove{Key: key})
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
