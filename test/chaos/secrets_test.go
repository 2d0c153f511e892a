//go:build linux

package chaos

import (
	"fmt"
	"math"
	"slices"
)

// irrelevant reports whether the answer of an operation says nothing about the account and its
// values. A successful use or start of a session, and a token that was issued or redeemed, show the
// state of the account; everything else about sessions, tokens, invitations, idempotency keys and
// lists is irrelevant.
func irrelevant(o op) bool {
	switch o.Ask.Verb {
	case "begin", "check", "issue", "redeem":
		return o.Answer.What != "ok"
	case "end", "endid", "invite", "accept", "once", "list":
		return true
	}
	return false
}

// An effect is the effect of an operation on a secret, or what the operation shows about the
// secret.
type effect int

const (
	none   effect = iota
	shows         // the secret worked, which uses up a token or an invitation
	denies        // the secret was rejected
	ends          // the operation ended the secret if it was carried out
)

// secretViolations checks the sessions, tokens and invitations of an epoch. None may work after its
// end, no token or invitation may work twice, and none may be rejected unless somebody ended it.
func secretViolations(ops []op) (violations []string) {
	ops = slices.Clone(ops)
	for i, o := range ops {
		if o.Ask.Verb == "endid" && o.Answer.What == "absent" && slices.ContainsFunc(ops, o.mayCross) {
			ops[i].Answer.What = "unknown"
		}
	}
	for _, source := range ops {
		if source.Answer.What != "ok" || source.Answer.Secret == "" {
			continue
		}
		var uses []op
		for _, o := range ops {
			if concerns(source, o) {
				uses = append(uses, o)
			}
		}
		for _, o := range uses {
			if wrong := secretProblem(source, o, uses); wrong != "" {
				violations = append(violations, fmt.Sprintf("%s:\n    %s\n    %s", wrong, source, o))
			}
		}
	}
	return violations
}

// concerns reports whether o concerns the secret that source returned: o names the secret or its
// account.
func concerns(source, o op) bool {
	if o.Ask.Secret != "" && o.Ask.Verb != "redeem" {
		return o.Ask.Secret == source.Answer.Secret
	}
	return source.Ask.UID != noAccount && o.Ask.UID == source.Ask.UID
}

// effect returns the effect of the operation on the secret that source returned.
func (o op) effect(source op) effect {
	done, maybe := o.Answer.What == "ok", o.Answer.What == "ok" || o.Answer.What == "unknown"
	switch o.Ask.Verb {
	case "delete", "password", "disable":
		if maybe {
			return ends
		}
	case "endall":
		if maybe && source.Ask.Verb == "begin" {
			return ends
		}
	case "end":
		if maybe {
			return ends
		}
	case "endid":
		switch {
		case maybe:
			return ends
		case o.Answer.What == "absent":
			return denies
		}
	case "check", "redeem", "accept":
		usesSecret := o.Ask.Secret == source.Answer.Secret
		switch {
		case done && usesSecret:
			return shows
		case o.Answer.What == "absent" && usesSecret:
			return denies
		// Redeeming one token voids all others for the same purpose.
		case maybe && o.Ask.Verb != "check" && source.Ask.Verb != "begin":
			return ends
		}
	}
	return none
}

// secretLimit holds the maximum number of secrets of an account, by the verb that returned them. A
// new one beyond it replaces the oldest. Invitations belong to no account, so nothing limits them.
var secretLimit = map[string]int{"begin": 100, "issue": 16, "invite": math.MaxInt}

// secretProblem returns the problem of one use of a secret, or "" if there is none.
func secretProblem(source, o op, uses []op) string {
	result := o.effect(source)
	if result != shows && result != denies || o.Begin < source.End {
		return ""
	}
	spends := source.Ask.Verb != "begin"
	ended, newer := false, 0
	for _, other := range uses {
		if other.Client == o.Client && other.N == o.N {
			continue
		}
		if other.Ask.Verb == source.Ask.Verb && other.End > source.Begin && other.Begin < o.End {
			newer++
		}
		otherResult := other.effect(source)
		endsSecret := otherResult == ends || otherResult == shows && spends
		switch {
		case !endsSecret:
		case result == shows && spends && otherResult == shows && other.Begin <= o.Begin:
			return "a secret was used twice; the other use was\n    " + other.String()
		case result == shows && other.Answer.What == "ok" && other.Begin > source.End && other.End < o.Begin:
			return "a secret still works after it was ended by\n    " + other.String()
		}
		ended = ended || endsSecret && other.End > source.Begin && other.Begin < o.End
	}
	if result == denies && !ended && newer < secretLimit[source.Ask.Verb] {
		return "a secret was rejected, although nobody ended it"
	}
	return ""
}

// unknownSessions returns a violation for each listed session of an account that no client got. ids
// holds the listed sessions. unknownSessions returns none if the start of a session has an unknown
// outcome, because any listed session may be that one.
func unknownSessions(uid int, ids []string, ops []op) (violations []string) {
	known := map[string]bool{}
	for _, o := range ops {
		if o.Ask.Verb != "begin" || o.Ask.UID != uid {
			continue
		}
		if o.Answer.What == "unknown" {
			return nil
		}
		known[o.Answer.ID] = true
	}
	for _, id := range ids {
		if !known[id] {
			violations = append(violations, fmt.Sprintf("account %d lists session %s, whose start was refused", uid, id))
		}
	}
	return slices.Compact(violations)
}
