package store

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/recordkey"
)

func mustSRK(field, value string) recordkey.Key {
	k, err := recordkey.SRK("user", field, value)
	if err != nil {
		panic(err)
	}
	return k
}

// alice returns the fields of an entry. changes holds pairs of field and value to set in it; an
// empty value removes the field.
func alice(changes ...string) map[string]string {
	m := map[string]string{"~isa": "user", "~prk": "user/uid:1", "uid": "1", "name": "Alice", "~skv:name": "alice", "email": "a@x.org"}
	for i := 0; i+1 < len(changes); i += 2 {
		if m[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(m, changes[i])
		}
	}
	return m
}

func TestBelieve(t *testing.T) {
	name, email := mustSRK("name", "alice"), mustSRK("email", "alice")
	address := mustSRK("email", "a@x.org")
	at := func(srk recordkey.Key, owner string, fields map[string]string) Candidate {
		return Candidate{SRK: srk, Owner: owner, Fields: fields}
	}
	bob := map[string]string{"~isa": "user", "uid": "2", "email": "alice"}
	for _, tt := range []struct {
		name string
		l    Lookup
		cs   []Candidate
		want string // found PRK, or the error's text
	}{
		{"the entry has the value", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", alice())}, "user/uid:1"},
		{"the SRK does not exist", Lookup{SRKs: []recordkey.Key{name}}, nil, "not found"},
		{"the entry does not exist", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", map[string]string{})}, "not found"},
		{"there is no reply for the entry", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", nil)}, "store unavailable: reply of an unexpected kind: no hash for user/name:alice/~prk"},
		{"the entry is a tombstone", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", map[string]string{"~rev": "x"})}, "not found"},
		{"the entry has another value", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", alice("~skv:name", "alicia"))}, "not found"},
		{"the facet is its own canonical value", Lookup{SRKs: []recordkey.Key{address}}, []Candidate{at(address, "user/uid:1", alice())}, "user/uid:1"},
		{"the SRK names an entry of another type", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "robot/uid:1", alice())}, "not found"},
		{"the SRK names a key that is not a PRK", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/name:1/~prk", alice())}, "not found"},
		{"the value of the SRK is not a key", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "rubbish", alice())}, "not found"},
		{"~isa names another type than the key", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", alice("~isa", "robot"))}, "damaged record: user/uid:1: ~isa names another type (I3)"},
		{"the SRK has another Redis type", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{{SRK: name, Problem: "WRONGTYPE x"}}, "damaged record: user/name:alice/~prk: WRONGTYPE x"},
		{"one of two fields, one entry has the value", Lookup{SRKs: []recordkey.Key{email, name}}, []Candidate{at(name, "user/uid:1", alice())}, "user/uid:1"},
		{"one of two fields, the value has moved to the other", Lookup{SRKs: []recordkey.Key{email, name}}, []Candidate{at(email, "user/uid:1", alice())}, "user/uid:1"},
		{"one of two fields, two entries have the value", Lookup{SRKs: []recordkey.Key{email, name}}, []Candidate{at(email, "user/uid:2", bob), at(name, "user/uid:1", alice())}, "damaged record: user/name:alice/~prk: the value belongs to two entries (I2)"},
		{"all fields, both name the same entry", Lookup{SRKs: []recordkey.Key{address, name}, All: true}, []Candidate{at(address, "user/uid:1", alice()), at(name, "user/uid:1", alice())}, "user/uid:1"},
		{"all fields, one SRK does not exist", Lookup{SRKs: []recordkey.Key{address, name}, All: true}, []Candidate{at(name, "user/uid:1", alice())}, "not found"},
		{"all fields, they name two entries", Lookup{SRKs: []recordkey.Key{email, name}, All: true}, []Candidate{at(email, "user/uid:2", bob), at(name, "user/uid:1", alice())}, "not found"},
	} {
		f := Believe(tt.l, tt.cs)
		got := f.Record.Key.String()
		if f.Err != nil {
			got = f.Err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestFoundAt(t *testing.T) {
	prk, _ := recordkey.PRK("user", "uid", "1")
	for _, tt := range []struct {
		fields map[string]string
		want   error
	}{
		{alice(), nil},
		{map[string]string{}, ErrNotFound},
		{nil, ErrReply},
		{map[string]string{"~rev": "x"}, ErrNotFound},
		{map[string]string{"name": "x"}, ErrCorrupt},
		{alice("~isa", "robot"), ErrCorrupt},
	} {
		if f := FoundAt(prk, tt.fields); !errors.Is(f.Err, tt.want) {
			t.Errorf("FoundAt(%v) = %v, want %v", tt.fields, f.Err, tt.want)
		}
	}
}

func TestCorruptErrorStaysOnOneLine(t *testing.T) {
	err := &CorruptError{Key: "user/uid:\x1b[31m\nx\xff", Reason: "why"}
	if got, want := err.Error(), "damaged record: user/uid:?[31m?x\ufffd: why"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
