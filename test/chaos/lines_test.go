//go:build linux

package chaos

import (
	"fmt"
	"slices"
)

// A fedLine is a line of the history, or of the feed, as far as it is judged.
type fedLine struct {
	UID  string
	Who  string
	Kind string
}

// lines returns how many lines an operation leaves at least, and at most.
func (o op) lines() (least, most int) {
	switch o.Ask.Verb {
	case "find", "get", "tags", "check", "invite", "once":
		return 0, 0
	case "login":
		return 0, 1 // it changes nothing, and what the feed cannot be told of it is in the log
	}
	switch o.Answer.What {
	case "ok":
		if slices.Contains([]string{"update", "disable", "enable", "end", "endid"}, o.Ask.Verb) {
			return 0, 1 // there may be nothing to do
		}
		return 1, 1
	case "unknown":
		return 0, 1
	}
	return 0, 0
}

// crossedBy reports whether a delete, or for a beginning also what else ends all sessions, may have
// come into the middle of an operation that is several commands on a cluster, or is sent again
// after a lost reply: before its line, when nothing is left that the line would tell of, or after
// it, when the answer is that the account is gone.
func (o op) crossedBy(d op) bool {
	after := []string{"delete"}
	switch o.Ask.Verb {
	case "begin": // the session is not good then
		after = []string{"delete", "endall", "password", "disable"}
	case "issue": // the token is not good then
		after = []string{"delete", "redeem", "password", "disable"}
	}
	return slices.Contains([]string{"begin", "tag", "endid", "issue"}, o.Ask.Verb) && slices.Contains(after, d.Ask.Verb) && d.Ask.UID == o.Ask.UID &&
		(d.Answer.What == "ok" || d.Answer.What == "unknown") && d.End > o.Begin && d.Begin < o.End
}

// wrongLines compares what a follower has heard of an epoch with what was asked: no operation has a line too many,
// and none that was acknowledged lacks one.
func wrongLines(ops []op, heard []fedLine) (violations []string) {
	count := map[string]int{}
	for _, l := range heard {
		count[l.Who]++
	}
	for _, o := range ops {
		if o.N < 0 { // of the end
			continue
		}
		n := count[o.who()]
		least, most := o.lines()
		if slices.ContainsFunc(ops, o.crossedBy) {
			least, most = 0, 1
			if o.Ask.Verb == "issue" && o.Answer.What == "ok" {
				least, most = 1, 2 // a token that was ended before the call was sent again is issued once more
			}
		}
		if n > most || n < least {
			violations = append(violations, fmt.Sprintf("the feed has %d lines, want %d to %d, of\n    %s", n, least, most, o))
		}
	}
	return violations
}

// unfed says what the feed lacks of the history of a live account, or has in another order; "" for nothing. The history
// begins with the create that made the account.
func unfed(history, heard []fedLine) string {
	heard = slices.DeleteFunc(slices.Clone(heard), func(l fedLine) bool {
		return slices.Contains([]string{"login", "login_failed", "throttle", "repair"}, l.Kind)
	})
	last := 0
	for i, l := range heard {
		if l.Kind == "create" {
			last = i
		}
	}
	if heard = heard[last:]; slices.Equal(history, trimmed(heard, history)) {
		return ""
	}
	return fmt.Sprintf("the history is\n    %v\n  and the feed\n    %v", history, heard)
}

// The history of an account has so many lines at most. Beyond that the oldest go, and never one of
// so many that came last.
const (
	mostLines = 100
	lastLines = 30
)

// trimmed leaves out of what was heard what a full history may lack.
func trimmed(heard, history []fedLine) []fedLine {
	if len(heard) <= mostLines {
		return heard
	}
	stays := slices.Clone(heard[len(heard)-lastLines:])
	at := len(history) - lastLines - 1
	for _, l := range slices.Backward(heard[:len(heard)-lastLines]) {
		if at >= 0 && history[at] == l {
			stays = slices.Insert(stays, 0, l)
			at--
		}
	}
	return stays
}
