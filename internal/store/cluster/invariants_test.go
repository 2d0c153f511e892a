package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// violated says which invariant the records break, "" for none. It holds at every moment, whoever
// has died.
func (s *stage) violated() string {
	for verb, n := range s.commits {
		if n > 1 {
			return "I7: committed twice: " + verb
		}
	}
	holders := map[string]string{}
	for _, key := range s.keys() {
		c := s.world.at(key)
		k, err := recordkey.Parse(key)
		if err != nil {
			return "a key that cannot be parsed: " + key
		}
		switch k.Kind() {
		case recordkey.KindPRK:
			if v := s.entry(k, c, holders); v != "" {
				return v
			}
		case recordkey.KindSRK:
			if v := s.shown(k, c); v != "" {
				return v
			}
		case recordkey.KindTertiary:
			if c.field("red") != nil && c.field("admin") != nil {
				return "I7: members of two creates: " + key
			}
		}
	}
	return ""
}

// keys are those of all records but what is laid ready.
func (s *stage) keys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.world.cells)), func(k string) bool {
		return strings.HasPrefix(k, "~/fill/") || s.world.at(k) == nil
	})
}

func record(k recordkey.Key, c *cell) store.Record {
	if c == nil || c.kind != 'h' {
		return store.Record{Key: k}
	}
	return store.Record{Key: k, Fields: c.hash}
}

// entry checks I1, I2 and I3 of one hash.
func (s *stage) entry(k recordkey.Key, c *cell, holders map[string]string) string {
	r := record(k, c)
	if !r.Live() {
		return ""
	}
	if c.ends != 0 || r.Fields["uid"] != k.Value() || r.Fields["~prk"] != k.String() {
		return "I3: " + k.String()
	}
	for _, field := range people.Secondary {
		value := r.SKV(field)
		if value == "" {
			continue
		}
		if value != people.Schema.Canonical(r.Fields[field]) {
			return fmt.Sprintf("I1: %s has %s=%q under %q", k, field, r.Fields[field], value)
		}
		if other := holders[value]; other != "" && other != k.String() {
			return fmt.Sprintf("I2: %q belongs to %s and %s", value, other, k)
		}
		holders[value] = k.String()
		srk := s.world.at("user/" + field + ":" + value + "/~prk")
		if srk == nil || store.Owner(srk.text) != k.String() {
			return fmt.Sprintf("I1: %s has %s=%q, the SRK says %v", k, field, value, srk)
		}
	}
	return ""
}

// shown asks the store's own judgement of an SRK what a reader would be shown (I4).
func (s *stage) shown(k recordkey.Key, c *cell) string {
	owner := store.Owner(c.text)
	candidate := store.Candidate{SRK: k, Owner: owner}
	if e := s.world.at(owner); e != nil {
		candidate.Fields = e.hash
	}
	f := store.Believe(store.Lookup{SRKs: []recordkey.Key{k}}, []store.Candidate{candidate})
	if f.Err == nil && (!f.Record.Live() || f.Record.SKV(k.Field()) != k.Value()) {
		return "I4: shown by " + k.String()
	}
	return ""
}

// leftover says what is left of verbs that have all come to their end, "" for nothing.
func (s *stage) leftover() string {
	for _, key := range slices.Sorted(maps.Keys(s.world.cells)) {
		c := s.world.at(key)
		if c == nil {
			continue
		}
		if strings.HasPrefix(key, "~/fill/") {
			return "left over: " + key
		}
		k, _ := recordkey.Parse(key)
		var v string
		switch k.Kind() {
		case recordkey.KindPRK:
			v = s.settled(k, c)
		case recordkey.KindSRK:
			if r := s.recordOf(store.Owner(c.text)); !r.Live() || r.SKV(k.Field()) != k.Value() {
				v = "I4: left over: " + key
			}
		case recordkey.KindIndex:
			for m := range c.hash {
				if !s.isIn(m, k.Field(), k.Value()) {
					v = "I4: left over: " + m + " in " + key
				}
			}
		case recordkey.KindTertiary:
			if !s.recordOf(k.PRK().String()).Live() {
				v = "I4: left over: " + key
			}
			for m := range c.hash {
				v += s.indexed(k.PRK(), "tags", m)
			}
		}
		if v != "" {
			return v
		}
	}
	return ""
}

func (s *stage) settled(k recordkey.Key, c *cell) string {
	r := record(k, c)
	switch {
	case r.Fields[store.FieldDying] != "":
		return "still dying: " + k.String()
	case r.Fields[store.FieldFill] != "":
		return "still to be filled: " + k.String()
	case !r.Live() && c.ends == 0:
		return "a tombstone for ever: " + k.String()
	case r.Live() && r.Fields["job"] != "":
		return s.indexed(k, "job", r.Fields["job"])
	}
	return ""
}

func (s *stage) recordOf(prk string) store.Record {
	k, _ := recordkey.Parse(prk)
	return record(k, s.world.at(prk))
}

func (s *stage) isIn(prk, field, value string) bool {
	r := s.recordOf(prk)
	if field != "tags" {
		return r.Live() && r.Fields[field] == value
	}
	return r.Live() && s.world.at(prk+"/tags").field(value) != nil
}

// indexed checks I5 of one membership.
func (s *stage) indexed(k recordkey.Key, field, value string) string {
	if s.world.at("user/"+field+":"+value+"/~prks").field(k.String()) == nil {
		return fmt.Sprintf("I5: %s is not in the index of %s=%s", k, field, value)
	}
	return ""
}
