//go:build linux

package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
)

// This file reads the records of Redis and parses them by the grammar in the documentation of
// package recordkey. It shares no code with the library that it judges.

// A record holds the content of one key.
type record struct {
	kind    string
	text    string
	hash    map[string]string
	members []string
}

// readAll returns all records of all masters except the store's own, whose keys begin with ~.
func readAll(ctx context.Context, c redis.UniversalClient) (map[string]record, error) {
	var mu sync.Mutex
	all := map[string]record{}
	err := onMasters(ctx, c, func(ctx context.Context, node redis.UniversalClient) error {
		keys := node.Scan(ctx, 0, "*", 1000).Iterator()
		for keys.Next(ctx) {
			key := keys.Val()
			if strings.HasPrefix(key, "~") {
				continue
			}
			r, err := readOne(ctx, node, key)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if r.kind == "none" {
				continue
			}
			mu.Lock()
			all[key] = r
			mu.Unlock()
		}
		return keys.Err()
	})
	return all, err
}

func readOne(ctx context.Context, node redis.UniversalClient, key string) (r record, err error) {
	if r.kind, err = node.Type(ctx, key).Result(); err != nil {
		return r, err
	}
	switch r.kind {
	case "hash":
		r.hash, err = node.HGetAll(ctx, key).Result()
	case "string":
		r.text, err = node.Get(ctx, key).Result()
	case "set":
		r.members, err = node.SMembers(ctx, key).Result()
	}
	return r, err
}

// escapes replaces the special characters of keys with their escapes.
var escapes = strings.NewReplacer("+", "++", " ", "+_", "/", "+,", ":", "+.", "{", "+(", "}", "+)")

func escaped(crumb string) string { return escapes.Replace(crumb) }

func unescaped(crumb string) string {
	var b strings.Builder
	for i := 0; i < len(crumb); i++ {
		if crumb[i] != '+' || i+1 == len(crumb) {
			b.WriteByte(crumb[i])
			continue
		}
		i++
		at := strings.IndexByte("+_,.()", crumb[i])
		b.WriteString([]string{"?", "+", " ", "/", ":", "{", "}"}[at+1])
	}
	return b.String()
}

// A key is the parsed key of a record. rest is "" for an entry, ~prk for an SRK (which names the
// entry that has a value), ~prks for an index, and the name of a tertiary record otherwise.
type key struct{ typ, field, value, rest string }

func parseKey(text string) (k key, ok bool) {
	typ, more, ok1 := strings.Cut(text, "/")
	field, more, ok2 := strings.Cut(more, ":")
	value, rest, _ := strings.Cut(more, "/")
	return key{unescaped(typ), unescaped(field), unescaped(value), unescaped(rest)}, ok1 && ok2 && value != ""
}

// prk returns the key of the entry that the record belongs to.
func (k key) prk() string { return escaped(k.typ) + "/" + escaped(k.field) + ":" + escaped(k.value) }

// damage describes the faults of records. An interrupted operation may leave records without
// effect. They count only if repaired is set.
func damage(all map[string]record, repaired bool) (found []string) {
	owners, lists, srks := map[string]string{}, map[string]map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		k, ok := parseKey(name)
		r := all[name]
		switch {
		case ok && k.typ == testdb.ListType && k.rest == "":
			lists[name] = r.hash
		case ok && k.typ == testdb.ListType && k.rest == "~prk":
			srks[name] = r.text
		case !ok || k.typ != "user":
			found = append(found, "invalid key: "+name)
		case k.rest == "":
			found = append(found, entryDamage(name, k, all, owners, repaired)...)
		case !repaired || k.rest == "~prks":
		case k.rest == "~prk":
			prk, _, _ := strings.Cut(r.text, " ")
			if e := all[prk]; e.hash["~isa"] != k.typ || secondary(e.hash, k.field) != k.value {
				found = append(found, fmt.Sprintf("after the repair %s names %q, which does not have the value", name, r.text))
			}
		case all[k.prk()].hash["~isa"] == "":
			found = append(found, fmt.Sprintf("after the repair %s %v still exists, but its entry does not", name, r.members))
		}
	}
	return append(found, testdb.ListDamage(lists, srks)...)
}

// secondary returns the canonical value of a field of an entry.
func secondary(hash map[string]string, field string) string {
	if v, has := hash["~skv:"+field]; has {
		return v
	}
	return hash[field]
}

// entryDamage checks the invariants I1, I2 and I3 for one entry, and adds the entry to owners as
// the owner of its values. I1: the SRK of each value names the entry. I2: no value has two owners.
// I3: the entry agrees with its key, and a tombstone has no facets. Before a repair, a tombstone
// may still have facets if the server refused the rest of a delete.
func entryDamage(name string, k key, all map[string]record, owners map[string]string, repaired bool) (found []string) {
	r := all[name]
	add := func(format string, args ...any) {
		shown := maps.Clone(r.hash)
		delete(shown, "password")
		found = append(found, fmt.Sprintf(format, args...)+fmt.Sprintf(" (%s: %v)", name, shown))
	}
	if r.kind != "hash" {
		add("I3: the entry has type %s, not hash", r.kind)
		return found
	}
	if r.hash["~isa"] == "" {
		if _, deleted := r.hash["~isa"]; deleted && !repaired {
			return nil // the server refused the rest of the delete; a repair finishes it
		}
		for field := range r.hash {
			if !strings.HasPrefix(field, "~") {
				add("I3: a tombstone has the facet %s", field)
			}
		}
		return found
	}
	if r.hash["~isa"] != k.typ || r.hash["~prk"] != name || k.field != "uid" || r.hash["uid"] != k.value {
		add("I3: an entry does not agree with its key")
	}
	for _, field := range fields {
		facet, has := r.hash[field]
		if !has {
			continue
		}
		value := secondary(r.hash, field)
		if value != canonical(facet) {
			add("%s has the wrong canonical form %q", field, value)
		}
		if other, taken := owners[value]; taken && other != name {
			add("I2: %q has two owners, %s and this one", value, other)
		}
		owners[value] = name
		srk := "user/" + field + ":" + escaped(value) + "/~prk"
		if prk, _, _ := strings.Cut(all[srk].text, " "); prk != name {
			add("I1: %s names %q, not this entry", srk, all[srk].text)
		}
	}
	return found
}

// confirmedDamage calls find several times, with pauses, and returns the damage that every call
// found. Other damage may not be real, because the records of several nodes are not read at the
// same moment, and delayed commands may still arrive.
func confirmedDamage(ctx context.Context, find func() ([]string, error)) (found []string, err error) {
	for i := range 4 {
		again, err := find()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			again = slices.DeleteFunc(again, func(d string) bool { return !slices.Contains(found, d) })
		}
		if found = again; len(found) == 0 || ctx.Err() != nil {
			return found, ctx.Err()
		}
		if err := sleep(ctx, recheckInterval); err != nil {
			return nil, err
		}
	}
	return found, nil
}
