//go:build linux

package chaos

import (
	"fmt"
	"math"
	"slices"
)

// rawClient reads records itself, and so before a tag that was laid ready is in the set.
const rawClient = "raw"

// wrongTags looks for tags of an account that were read after they had been taken away, for such as nobody can have been
// given, and for acknowledged ones that were not read. Each tag is given once in a run.
func wrongTags(uid int, ops []op) (violations []string) {
	for _, g := range ops {
		if len(g.Ask.Tags) == 0 {
			continue
		}
		for _, r := range ops {
			if r.Ask.Verb != "tags" || r.Answer.What != "ok" {
				continue
			}
			if wrong := misread(g, r, ops); wrong != "" {
				violations = append(violations, fmt.Sprintf("account %d: %s:\n    %s\n    %s", uid, wrong, g, r))
			}
		}
	}
	return violations
}

// misread says what is wrong with a reading of tags that were given, if anything is.
func misread(g, r op, ops []op) string {
	read := slices.ContainsFunc(g.Ask.Tags, func(tag string) bool { return slices.Contains(r.Answer.Tags, tag) })
	switch g.Answer.What {
	case "ok":
	case "unknown":
		if later := bornSince(g, r, ops); read && later != "" {
			return "tags were inherited of a create that came to nothing by\n    " + later
		}
		return ""
	default:
		if read {
			return "tags are read of a change that was refused"
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
			return "tags were inherited of an account that had been deleted by\n    " + d.String()
		case between && read:
			return "tags are there that had been replaced by\n    " + d.String()
		}
		near = near || d.End > g.Begin && d.Begin < r.End
	}
	for _, tag := range g.Ask.Tags {
		if !near && r.Client != rawClient && !slices.Contains(r.Answer.Tags, tag) {
			return "an acknowledged tag is not read, and nobody took it away"
		}
	}
	return ""
}

// removesTags reports whether an operation took tags away, or may have.
func removesTags(o op) bool {
	return (o.Ask.Verb == "delete" || o.Ask.Verb == "replace") && (o.Answer.What == "ok" || o.Answer.What == "unknown")
}

// bornSince returns the create that made the account which a reading is of, if that began after another one, g, whose outcome is
// unknown: then g has not made it. It is "" if the account may have been made by g.
func bornSince(g, r op, ops []op) string {
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
