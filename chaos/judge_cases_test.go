//go:build linux

package chaos

import (
	"math"
	"strings"
	"testing"
)

// told makes a history of operations one after the other, each timed by its position.
func told(ops ...op) []op {
	for i := range ops {
		ops[i].Begin, ops[i].End = int64(10*i+1), int64(10*i+9)
		if ops[i].Answer.What == "unknown" {
			ops[i].End = math.MaxInt64
		}
	}
	return ops
}

func create(uid int, f facets, what string, tags ...string) op {
	return op{Ask: ask{Verb: "create", UID: uid, Facets: f, Tags: tags}, Answer: answer{What: what, UID: -1, Facets: f}}
}

func remove(uid int, what string) op {
	return op{Ask: ask{Verb: "delete", UID: uid}, Answer: answer{What: what, UID: -1}}
}

func put(uid, field int, v int8, what string, f facets) op {
	return op{Ask: ask{Verb: "update", UID: uid, Change: "put", Field: field, Value: v}, Answer: answer{What: what, UID: -1, Facets: f}}
}

func find(v int8, what string, uid int, f facets) op {
	return op{Ask: ask{Verb: "find", Field: -1, Value: v}, Answer: answer{What: what, UID: uid, Facets: f}}
}

func readTags(uid int, tags ...string) op {
	return op{Ask: ask{Verb: "tags", UID: uid}, Answer: answer{What: "ok", UID: -1, Tags: tags}}
}

func password(uid int, p int8) op {
	return op{Ask: ask{Verb: "password", UID: uid, Password: p}, Answer: answer{What: "ok", UID: -1}}
}

func login(v, p int8, uid int, f facets) op {
	return op{Ask: ask{Verb: "login", Value: v, Password: p}, Answer: answer{What: "ok", UID: uid, Facets: f}}
}

func disable(uid int) op {
	return op{Ask: ask{Verb: "disable", UID: uid}, Answer: answer{What: "ok", UID: -1}}
}

func taken(o op, fields ...string) op {
	o.Answer.What, o.Answer.Fields = "taken", fields
	return o
}

// TestJudge shows histories that are as they must be, and some that are not: what the judge cannot see, no run shows.
func TestJudge(t *testing.T) {
	one, two := facets{1, 0, 0}, facets{0, 1, 0}
	for _, tt := range []struct {
		name string
		ops  []op
		want string // "": nothing is wrong
	}{
		{"one after the other", told(create(0, one, "ok"), find(1, "ok", 0, one), remove(0, "ok"), create(1, two, "ok"), find(1, "ok", 1, two)), ""},
		{"two owners", told(create(0, one, "ok"), create(1, two, "ok")), "value 1"},
		{"two owners, by a put", told(create(0, one, "ok"), create(1, facets{}, "ok"), put(1, 2, 1, "ok", facets{0, 0, 1})), "value 1"},
		{"not found", told(create(0, one, "ok"), find(1, "absent", -1, facets{})), "value 1"},
		{"found when deleted", told(create(0, one, "ok"), remove(0, "ok"), find(1, "ok", 0, one)), "account 0"},
		{"a refused delete was done", told(create(0, one, "ok"), remove(0, "refused"), find(1, "absent", -1, facets{})), "value 1"},
		{"an unknown delete was done, late", told(create(0, one, "ok"), remove(0, "unknown"), find(1, "ok", 0, one), find(1, "absent", -1, facets{})), ""},
		{"an unknown delete was done twice", told(create(0, one, "ok"), remove(0, "unknown"), find(1, "absent", -1, facets{}), create(0, one, "ok"), find(1, "absent", -1, facets{})), "value 1"},
		{"a false duplicate", told(taken(create(0, one, "taken"), "email")), "value 1"},
		{"a duplicate of itself", told(create(0, one, "ok"), taken(put(0, 1, 1, "taken", facets{1, 1, 0}), "name")), "value 1"},
		{"a true duplicate", told(create(0, one, "ok"), taken(create(1, two, "taken"), "name")), ""},
		{"a false duplicate beside a true one", told(create(0, one, "ok"), taken(create(1, facets{1, 2, 0}, "taken"), "email", "name")), "value 2"},
		{"the UID is not taken", told(taken(create(0, one, "taken"), "uid")), "account 0"},
		{"a lost update", told(create(0, one, "ok"), put(0, 1, 2, "ok", facets{1, 2, 0}), find(1, "ok", 0, one)), "account 0"},
		{"an old password", told(create(0, one, "ok"), password(0, 1), password(0, 2), login(1, 1, 0, one)), "account 0"},
		{"a login when disabled", told(create(0, one, "ok"), password(0, 1), disable(0), login(1, 1, 0, one)), "account 0"},
		{"a good login", told(create(0, one, "ok"), password(0, 1), login(1, 1, 0, one)), ""},
		{"an odd answer", told(create(0, one, "odd")), "no documentation"},
		{"inherited tags", told(create(0, one, "ok", "a"), remove(0, "ok"), create(0, one, "ok", "b"), readTags(0, "a", "b")), "inherited"},
		{"lost tags", told(create(0, one, "ok", "a"), readTags(0)), "not read"},
		{"tags as they must be", told(create(0, one, "ok", "a"), remove(0, "ok"), create(0, one, "ok", "b"), readTags(0, "b")), ""},
		{"tags of a delete that came late", told(create(0, one, "ok", "a"), remove(0, "unknown"), readTags(0, "a"), readTags(0)), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := judge(tt.ops)
			all := strings.Join(v.violations, "\n")
			if (tt.want == "") != (all == "") || !strings.Contains(all, tt.want) {
				t.Errorf("got %q, want %q", all, tt.want)
			}
		})
	}
}

// TestShortest leaves of a long history what shows the fault.
func TestShortest(t *testing.T) {
	one := facets{1, 0, 0}
	ops := []op{create(0, one, "ok")}
	for range 50 {
		ops = append(ops, find(1, "ok", 0, one))
	}
	ops = append(ops, create(3, facets{0, 2, 0}, "ok"), put(3, 2, 3, "ok", facets{0, 2, 3}), find(1, "ok", 0, one))
	ops = append(ops, find(1, "absent", -1, facets{}), remove(0, "ok"), create(2, one, "ok"))
	short := shortest(valueModel(1), told(ops...))
	if n := len(short); n > 3 || short[n-2].Answer.UID != 0 || short[n-1].Answer.What != "absent" {
		t.Errorf("got %v", short)
	}
}
