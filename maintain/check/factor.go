package check

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// isFactorRecord reports whether key is that of an entry's record of second factors.
func isFactorRecord(key recordkey.Key) bool {
	recordKey, err := factor.Key(key.PRK())
	return err == nil && key == recordKey
}

// checkPasswordHash checks that the password hash of an entry is in the right field. If the entry
// has a second factor, programs of earlier versions must not find the hash, because for them the
// password alone would be enough to log in.
func (e *entry) checkPasswordHash(r *report) {
	_, apart := e.fields[factor.FieldHash]
	hash, marked := e.fields[store.FieldPassword], e.fields[factor.FieldMark] != ""
	switch {
	case marked && hash != "" && hash != factor.HashMarker:
		e.add(r, factorHash, e.key, "an earlier version of the program set a password, and lets the entry in by that password alone")
	case marked && hash == "" && apart, marked && hash == factor.HashMarker && !apart:
		e.add(r, factorHash, e.key, "the entry has a second factor, but its password hash is incomplete")
	case !marked && (hash == factor.HashMarker || apart):
		e.add(r, factorHash, e.key, "the password hash is stored as that of an entry with a second factor, but the entry has none")
	}
}

// checkPasskeys compares the passkeys that an entry lists with the digests by which they are found.
// A field whose values nobody types holds digests if one of its values is the digest of a listed
// passkey, or if it has the default name and the schema allows second factors.
func (e *entry) checkPasskeys(r *report) {
	listed := factor.Mark(e.fields[factor.FieldMark]).Passkeys()
	found := map[string]bool{}
	for _, field := range e.t.Secondary {
		if slices.Contains(e.t.Typed, field) {
			continue
		}
		holdsDigests := field == passkeys.DefaultField && e.t.Schema.Factors
		var orphans []string
		for _, value := range e.t.Values(e.fields, field) {
			i := slices.IndexFunc(listed, func(name string) bool {
				return factor.IsOfDigest(name, value.Written)
			})
			if i < 0 {
				orphans = append(orphans, value.Written)
			} else {
				found[listed[i]], holdsDigests = true, true
			}
		}
		if !holdsDigests {
			continue
		}
		for _, digest := range orphans {
			e.add(r, passkeyOrphan, e.key, records.Quoted(digest), records.Quoted(field)).seen += " " + digest
		}
	}
	for _, name := range listed {
		if !found[name] {
			e.add(r, passkeyLost, e.key, records.Quoted(name)).seen += " " + name
		}
	}
}

// checkFactors checks that the second factors that entries list are in their records.
func (c *checker) checkFactors(ctx context.Context, r *report, es []*entry) {
	var marked []*entry
	var keys []string
	for _, e := range es {
		if e.fields[factor.FieldMark] == "" {
			continue
		}
		if key, err := factor.Key(e.key); err == nil {
			marked, keys = append(marked, e), append(keys, key.String())
		}
	}
	for i, h := range read(ctx, r, c.Engine, keys, store.Hashes) {
		e, usable := marked[i], 0
		for _, name := range factor.Mark(e.fields[factor.FieldMark]).Names() {
			if _, err := factor.Parse(name, h.Fields[name]); err != nil {
				e.add(r, factorMissing, e.key, "its second factor "+records.Quoted(name)+" is absent or unreadable, so nobody can use it").seen += " " + name
			} else {
				usable++
			}
		}
		if usable == 0 && len(factor.Mark(e.fields[factor.FieldMark]).Names()) == 0 {
			e.add(r, factorMissing, e.key, "its list of second factors cannot be read")
		}
	}
}

// checkFactorRecords checks that each record of second factors belongs to a live entry. It ignores
// records that expire, which hold only removed factors or tickets.
func (c *checker) checkFactorRecords(ctx context.Context, r *report, items []item) {
	reads := make([]store.RawRead, len(items))
	for i, it := range items {
		reads[i] = store.RawRead{Key: it.key.PRK().String(), As: store.RawField, Field: store.FieldType}
	}
	var dead []int
	for i, isa := range read(ctx, r, c.Engine, reads, readFields) {
		if isa.Wire == "" && !isa.WrongType {
			dead = append(dead, i)
		}
	}
	keys := records.Map(dead, func(i int) string { return items[i].raw })
	for n, raw := range read(ctx, r, c.Engine, keys, readRaw) {
		it := items[dead[n]]
		if raw.Type == "hash" && raw.TTL == -1 {
			prk := it.key.PRK()
			r.add(dead[n], factorOrphan, it.key, "", records.Quoted(records.Relative(prk))).step = store.Remove{Key: it.raw, Owner: prk.String()}
		}
	}
}
