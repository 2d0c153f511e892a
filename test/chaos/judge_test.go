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
)

// A verdict is what was found wrong with an epoch.
type verdict struct {
	violations []string
	histories  int
	undecided  int // in the time there was
}

// patience is how long one history is looked at.
const patience = 20 * time.Second

// judge looks at all that clients were told in an epoch.
func judge(ops []op) (v verdict) {
	for _, o := range ops {
		if o.Answer.What == "odd" {
			v.violations = append(v.violations, "an answer that no documentation has:\n    "+o.String())
		}
		if o.Answer.Late > 0 {
			v.violations = append(v.violations, "a call went on after its context had ended:\n    "+o.String())
		}
	}
	for uid := range accounts {
		of := slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return !o.ours(uid) })
		v.history(fmt.Sprintf("account %d", uid), accountModel, slices.DeleteFunc(slices.Clone(of), aside))
		v.violations = append(v.violations, wrongTags(uid, of)...)
	}
	for value := int8(1); value <= values; value++ {
		v.history(fmt.Sprintf("value %d", value), valueModel(value), slices.DeleteFunc(slices.Clone(ops), aside))
	}
	v.violations = append(v.violations, wrongSecrets(ops)...)
	v.violations = append(v.violations, wrongNames(ops)...)
	return v
}

func (v *verdict) history(of string, m model, ops []op) {
	v.histories++
	switch linear(m(false), ops) {
	case porcupine.Unknown:
		v.undecided++
	case porcupine.Illegal:
		short := shortest(m, ops)
		text := make([]string, len(short))
		for i, o := range short {
			text[i] = "\n    " + o.String()
		}
		v.violations = append(v.violations, fmt.Sprintf("no order of what was told about %s makes all of it true; the shortest part that is so, %d of %d:%s",
			of, len(short), len(ops), strings.Join(text, "")))
	}
}

func linear(m porcupine.Model, ops []op) porcupine.CheckResult {
	all := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		all[i] = porcupine.Operation{Input: o, Call: o.Begin, Return: o.End}
	}
	return porcupine.CheckOperationsTimeout(m, all, patience)
}

// shortest cuts a history that cannot be to the part that shows it: what ended before a moment, for what came later
// cannot mend it; what began after another, whatever was then; and of what changes nothing only that without which
// it could be. A write that ended stays: without it, what follows would be wrong by the cut alone.
func shortest(m model, ops []op) []op {
	moments := []int64{0}
	for _, o := range ops {
		moments = append(moments, o.End)
	}
	slices.Sort(moments)
	anything := false
	last := latest(moments, func(moment int64) bool { return linear(m(false), until(ops, moment)) != porcupine.Illegal })
	short := until(ops, moments[min(last+1, len(moments)-1)])
	if first := latest(moments, func(moment int64) bool { return linear(m(true), since(short, moment)) == porcupine.Illegal }); first >= 0 {
		short, anything = since(short, moments[first]), true
	}
	for i := 0; i < len(short); {
		without := slices.Delete(slices.Clone(short), i, i+1)
		if changesNothing(short[i]) && linear(m(anything), without) == porcupine.Illegal {
			short = without
		} else {
			i++
		}
	}
	return short
}

// latest is the index of the last moment of which something is true that is true of all before; -1: of none.
func latest(moments []int64, is func(int64) bool) int {
	return sort.Search(len(moments), func(i int) bool { return !is(moments[i]) }) - 1
}

// until are the operations that began before a moment; what ended after it may not have been carried out yet.
func until(ops []op, moment int64) (part []op) {
	for _, o := range ops {
		if o.Begin > moment {
			continue
		}
		if o, stays := unless(o, o.End <= moment); stays {
			part = append(part, o)
		}
	}
	return part
}

// since are the operations that did not end before a moment; what began before it may have been carried out by then.
func since(ops []op, moment int64) (part []op) {
	for _, o := range ops {
		if o.End < moment {
			continue
		}
		if o, stays := unless(o, o.Begin >= moment); stays {
			part = append(part, o)
		}
	}
	return part
}

// unless gives an operation that is cut through: nothing is known of a write then, and a read says nothing.
func unless(o op, complete bool) (op, bool) {
	if !complete && changesNothing(o) {
		return o, false
	}
	if !complete {
		o.Answer, o.End = answer{What: "unknown", UID: -1}, math.MaxInt64
	}
	return o, true
}

func changesNothing(o op) bool {
	return slices.Contains(reads, o.Ask.Verb) || o.Answer.What != "ok" && o.Answer.What != "unknown"
}
