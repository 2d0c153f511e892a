package check

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An entry is a hash under a PRK, whole or damaged.
type entry struct {
	at     int
	key    recordkey.Key
	prk    string // relative
	t      *change.Type
	fields map[string]string
	claims []*claim
}

// A claim is a secondary value of an entry, which I1 gives an SRK.
type claim struct {
	e     *entry
	srk   recordkey.Key
	holds bool // the SRK names the entry
}

func (e *entry) add(fs *findings, code string, key recordkey.Key, format string, args ...any) *finding {
	return fs.add(e.at, code, key, e.prk+" "+e.fields[store.FieldRev], format, args...)
}

// lookAtEntries judges entries by themselves (I3), by the SRKs of their values (I1, I2) and by the
// index sets of their facets (I5).
func (c *checker) lookAtEntries(ctx context.Context, prks []recordkey.Key) (findings, error) {
	hashes, err := store.Hashes(ctx, c.Engine, records.Texts(prks))
	if err != nil {
		return nil, err
	}
	var fs findings
	var es []*entry
	for i, h := range hashes {
		if e := c.entry(&fs, i, prks[i], h); e != nil {
			e.judge(&fs)
			e.judgeCodecs(&fs, c.coded[e.t.Name])
			es = append(es, e)
		}
	}
	if err := c.lookAtClaims(ctx, &fs, es); err != nil {
		return nil, err
	}
	if err := c.lookAtPlaces(ctx, &fs, es); err != nil {
		return nil, err
	}
	return fs, c.lookAtFacets(ctx, &fs, es)
}

// entry is what to judge at a PRK: nothing where there is no record or a tombstone.
func (c *checker) entry(fs *findings, at int, key recordkey.Key, h store.Hash) *entry {
	t, err := c.Type(key.Type())
	switch {
	case err != nil, !h.Other && records.Gone(h.Fields):
		return nil
	case key.Field() != t.Schema.Primary:
		fs.add(at, codeKeyField, key, "", "the primary field of type %s is %s", records.Quoted(t.Name), records.Quoted(t.Schema.Primary))
		return nil
	case h.Other:
		fs.add(at, codePRKKind, key, "", "an entry is a hash, and this is none")
		return nil
	}
	return &entry{at: at, key: key, prk: records.Relative(key), t: t, fields: h.Fields}
}

// judge says what is wrong with an entry itself, and collects the claims that its values give it.
func (e *entry) judge(fs *findings) {
	switch isa := e.fields[store.FieldType]; isa {
	case e.t.Name:
	case "":
		e.add(fs, codeIsaMissing, e.key, "a hash with facets, but without ~isa, is no entry")
	default:
		e.add(fs, codeTypeMismatch, e.key, "~isa is %s", records.Quoted(isa))
	}
	if prk := e.fields[store.FieldPRK]; prk != e.prk {
		e.add(fs, codePRKWrong, e.key, "~prk is %s", quotedOrMissing(e.fields, store.FieldPRK))
	}
	if e.fields[e.t.Schema.Primary] != e.key.Value() {
		e.add(fs, codePrimaryWrong, e.key, "%s is %s", records.Quoted(e.t.Schema.Primary), quotedOrMissing(e.fields, e.t.Schema.Primary))
	}
	for _, field := range e.t.Secondary {
		e.judgeSecondary(fs, field)
	}
}

func quotedOrMissing(fields map[string]string, field string) string {
	if text, is := fields[field]; is {
		return records.Quoted(text)
	}
	return "missing"
}

func (e *entry) judgeSecondary(fs *findings, field string) {
	facet, has := e.fields[field]
	skv, kept := e.fields[store.FieldSKV(field)]
	if !has {
		e.add(fs, codeFieldMissing, e.key, "no %s", records.Quoted(field))
		if kept {
			e.add(fs, codeSKVWrong, e.key, "~skv of %s is kept without a facet", records.Quoted(field))
		}
		return
	}
	value := e.t.Schema.Canonical(facet)
	if kept && skv != value || !kept && facet != value {
		e.add(fs, codeSKVWrong, e.key, "~skv of %s is %s, want %s", records.Quoted(field), quotedOrMissing(e.fields, store.FieldSKV(field)), records.Quoted(value))
	}
	srk, err := recordkey.SRK(e.t.Name, field, value)
	if err != nil {
		e.add(fs, codeValueUnkeyable, e.key, "no key can name the value of %s: it is %s", records.Quoted(field), records.Unkeyable(value))
		return
	}
	e.claims = append(e.claims, &claim{e: e, srk: srk.In(e.key.Namespace())})
}

// coded are the fields of each type whose codec does not take everything. The password is none of
// them: a schema cannot give it a codec.
func coded(s schema.Schema) map[string][]string {
	all := map[string][]string{}
	for name, t := range s.Types {
		for field := range t.Fields {
			if t.Codec(field) != schema.CodecText {
				all[name] = append(all[name], field)
			}
		}
		slices.Sort(all[name])
	}
	return all
}

// judgeCodecs reads the facets of those fields.
func (e *entry) judgeCodecs(fs *findings, coded []string) {
	for _, field := range coded {
		wire, has := e.fields[field]
		if !has {
			continue
		}
		if _, err := schema.Decode(e.t.Schema.Codec(field), wire); err != nil {
			e.add(fs, codeFacetUndecodable, e.key, "%s: %v", records.Quoted(field), err).seen += " " + field
		}
	}
}

// lookAtFacets looks whether entries are in the index sets of their facets (I5).
func (c *checker) lookAtFacets(ctx context.Context, fs *findings, es []*entry) error {
	var asked []store.Member
	var of []*entry
	for _, e := range es {
		for _, field := range e.t.Indexed {
			facet, has := e.fields[field]
			if !has {
				continue
			}
			index, err := recordkey.Index(e.t.Name, field, facet)
			if err != nil {
				e.add(fs, codeIndexUnkeyable, e.key, "no index key can name %s: it is %s", records.Quoted(field), records.Unkeyable(facet))
				continue
			}
			asked = append(asked, store.Member{Set: index.In(e.key.Namespace()), Value: e.prk})
			of = append(of, e)
		}
	}
	has, err := c.Engine.Holds(ctx, asked)
	for i := range has {
		if !has[i] {
			of[i].add(fs, codeIndexMissing, asked[i].Set, "%s is not in it", records.Printable(of[i].prk))
		}
	}
	return err
}
