//go:build linux

package chaos

import (
	"fmt"
	"slices"
)

// rawClient names the client of operations that read raw records. Such a read may miss an
// acknowledged tag that is stored with the entry and not yet in the set.
const rawClient = "raw"

// tagViolations returns a violation for each tag of an account that was read after its removal,
// that was read although its change had no effect, or that was acknowledged and not read. In a run
// each tag is given only once, so a tag identifies the operation that gave it.
func tagViolations(uid int, ops []op) (violations []string) {
	for _, change := range ops {
		if len(change.Ask.Tags) == 0 {
			continue
		}
		for _, reading := range ops {
			if reading.Ask.Verb != "tags" || reading.Answer.What != "ok" {
				continue
			}
			if wrong := tagProblem(change, reading, ops); wrong != "" {
				violations = append(violations, fmt.Sprintf("account %d: %s:\n    %s\n    %s", uid, wrong, change, reading))
			}
		}
	}
	return violations
}

// tagProblem compares the tags of change with those that reading returned. It returns what is
// wrong, or "" if nothing is.
func tagProblem(change, reading op, ops []op) string {
	wasRead := slices.ContainsFunc(change.Ask.Tags, func(tag string) bool { return slices.Contains(reading.Answer.Tags, tag) })
	switch change.Answer.What {
	case "ok":
	case "unknown":
		if later := createdSince(change, reading, ops); wasRead && later != "" {
			return "the account inherited tags of a create that never took effect; it was created by\n    " + later
		}
		return ""
	default:
		if wasRead {
			return "tags of a refused change were read"
		}
		return ""
	}
	if reading.Begin < change.End {
		return ""
	}
	overlaps := false
	for _, removal := range ops {
		if !removesTags(removal) || removal.Client == change.Client && removal.N == change.N {
			continue
		}
		between := removal.Begin > change.End && removal.End < reading.Begin && removal.Answer.What == "ok"
		switch {
		case between && wasRead && removal.Ask.Verb == "delete":
			return "the account inherited tags of an earlier account, which was deleted by\n    " + removal.String()
		case between && wasRead:
			return "tags were read after they had been replaced by\n    " + removal.String()
		}
		overlaps = overlaps || removal.End > change.Begin && removal.Begin < reading.End
	}
	for _, tag := range change.Ask.Tags {
		if !overlaps && reading.Client != rawClient && !slices.Contains(reading.Answer.Tags, tag) {
			return "an acknowledged tag was not read, although nobody removed it"
		}
	}
	return ""
}

// removesTags reports whether an operation removed tags or may have done so.
func removesTags(o op) bool {
	return (o.Ask.Verb == "delete" || o.Ask.Verb == "replace") && (o.Answer.What == "ok" || o.Answer.What == "unknown")
}

// createdSince describes another create that certainly made the account whose tags reading
// returned, so that change, a create whose outcome is unknown, never took effect. The other one
// began after change and succeeded before reading began, and nobody deleted the account afterwards.
// If there is none, or if change is not a create, createdSince returns "".
func createdSince(change, reading op, ops []op) string {
	if change.Ask.Verb != "create" {
		return ""
	}
	for _, other := range ops {
		if other.Ask.Verb != "create" || other.Answer.What != "ok" || other.Begin < change.Begin || other.End > reading.Begin {
			continue
		}
		deleted := slices.ContainsFunc(ops, func(removal op) bool {
			return removal.Ask.Verb == "delete" && removesTags(removal) && removal.End > other.Begin && removal.Begin < reading.End
		})
		if !deleted {
			return other.String()
		}
	}
	return ""
}
