//go:build linux

package chaos

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// sequence returns a history in which the operations follow one another. Each ends before the next
// one begins, unless its answer is unknown: then it never ends.
func sequence(ops ...op) []op {
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
	return op{Ask: question{Verb: "create", UID: uid, Facets: f, Tags: tags}, Answer: answer{What: what, UID: -1, Facets: f}}
}

func remove(uid int, what string) op {
	return op{Ask: question{Verb: "delete", UID: uid}, Answer: answer{What: what, UID: -1}}
}

func put(uid, field int, v int8, what string, f facets) op {
	return op{Ask: question{Verb: "update", UID: uid, Change: "put", Field: field, Value: v}, Answer: answer{What: what, UID: -1, Facets: f}}
}

func find(v int8, what string, uid int, f facets) op {
	return op{Ask: question{Verb: "find", Field: -1, Value: v}, Answer: answer{What: what, UID: uid, Facets: f}}
}

func readTags(uid int, tags ...string) op {
	return op{Ask: question{Verb: "tags", UID: uid}, Answer: answer{What: "ok", UID: -1, Tags: tags}}
}

func password(uid int, p int8) op {
	return op{Ask: question{Verb: "password", UID: uid, Password: p}, Answer: answer{What: "ok", UID: -1}}
}

func login(v, p int8, uid int, f facets) op {
	return op{Ask: question{Verb: "login", Value: v, Password: p}, Answer: answer{What: "ok", UID: uid, Facets: f}}
}

func disable(uid int) op {
	return op{Ask: question{Verb: "disable", UID: uid}, Answer: answer{What: "ok", UID: -1}}
}

func replace(uid int, what string, tags ...string) op {
	return op{Ask: question{Verb: "replace", UID: uid, Tags: tags}, Answer: answer{What: what, UID: -1}}
}

func begin(uid int, secret string) op {
	return op{Ask: question{Verb: "begin", UID: uid}, Answer: answer{What: "ok", UID: -1, Secret: secret, ID: "id of " + secret}}
}

func issue(uid int, secret string) op {
	return op{Ask: question{Verb: "issue", UID: uid}, Answer: answer{What: "ok", UID: -1, Secret: secret}}
}

func useSecret(verb string, uid int, secret, what string) op {
	return op{Ask: question{Verb: verb, UID: uid, Secret: secret}, Answer: answer{What: what, UID: uid}}
}

func checkSession(uid int, secret string, f facets) op {
	o := useSecret("check", uid, secret, "ok")
	o.Answer.Facets = f
	return o
}

func once(name, what, made string) op {
	return op{Ask: question{Verb: "once", UID: noAccount, Name: name}, Answer: answer{What: what, UID: -1, ID: made}}
}

func taken(o op, fields ...string) op {
	o.Answer.What, o.Answer.Fields = "taken", fields
	return o
}

