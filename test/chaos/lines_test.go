//go:build linux

package chaos

import (
	"fmt"
	"slices"
)

// A fedLine holds what is compared of a line of the history or of an event of the feed.
type fedLine struct {
	UID  string
	Who  string
	Kind string
}

// lines returns how many lines an operation must leave at least, and may leave at most.
func (o op) lines() (least, most int) {
	switch o.Ask.Verb {
	case "find", "get", "tags", "check", "invite", "once":
		return 0, 0
	case "login":
		// It changes nothing. If the feed cannot take the event, the log has it.
		return 0, 1
	}
	switch o.Answer.What {
	case "ok":
		if slices.Contains([]string{"update", "disable", "enable", "end", "endid"}, o.Ask.Verb) {
			return 0, 1 // there may have been nothing to do
		}
		return 1, 1
	case "unknown":
		return 0, 1
	}
	return 0, 0
}

// crossedBy reports whether operation d may have come in the middle of operation o. O consists of
// several commands on a cluster, or is sent again after a lost reply. D is a delete, or, if o
// starts a session, anything that ends all sessions. If d came before the line of o, nothing is
// left for the line to describe; if it came after, o may answer that the account is gone.
func (o op) crossedBy(d op) bool {
	after := []string{"delete"}
	switch o.Ask.Verb {
	case "begin": // these end the session at once
		after = []string{"delete", "endall", "password", "disable"}
	case "issue": // these end the token at once
		after = []string{"delete", "redeem", "password", "disable"}
	}
	return slices.Contains([]string{"begin", "tag", "endid", "issue"}, o.Ask.Verb) && slices.Contains(after, d.Ask.Verb) && d.Ask.UID == o.Ask.UID &&
		(d.Answer.What == "ok" || d.Answer.What == "unknown") && d.End > o.Begin && d.Begin < o.End
}

// wrongLines compares the events of the feed with the operations of an epoch. It returns a
// violation for each operation that has too many lines, and for each acknowledged one that lacks
// its line.
func wrongLines(ops []op, heard []fedLine) (violations []string) {
	count := map[string]int{}
	for _, l := range heard {
		count[l.Who]++
	}
	for _, o := range ops {
		if o.N < 0 { // asked by the parent
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

// unfed describes how the feed differs from the history of a live account, or returns "" if it does
// not. The history begins with the create that made the account, so earlier events do not count.
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

// Limits of the history of an account. It keeps at most mostLines lines. If there are more, older
// lines leave, but never one of the newest lastLines.
const (
	mostLines = 100
	lastLines = 30
)

// trimmed removes from the events those that a full history may have dropped.
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
