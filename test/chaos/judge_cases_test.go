//go:build linux

package chaos

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// told returns a history in which the operations follow one another, each with times from its
// position.
func told(ops ...op) []op {
	for i := range ops {
		ops[i].N = i
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

func replace(uid int, what string, tags ...string) op {
	return op{Ask: ask{Verb: "replace", UID: uid, Tags: tags}, Answer: answer{What: what, UID: -1}}
}

func begin(uid int, secret string) op {
	return op{Ask: ask{Verb: "begin", UID: uid}, Answer: answer{What: "ok", UID: -1, Secret: secret, ID: "id of " + secret}}
}

func issue(uid int, secret string) op {
	return op{Ask: ask{Verb: "issue", UID: uid}, Answer: answer{What: "ok", UID: -1, Secret: secret}}
}

func using(verb string, uid int, secret, what string) op {
	return op{Ask: ask{Verb: verb, UID: uid, Secret: secret}, Answer: answer{What: what, UID: uid}}
}

func showing(uid int, secret string, f facets) op {
	o := using("check", uid, secret, "ok")
	o.Answer.Facets = f
	return o
}

func once(name, what, made string) op {
	return op{Ask: ask{Verb: "once", UID: nobodys, Name: name}, Answer: answer{What: what, UID: -1, ID: made}}
}

func taken(o op, fields ...string) op {
	o.Answer.What, o.Answer.Fields = "taken", fields
	return o
}

// TestJudge gives the judge possible and impossible histories. A violation that the judge cannot
// see here it cannot see in a run.
func TestJudge(t *testing.T) {
	one, two := facets{1, 0, 0}, facets{0, 1, 0}
	for _, tt := range []struct {
		name string
		ops  []op
		want string // part of the only violations; "" for none
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
		{"a late answer", told(op{Ask: ask{Verb: "get"}, Answer: answer{What: "unknown", UID: -1, Late: 2500}}), "after its context"},
		{"inherited tags", told(create(0, one, "ok", "a"), remove(0, "ok"), create(0, one, "ok", "b"), readTags(0, "a", "b")), "inherited"},
		{"lost tags", told(create(0, one, "ok", "a"), readTags(0)), "not read"},
		{"tags as they must be", told(create(0, one, "ok", "a"), remove(0, "ok"), create(0, one, "ok", "b"), readTags(0, "b")), ""},
		{"a replace without effect", told(create(0, one, "ok", "a"), replace(0, "ok"), readTags(0, "a")), "had been replaced"},
		{"a replace with effect", told(create(0, one, "ok", "a"), replace(0, "ok", "b"), readTags(0, "b")), ""},
		{"a replace that may come late", told(create(0, one, "ok", "a"), replace(0, "unknown"), readTags(0, "a"), readTags(0)), ""},
		{"tags of a replace that are lost", told(create(0, one, "ok"), replace(0, "ok", "b"), readTags(0)), "not read"},
		{"tags of a refused change", told(create(0, one, "refused", "a"), create(0, one, "ok"), readTags(0, "a")), "was refused"},
		{"tags of a create that came to nothing", told(create(0, one, "unknown", "a"), create(0, one, "ok"), readTags(0, "a")), "came to nothing"},
		{"tags of a create that was made", told(create(0, one, "unknown", "a"), readTags(0, "a")), ""},
		{"a session", told(create(0, one, "ok"), begin(0, "s"), using("end", 0, "s", "ok"), using("check", 0, "s", "absent")), ""},
		{"a session after its end", told(create(0, one, "ok"), begin(0, "s"), using("end", 0, "s", "ok"), showing(0, "s", one)), "good after its end"},
		{"a session after a password", told(create(0, one, "ok"), begin(0, "s"), password(0, 1), showing(0, "s", one)), "good after its end"},
		{"a session that nobody ended", told(create(0, one, "ok"), begin(0, "s"), using("check", 0, "s", "absent")), "nobody ended"},
		{"a refused end that was made", told(create(0, one, "ok"), begin(0, "s"), using("end", 0, "s", "refused"), using("check", 0, "s", "absent")), "nobody ended"},
		{"an end that finds no session", told(create(0, one, "ok"), begin(0, "s"), using("endid", 0, "s", "absent")), "nobody ended"},
		{"a token", told(create(0, one, "ok"), issue(0, "t"), using("redeem", 0, "t", "ok"), using("redeem", 0, "t", "absent")), ""},
		{"a token used twice", told(create(0, one, "ok"), issue(0, "t"), using("redeem", 0, "t", "ok"), using("redeem", 0, "t", "ok")), "used twice"},
		{"a token after another of its purpose", told(create(0, one, "ok"), issue(0, "t"), issue(0, "u"), using("redeem", 0, "u", "ok"), using("redeem", 0, "t", "ok")), "good after its end"},
		{"a refused redeem that was made", told(create(0, one, "ok"), issue(0, "t"), using("redeem", 0, "t", "refused"), using("redeem", 0, "t", "absent")), "nobody ended"},
		{"a name", told(once("n", "unknown", ""), once("n", "ok", "e"), once("n", "ok", "e"), once("m", "ok", "f")), ""},
		{"a name of two entries", told(once("n", "ok", "e"), once("n", "ok", "f")), "two entries"},
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

// TestLines gives the judge lines of a feed and of histories, correct ones and wrong ones.
func TestLines(t *testing.T) {
	ops := told(create(0, facets{}, "ok"), put(0, 0, 1, "refused", facets{}), remove(0, "unknown"))
	line := func(i int, kind string) fedLine { return fedLine{"e1-0", ops[i].who(), kind} }
	made, refused, gone := line(0, "create"), line(1, "identifier"), line(2, "delete")
	for _, tt := range []struct {
		name  string
		heard []fedLine
		want  int
	}{
		{"as it must be", []fedLine{made}, 0},
		{"a change of unknown outcome that was made", []fedLine{made, gone}, 0},
		{"twice", []fedLine{made, made}, 1},
		{"missing", nil, 1},
		{"of what was not done", []fedLine{made, refused}, 1},
		{"of what was not done, twice", []fedLine{made, made, refused}, 2},
	} {
		if got := wrongLines(ops, tt.heard); len(got) != tt.want {
			t.Errorf("%s: got %q, want %d", tt.name, got, tt.want)
		}
	}
	begun, during := begin(0, "s"), remove(0, "ok")
	begun.Begin, begun.End, during.N, during.Begin, during.End = 11, 19, 1, 12, 20
	if got := wrongLines([]op{begun, during}, []fedLine{{"e1-0", during.who(), "delete"}}); len(got) != 0 {
		t.Errorf("a beginning that a delete has crossed: got %q", got)
	}
	issued := issue(0, "t")
	issued.Begin, issued.End = 11, 19
	sent := fedLine{"e1-0", issued.who(), "issue"}
	if got := wrongLines([]op{issued, during}, []fedLine{{"e1-0", during.who(), "delete"}, sent, sent}); len(got) != 0 {
		t.Errorf("a token that was ended and issued again: got %q", got)
	}
	if got := wrongLines([]op{issued}, []fedLine{sent, sent}); len(got) != 1 {
		t.Errorf("a token that was issued twice: got %q", got)
	}
	crossed := told(begin(0, "s"), using("endid", 0, "s", "absent"), using("check", 0, "s", "absent"), remove(0, "ok"))
	// Its reply was lost; when it was sent again the account was gone.
	crossed[1].End = crossed[3].End + 1
	if got := wrongSecrets(crossed); len(got) != 0 {
		t.Errorf("an end that a delete has crossed: got %q", got)
	}
	history, full := []fedLine{made, refused}, slices.Repeat([]fedLine{refused}, mostLines)
	for _, tt := range []struct {
		name           string
		history, heard []fedLine
		good           bool
	}{
		{"the same", history, []fedLine{made, refused}, true},
		{"with an earlier life and logins", history, []fedLine{made, gone, made, line(0, "login"), refused}, true},
		{"in another order", history, []fedLine{refused, made}, false},
		{"one is missing", history, []fedLine{made}, false},
		{"one is there twice", history, []fedLine{made, refused, refused}, false},
		{"more than a history keeps", full, slices.Concat([]fedLine{made}, full), true},
		{"more than a history keeps, and the last is missing", full, slices.Concat([]fedLine{made}, full[1:], []fedLine{gone}), false},
	} {
		if got := unfed(tt.history, tt.heard); (got == "") != tt.good {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
}

// TestShortest checks that little more than the contradiction is left of a long history.
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
