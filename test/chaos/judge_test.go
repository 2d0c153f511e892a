//go:build linux

package chaos

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
)

// A verdict holds the judge's findings in one epoch or in all epochs.
type verdict struct {
	violations []string
	histories  int
	undecided  int // histories that took longer than patience
}

// patience limits the time for judging one history.
const patience = 20 * time.Second

// judge checks all operations of an epoch.
func judge(ops []op) (v verdict) {
	for _, o := range ops {
		if o.Answer.What == "odd" {
			v.violations = append(v.violations, "undocumented answer:\n    "+o.String())
		}
		if o.Answer.Late > 0 {
			v.violations = append(v.violations, "a call did not return when its context ended:\n    "+o.String())
		}
	}
	for uid := range accounts {
		accountOps := slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return !o.about(uid) })
		v.checkHistory(fmt.Sprintf("account %d", uid), accountModel, slices.DeleteFunc(slices.Clone(accountOps), irrelevant))
		v.violations = append(v.violations, tagViolations(uid, accountOps)...)
	}
	for value := int8(1); value <= values; value++ {
		v.checkHistory(fmt.Sprintf("value %d", value), valueModel(value), slices.DeleteFunc(slices.Clone(ops), irrelevant))
	}
	v.violations = append(v.violations, secretViolations(ops)...)
	v.violations = append(v.violations, keyViolations(ops)...)
	v.violations = append(v.violations, testdb.ListViolations(listOps(ops))...)
	return v
}

// listOps returns the operations about lists.
func listOps(ops []op) (lists []testdb.ListOp) {
	for _, o := range ops {
		if o.Ask.List == nil {
			continue
		}
		l := testdb.ListOp{Begin: o.Begin, End: o.End, Ask: *o.Ask.List, OK: o.Answer.What == "ok", Unknown: o.Answer.What == "unknown"}
		if o.Answer.List != nil {
			l.Answer = *o.Answer.List
		}
		lists = append(lists, l)
	}
	return lists
}

// checkHistory checks that some order of the operations explains all answers about subject, and
// adds a violation if there is none.
func (v *verdict) checkHistory(subject string, m model, ops []op) {
	v.histories++
	switch checkLinear(m(false), ops) {
	case porcupine.Unknown:
		v.undecided++
	case porcupine.Illegal:
		short := shrink(m, ops)
		text := make([]string, len(short))
		for i, o := range short {
			text[i] = "\n    " + o.String()
		}
		v.violations = append(v.violations, fmt.Sprintf("no order of the operations explains all answers about %s; %d of %d operations show it:%s",
			subject, len(short), len(ops), strings.Join(text, "")))
	}
}

// checkLinear reports whether some order of ops, each within its time, agrees with the model.
func checkLinear(m porcupine.Model, ops []op) porcupine.CheckResult {
	all := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		all[i] = porcupine.Operation{Input: o, Call: o.Begin, Return: o.End}
	}
	return porcupine.CheckOperationsTimeout(m, all, patience)
}

// shrink returns a short part of a history, ops, that no order explains. It leaves out the
// operations after the moment at which the history became impossible, because nothing later can
// make it possible. It leaves out the operations before a moment if the rest of the history is
// impossible in every state that they may have led to; it chooses the last such moment. And it
// leaves out each read or failed write without which the part is still impossible. It keeps all
// other writes: without one of them, later answers might be wrong only because it is missing.
func shrink(m model, ops []op) []op {
	moments := []int64{0}
	for _, o := range ops {
		moments = append(moments, o.End)
	}
	slices.Sort(moments)
	anyStart := false
	last := lastIndex(moments, func(moment int64) bool { return checkLinear(m(false), partUntil(ops, moment)) != porcupine.Illegal })
	short := partUntil(ops, moments[min(last+1, len(moments)-1)])
	if first := lastIndex(moments, func(moment int64) bool { return checkLinear(m(true), partSince(short, moment)) == porcupine.Illegal }); first >= 0 {
		short, anyStart = partSince(short, moments[first]), true
	}
	for i := 0; i < len(short); {
		without := slices.Delete(slices.Clone(short), i, i+1)
		if changesNothing(short[i]) && checkLinear(m(anyStart), without) == porcupine.Illegal {
			short = without
		} else {
			i++
		}
	}
	return short
}

// lastIndex returns the index of the last moment for which isTrue returns true, or -1 if there is
// none. isTrue must return true for all moments before that one.
func lastIndex(moments []int64, isTrue func(int64) bool) int {
	return sort.Search(len(moments), func(i int) bool { return !isTrue(moments[i]) }) - 1
}

// partUntil returns the operations that began at or before a moment, without reads that ended
// later. A write that ended later may not have taken effect yet.
func partUntil(ops []op, moment int64) (part []op) {
	for _, o := range ops {
		if o.Begin > moment {
			continue
		}
		if o, stays := cutUnless(o, o.End <= moment); stays {
			part = append(part, o)
		}
	}
	return part
}

// partSince returns the operations that ended at or after a moment, without reads that began
// earlier. A write that began earlier may have taken effect already.
func partSince(ops []op, moment int64) (part []op) {
	for _, o := range ops {
		if o.End < moment {
			continue
		}
		if o, stays := cutUnless(o, o.Begin >= moment); stays {
			part = append(part, o)
		}
	}
	return part
}

// cutUnless returns an operation unchanged if it lies completely within a part of a history.
// Otherwise it makes the outcome of a write unknown. For an operation that changes nothing it
// returns false, because the part does not need it.
func cutUnless(o op, complete bool) (op, bool) {
	if !complete && changesNothing(o) {
		return o, false
	}
	if !complete {
		o.Answer, o.End = answer{What: "unknown", UID: -1}, math.MaxInt64
	}
	return o, true
}

// changesNothing reports whether an operation is a read, or a write that was certainly not carried
// out.
func changesNothing(o op) bool {
	return slices.Contains(reads, o.Ask.Verb) || o.Answer.What != "ok" && o.Answer.What != "unknown"
}
