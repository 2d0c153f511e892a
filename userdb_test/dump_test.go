package userdb_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A record is a Redis record as it lies there.
type record struct {
	kind   string // string, hash, set, list, zset, or what the server says
	text   string // of a string
	fields map[string]string
	items  []string // of a set, sorted; of a list; of a sorted set, MEMBER=SCORE
	fleets bool     // it has a time to live
}

// String is the record in one line, the same for the same content.
func (r record) String() string {
	parts := []string{r.kind, r.text}
	for _, f := range slices.Sorted(maps.Keys(r.fields)) {
		parts = append(parts, fmt.Sprintf("%q=%q", f, r.fields[f]))
	}
	return fmt.Sprintf("%s %q %v", strings.Join(parts, " "), r.items, r.fleets)
}

// keys returns all record keys of the store.
func (s *site) keys(ctx context.Context) []string {
	s.t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	scan := func(ctx context.Context, c redis.Cmdable) error {
		it := c.Scan(ctx, 0, "*", 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			seen[it.Val()] = true
			mu.Unlock()
		}
		return it.Err()
	}
	var err error
	if c, ok := s.raw.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return scan(ctx, node) })
	} else {
		err = scan(ctx, s.raw)
	}
	if err != nil {
		s.t.Fatalf("scanning: %v", err)
	}
	return slices.Sorted(maps.Keys(seen))
}

// dump reads all records of the store. One that goes meanwhile is left out.
func (s *site) dump(ctx context.Context) map[string]record {
	s.t.Helper()
	records := map[string]record{}
	for keys := range slices.Chunk(s.keys(ctx), 500) {
		kinds := make([]*redis.StatusCmd, len(keys))
		ttls := make([]*redis.Cmd, len(keys))
		pipe := s.raw.Pipeline()
		for i, k := range keys {
			kinds[i], ttls[i] = pipe.Type(ctx, k), pipe.Do(ctx, "pttl", k)
		}
		s.send(ctx, pipe)
		reads := make([]func() record, len(keys))
		pipe = s.raw.Pipeline()
		for i, k := range keys {
			reads[i] = readRecord(ctx, pipe, k, kinds[i].Val())
		}
		s.send(ctx, pipe)
		for i, k := range keys {
			r := reads[i]()
			ttl, _ := ttls[i].Int64()
			r.fleets = ttl >= 0
			delete(r.fields, "~fence") // a cluster counts it up for changes that come to nothing
			if r.kind != "none" {
				records[k] = r
			}
		}
	}
	return records
}

func (s *site) send(ctx context.Context, pipe redis.Pipeliner) {
	s.t.Helper()
	if pipe.Len() == 0 {
		return
	}
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatalf("dumping: %v", err)
	}
}

func readRecord(ctx context.Context, pipe redis.Pipeliner, key, kind string) func() record {
	r := record{kind: kind}
	switch kind {
	case "string":
		cmd := pipe.Get(ctx, key)
		return func() record { r.text = cmd.Val(); return r }
	case "hash":
		cmd := pipe.HGetAll(ctx, key)
		return func() record { r.fields = cmd.Val(); return r }
	case "set":
		cmd := pipe.SMembers(ctx, key)
		return func() record { r.items = slices.Sorted(slices.Values(cmd.Val())); return r }
	case "list":
		cmd := pipe.LRange(ctx, key, 0, -1)
		return func() record { r.items = cmd.Val(); return r }
	case "zset":
		cmd := pipe.ZRangeWithScores(ctx, key, 0, -1)
		return func() record {
			for _, z := range cmd.Val() {
				r.items = append(r.items, fmt.Sprintf("%v=%v", z.Member, z.Score))
			}
			return r
		}
	}
	return func() record { return r }
}

// texts is a dump of what lies under a prefix, one line a record, to compare with another.
func texts(records map[string]record, prefix string) map[string]string {
	lines := map[string]string{}
	for k, r := range records {
		if strings.HasPrefix(k, prefix) {
			lines[k] = r.String()
		}
	}
	return lines
}

// same says where two dumps differ, "" if nowhere.
func same(before, after map[string]string) string {
	var said []string
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if now, ok := after[k]; !ok {
			said = append(said, "gone: "+k)
		} else if now != before[k] {
			said = append(said, fmt.Sprintf("changed: %s: %s, was %s", k, now, before[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[k]; !ok {
			said = append(said, "new: "+k+" "+after[k])
		}
	}
	return strings.Join(said, "\n")
}

// unchanged runs do and fails the test if a record differs behind it. The store's own are left out
// where a first write may store the schema.
func (s *site) unchanged(what string, do func()) {
	s.t.Helper()
	before := texts(s.dump(s.t.Context()), "")
	do()
	if diff := same(before, texts(s.dump(s.t.Context()), "")); diff != "" {
		s.t.Errorf("%s wrote:\n%s", what, diff)
	}
}
