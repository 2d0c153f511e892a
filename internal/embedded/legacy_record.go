package embedded

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
)

// A record is one key with its value, as a file of JSON lines holds it (legacy.go). Exactly one of
// the six value fields is set: Redis has no empty hash, list, set or zset, and an empty stream is
// not stored.
type record struct {
	Base64 bool              `json:"base64,omitempty"` // all text is base64, except scores and IDs
	Key    string            `json:"key"`
	String *string           `json:"string,omitempty"`
	Hash   map[string]string `json:"hash,omitempty"`
	List   []string          `json:"list,omitempty"`
	Set    []string          `json:"set,omitempty"`
	ZSet   [][2]string       `json:"zset,omitempty"`   // member and score, sorted by member
	Stream [][]string        `json:"stream,omitempty"` // ID, field, value, …; the oldest first
	Until  int64             `json:"until,omitempty"`  // Unix time in milliseconds; 0 means forever
}

// each returns r with f applied to every text except scores and the IDs of stream entries.
func (r record) each(f func(string) (string, error)) (record, error) {
	var failed error
	apply := func(s string) string {
		out, err := f(s)
		if err != nil {
			failed = err
		}
		return out
	}
	all := func(list []string) []string {
		list = slices.Clone(list)
		for i := range list {
			list[i] = apply(list[i])
		}
		return list
	}
	r.Key, r.List, r.Set, r.ZSet = apply(r.Key), all(r.List), all(r.Set), slices.Clone(r.ZSet)
	if r.String != nil {
		s := apply(*r.String)
		r.String = &s
	}
	if r.Hash != nil {
		hash := make(map[string]string, len(r.Hash))
		for field, value := range r.Hash {
			hash[apply(field)] = apply(value)
		}
		r.Hash = hash
	}
	for i := range r.ZSet {
		r.ZSet[i][0] = apply(r.ZSet[i][0])
	}
	r.Stream = slices.Clone(r.Stream)
	for i := range r.Stream {
		r.Stream[i] = append(r.Stream[i][:1:1], all(r.Stream[i][1:])...)
	}
	return r, failed
}

// decoded returns r with base64 decoded.
func (r record) decoded() (record, error) {
	if !r.Base64 {
		return r, nil
	}
	r.Base64 = false
	return r.each(func(s string) (string, error) {
		b, err := base64.StdEncoding.Strict().DecodeString(s)
		return string(b), err
	})
}

// put adds r to d.
func (r record) put(d *data) error {
	switch {
	case r.String != nil:
		d.setString(r.Key, *r.String)
	case r.Hash != nil:
		for field, value := range r.Hash {
			d.setField(r.Key, field, value)
		}
	case r.List != nil:
		d.push(r.Key, r.List...)
	case r.Set != nil:
		for _, member := range r.Set {
			d.addMember(r.Key, member)
		}
	case r.Stream != nil:
		for _, entry := range r.Stream {
			id, ok := parseStreamID(entry[0], 0)
			if !ok {
				return fmt.Errorf("record %q: %q is not the ID of an entry", r.Key, entry[0])
			}
			d.addEntry(r.Key, id, entry[1:]...)
		}
	default:
		for _, pair := range r.ZSet {
			score, err := strconv.ParseFloat(pair[1], 64)
			if err != nil {
				return fmt.Errorf("record %q: %w", r.Key, err)
			}
			d.setScore(r.Key, pair[0], score)
		}
	}
	if r.Until != 0 {
		d.setUntil(r.Key, r.Until)
	}
	return nil
}
