package check

import (
	"context"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// An ownerRead asks for an entry that another record names. The zero one asks for nothing.
type ownerRead struct {
	t     *change.Type
	key   recordkey.Key
	field string                  // by which most owners are seen to be as they should
	fine  func(facet string) bool // what it must be for that; nil: the entry is read at once
}

// An owner is such an entry: either fine, or read whole.
type owner struct {
	key    recordkey.Key
	fine   bool
	there  bool // live, or damaged; false for one that is absent, a tombstone, or no hash
	fields map[string]string
}

// live says that there is an entry.
func (o owner) live() bool { return o.fine || o.there }

// has says in which secondary field an owner that was read whole has a canonical value.
func (o owner) has(t *change.Type, value string) (string, bool) {
	for _, field := range t.Secondary {
		if o.hasIn(t, field, value) {
			return field, true
		}
	}
	return "", false
}

func (o owner) hasIn(t *change.Type, field, value string) bool {
	facet, has := o.fields[field]
	return o.there && has && t.Schema.Canonical(facet) == value
}

// seen is the version of the owner.
func (o owner) seen() string { return records.Relative(o.key) + " " + o.fields[store.FieldRev] }

// owners reads the entries that records name: one facet of each, and those whole that are not fine.
func (c *checker) owners(ctx context.Context, asked []ownerRead) ([]owner, error) {
	owners := make([]owner, len(asked))
	reads, read := make([]store.FacetRead, 0, len(asked)), make([]int, 0, len(asked))
	var whole []int
	for i, a := range asked {
		owners[i].key = a.key
		switch {
		case !a.key.IsValid() || a.key.Field() != a.t.Schema.Primary:
		case a.fine == nil:
			whole = append(whole, i)
		default:
			reads, read = append(reads, store.FacetRead{Key: a.key.String(), Field: a.field}), append(read, i)
		}
	}
	facets, err := store.Facets(ctx, c.Engine, reads)
	if err != nil {
		return nil, err
	}
	for j, i := range read {
		if owners[i].fine = facets[j].Is && asked[i].fine(facets[j].Wire); !owners[i].fine {
			whole = append(whole, i)
		}
	}
	return owners, c.readWhole(ctx, owners, whole)
}

func (c *checker) readWhole(ctx context.Context, owners []owner, which []int) error {
	keys := make([]string, len(which))
	for j, i := range which {
		keys[j] = owners[i].key.String()
	}
	hashes, err := store.Hashes(ctx, c.Engine, keys)
	for j, h := range hashes {
		o := &owners[which[j]]
		o.fields, o.there = h.Fields, !h.Other && !records.Gone(h.Fields)
	}
	return err
}

// ownerOf is the entry that an SRV, or the member of an index set, names; else the code of what is
// wrong with it.
func ownerOf(t *change.Type, ns recordkey.Namespace, srv string) (key recordkey.Key, code string) {
	key, err := recordkey.Parse(store.Owner(srv))
	switch {
	case err != nil, key.Kind() != recordkey.KindPRK, key.Namespace() != recordkey.Namespace{}:
		return recordkey.Key{}, codeSRVUnparsable
	case key.Type() != t.Name, key.Field() != t.Schema.Primary:
		return recordkey.Key{}, codeSRVType
	}
	return key.In(ns), ""
}
