package check

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// lookAtSRKs judges SRKs by the entries that they name (I4).
func (c *checker) lookAtSRKs(ctx context.Context, srks []recordkey.Key) (findings, error) {
	srvs, err := store.Texts(ctx, c.Engine, records.Texts(srks))
	if err != nil {
		return nil, err
	}
	var fs findings
	asked := make([]ownerRead, len(srks))
	var others []int
	for i, srk := range srks {
		if !srvs[i].Is {
			others = append(others, i)
			continue
		}
		if asked[i], err = c.ownerRead(&fs, i, srk, srvs[i].Wire); err != nil {
			return nil, err
		}
	}
	if err := c.lookAtKinds(ctx, &fs, srks, others); err != nil {
		return nil, err
	}
	owners, err := c.owners(ctx, asked)
	for i, o := range owners {
		if o.key.IsValid() {
			judgeSRK(&fs, i, srks[i], asked[i].t, o, srvs[i].Wire)
		}
	}
	return fs, err
}

// ownerRead asks for the entry that an SRK names, or reports that it names none.
func (c *checker) ownerRead(fs *findings, at int, srk recordkey.Key, srv string) (ownerRead, error) {
	t, err := c.Type(srk.Type())
	if err != nil {
		return ownerRead{}, err
	}
	key, code := ownerOf(t, srk.Namespace(), srv)
	switch code {
	case codeSRVUnparsable:
		fs.add(at, code, srk, srv, "%s is no PRK", records.Quoted(store.Owner(srv)))
		return ownerRead{}, nil
	case codeSRVType:
		fs.add(at, code, srk, srv, "it names %s, which is no entry of type %s", records.Quoted(store.Owner(srv)), records.Quoted(t.Name))
		return ownerRead{}, nil
	}
	fine := func(facet string) bool { return t.Schema.Canonical(facet) == srk.Value() }
	return ownerRead{t: t, key: key, field: srk.Field(), fine: fine}, nil
}

// lookAtKinds reports those SRKs that are there, but no strings.
func (c *checker) lookAtKinds(ctx context.Context, fs *findings, srks []recordkey.Key, which []int) error {
	some := make([]recordkey.Key, len(which))
	for i, w := range which {
		some[i] = srks[w]
	}
	kinds, err := store.Kinds(ctx, c.Engine, records.Texts(some))
	for i, kind := range kinds {
		if kind != store.KindNone && kind != "string" {
			fs.add(which[i], codeSRKKind, some[i], "", "an SRK is a string, and this a %s", records.Quoted(kind))
		}
	}
	return err
}

// judgeSRK goes by the SRV, too: on a cluster each attempt to make an entry has one of its own, and an entry
// that is not there has no revision.
func judgeSRK(fs *findings, at int, srk recordkey.Key, t *change.Type, o owner, srv string) {
	prk, seen := records.Printable(records.Relative(o.key)), o.seen()+" "+srv
	switch {
	case !o.fine && !o.there:
		fs.add(at, codeSRKOrphan, srk, seen, "%s is no entry", prk)
	case !o.fine && !o.hasIn(t, srk.Field(), srk.Value()):
		fs.add(at, codeSRKStale, srk, seen, "%s does not have this value in %s", prk, records.Quoted(srk.Field()))
	case !slices.Contains(t.Secondary, srk.Field()):
		fs.add(at, codeSRKUndeclared, srk, seen, "the schema does not declare %s as a secondary field", records.Quoted(srk.Field()))
	}
}
