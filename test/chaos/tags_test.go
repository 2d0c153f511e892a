//go:build linux

package chaos

import (
	"fmt"
	"math"
	"slices"
)

// rawClient is the client of reads of raw records. Such a read may miss an acknowledged tag that is
// stored with the entry and not yet in the set.
const rawClient = "raw"

// tagViolations returns a violation for each tag of an account that was read after its removal,
// that was read although its change took no effect, or that was acknowledged and not read. In a run
// each tag is given only once, so a tag identifies the operation that gave it.
func tagViolations(uid int, ops []op) (violations []string) {
	for _, g := range ops {
		if len(g.Ask.Tags) == 0 {
			continue
		}
		for _, r := range ops {
			if r.Ask.Verb != "tags" || r.Answer.What != "ok" {
				continue
			}
			if wrong := tagProblem(g, r, ops); wrong != "" {
				violations = append(violations, fmt.Sprintf("account %d: %s:\n    %s\n    %s", uid, wrong, g, r))
			}
		}
	}
	return violations
}

// tagProblem describes what is wrong with the tags that operation r read, as far as they are tags
// that operation g gave. It returns "" if nothing is wrong.
func tagProblem(g, r op, ops []op) string {
	read := slices.ContainsFunc(g.Ask.Tags, func(tag string) bool { return slices.Contains(r.Answer.Tags, tag) })
	switch g.Answer.What {
	case "ok":
	case "unknown":
		if later := createdSince(g, r, ops); read && later != "" {
			return "the account inherited tags of a create that never took effect; it was created by\n    " + later
		}
		return ""
	default:
		if read {
			return "tags of a refused change were read"
		}
		return ""
	}
	if r.Begin < g.End {
		return ""
	}
	near := false
	for _, d := range ops {
		if !removesTags(d) || d.Client == g.Client && d.N == g.N {
			continue
		}
		between := d.Begin > g.End && d.End < r.Begin && d.Answer.What == "ok"
		switch {
		case between && read && d.Ask.Verb == "delete":
			return "the account inherited tags of an earlier account, which was deleted by\n    " + d.String()
		case between && read:
			return "tags were read after they had been replaced by\n    " + d.String()
		}
		near = near || d.End > g.Begin && d.Begin < r.End
	}
	for _, tag := range g.Ask.Tags {
		if !near && r.Client != rawClient && !slices.Contains(r.Answer.Tags, tag) {
			return "an acknowledged tag was not read, although nobody removed it"
		}
	}
	return ""
}

// removesTags reports whether an operation removed tags or may have done so.
func removesTags(o op) bool {
	return (o.Ask.Verb == "delete" || o.Ask.Verb == "replace") && (o.Answer.What == "ok" || o.Answer.What == "unknown")
}

// createdSince describes the create that made the account whose tags r read, if g, a create of
// unknown outcome, certainly did not make it: because that other create began after g and nobody
// deleted the account afterwards. It returns "" if g may have made the account.
func createdSince(g, r op, ops []op) string {
	if g.Ask.Verb != "create" {
		return ""
	}
	for _, c := range ops {
		if c.Ask.Verb != "create" || c.Answer.What != "ok" || c.Begin < g.Begin || c.End > r.Begin {
			continue
		}
		gone := slices.ContainsFunc(ops, func(d op) bool {
			return d.Ask.Verb == "delete" && removesTags(d) && d.End > c.Begin && d.Begin < min(r.End, math.MaxInt64)
		})
		if !gone {
			return c.String()
		}
	}
	return ""
}
