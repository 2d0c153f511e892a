package userdb_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An auditor looks for broken invariants in a dump of all records, in one namespace.
type auditor struct {
	records map[string]record
	ns      recordkey.Namespace
	types   map[string]schema.Type
	found   []string
	holders map[string]string // type and canonical secondary value → PRK (I2)
}

// audit returns the damage in a namespace, each as the invariant and the key: "I1 user/name:bob/~prk".
// I0 is a record that cannot be read as what it is.
func audit(records map[string]record, ns recordkey.Namespace, s schema.Schema) []string {
	a := auditor{records: records, ns: ns, types: s.Types, holders: map[string]string{}}
	for _, raw := range slices.Sorted(maps.Keys(records)) {
		if rest, inside := strings.CutPrefix(raw, ns.String()); inside && !strings.HasPrefix(rest, "~") {
			a.look(raw, records[raw])
		}
	}
	slices.Sort(a.found)
	return slices.Compact(a.found)
}

func (a *auditor) say(invariant int, key string) {
	a.found = append(a.found, fmt.Sprintf("I%d %s", invariant, key))
}

func (a *auditor) look(raw string, r record) {
	key, err := recordkey.Parse(raw)
	if err != nil {
		a.say(4, raw)
		return
	}
	typ, declared := a.types[key.Type()]
	if !declared {
		a.say(3, raw)
		return
	}
	switch key.Kind() {
	case recordkey.KindPRK:
		a.entry(key, typ, r)
	case recordkey.KindSRK:
		if r.kind != "string" || !a.holds(a.owner(r.text), key) {
			a.say(4, raw)
		}
	case recordkey.KindIndex:
		a.index(key, typ, r)
	case recordkey.KindTertiary:
		a.tertiary(key, typ, r)
	}
}

// owner is the key of the entry that a record names, whose value may have a token behind it.
func (a *auditor) owner(value string) string {
	prk, _, _ := strings.Cut(value, " ")
	return a.ns.String() + prk
}

func live(r record) bool { return r.kind == "hash" && r.fields["~isa"] != "" }

// bearer says whether there are facets, of a live entry or of a damaged one: what belongs to that one
// is no leftover until somebody has decided what it is.
func bearer(r record) bool {
	return live(r) || r.kind == "hash" && slices.ContainsFunc(slices.Collect(maps.Keys(r.fields)), isFacet)
}

// secondary is the canonical form under which an entry's value was filed.
func secondary(r record, field string) string {
	if v, ok := r.fields["~skv:"+field]; ok {
		return v
	}
	return r.fields[field]
}

// holds says whether an entry has the value of an SRK.
func (a *auditor) holds(prk string, srk recordkey.Key) bool {
	r := a.records[prk]
	return bearer(r) && secondary(r, srk.Field()) == srk.Value()
}

// entry checks I1, I2, I3 and I5 of one hash, and that its facets can be read.
func (a *auditor) entry(key recordkey.Key, typ schema.Type, r record) {
	prk := key.In(recordkey.Namespace{}).String()
	if !live(r) {
		if r.kind != "hash" || !r.fleets || bearer(r) {
			a.say(3, key.String())
		}
		return
	}
	if r.fields["~isa"] != key.Type() || r.fields["~prk"] != prk || key.Field() != typ.Primary || r.fields[typ.Primary] != key.Value() || r.fleets {
		a.say(3, key.String())
	}
	for _, field := range typ.Secondary() {
		if _, has := r.fields[field]; has {
			a.secondary(key, typ, r, field)
		}
	}
	for field, wire := range r.fields {
		if _, err := schema.Decode(typ.Codec(field), wire); err != nil {
			a.say(0, key.String())
		}
	}
	for _, field := range typ.Indexed() {
		if wire, has := r.fields[field]; has {
			a.indexed(key, field, wire)
		}
	}
}

func isFacet(field string) bool { return !strings.HasPrefix(field, "~") }

func (a *auditor) secondary(key recordkey.Key, typ schema.Type, r record, field string) {
	value := secondary(r, field)
	if value != typ.Canonical(r.fields[field]) {
		a.say(1, key.String())
	}
	srk, err := recordkey.SRK(key.Type(), field, value)
	if err != nil {
		a.say(1, key.String())
		return
	}
	if filed := a.records[srk.In(a.ns).String()]; filed.kind != "string" || a.owner(filed.text) != key.String() {
		a.say(1, srk.In(a.ns).String())
	}
	if other, taken := a.holders[key.Type()+" "+value]; taken && other != key.String() {
		a.say(2, srk.In(a.ns).String())
	}
	a.holders[key.Type()+" "+value] = key.String()
}

// indexed wants an entry in an index set.
func (a *auditor) indexed(key recordkey.Key, field, value string) {
	index, err := recordkey.Index(key.Type(), field, value)
	if err != nil {
		a.say(5, key.String())
		return
	}
	set := a.records[index.In(a.ns).String()]
	if set.kind != "set" || !slices.Contains(set.items, key.In(recordkey.Namespace{}).String()) {
		a.say(5, index.In(a.ns).String())
	}
}

// index wants every member of an index set to be an entry (I4) that has the value (I5).
func (a *auditor) index(key recordkey.Key, typ schema.Type, r record) {
	if r.kind != "set" {
		a.say(5, key.String())
		return
	}
	for _, member := range r.items {
		prk := a.ns.String() + member
		if !bearer(a.records[prk]) {
			a.say(4, key.String())
		} else if !a.has(prk, key, typ) {
			a.say(5, key.String())
		}
	}
}

// has says whether an entry has the value, or the tag, that an index key is of.
func (a *auditor) has(prk string, key recordkey.Key, typ schema.Type) bool {
	if typ.Tertiary[key.Field()].Indexed {
		set := a.records[prk+"/"+recordkey.Escape(key.Field())]
		return set.kind == "set" && slices.Contains(set.items, key.Value())
	}
	wire, has := a.records[prk].fields[key.Field()]
	return has && wire == key.Value() && slices.Contains(typ.Indexed(), key.Field())
}

// tertiary wants an entry above (I4), the declared Redis type, and the members in their indexes.
func (a *auditor) tertiary(key recordkey.Key, typ schema.Type, r record) {
	if !bearer(a.records[key.PRK().String()]) {
		a.say(4, key.String())
		return
	}
	declared := typ.Tertiary[key.Name()]
	if r.kind != declared.Kind {
		a.say(0, key.String())
		return
	}
	if declared.Indexed {
		for _, member := range r.items {
			a.indexed(key.PRK(), key.Name(), member)
		}
	}
}
