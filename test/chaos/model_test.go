//go:build linux

package chaos

import (
	"slices"

	"github.com/anishathalye/porcupine"
)

// reads lists the verbs that change nothing.
var reads = []string{"find", "get", "login", "tags", "check"}

// about reports whether an operation concerns an account: it names the account or, for find and
// login, found it.
func (o op) about(uid int) bool {
	if o.Ask.Verb == "find" || o.Ask.Verb == "login" {
		return o.Answer.What == "ok" && o.Answer.UID == uid
	}
	return o.Ask.UID == uid
}

// An account describes the state of one account between two operations. The zero value is an
// account that does not exist.
type account struct {
	live     bool
	facets   facets
	password int8
	disabled bool
}

// apply returns the account after an operation took effect, and whether the operation can succeed:
// for a create the account must not exist, for all others it must.
func (a account) apply(q question) (account, bool) {
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

// changed returns the facets after an update.
func (f facets) changed(q question) facets {
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

// next returns the possible states of the account after an operation. It returns none if the answer
// cannot be true.
func (a account) next(o op) []any {
	after, can := a.apply(o.Ask)
	switch o.Answer.What {
	case "ok":
		if !can || !a.agrees(o, after) {
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

// agrees reports whether a successful answer agrees with the account: for a create or update with
// its state after, for others with its state before.
func (a account) agrees(o op, after account) bool {
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

// An owner describes which account has a value, and in which of its fields.
type owner struct {
	uid  int // -1: none
	mask uint8
}

var nobody = owner{uid: -1}

// mask returns the fields that have value v, as a bit for each.
func (f facets) mask(v int8) (m uint8) {
	for i := range f {
		if f[i] == v {
			m |= 1 << i
		}
	}
	return m
}

// ownerOf returns the account uid as the owner of a value in the fields of mask, or nobody if
// mask is 0.
func ownerOf(uid int, mask uint8) owner {
	if mask == 0 {
		return nobody
	}
	return owner{uid, mask}
}

// next returns the possible owners of value v after an operation. It returns none if the answer
// cannot be true.
func (h owner) next(v int8, o op) []any {
	q, what := o.Ask, o.Answer.What
	switch {
	case what == "ok" && slices.Contains(reads, q.Verb):
		return h.afterRead(v, o)
	case what == "ok":
		return h.afterWrite(v, o)
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
		return append(h.afterUnknown(v, q), h)
	}
	return []any{h}
}

// afterRead returns the owner after a read, or none if the read saw another owner.
func (h owner) afterRead(v int8, o op) []any {
	m := o.Answer.Facets.mask(v)
	if o.Ask.Verb != "tags" && (m != 0 && h != owner{o.Answer.UID, m} || m == 0 && h.uid == o.Answer.UID) {
		return nil
	}
	return []any{h}
}

// afterWrite returns the owner after a write that succeeded, or none if the write should have
// failed.
func (h owner) afterWrite(v int8, o op) []any {
	q := o.Ask
	m := o.Answer.Facets.mask(v)
	switch {
	case q.Verb == "create" && h.uid == q.UID:
		return nil // the account existed, because it has the value
	case (q.Verb == "create" || q.Verb == "update") && m != 0:
		if h != nobody && h.uid != q.UID {
			return nil
		}
		return []any{owner{q.UID, m}}
	case (q.Verb == "update" || q.Verb == "delete") && h.uid == q.UID:
		return []any{nobody}
	}
	return []any{h}
}

// afterUnknown returns the possible owners if a write without an answer took effect. They follow
// only from the question.
func (h owner) afterUnknown(v int8, q question) []any {
	switch {
	case q.Verb == "create" && h == nobody:
		return []any{ownerOf(q.UID, q.Facets.mask(v))}
	case q.Verb == "delete" && h.uid == q.UID:
		return []any{nobody}
	case q.Verb == "update" && h == nobody && q.Change == "put" && q.Value == v:
		return []any{owner{q.UID, 1 << q.Field}}
	case q.Verb != "update" || h.uid != q.UID:
		return nil
	}
	var f facets
	for i := range f {
		if f[i] = -1; h.mask&(1<<i) != 0 { // -1: another value, or none
			f[i] = v
		}
	}
	after := []any{ownerOf(q.UID, f.changed(q).mask(v))}
	if q.Change == "move" && f[q.Field] != v { // the field may have had no value to move
		after = append(after, h)
	}
	return after
}

// A model returns the state machine with which porcupine checks a history. The state machine begins
// with an empty store. If anything is set, it begins in any state, for a part of a history.
type model func(anything bool) porcupine.Model

// accountModel returns the model of one account.
func accountModel(anything bool) porcupine.Model {
	begin := []any{account{}}
	if anything {
		begin = append(begin, allAccounts()...)
	}
	return modelOf(begin, func(s any, o op) []any { return s.(account).next(o) })
}

// allAccounts returns all states of an account that exists.
func allAccounts() (all []any) {
	n := values + 1
	for i := range n * n * n * 3 * 2 {
		f := facets{int8(i % n), int8(i / n % n), int8(i / n / n % n)}
		all = append(all, account{true, f, int8(i / n / n / n % 3), i/n/n/n/3 == 1})
	}
	return all
}

// valueModel returns the model of who has value v.
func valueModel(v int8) model {
	return func(anything bool) porcupine.Model {
		begin := []any{nobody}
		for i := range accounts * 7 {
			if anything {
				begin = append(begin, owner{i / 7, uint8(i%7 + 1)})
			}
		}
		return modelOf(begin, func(s any, o op) []any { return s.(owner).next(v, o) })
	}
}

// modelOf returns a state machine that begins in one of the states in begin. next returns the
// states that may follow an operation, or none if its answer cannot be true.
func modelOf(begin []any, next func(s any, o op) []any) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init:  func() []any { return begin },
		Step:  func(s, in, _ any) []any { return next(s, in.(op)) },
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}