// TestJudge checks that the judge accepts possible histories, and finds the violations in
// impossible ones.
func TestJudge(t *testing.T) {
	one, two := facets{1, 0, 0}, facets{0, 1, 0}
	for _, tt := range []struct {
		name string
		ops  []op
		want string // part of the text of the violations; "" for no violation
	}{
		{"correct answers, one after the other", sequence(create(0, one, "ok"), find(1, "ok", 0, one), remove(0, "ok"), create(1, two, "ok"), find(1, "ok", 1, two)), ""},
		{"two owners", sequence(create(0, one, "ok"), create(1, two, "ok")), "value 1"},
		{"two owners, by a put", sequence(create(0, one, "ok"), create(1, facets{}, "ok"), put(1, 2, 1, "ok", facets{0, 0, 1})), "value 1"},
		{"not found", sequence(create(0, one, "ok"), find(1, "absent", -1, facets{})), "value 1"},
		{"found after its delete", sequence(create(0, one, "ok"), remove(0, "ok"), find(1, "ok", 0, one)), "account 0"},
		{"a refused delete took effect", sequence(create(0, one, "ok"), remove(0, "refused"), find(1, "absent", -1, facets{})), "value 1"},
		{"an unknown delete took effect late", sequence(create(0, one, "ok"), remove(0, "unknown"), find(1, "ok", 0, one), find(1, "absent", -1, facets{})), ""},
		{"an unknown delete took effect twice", sequence(create(0, one, "ok"), remove(0, "unknown"), find(1, "absent", -1, facets{}), create(0, one, "ok"), find(1, "absent", -1, facets{})), "value 1"},
		{"a false duplicate", sequence(taken(create(0, one, "taken"), "email")), "value 1"},
		{"a duplicate of itself", sequence(create(0, one, "ok"), taken(put(0, 1, 1, "taken", facets{1, 1, 0}), "name")), "value 1"},
		{"a true duplicate", sequence(create(0, one, "ok"), taken(create(1, two, "taken"), "name")), ""},
		{"a false duplicate beside a true one", sequence(create(0, one, "ok"), taken(create(1, facets{1, 2, 0}, "taken"), "email", "name")), "value 2"},
		{"the UID is not taken", sequence(taken(create(0, one, "taken"), "uid")), "account 0"},
		{"a lost update", sequence(create(0, one, "ok"), put(0, 1, 2, "ok", facets{1, 2, 0}), find(1, "ok", 0, one)), "account 0"},
		{"an old password", sequence(create(0, one, "ok"), password(0, 1), password(0, 2), login(1, 1, 0, one)), "account 0"},
		{"a login while disabled", sequence(create(0, one, "ok"), password(0, 1), disable(0), login(1, 1, 0, one)), "account 0"},
		{"a good login", sequence(create(0, one, "ok"), password(0, 1), login(1, 1, 0, one)), ""},
		{"an odd answer", sequence(create(0, one, "odd")), "undocumented"},
		{"a late answer", sequence(op{Ask: question{Verb: "get"}, Answer: answer{What: "unknown", UID: -1, Late: 2500}}), "context ended"},
		{"inherited tags", sequence(create(0, one, "ok", "a"), remove(0, "ok"), create(0, one, "ok", "b"), readTags(0, "a", "b")), "inherited"},
		{"lost tags", sequence(create(0, one, "ok", "a"), readTags(0)), "not read"},
		{"correct tags", sequence(create(0, one, "ok", "a"), remove(0, "ok"), create(0, one, "ok", "b"), readTags(0, "b")), ""},
		{"a replace without effect", sequence(create(0, one, "ok", "a"), replace(0, "ok"), readTags(0, "a")), "had been replaced"},
		{"a replace with effect", sequence(create(0, one, "ok", "a"), replace(0, "ok", "b"), readTags(0, "b")), ""},
		{"a replace with an unknown outcome that took effect late", sequence(create(0, one, "ok", "a"), replace(0, "unknown"), readTags(0, "a"), readTags(0)), ""},
		{"tags of a replace that are lost", sequence(create(0, one, "ok"), replace(0, "ok", "b"), readTags(0)), "not read"},
		{"tags of a refused change", sequence(create(0, one, "refused", "a"), create(0, one, "ok"), readTags(0, "a")), "of a refused change"},
		{"tags of a create that never took effect", sequence(create(0, one, "unknown", "a"), create(0, one, "ok"), readTags(0, "a")), "never took effect"},
		{"tags of a create that took effect", sequence(create(0, one, "unknown", "a"), readTags(0, "a")), ""},
		{"a session", sequence(create(0, one, "ok"), begin(0, "s"), useSecret("end", 0, "s", "ok"), useSecret("check", 0, "s", "absent")), ""},
		{"a session after its end", sequence(create(0, one, "ok"), begin(0, "s"), useSecret("end", 0, "s", "ok"), checkSession(0, "s", one)), "still works"},
		{"a session after a new password", sequence(create(0, one, "ok"), begin(0, "s"), password(0, 1), checkSession(0, "s", one)), "still works"},
		{"a session that nobody ended", sequence(create(0, one, "ok"), begin(0, "s"), useSecret("check", 0, "s", "absent")), "nobody ended"},
		{"a refused end that took effect", sequence(create(0, one, "ok"), begin(0, "s"), useSecret("end", 0, "s", "refused"), useSecret("check", 0, "s", "absent")), "nobody ended"},
		{"an end that finds no session", sequence(create(0, one, "ok"), begin(0, "s"), useSecret("endid", 0, "s", "absent")), "nobody ended"},
		{"a token", sequence(create(0, one, "ok"), issue(0, "t"), useSecret("redeem", 0, "t", "ok"), useSecret("redeem", 0, "t", "absent")), ""},
		{"a token used twice", sequence(create(0, one, "ok"), issue(0, "t"), useSecret("redeem", 0, "t", "ok"), useSecret("redeem", 0, "t", "ok")), "used twice"},
		{"a token after a newer one of its purpose", sequence(create(0, one, "ok"), issue(0, "t"), issue(0, "u"), useSecret("redeem", 0, "u", "ok"), useSecret("redeem", 0, "t", "ok")), "still works"},
		{"a refused redeem that took effect", sequence(create(0, one, "ok"), issue(0, "t"), useSecret("redeem", 0, "t", "refused"), useSecret("redeem", 0, "t", "absent")), "nobody ended"},
		{"an idempotency key", sequence(once("n", "unknown", ""), once("n", "ok", "e"), once("n", "ok", "e"), once("m", "ok", "f")), ""},
		{"an idempotency key of two entries", sequence(once("n", "ok", "e"), once("n", "ok", "f")), "two entries"},
		{"tags before a delete that took effect late", sequence(create(0, one, "ok", "a"), remove(0, "unknown"), readTags(0, "a"), readTags(0)), ""},
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

// TestLines checks that the judge accepts correct lines of a feed and of histories, and finds wrong
// ones.
func TestLines(t *testing.T) {
	ops := sequence(create(0, facets{}, "ok"), put(0, 0, 1, "refused", facets{}), remove(0, "unknown"))
	line := func(i int, kind string) eventLine { return eventLine{"e1-0", ops[i].who(), kind} }
	made, refused, gone := line(0, "create"), line(1, "identifier"), line(2, "delete")
	for _, tt := range []struct {
		name   string
		events []eventLine
		want   int
	}{
		{"the lines are correct", []eventLine{made}, 0},
		{"a line of a change with an unknown outcome that took effect", []eventLine{made, gone}, 0},
		{"a line twice", []eventLine{made, made}, 1},
		{"a missing line", nil, 1},
		{"a line of a refused change", []eventLine{made, refused}, 1},
		{"a line twice, and a line of a refused change", []eventLine{made, made, refused}, 2},
	} {
		if got := lineViolations(ops, tt.events); len(got) != tt.want {
			t.Errorf("%s: got %q, want %d violations", tt.name, got, tt.want)
		}
	}
	begun, during := begin(0, "s"), remove(0, "ok")
	begun.Begin, begun.End, during.N, during.Begin, during.End = 11, 19, 1, 12, 20
	if got := lineViolations([]op{begun, during}, []eventLine{{"e1-0", during.who(), "delete"}}); len(got) != 0 {
		t.Errorf("the start of a session crossed by a delete: got %q, want no violation", got)
	}
	issued := issue(0, "t")
	issued.Begin, issued.End = 11, 19
	sent := eventLine{"e1-0", issued.who(), "issue"}
	if got := lineViolations([]op{issued, during}, []eventLine{{"e1-0", during.who(), "delete"}, sent, sent}); len(got) != 0 {
		t.Errorf("a token that was ended and issued again: got %q, want no violation", got)
	}
	if got := lineViolations([]op{issued}, []eventLine{sent, sent}); len(got) != 1 {
		t.Errorf("a token that was issued twice: got %q, want one violation", got)
	}
	crossed := sequence(begin(0, "s"), useSecret("endid", 0, "s", "absent"), useSecret("check", 0, "s", "absent"), remove(0, "ok"))
	// The reply to the endid was lost. When the command was sent again, the account was gone.
	crossed[1].End = crossed[3].End + 1
	if got := secretViolations(crossed); len(got) != 0 {
		t.Errorf("the end of a session crossed by a delete: got %q, want no violation", got)
	}
	history, full := []eventLine{made, refused}, slices.Repeat([]eventLine{refused}, historyLimit)
	for _, tt := range []struct {
		name            string
		history, events []eventLine
		good            bool
	}{
		{"the feed is the same as the history", history, []eventLine{made, refused}, true},
		{"the feed also has logins and an earlier account with the UID", history, []eventLine{made, gone, made, line(0, "login"), refused}, true},
		{"the feed lacks a session", []eventLine{made, line(1, "session_end"), refused}, []eventLine{made, refused}, true},
		{"the feed has a session later", []eventLine{made, line(1, "session_start"), refused}, []eventLine{made, refused, line(1, "session_start")}, true},
		{"a full history with sessions has dropped a line", slices.Concat([]eventLine{line(1, "session_end")}, full[1:]), slices.Concat([]eventLine{made}, full), true},
		{"the feed has another order", history, []eventLine{refused, made}, false},
		{"the feed lacks a line", history, []eventLine{made}, false},
		{"the feed has a line twice", history, []eventLine{made, refused, refused}, false},
		{"the feed has more lines than a history keeps", full, slices.Concat([]eventLine{made}, full), true},
		{"the feed has more lines than a history keeps, but another last line", full, slices.Concat([]eventLine{made}, full[1:], []eventLine{gone}), false},
	} {
		if got := feedDifference(tt.history, tt.events); (got == "") != tt.good {
			t.Errorf("%s: got the difference %q; want none: %t", tt.name, got, tt.good)
		}
	}
}

// TestShrink checks that shrink reduces a long history to little more than the operations that
// contradict each other.
func TestShrink(t *testing.T) {
	one := facets{1, 0, 0}
	ops := []op{create(0, one, "ok")}
	for range 50 {
		ops = append(ops, find(1, "ok", 0, one))
	}
	ops = append(ops, create(3, facets{0, 2, 0}, "ok"), put(3, 2, 3, "ok", facets{0, 2, 3}), find(1, "ok", 0, one))
	ops = append(ops, find(1, "absent", -1, facets{}), remove(0, "ok"), create(2, one, "ok"))
	short := shrink(valueModel(1), sequence(ops...))
	if n := len(short); n > 3 || short[n-2].Answer.UID != 0 || short[n-1].Answer.What != "absent" {
		t.Errorf("shortened to %v, want at most 3 operations that still show the violation", short)
	}
}
