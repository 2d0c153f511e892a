package admin

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on what FactorKeysMissing reads of each namespace. The keys of an embedded store are
// sorted, so the first step there finds factors if there are any. On a server, 20 steps look at
// about ten thousand records.
const (
	maxKeySteps   = 20
	keysPerStep   = 500
	maxFactorKeys = 50 // entries with factors
)

// FactorKeysMissing reports whether entries of db's namespace have second factors and db can
// decrypt none of them. If db is a view of the root namespace, operators also count. It reads only
// a sample, so it can miss a few factors in a large store on a server.
func FactorKeysMissing(ctx context.Context, db *userdb.DB) (bool, error) {
	v := view.Of(db)
	namespaces := []recordkey.Namespace{v.NS}
	if v.NS.Path() == "" {
		namespaces = append(namespaces, view.Reserved)
	}
	missing := 0
	for _, ns := range namespaces {
		found, err := entriesWithFactors(ctx, v, ns)
		if err != nil {
			return false, err
		}
		for _, r := range found {
			opened, lost, err := openSealed(ctx, v, r)
			if err != nil || opened > 0 {
				return false, err
			}
			missing += len(lost)
		}
	}
	return missing > 0, nil
}

// entriesWithFactors returns entries of a namespace that have a second factor, within the limits
// above.
func entriesWithFactors(ctx context.Context, v *view.View, ns recordkey.Namespace) (found []store.Record, err error) {
	at := store.Scan{Pattern: recordkey.Glob(ns.String()) + "~/factor/*", Count: keysPerStep}
	for range maxKeySteps {
		keys, next, err := v.Engine.Scan(ctx, at)
		if err != nil {
			return nil, err
		}
		var entries []recordkey.Key
		var texts []string
		for _, text := range keys[:min(len(keys), maxFactorKeys)] {
			if key, err := recordkey.Parse(text); err == nil && key.Namespace() == ns && key.PRK().IsValid() {
				entries, texts = append(entries, key.PRK()), append(texts, key.PRK().String())
			}
		}
		raw, err := store.Hashes(ctx, v.Engine, texts)
		if err != nil {
			return nil, err
		}
		for i, entry := range raw {
			if r := (store.Record{Key: entries[i], Fields: entry.Fields}); r.Factors().Any() {
				found = append(found, r)
			}
		}
		if at.Cursor = next; next == "" || len(found) >= maxFactorKeys {
			break
		}
	}
	return found, nil
}

// A LostFactors holds the IDs of those second factors of an entry that no key decrypts.
type LostFactors struct {
	Entry userdb.Entry
	IDs   []string
	Kept  int // how many other factors the keys decrypt
}

// FindLostFactors returns an iterator over the entries of a type of db that have second factors,
// with the IDs of those factors for which db lacks the key. Factors that are damaged in another
// way, which check reports, are left out. An entry that cannot be read yields ErrCorrupt, and the
// others follow.
func FindLostFactors(ctx context.Context, db *userdb.DB, t *userdb.Type) iter.Seq2[LostFactors, error] {
	return func(yield func(LostFactors, error) bool) {
		v := view.Of(db)
		for e, err := range t.All(ctx, userdb.Query{}) {
			if err == nil && len(e.FactorIDs()) == 0 {
				continue
			}
			found := LostFactors{Entry: e}
			if err == nil {
				found.IDs, found.Kept, err = lostFactors(ctx, v, e.Key().In(v.NS))
			}
			if !yield(found, err) || err != nil && !errors.Is(err, userdb.ErrCorrupt) {
				return
			}
		}
	}
}

// lostFactors returns the IDs of an entry's factors for which the view lacks the key, and how many
// others it can decrypt.
func lostFactors(ctx context.Context, v *view.View, prk recordkey.Key) (ids []string, kept int, err error) {
	r, err := v.FindOne(ctx, store.Lookup{PRK: prk})
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil // deleted meanwhile
	}
	if err != nil {
		return nil, 0, err
	}
	kept, lost, err := openSealed(ctx, v, r)
	for _, name := range lost {
		_, id, _ := strings.Cut(name, "/")
		ids = append(ids, id)
	}
	return ids, kept, err
}

// openSealed returns how many factors of an entry a view can decrypt, and the names of those for
// which it lacks the key.
func openSealed(ctx context.Context, v *view.View, r store.Record) (opened int, lost []string, err error) {
	names := r.Factors().Names()
	_, values, err := v.Engine.ReadFactors(ctx, r.Key, names, v.StoreTime())
	if errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
		return 0, nil, err
	} else if err != nil {
		return 0, nil, nil // damaged, which check reports
	}
	for i, name := range names {
		f, err := factor.Parse(name, values[i])
		if err != nil {
			continue // absent or damaged, which check reports
		}
		switch _, err := v.Config.Keys.Open(f.Sealed, factor.Place(r.Key, name)...); {
		case err == nil:
			opened++
		case errors.Is(err, sealed.ErrKey):
			lost = append(lost, name)
		}
	}
	return opened, lost, nil
}
