package userdb_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A record is a stored Redis record.
type record struct {
	kind    string // string, hash, set, list, zset, or another type of the server
	text    string // of a string
	fields  map[string]string
	items   []string // of a set (sorted), a list or a sorted set (as MEMBER=SCORE)
	expires bool     // has a time to live
}

// String formats the record on one line, in the same way for the same content.
func (r record) String() string {
	parts := []string{r.kind, r.text}
	for _, f := range slices.Sorted(maps.Keys(r.fields)) {
		parts = append(parts, fmt.Sprintf("%q=%q", f, r.fields[f]))
	}
	return fmt.Sprintf("%s %q %v", strings.Join(parts, " "), r.items, r.expires)
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

// dump reads all records of the store. It leaves out records that disappear meanwhile.
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
			r.expires = ttl >= 0
			delete(r.fields, "~fence") // on a cluster, failed changes also increase it
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
		s.t.Fatalf("sending a pipeline: %v", err)
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

// formatRecords formats the records under a prefix, to compare them with others.
func formatRecords(records map[string]record, prefix string) map[string]string {
	lines := map[string]string{}
	for k, r := range records {
		if strings.HasPrefix(k, prefix) {
			lines[k] = r.String()
		}
	}
	return lines
}

// diffRecords describes the differences between two dumps, or returns "" if there are none.
func diffRecords(before, after map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if now, ok := after[k]; !ok {
			lines = append(lines, "gone: "+k)
		} else if now != before[k] {
			lines = append(lines, fmt.Sprintf("changed: %s: %s, was %s", k, now, before[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[k]; !ok {
			lines = append(lines, "new: "+k+" "+after[k])
		}
	}
	return strings.Join(lines, "\n")
}

// wantUnchanged calls do, and fails the test if a record changed meanwhile.
func (s *site) wantUnchanged(what string, do func()) {
	s.t.Helper()
	before := formatRecords(s.dump(s.t.Context()), "")
	do()
	if diff := diffRecords(before, formatRecords(s.dump(s.t.Context()), "")); diff != "" {
		s.t.Errorf("%s wrote:\n%s", what, diff)
	}
}

// An auditor looks for broken invariants in the records of one namespace.
type auditor struct {
	records map[string]record
	ns      recordkey.Namespace
	types   map[string]schema.Type
	found   []string
	holders map[string]string // PRKs by type and canonical secondary value (I2)
}

// audit returns the damage in a namespace, each as the number of the invariant and the key, such as
// "I1 user/name:bob/~prk". I0 stands for a record that cannot be decoded.
func audit(records map[string]record, ns recordkey.Namespace, s schema.Schema) []string {
	a := auditor{records: records, ns: ns, types: s.Types, holders: map[string]string{}}
	for _, raw := range slices.Sorted(maps.Keys(records)) {
		if rest, inside := strings.CutPrefix(raw, ns.String()); inside && !strings.HasPrefix(rest, "~") {
			a.checkRecord(raw, records[raw])
		}
	}
	slices.Sort(a.found)
	return slices.Compact(a.found)
}

func (a *auditor) report(invariant int, key string) {
	a.found = append(a.found, fmt.Sprintf("I%d %s", invariant, key))
}

func (a *auditor) checkRecord(raw string, r record) {
	key, err := recordkey.Parse(raw)
	if err != nil {
		a.report(4, raw)
		return
	}
	typ, declared := a.types[key.Type()]
	if !declared {
		a.report(3, raw)
		return
	}
	switch key.Kind() {
	case recordkey.KindPRK:
		a.checkEntry(key, typ, r)
	case recordkey.KindSRK:
		switch has := a.holds(a.owner(r.text), key); {
		case r.kind != "string", !has && !r.expires:
			a.report(4, raw)
		case has && r.expires: // only the SRK of a value that the entry gave up may expire
			a.report(1, raw)
		}
	case recordkey.KindIndex:
		a.checkIndex(key, typ, r)
	case recordkey.KindTertiary:
		a.checkTertiary(key, typ, r)
	}
}

// owner returns the key of the entry that the value of an SRK names. After that name, the value may
// continue with a space and a token.
func (a *auditor) owner(value string) string {
	prk, _, _ := strings.Cut(value, " ")
	return a.ns.String() + prk
}

func live(r record) bool { return r.kind == "hash" && r.fields["~isa"] != "" }

// hasFacets reports whether a record has facets of a live or damaged entry. The records of a
// damaged entry count as its own until somebody repairs or deletes it.
func hasFacets(r record) bool {
	if _, deleted := r.fields["~isa"]; deleted && !live(r) {
		return false
	}
	return live(r) || r.kind == "hash" && slices.ContainsFunc(slices.Collect(maps.Keys(r.fields)), isFacet)
}

// secondary returns the canonical form of an entry's value at the time when its SRK was written.
func secondary(r record, field string) string {
	if v, ok := r.fields["~skv:"+field]; ok {
		return v
	}
	return r.fields[field]
}

// holds reports whether an entry has the value of an SRK.
func (a *auditor) holds(prk string, srk recordkey.Key) bool {
	r := a.records[prk]
	_, further := r.fields["~also:"+srk.Field()+":"+srk.Value()]
	return hasFacets(r) && (further || secondary(r, srk.Field()) == srk.Value())
}

// checkEntry checks I1 to I5 for one hash, and that its facets can be decoded (I0).
func (a *auditor) checkEntry(key recordkey.Key, typ schema.Type, r record) {
	prk := key.In(recordkey.Namespace{}).String()
	if !live(r) {
		switch _, deleted := r.fields["~isa"]; {
		case r.kind != "hash" || hasFacets(r):
			a.report(3, key.String())
		case !r.expires && r.fields["~retired"] == "" || deleted:
			a.report(4, key.String())
		}
		return
	}
	if r.fields["~isa"] != key.Type() || r.fields["~prk"] != prk || key.Field() != typ.Primary || r.fields[typ.Primary] != key.Value() || r.expires {
		a.report(3, key.String())
	}
	for _, field := range typ.Secondary() {
		if wire, has := r.fields[field]; has {
			a.checkSecondary(key, typ, field, secondary(r, field), wire)
		}
	}
	for name, text := range r.fields {
		if field, value, written, ok := furtherValue(name, text); ok {
			a.checkSecondary(key, typ, field, value, written)
			if _, has := r.fields[field]; !has || value == secondary(r, field) {
				a.report(1, key.String())
			}
			if typ.Fields[field].Role.Has(schema.RoleIndexed) {
				a.checkIndexed(key, field, written)
			}
		}
	}
	for field, wire := range r.fields {
		if _, err := schema.Decode(typ.Codec(field), wire); err != nil {
			a.report(0, key.String())
		}
	}
	for _, field := range typ.Indexed() {
		if wire, has := r.fields[field]; has {
			a.checkIndexed(key, field, wire)
		}
	}
}

// furtherValue parses a field that holds a further value of a secondary field.
func furtherValue(name, text string) (field, value, written string, ok bool) {
	name, ok = strings.CutPrefix(name, "~also:")
	field, value, _ = strings.Cut(name, ":")
	written = value
	if words := strings.SplitN(text, " ", 4); len(words) == 4 {
		written = words[3]
	}
	return field, value, written, ok
}

func isFacet(field string) bool { return !strings.HasPrefix(field, "~") }

// checkSecondary checks a value of an entry. value is its canonical form, as the entry stores it.
func (a *auditor) checkSecondary(key recordkey.Key, typ schema.Type, field, value, written string) {
	if value != typ.Canonical(written) {
		a.report(1, key.String())
	}
	srk, err := recordkey.SRK(key.Type(), field, value)
	if err != nil {
		a.report(1, key.String())
		return
	}
	if stored := a.records[srk.In(a.ns).String()]; stored.kind != "string" || a.owner(stored.text) != key.String() {
		a.report(1, srk.In(a.ns).String())
	}
	unique := key.Type() + "  " + value
	if f := typ.Fields[field]; f.Typed != nil && !*f.Typed {
		unique = key.Type() + " " + field + " " + value
	}
	if other, taken := a.holders[unique]; taken && other != key.String() {
		a.report(2, srk.In(a.ns).String())
	}
	a.holders[unique] = key.String()
}

// checkIndexed checks that an entry is in an index set.
func (a *auditor) checkIndexed(key recordkey.Key, field, value string) {
	index, err := recordkey.Index(key.Type(), field, value)
	if err != nil {
		a.report(5, key.String())
		return
	}
	set := a.records[index.In(a.ns).String()]
	if set.kind != "set" || !slices.Contains(set.items, key.In(recordkey.Namespace{}).String()) {
		a.report(5, index.In(a.ns).String())
	}
}

// checkIndex checks that every member of an index set is an entry (I4) that has the value (I5).
func (a *auditor) checkIndex(key recordkey.Key, typ schema.Type, r record) {
	if r.kind != "set" {
		a.report(5, key.String())
		return
	}
	for _, member := range r.items {
		prk := a.ns.String() + member
		if !hasFacets(a.records[prk]) {
			a.report(4, key.String())
		} else if !a.has(prk, key, typ) {
			a.report(5, key.String())
		}
	}
}

// has reports whether an entry has the value, or the tag, of an index key.
func (a *auditor) has(prk string, key recordkey.Key, typ schema.Type) bool {
	if typ.Tertiary[key.Field()].Indexed {
		set := a.records[prk+"/"+recordkey.Escape(key.Field())]
		return set.kind == "set" && slices.Contains(set.items, key.Value())
	}
	for name, text := range a.records[prk].fields {
		if field, _, written, ok := furtherValue(name, text); ok && field == key.Field() && written == key.Value() {
			return slices.Contains(typ.Indexed(), field)
		}
	}
	wire, has := a.records[prk].fields[key.Field()]
	return has && wire == key.Value() && slices.Contains(typ.Indexed(), key.Field())
}

// checkTertiary checks that a tertiary record has an entry (I4) and the declared Redis type, and
// that its members are in their indexes.
func (a *auditor) checkTertiary(key recordkey.Key, typ schema.Type, r record) {
	if !hasFacets(a.records[key.PRK().String()]) {
		a.report(4, key.String())
		return
	}
	declared := typ.Tertiary[key.Name()]
	if r.kind != declared.Kind {
		a.report(0, key.String())
		return
	}
	if declared.Indexed {
		for _, member := range r.items {
			a.checkIndexed(key.PRK(), key.Name(), member)
		}
	}
}
