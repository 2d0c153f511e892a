package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// violation describes an invariant that the records break, or returns "". The invariants must hold
// at every moment, whichever actor has died.
func (s *simulation) violation() string {
	for verb, n := range s.commits {
		if n > 1 {
			return "I7: committed twice: " + verb
		}
	}
	if v := s.checkIndexComplete(); v != "" {
		return v
	}
	owners := map[string]string{}
	for _, key := range s.keys() {
		c := s.world.at(key)
		k, err := recordkey.Parse(key)
		if err != nil {
			return "a key that cannot be parsed: " + key
		}
		switch k.Kind() {
		case recordkey.KindPRK:
			if v := s.checkEntry(k, c, owners); v != "" {
				return v
			}
		case recordkey.KindSRK:
			if v := s.checkShown(k, c); v != "" {
				return v
			}
		case recordkey.KindTertiary:
			if c.field("red") != nil && c.field("admin") != nil {
				return "I7: members of two creates: " + key
			}
		}
	}
	return cmp.Or(s.checkDrops(), s.checkSessions())
}

// keys returns the keys of all records, except those that are staged (~/fill/) or about to be
// dropped (~/drop/), and those with the replies to the last commands on a record (~/did/).
func (s *simulation) keys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.world.cells)), func(k string) bool {
		return strings.HasPrefix(k, "~/fill/") || strings.HasPrefix(k, "~/drop/") || strings.HasPrefix(k, "~/did/") || s.world.at(k) == nil
	})
}

func record(k recordkey.Key, c *cell) store.Record {
	if c == nil || c.kind != 'h' {
		return store.Record{Key: k}
	}
	return store.Record{Key: k, Fields: c.hash}
}

// checkEntry checks I1, I2 and I3 for one hash. owners maps values to the entries that have them.
// checkEntry adds the values of this entry.
func (s *simulation) checkEntry(k recordkey.Key, c *cell, owners map[string]string) string {
	r := record(k, c)
	if !r.Live() {
		return ""
	}
	if c.ends != 0 || r.Fields["uid"] != k.Value() || r.Fields["~prk"] != k.String() {
		return "I3: a live entry has a time to live, another uid or another ~prk: " + k.String()
	}
	for _, owned := range ownedValues(r) {
		field, value := owned.Field, owned.Canonical
		if value != people.Schema.Canonical(owned.Written) {
			return fmt.Sprintf("I1: %s has %s=%q under %q", k, field, owned.Written, value)
		}
		unique := s.uniqueIn(field) + ":" + value
		if other := owners[unique]; other != "" && other != k.String() {
			return fmt.Sprintf("I2: %q belongs to %s and %s", value, other, k)
		}
		owners[unique] = k.String()
		srk := s.world.at("user/" + field + ":" + value + "/~prk")
		if srk == nil || store.Owner(srk.text) != k.String() {
			return fmt.Sprintf("I1: %s has %s=%q, the SRK says %v", k, field, value, srk)
		}
	}
	return ""
}

// ownedValues returns all values of an entry, first and further ones.
func ownedValues(r store.Record) (all []store.Further) {
	for _, field := range people.Secondary {
		if value := r.SKV(field); value != "" {
			all = append(all, store.Further{Field: field, Canonical: value, Written: r.Fields[field]})
		}
	}
	return append(all, store.FurtherIn(r.Fields, "")...)
}

// checkShown checks I4 for an SRK, with store.Believe, which decides what readers see.
func (s *simulation) checkShown(k recordkey.Key, c *cell) string {
	owner := store.Owner(c.text)
	candidate := store.Candidate{SRK: k, Owner: owner}
	if e := s.world.at(owner); e != nil {
		candidate.Fields = e.hash
	}
	f := store.Believe(store.Lookup{SRKs: []recordkey.Key{k}}, []store.Candidate{candidate})
	if f.Err == nil && (!f.Record.Live() || !f.Record.HasValue(k.Field(), k.Value())) {
		return "I4: readers see an entry that is dead or lacks the value, by " + k.String()
	}
	return ""
}

// checkHalfDeleted names an entry that was deleted and still has facets. It returns "" if there is
// none. A delete must check that it may remove facets before it does anything.
func (s *simulation) checkHalfDeleted() string {
	for _, key := range s.keys() {
		if c := s.world.at(key); c.kind == 'h' && store.HalfDeleted(c.hash) && len(c.hash) > 4 {
			return "half deleted: " + key
		}
	}
	return ""
}

// garbage describes what is wrong with the records after all verbs have ended, or returns "". Most
// often a record is left over, but one may also be missing from an index, or about to expire.
func (s *simulation) garbage() string {
	if v := s.checkStoredSchema(); v != "" {
		return v
	}
	for _, key := range slices.Sorted(maps.Keys(s.world.cells)) {
		c := s.world.at(key)
		if c == nil {
			continue
		}
		if staged := strings.HasPrefix(key, "~/fill/"); staged && !s.claimsStay || strings.HasPrefix(key, "~/drop/") {
			return "left over: " + key
		}
		k, _ := recordkey.Parse(key)
		var v string
		switch k.Kind() {
		case recordkey.KindPRK:
			v = s.checkIndex(k, c)
		case recordkey.KindSRK:
			r := s.recordOf(store.Owner(c.text))
			_, held := r.Fields[store.FieldHeld(k.Field(), k.Value())]
			if has := r.Live() && r.HasValue(k.Field(), k.Value()); has && c.ends != 0 {
				v = "I1: it will expire: " + key
			} else if !has && !held && c.ends == 0 && !s.claimsStay {
				v = "I4: left over: " + key
			}
		case recordkey.KindIndex:
			for m := range c.hash {
				if s.jobIndexMustBeComplete() && !s.isIn(m, k.Field(), k.Value()) {
					v = "I4: left over: " + m + " in " + key
				}
			}
		case recordkey.KindTertiary:
			if !s.recordOf(k.PRK().String()).Live() {
				v = "I4: left over: " + key
			}
			for m := range c.hash {
				v += s.checkIndexed(k.PRK(), "tags", m)
			}
		}
		if v != "" {
			return v
		}
	}
	return ""
}

