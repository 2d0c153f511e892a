//go:build linux

package chaos

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// reads are the verbs that change nothing.
var reads = []string{"find", "get", "login", "tags", "check"}

// ours reports whether an operation has to do with an account: it names it, or found it.
func (o op) ours(uid int) bool {
	if o.Ask.Verb == "find" || o.Ask.Verb == "login" {
		return o.Answer.What == "ok" && o.Answer.UID == uid
	}
	return o.Ask.UID == uid
}

// An account is what one is while verbs are made one after the other.
type account struct {
	live     bool
	facets   facets
	password int8
	disabled bool
}

// after is the account after a verb, and whether the verb finds it as it must.
func (a account) after(q ask) (account, bool) {
	if q.Verb == "create" {
		return account{live: true, facets: q.Facets, password: q.Password}, !a.live
	}
	was := a
	switch q.Verb {
	case "delete":
		a = account{}
	case "update":
		a.facets = a.facets.changed(q)
	case "password":
		a.password = q.Password
	case "disable":
		a.disabled = true
	case "enable":
		a.disabled = false
	}
	return a, was.live
}

func (f facets) changed(q ask) facets {
	switch q.Change {
	case "put":
		f[q.Field] = q.Value
	case "drop":
		f[q.Field] = 0
	case "move":
		if f[q.Field] != 0 {
			f[q.Field], f[q.To] = 0, f[q.Field]
		}
	case "exchange":
		f[q.Field], f[q.To] = f[q.To], f[q.Field]
	}
	return f
}

// next are the accounts that may be there after an operation; none: its answer is not true.
func (a account) next(o op) []any {
	after, can := a.after(o.Ask)
	switch o.Answer.What {
	case "ok":
		if !can || !a.answers(o, after) {
			return nil
		}
		return []any{after}
	case "absent":
		if a.live {
			return nil
		}
	case "taken":
		if slices.Contains(o.Answer.Fields, "uid") && !a.live {
			return nil
		}
	case "unknown":
		if can {
			return []any{a, after}
		}
	}
	return []any{a}
}

// answers reports whether what a verb returned is what the account is.
func (a account) answers(o op, after account) bool {
	switch o.Ask.Verb {
	case "begin", "issue", "redeem":
		return !a.disabled
	case "create", "update":
		return o.Answer.Facets == after.facets
	case "find", "get", "check":
		return o.Answer.Facets == a.facets && o.Answer.Disabled == a.disabled
	case "login":
		return o.Answer.Facets == a.facets && !a.disabled && o.Ask.Password == a.password
	}
	return true
}

// A holder is which account has a value, and in which of its fields.
type holder struct {
	uid  int // -1: nobody
	mask uint8
}

var nobody = holder{uid: -1}

func (f facets) mask(v int8) (m uint8) {
	for i := range f {
		if f[i] == v {
			m |= 1 << i
		}
	}
	return m
}

func held(uid int, mask uint8) holder {
	if mask == 0 {
		return nobody
	}
	return holder{uid, mask}
}

// next are the holders of a value that may be there after an operation; none: its answer is not true.
func (h holder) next(v int8, o op) []any {
	q, what := o.Ask, o.Answer.What
	switch {
	case what == "ok" && slices.Contains(reads, q.Verb):
		return h.found(v, o)
	case what == "ok":
		return h.written(v, o)
	case what == "absent" && q.Verb == "find":
		if q.Value == v && h != nobody && (q.Field < 0 || h.mask&(1<<q.Field) != 0) {
			return nil
		}
	case what == "absent":
		if h.uid == q.UID {
			return nil
		}
	case what == "taken":
		for i, field := range fields {
			if slices.Contains(o.Answer.Fields, field) && o.Answer.Facets[i] == v && (h == nobody || h.uid == q.UID) {
				return nil
			}
		}
	case what == "unknown":
		return append(h.perhaps(v, q), h)
	}
	return []any{h}
}

func (h holder) found(v int8, o op) []any {
	m := o.Answer.Facets.mask(v)
	if o.Ask.Verb != "tags" && (m != 0 && h != holder{o.Answer.UID, m} || m == 0 && h.uid == o.Answer.UID) {
		return nil
	}
	return []any{h}
}

func (h holder) written(v int8, o op) []any {
	q := o.Ask
	m := o.Answer.Facets.mask(v)
	switch {
	case q.Verb == "create" && h.uid == q.UID:
		return nil // it cannot have been there
	case (q.Verb == "create" || q.Verb == "update") && m != 0:
		if h != nobody && h.uid != q.UID {
			return nil
		}
		return []any{holder{q.UID, m}}
	case (q.Verb == "update" || q.Verb == "delete") && h.uid == q.UID:
		return []any{nobody}
	}
	return []any{h}
}

// perhaps are the holders after a verb of which nothing is known but what was asked.
func (h holder) perhaps(v int8, q ask) []any {
	switch {
	case q.Verb == "create" && h == nobody:
		return []any{held(q.UID, q.Facets.mask(v))}
	case q.Verb == "delete" && h.uid == q.UID:
		return []any{nobody}
	case q.Verb == "update" && h == nobody && q.Change == "put" && q.Value == v:
		return []any{holder{q.UID, 1 << q.Field}}
	case q.Verb != "update" || h.uid != q.UID:
		return nil
	}
	var f facets
	for i := range f {
		if f[i] = -1; h.mask&(1<<i) != 0 { // another value, or none
			f[i] = v
		}
	}
	after := []any{held(q.UID, f.changed(q).mask(v))}
	if q.Change == "move" && f[q.Field] != v { // nothing to move
		after = append(after, h)
	}
	return after
}

// A model begins with nothing, or, for a part of a history, with anything.
type model func(anything bool) porcupine.Model

func accountModel(anything bool) porcupine.Model {
	begin := []any{account{}}
	if anything {
		begin = append(begin, anyAccount()...)
	}
	return modelOf(begin, func(s any, o op) []any { return s.(account).next(o) })
}

func anyAccount() (all []any) {
	n := values + 1
	for i := range n * n * n * 3 * 2 {
		f := facets{int8(i % n), int8(i / n % n), int8(i / n / n % n)}
		all = append(all, account{true, f, int8(i / n / n / n % 3), i/n/n/n/3 == 1})
	}
	return all
}

func valueModel(v int8) model {
	return func(anything bool) porcupine.Model {
		begin := []any{nobody}
		for i := range accounts * 7 {
			if anything {
				begin = append(begin, holder{i / 7, uint8(i%7 + 1)})
			}
		}
		return modelOf(begin, func(s any, o op) []any { return s.(holder).next(v, o) })
	}
}

func modelOf(begin []any, next func(s any, o op) []any) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init:  func() []any { return begin },
		Step:  func(s, in, _ any) []any { return next(s, in.(op)) },
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}
