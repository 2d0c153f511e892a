package check

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// tries is how often a change of an entry that others are changing is made anew.
const tries = 20

// mendOnce makes one change of an entry, from what it is now.
func (c *checker) mendOnce(ctx context.Context, t *change.Type, prk recordkey.Key, how func(store.Record) (change.Mending, bool)) error {
	for range tries {
		hashes, err := store.Hashes(ctx, c.Engine, []string{prk.String()})
		if err != nil {
			return err
		}
		if hashes[0].Other || records.Gone(hashes[0].Fields) {
			return store.ErrNotFound
		}
		r := store.Record{Key: prk, Fields: hashes[0].Fields}
		m, may := how(r)
		if !may {
			return nil
		}
		change, due := t.Mend(r, m)
		if !due {
			return nil
		}
		if _, err = c.Apply(ctx, t, change); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}

// mendEntry mends an entry, its SRKs and its index members.
func (c *checker) mendEntry(ctx context.Context, prk recordkey.Key, due findings) error {
	t, err := c.Type(prk.Type())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(due, func(f finding) bool { return f.Code == codeOrderMissing }) {
		if err := c.mendPlaces(ctx, t, prk); err != nil {
			return err
		}
	}
	for _, f := range due {
		if f.Code != codeIndexMissing {
			continue
		}
		index, err := recordkey.Parse(f.Key)
		if err != nil {
			return err
		}
		m := store.Align{
			Index: index.In(c.NS), Member: records.Relative(prk), Entry: prk,
			Facet: store.Facet{Field: index.Field(), Wire: index.Value()},
		}
		if _, err := c.Engine.Mend(ctx, m); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(due, func(f finding) bool { return classes[f.Code] == classEntry }) {
		return nil
	}
	return c.mendSRKs(ctx, t, prk)
}

// mendSRKs mends an entry with all the SRKs that can be claimed for it: in one change or, where one of
// them cannot, one by one.
func (c *checker) mendSRKs(ctx context.Context, t *change.Type, prk recordkey.Key) error {
	missing, may, err := c.missing(ctx, t, prk)
	if err != nil || !may {
		return err
	}
	claim := func(srks ...recordkey.Key) error {
		return c.mendOnce(ctx, t, prk, func(r store.Record) (change.Mending, bool) {
			whole := len(srks) == len(missing)
			return change.Mending{Claim: func(k recordkey.Key) bool { return slices.Contains(srks, k) }}, whole || r.Live()
		})
	}
	if err = claim(missing...); !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	if err := claim(); err != nil {
		return err
	}
	for _, srk := range missing {
		if err := claim(srk); err != nil && !passing(err) {
			return err
		}
	}
	return nil
}

// missing are the SRKs to claim for an entry: those of its values that do not name it, but for values
// that another entry has, too. An entry that has such a one and is not live must not come to life: false.
func (c *checker) missing(ctx context.Context, t *change.Type, prk recordkey.Key) (srks []recordkey.Key, may bool, err error) {
	hashes, err := store.Hashes(ctx, c.Engine, []string{prk.String()})
	if err != nil || hashes[0].Other {
		return nil, false, err
	}
	r := store.Record{Key: prk, Fields: hashes[0].Fields}
	all := t.Secondaries(r.Fields)
	srvs, err := store.Texts(ctx, c.Engine, records.Texts(all))
	if err != nil {
		return nil, false, err
	}
	for i, srk := range all {
		switch _, contested := c.fix.contests[records.Digest(t.Name, srk.Value())]; {
		case contested && r.Fields[store.FieldType] != t.Name:
			return nil, false, nil
		case contested || srvs[i].Is && store.Owner(srvs[i].Wire) == records.Relative(prk):
			continue
		}
		if err := c.clear(ctx, srk); err != nil {
			return nil, false, err
		}
		srks = append(srks, srk)
	}
	return srks, true, nil
}

// clear makes room where no string is in the place of an SRK.
func (c *checker) clear(ctx context.Context, srk recordkey.Key) error {
	_, err := c.Engine.Mend(ctx, store.Remove{Key: srk.String(), Kind: "string"})
	return err
}

// mendSRK removes an SRK that names no entry with its value, if that is still so.
func (c *checker) mendSRK(ctx context.Context, srk recordkey.Key, due findings) error {
	srvs, err := store.Texts(ctx, c.Engine, []string{srk.String()})
	if err != nil {
		return err
	}
	srv := srvs[0].Wire
	switch due[0].Code {
	case codeSRKKind:
		return c.clear(ctx, srk)
	case codeSRVUnparsable, codeSRVType:
		_, err = c.Engine.Mend(ctx, store.Remove{Key: srk.String(), Seen: store.Text{Wire: srv, Is: true}})
		return err
	}
	if srv == "" {
		return nil // changed meanwhile
	}
	_, err = c.Engine.Mend(ctx, store.Remove{
		Key: srk.String(), Seen: store.Text{Wire: srv, Is: true}, Owner: c.NS.String() + store.Owner(srv), Field: srk.Field(), Value: srk.Value(),
	})
	return err
}

// mendTertiary removes a tertiary record whose entry is not live.
func (c *checker) mendTertiary(ctx context.Context, key recordkey.Key, _ findings) error {
	_, err := c.Engine.Mend(ctx, store.Remove{Key: key.String(), Owner: key.PRK().String()})
	return err
}

// mendIndex removes what is in the place of an index set and is none.
func (c *checker) mendIndex(ctx context.Context, key recordkey.Key, _ findings) error {
	_, err := c.Engine.Mend(ctx, store.Remove{Key: key.String(), Kind: "set"})
	return err
}

// mendMember puts the entry of an indexed set into the index set of a member.
func (c *checker) mendMember(ctx context.Context, m member, _ findings) error {
	index, err := indexOf(m)
	if err != nil {
		return err
	}
	_, err = c.Engine.Mend(ctx, store.Align{
		Index: index.Set, Member: index.Value, Entry: m.set.PRK(), Set: m.set, Value: m.text,
	})
	return err
}

// mendIndexMember takes out of an index set what does not belong there.
func (c *checker) mendIndexMember(ctx context.Context, m member, _ findings) error {
	t, err := c.Type(m.set.Type())
	if err != nil {
		return err
	}
	field := m.set.Field()
	to := store.Align{Index: m.set, Member: m.text, Facet: store.Facet{Field: field, Wire: m.set.Value()}}
	key, code := ownerOf(t, m.set.Namespace(), m.text)
	switch {
	case code != "":
	case slices.Contains(t.Indexed, field):
		to.Entry = key
	case t.Schema.Tertiary[field].Indexed:
		to.Entry, to.Value = key, m.set.Value()
		if to.Set, err = key.Tertiary(field); err != nil {
			return err
		}
	default:
		_, err = c.Engine.Mend(ctx, store.Remove{Key: m.set.String(), Member: m.text, Owner: key.String()})
		return err
	}
	_, err = c.Engine.Mend(ctx, to)
	return err
}

// mendUnparsable removes an SRK whose key was written in the original's way, where ours is in force:
// the same value has its SRK under our key, or nobody has it.
func (c *checker) mendUnparsable(ctx context.Context, raw string, _ findings) error {
	t, field, value, ok := c.originalSRK(strings.TrimPrefix(raw, c.NS.String()))
	if !ok {
		return nil
	}
	srvs, err := store.Texts(ctx, c.Engine, []string{raw})
	if err != nil || !srvs[0].Is {
		return err
	}
	remove := store.Remove{Key: raw, Seen: store.Text{Wire: srvs[0].Wire, Is: true}}
	key, code := ownerOf(t, c.NS, srvs[0].Wire)
	if code == "" {
		needed, err := c.needed(ctx, t, key, field, t.Schema.Canonical(value))
		if err != nil || needed {
			return err
		}
	}
	_, err = c.Engine.Mend(ctx, remove)
	return err
}

// needed says whether an entry has a value, and no SRK of ours for it.
func (c *checker) needed(ctx context.Context, t *change.Type, prk recordkey.Key, field, value string) (bool, error) {
	owners, err := c.owners(ctx, []ownerRead{{t: t, key: prk}})
	if err != nil || !owners[0].hasIn(t, field, value) {
		return false, err
	}
	srk, err := recordkey.SRK(t.Name, field, value)
	if err != nil {
		return true, nil
	}
	srvs, err := store.Texts(ctx, c.Engine, []string{srk.In(c.NS).String()})
	return err != nil || store.Owner(srvs[0].Wire) != records.Relative(prk), err
}

// originalSRK takes apart an SRK as the original writes it: it escapes four characters, and no others.
func (c *checker) originalSRK(key string) (t *change.Type, field, value string, ok bool) {
	rest, ok := strings.CutSuffix(key, "/~prk")
	if !ok {
		return nil, "", "", false
	}
	typ, rest, _ := strings.Cut(rest, "/")
	field, value, ok = strings.Cut(rest, ":")
	t, err := c.Type(originalUnescape.Replace(typ))
	if field = originalUnescape.Replace(field); err != nil || !ok || !slices.Contains(t.Secondary, field) {
		return nil, "", "", false
	}
	return t, field, originalUnescape.Replace(value), true
}

// originalUnescape undoes originalEscape, in one pass from the left.
var originalUnescape = strings.NewReplacer("++", "+", "+_", " ", "+,", "/", "+.", ":")
