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

func alice(more ...string) map[string]string {
	m := map[string]string{"~isa": "user", "~prk": "user/uid:1", "uid": "1", "name": "Alice", "~skv:name": "alice", "email": "a@x.org"}
	for i := 0; i+1 < len(more); i += 2 {
		if m[more[i]] = more[i+1]; more[i+1] == "" {
			delete(m, more[i])
		}
	}
	return m
}

func TestBelieve(t *testing.T) {
	name, email := mustSRK("name", "alice"), mustSRK("email", "alice")
	addr := mustSRK("email", "a@x.org")
	at := func(srk recordkey.Key, owner string, fields map[string]string) Candidate {
		return Candidate{SRK: srk, Owner: owner, Fields: fields}
	}
	bob := map[string]string{"~isa": "user", "uid": "2", "email": "alice"}
	for _, tt := range []struct {
		what string
		l    Lookup
		cs   []Candidate
		want string // found PRK, or the error's text
	}{
		{"the holder", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", alice())}, "user/uid:1"},
		{"nothing there", Lookup{SRKs: []recordkey.Key{name}}, nil, "not found"},
		{"a dead entry", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", map[string]string{})}, "not found"},
		{"no answer about the entry", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", nil)}, "store unavailable: reply of an unexpected kind: no hash for user/name:alice/~prk"},
		{"a tombstone", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", map[string]string{"~rev": "x"})}, "not found"},
		{"a live entry with another value", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", alice("~skv:name", "alicia"))}, "not found"},
		{"the facet, without a separate canonical value", Lookup{SRKs: []recordkey.Key{addr}}, []Candidate{at(addr, "user/uid:1", alice())}, "user/uid:1"},
		{"an SRV of another type", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "robot/uid:1", alice())}, "not found"},
		{"an SRV that is not a PRK", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/name:1/~prk", alice())}, "not found"},
		{"an SRV that is not a key", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "rubbish", alice())}, "not found"},
		{"an entry of another type", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{at(name, "user/uid:1", alice("~isa", "robot"))}, "damaged record: user/uid:1: ~isa names another type (I3)"},
		{"an SRK of another Redis type", Lookup{SRKs: []recordkey.Key{name}}, []Candidate{{SRK: name, Problem: "WRONGTYPE x"}}, "damaged record: user/name:alice/~prk: WRONGTYPE x"},
		{"any field, one holder", Lookup{SRKs: []recordkey.Key{email, name}}, []Candidate{at(name, "user/uid:1", alice())}, "user/uid:1"},
		{"any field, moved meanwhile", Lookup{SRKs: []recordkey.Key{email, name}}, []Candidate{at(email, "user/uid:1", alice())}, "user/uid:1"},
		{"any field, two holders", Lookup{SRKs: []recordkey.Key{email, name}}, []Candidate{at(email, "user/uid:2", bob), at(name, "user/uid:1", alice())}, "damaged record: user/name:alice/~prk: the value belongs to two entries (I2)"},
		{"all, and all agree", Lookup{SRKs: []recordkey.Key{addr, name}, All: true}, []Candidate{at(addr, "user/uid:1", alice()), at(name, "user/uid:1", alice())}, "user/uid:1"},
		{"all, one is missing", Lookup{SRKs: []recordkey.Key{addr, name}, All: true}, []Candidate{at(name, "user/uid:1", alice())}, "not found"},
		{"all, two entries", Lookup{SRKs: []recordkey.Key{email, name}, All: true}, []Candidate{at(email, "user/uid:2", bob), at(name, "user/uid:1", alice())}, "not found"},
	} {
		f := Believe(tt.l, tt.cs)
		got := f.Record.Key.String()
		if f.Err != nil {
			got = f.Err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
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
