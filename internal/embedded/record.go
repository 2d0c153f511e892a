package embedded

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
)

// A record is one key with its value, as the file stores it. Exactly one of the six value fields is
// set: Redis has no empty hash, list, set or zset, and an empty stream is not stored.
type record struct {
	Base64 bool              `json:"base64,omitempty"` // all text is base64
	Key    string            `json:"key"`
	String *string           `json:"string,omitempty"`
	Hash   map[string]string `json:"hash,omitempty"`
	List   []string          `json:"list,omitempty"`
	Set    []string          `json:"set,omitempty"`
	ZSet   [][2]string       `json:"zset,omitempty"`   // member and score, sorted by member
	Stream [][]string        `json:"stream,omitempty"` // ID, field, value, …; the oldest first
	Until  int64             `json:"until,omitempty"`  // Unix time in milliseconds; 0 means forever
}

// each returns r with f applied to every text.
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

// wire returns r as the file stores it: in base64 if JSON could not represent it.
func (r record) wire() (record, error) {
	if r.isText() {
		return r, nil
	}
	r.Base64 = true
	return r.each(func(s string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(s)), nil })
}

// isText reports whether all text of r is UTF-8.
func (r *record) isText() bool {
	bad := func(s string) bool { return !utf8.ValidString(s) }
	if bad(r.Key) || r.String != nil && bad(*r.String) || slices.ContainsFunc(r.List, bad) || slices.ContainsFunc(r.Set, bad) {
		return false
	}
	for field, value := range r.Hash {
		if bad(field) || bad(value) {
			return false
		}
	}
	return !slices.ContainsFunc(r.ZSet, func(pair [2]string) bool { return bad(pair[0]) }) &&
		!slices.ContainsFunc(r.Stream, func(entry []string) bool { return slices.ContainsFunc(entry, bad) })
}

// decoded returns r with base64 decoded; it undoes wire.
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

// readRecord copies the record at key out of db, which must not change meanwhile. now is the
// store's time.
func readRecord(db *miniredis.RedisDB, key string, now time.Time) (record, error) {
	r := record{Key: key}
	if ttl := db.TTL(key); ttl != 0 {
		r.Until = now.Add(ttl).UnixMilli()
	}
	var err error
	switch kind := db.Type(key); kind {
	case "string":
		var s string
		s, err = db.Get(key)
		r.String = &s
	case "hash":
		r.Hash, err = readHash(db, key)
	case "list":
		r.List, err = db.List(key)
		r.List = slices.Clone(r.List)
	case "set":
		r.Set, err = db.Members(key)
	case "zset":
		r.ZSet, err = readZSet(db, key)
	case "stream":
		r.Stream, err = readStream(db, key)
	default:
		err = fmt.Errorf("a %s cannot be kept in a file", kind)
	}
	if err != nil {
		return record{}, fmt.Errorf("reading record %q: %w", key, err)
	}
	return r, nil
}

func readHash(db *miniredis.RedisDB, key string) (map[string]string, error) {
	fields, err := db.HKeys(key)
	hash := make(map[string]string, len(fields))
	for _, field := range fields {
		hash[field] = db.HGet(key, field)
	}
	return hash, err
}

func readZSet(db *miniredis.RedisDB, key string) ([][2]string, error) {
	scores, err := db.SortedSet(key)
	pairs := make([][2]string, 0, len(scores))
	for _, member := range slices.Sorted(maps.Keys(scores)) {
		pairs = append(pairs, [2]string{member, strconv.FormatFloat(scores[member], 'g', -1, 64)})
	}
	return pairs, err
}

func readStream(db *miniredis.RedisDB, key string) ([][]string, error) {
	entries, err := db.Stream(key)
	all := make([][]string, len(entries))
	for i, e := range entries {
		all[i] = append([]string{e.ID}, e.Values...)
	}
	return all, err
}

// put writes r into db unless it has expired.
func (r record) put(db *miniredis.RedisDB, now time.Time) error {
	ttl := time.UnixMilli(r.Until).Sub(now)
	if r.Until != 0 && ttl <= 0 {
		return nil
	}
	if err := r.putValue(db); err != nil {
		return fmt.Errorf("record %q: %w", r.Key, err)
	}
	if r.Until != 0 {
		db.SetTTL(r.Key, ttl)
	}
	return nil
}

func (r record) putValue(db *miniredis.RedisDB) error {
	var err error
	switch {
	case r.String != nil:
		err = db.Set(r.Key, *r.String)
	case r.Hash != nil:
		for field, value := range r.Hash {
			db.HSet(r.Key, field, value)
		}
	case r.List != nil:
		_, err = db.Push(r.Key, r.List...)
	case r.Set != nil:
		_, err = db.SetAdd(r.Key, r.Set...)
	case r.Stream != nil:
		for _, entry := range r.Stream {
			_, failed := db.XAdd(r.Key, entry[0], entry[1:])
			err = errors.Join(err, failed)
		}
	default:
		for _, pair := range r.ZSet {
			score, noScore := strconv.ParseFloat(pair[1], 64)
			_, failed := db.ZAdd(r.Key, score, pair[0])
			err = errors.Join(err, noScore, failed)
		}
	}
	return err
}
