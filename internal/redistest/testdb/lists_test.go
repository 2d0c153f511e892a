package testdb

import (
	"math"
	"strings"
	"testing"
)

// TestListViolations checks that ListViolations and RecordViolations find all violations and
// nothing else.
func TestListViolations(t *testing.T) {
	ok := func(begin, end int64, verb string, uid, value int, a ListAnswer) ListOp {
		return ListOp{Begin: begin, End: end, OK: true, Ask: ListQuestion{Verb: verb, UID: uid, Value: value}, Answer: a}
	}
	create := ok(0, 1, "create", 1, 3, ListAnswer{After: []int{3}})
	drop := ok(2, 3, "drop", 1, 3, ListAnswer{Before: []int{3}})
	another := ok(6, 7, "add", 2, 3, ListAnswer{After: []int{3}})
	again := ok(4, 5, "add", 1, 3, ListAnswer{After: []int{3}})
	unknown := ListOp{Begin: 2, End: math.MaxInt64, Unknown: true, Ask: ListQuestion{Verb: "release", Value: 3}}
	for _, tt := range []struct {
		name, want string
		ops        []ListOp
	}{
		{"held", "", []ListOp{create, drop}},
		{"taken while it was held", "another entry got the value 3", []ListOp{create, drop, another}},
		{"taken after a release", "", []ListOp{create, drop, ok(4, 5, "release", 0, 3, ListAnswer{}), another}},
		{"taken after what may be a release", "", []ListOp{create, drop, unknown, another}},
		// ListViolations leaves this to a check of the records.
		{"taken after its owner took it back", "", []ListOp{create, drop, again, another}},
		{"a delete holds", "another entry got the value 3", []ListOp{create, ok(2, 3, "delete", 1, 0, ListAnswer{Before: []int{3}}), another}},
		{"a UID is given twice", "a UID was given twice", []ListOp{create, ok(4, 5, "create", 1, 4, ListAnswer{After: []int{4}})}},
	} {
		found := ListViolations(tt.ops)
		if len(found) > 0 != (tt.want != "") || tt.want != "" && !strings.Contains(found[0], tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, found, tt.want)
		}
	}
	hashes := map[string]map[string]string{"member/uid:m7-1": {"~isa": "", "~retired": "x", "~held:name:value7-3": "9"}}
	hashOf := func(key string) map[string]string { return hashes[key] }
	if found := RecordViolations(7, []ListOp{create, drop}, hashOf); len(found) > 0 {
		t.Errorf("correct records: found %q, want nothing", found)
	}
	delete(hashes["member/uid:m7-1"], "~held:name:value7-3")
	if found := RecordViolations(7, []ListOp{create, drop}, hashOf); len(found) != 1 {
		t.Errorf("without the hold: found %q, want one missing fact", found)
	}
}

// TestListDamage checks that damage of raw records is found.
func TestListDamage(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		change     func(hashes map[string]map[string]string, texts map[string]string)
	}{
		{"correct records", "", func(map[string]map[string]string, map[string]string) {}},
		{"two owners", "two owners", func(h map[string]map[string]string, _ map[string]string) { h["member/uid:2"]["nick"] = "A" }},
		{"two owners of a further value", "two owners", func(h map[string]map[string]string, _ map[string]string) {
			h["member/uid:2"]["~also:name:w"] = ""
		}},
		{"an owner and a holder", "is held by", func(h map[string]map[string]string, _ map[string]string) { h["member/uid:2"]["name"] = "h" }},
		{"two holders", "two holders", func(h map[string]map[string]string, _ map[string]string) {
			h["member/uid:2"]["~held:nick:h"] = "99999999999999"
		}},
		{"no SRK", "I1", func(_ map[string]map[string]string, s map[string]string) { delete(s, "member/name:w/~prk") }},
		{"no SRK of a held value", "I1", func(_ map[string]map[string]string, s map[string]string) { delete(s, "member/name:h/~prk") }},
		{"a retired UID", "I3", func(h map[string]map[string]string, _ map[string]string) { h["member/uid:2"]["~retired"] = "x" }},
	} {
		hashes := map[string]map[string]string{
			"member/uid:1": {"~isa": "member", "name": "A", "~also:name:w": "", "~held:name:h": "99999999999999", "~held:name:old": "1"},
			"member/uid:2": {"~isa": "member", "name": "b"},
		}
		texts := map[string]string{}
		for srk, prk := range map[string]string{"name:a": "1", "name:w": "1", "name:h": "1", "name:b": "2"} {
			texts["member/"+srk+"/~prk"] = "member/uid:" + prk + " rev"
		}
		tt.change(hashes, texts)
		found := ListDamage(hashes, texts)
		if len(found) > 0 != (tt.want != "") || tt.want != "" && !strings.Contains(strings.Join(found, "\n"), tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, found, tt.want)
		}
	}
}
