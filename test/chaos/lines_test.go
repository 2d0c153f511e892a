//go:build linux

package chaos

import (
	"fmt"
	"slices"
)

// An eventLine holds the compared parts of a line of history or of an event in the feed.
type eventLine struct {
	UID  string
	Who  string
	Kind string
}

// lineBounds returns the least and the greatest number of lines that an operation may have in the
// feed.
func (o op) lineBounds() (least, most int) {
	switch o.Ask.Verb {
	case "find", "get", "tags", "check", "invite", "once":
		return 0, 0
	case "list": // a list operation may have changed nothing
		return 0, o.mostLines()
	case "login":
		// A login changes nothing. If its event cannot be added to the feed, it is only logged.
		return 0, 1
	case "begin", "endall":
		// The feed lacks an event of a session if the process died before it could add the event,
		// or if it could not add the event for a minute.
		return 0, o.mostLines()
	}
	if o.Answer.What == "ok" && !slices.Contains([]string{"update", "disable", "enable", "end", "endid"}, o.Ask.Verb) {
		least = 1 // the verbs in the condition may have had nothing to do
	}
	return least, o.mostLines()
}

// mostLines returns the greatest number of lines that an operation may have, by its answer.
func (o op) mostLines() int {
	if o.Answer.What == "ok" || o.Answer.What == "unknown" {
		return 1
	}
	return 0
}

// mayCross reports whether d may have taken effect in the middle of o. That can happen because o
// consists of several commands on a cluster, or was sent again after a lost reply. mayCross returns
// false unless d is a delete or, if o started a session or issued a token, anything that ends
// sessions or tokens of the account. If d took effect before o wrote its line, o has no line. If d
// took effect afterwards, o may answer that the account is gone.
func (o op) mayCross(d op) bool {
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

// lineViolations compares the events of the feed with the operations of an epoch. It returns a
// violation for each operation that has too many lines, and for each acknowledged one that lacks
// its line.
func lineViolations(ops []op, events []eventLine) (violations []string) {
	count := map[string]int{}
	for _, l := range events {
		count[l.Who]++
	}
	for _, o := range ops {
		if o.N < 0 { // asked by the parent
			continue
		}
		n := count[o.who()]
		least, most := o.lineBounds()
		if slices.ContainsFunc(ops, o.mayCross) {
			least, most = 0, 1
			if o.Ask.Verb == "issue" && o.Answer.What == "ok" {
				// A token that was ended before the call was sent again is issued once more.
				least, most = 1, 2
			}
		}
		if n > most || n < least {
			violations = append(violations, fmt.Sprintf("the feed has %d lines of this operation, want %d to %d:\n    %s", n, least, most, o))
		}
	}
	return violations
}

// feedDifference describes how the feed differs from the history of an account that exists, or
// returns "" if it does not. The history begins with the create that made the account, so earlier
// events with the same UID do not count. Neither do events of sessions, of which the feed may lack
// some.
func feedDifference(history, events []eventLine) string {
	isChange := func(l eventLine) bool {
		return !slices.Contains([]string{"login", "login_failed", "throttle", "repair", "session_start", "session_end"}, l.Kind)
	}
	last := 0
	for i, l := range events {
		if l.Kind == "create" {
			last = i
		}
	}
	kept := changesOf(history[max(0, len(history)-historyKept):], isChange)
	changes, events := changesOf(history, isChange), changesOf(events[last:], isChange)
	has := events
	if len(history) >= historyLimit {
		has = withoutDropped(events, changes, len(kept))
	}
	if slices.Equal(changes, has) {
		return ""
	}
	return fmt.Sprintf("the feed differs from the history. History:\n    %v\n  Feed:\n    %v", changes, events)
}

// changesOf returns the lines for which isChange returns true.
func changesOf(lines []eventLine, isChange func(eventLine) bool) []eventLine {
	return slices.DeleteFunc(slices.Clone(lines), func(l eventLine) bool { return !isChange(l) })
}

// Limits of the history of an account. It keeps at most historyLimit lines. If there are more, some
// are dropped, but of the newest historyKept only sessions and issued tokens.
const (
	historyLimit = 100
	historyKept  = 30
)

// withoutDropped removes from the events those that a full history may have dropped. The newest
// events stay; kept is their number.
func withoutDropped(events, history []eventLine, kept int) []eventLine {
	kept = min(kept, len(events))
	left := slices.Clone(events[len(events)-kept:])
	at := len(history) - kept - 1
	for _, l := range slices.Backward(events[:len(events)-kept]) {
		if at >= 0 && history[at] == l {
			left = slices.Insert(left, 0, l)
			at--
		}
	}
	return left
}