// checkIndex describes what is left to do at an entry, or names an index of jobs that lacks the
// entry. It returns "" if there is nothing.
func (s *simulation) checkIndex(k recordkey.Key, c *cell) string {
	r := record(k, c)
	switch {
	case r.Fields["~dying"] != "":
		return "still dying: " + k.String()
	case r.Fields[store.FieldFill] != "":
		return "still staged: " + k.String()
	case !r.Live() && c.ends == 0 && r.Fields[store.FieldRetired] == "":
		return "a tombstone without an end: " + k.String()
	case r.Live() && r.Fields["job"] != "" && s.jobIndexMustBeComplete():
		return s.checkIndexed(k, "job", r.Fields["job"])
	}
	return ""
}

func (s *simulation) recordOf(prk string) store.Record {
	k, _ := recordkey.Parse(prk)
	return record(k, s.world.at(prk))
}

func (s *simulation) isIn(prk, field, value string) bool {
	r := s.recordOf(prk)
	if field != "tags" {
		return r.Live() && r.Fields[field] == value
	}
	return r.Live() && s.world.at(prk+"/tags").field(value) != nil
}

// checkIndexed checks I5 for one membership.
func (s *simulation) checkIndexed(k recordkey.Key, field, value string) string {
	if s.world.at("user/"+field+":"+value+"/~prks").field(k.String()) == nil {
		return fmt.Sprintf("I5: %s is not in the index of %s=%s", k, field, value)
	}
	return ""
}

// maxFinders is how many actors a scenario with lookups may have.
const maxFinders = 4

// uids lists the UIDs that scenarios use.
var uids = []string{"A", "P", "Q", "R"}

// A lookupAnswer is the answer to a lookup: a UID, or "" for none. It is an error because
// verbs return nothing else.
type lookupAnswer string

func (s lookupAnswer) Error() string { return "shown: " + string(s) }

// find returns a verb that looks for the owner of a value by its SRKs.
func find(value string, fields ...string) verb {
	return verb{name: fmt.Sprintf("find %s %v", value, fields), finds: value, in: fields, do: func(ctx context.Context, a *actor) error {
		var l store.Lookup
		for _, field := range fields {
			srk, err := recordkey.SRK("user", field, value)
			if err != nil {
				return err
			}
			l.SRKs = append(l.SRKs, srk)
		}
		found, err := a.engine.Find(ctx, []store.Lookup{l})
		switch {
		case err != nil:
			return err
		case errors.Is(found[0].Err, store.ErrNotFound):
			return lookupAnswer("")
		case found[0].Err != nil:
			return found[0].Err
		}
		return lookupAnswer(found[0].Record.Key.Value())
	}}
}

// noteOwners records, for each actor that looks for an owner, which entries now have the value. Bit
// 0 means none.
func (x *explorer) noteOwners(m *state) {
	for i, r := range m.actors {
		if v := x.currentVerb(i, r); v.finds != "" {
			m.owners[i] |= x.ownersOf(*m, v)
		}
	}
}

// currentVerb returns the verb that an actor is running.
func (x *explorer) currentVerb(i int, r actorState) verb {
	if r.dead || r.at.done >= len(x.scenario.actors[i]) {
		return verb{}
	}
	return x.scenario.actors[i][r.at.done]
}

// ownersOf returns which entries have the value that a verb looks for, one bit for each.
func (x *explorer) ownersOf(m state, v verb) (bits uint8) {
	for i, uid := range uids {
		r := record(recordkey.Key{}, x.memo.records[at(m.cells, x.memo.key("user/uid:"+uid))])
		for _, field := range v.in {
			if r.Live() && r.HasValue(field, v.finds) {
				bits |= 1 << (i + 1)
			}
		}
	}
	if bits == 0 {
		return 1
	}
	return bits
}

// checkLookup returns what is wrong with the answer to an actor's lookup, or "". The answer must
// have been true at some moment since the lookup began. If a write was lost, checkLookup accepts
// the answer that nobody has the value.
func (x *explorer) checkLookup(m state, i int, name string, answer error) string {
	var who lookupAnswer
	var corrupt *store.CorruptError
	switch {
	case x.scenario.actors[i][m.actors[i].at.done-1].finds == "":
		return ""
	case errors.As(answer, &corrupt) && !m.undone:
		return "lookup: " + name + ": " + answer.Error()
	case !errors.As(answer, &who), m.undone && who == "":
		return ""
	}
	for bit, uid := range append([]string{""}, uids...) {
		if uid == string(who) && m.owners[i]&(1<<bit) == 0 {
			return fmt.Sprintf("lookup: %s: found %q, but only the entries with the bits %b had the value", name, uid, m.owners[i])
		}
	}
	return ""
}
