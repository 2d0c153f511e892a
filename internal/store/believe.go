package store

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/recordkey"
)

// A Lookup says where to look for an entry: at its PRK or, if that is the zero key, under SRKs.
type Lookup struct {
	PRK    recordkey.Key
	SRKs   []recordkey.Key
	All    bool // every SRK must name the same entry; otherwise one is enough
	Cached bool // a slightly old copy in this process is good enough; only for a lookup by PRK
}

// Found holds the answer to a Lookup. Err is ErrNotFound if there is no such entry, and ErrCorrupt
// if a record is damaged.
type Found struct {
	Record Record
	Err    error
}

// An EntryRead asks for an entry and some of its tertiary records, each with its expected Redis
// type.
type EntryRead struct {
	PRK   recordkey.Key
	Keys  []recordkey.Key
	Kinds []string
}

// An Entry holds the answer to an EntryRead: the entry or the reason why it cannot be read, and a
// Part for each tertiary record.
type Entry struct {
	Found
	Parts []Part
}

// A Part holds a tertiary record. Kind is KindNone if the record does not exist, and its Redis type
// otherwise. A record of an unexpected type has no values. Values are as in Members.Values.
type Part struct {
	Kind   string
	Values []string
}

// A Candidate holds the PRK that one SRK names and the hash at that PRK, or a problem.
type Candidate struct {
	SRK     recordkey.Key
	Owner   string // the PRK, relative to the namespace of the SRK
	Fields  map[string]string
	Problem string
}

// Believe returns the answer to a lookup from the candidates that its SRKs led to. It believes an
// SRK only if its entry is live, has the SRK's own type, and has the value under one of the fields
// asked for (I1, I2, I4).
func Believe(l Lookup, cs []Candidate) Found {
	var found *Found
	agreeing := 0
	for _, c := range cs {
		f := believeOne(l, c)
		switch {
		case errors.Is(f.Err, ErrNotFound):
			continue
		case f.Err != nil:
			return f
		case found == nil:
			found = &f
		case found.Record.Key != f.Record.Key && l.All:
			return Found{Err: ErrNotFound}
		case found.Record.Key != f.Record.Key:
			return Found{Err: &CorruptError{Key: c.SRK.String(), Reason: "the value belongs to two entries (I2)"}}
		}
		agreeing++
	}
	if found == nil || l.All && agreeing < len(l.SRKs) {
		return Found{Err: ErrNotFound}
	}
	return *found
}

func believeOne(l Lookup, c Candidate) Found {
	if c.Problem != "" {
		return Found{Err: &CorruptError{Key: c.SRK.String(), Reason: c.Problem}}
	}
	key, err := recordkey.Parse(c.Owner)
	if err != nil || key.Kind() != recordkey.KindPRK || key.Type() != c.SRK.Type() {
		return Found{Err: ErrNotFound}
	}
	if c.Fields == nil {
		return Found{Err: fmt.Errorf("%w: %w: no hash for %s", ErrUnavailable, ErrReply, c.SRK)}
	}
	key = key.In(c.SRK.Namespace())
	r := Record{Key: key, Fields: c.Fields}
	if !r.Live() || !r.confirms(l, c.SRK) {
		return Found{Err: ErrNotFound}
	}
	return FoundAt(key, c.Fields)
}

// confirms reports whether the entry has the SRK's value in the SRK's field. If the lookup needs
// only one of its SRKs, the value may also be in the field of another of them: it may have moved
// there between two reads.
func (r Record) confirms(l Lookup, srk recordkey.Key) bool {
	moved := func(k recordkey.Key) bool { return k.Value() == srk.Value() && r.hasSRK(k) }
	return r.hasSRK(srk) || !l.All && slices.ContainsFunc(l.SRKs, moved)
}

// hasSRK reports whether the record has the SRK's value under the SRK's field.
func (r Record) hasSRK(srk recordkey.Key) bool { return r.HasValue(srk.Field(), srk.Value()) }

// Matches reports whether the record matches the lookup. Every record matches the zero Lookup.
func (l Lookup) Matches(r Record) bool {
	switch {
	case l.PRK.IsValid():
		return l.PRK == r.Key
	case l.All:
		return !slices.ContainsFunc(l.SRKs, func(srk recordkey.Key) bool { return !r.hasSRK(srk) })
	}
	return len(l.SRKs) == 0 || slices.ContainsFunc(l.SRKs, r.hasSRK)
}

// FoundAt returns the answer for the hash at a PRK (I3). Nil fields mean that there was no reply.
func FoundAt(key recordkey.Key, fields map[string]string) Found {
	r := Record{Key: key, Fields: fields}
	switch {
	case fields == nil:
		return Found{Err: fmt.Errorf("%w: %w: no hash for %s", ErrUnavailable, ErrReply, key)}
	case r.Live() && r.Fields[FieldType] == key.Type():
		return Found{Record: r}
	case r.Live():
		return Found{Err: &CorruptError{Key: key.String(), Reason: "~isa names another type (I3)"}}
	case len(fields) == 0 || Tombstone(fields):
		return Found{Err: ErrNotFound}
	}
	return Found{Err: &CorruptError{Key: key.String(), Reason: "a hash without ~isa"}}
}
