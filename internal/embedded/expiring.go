package embedded

import "strings"

// The classes of records that strangers can cause, for example by guessing passwords. Each has a
// limit, so that they leave memory for entries. Those that expire first give way.
const (
	nobodyCounter = iota // throttle counters of identifiers that no entry has
	orphanToken          // tokens of entries that do not exist, such as invitations
	visitorLimit         // counters of origins and of visitors' requests
	numClasses
)

// classLimits holds the maximum number of records of each class.
var classLimits = [numClasses]int{20_000, 20_000, 20_000}

// classOf returns the class of the record at key, or -1. Tokens count as those of an entry that
// does not exist until there are too many of them; see data.sweep.
func classOf(key string) int {
	kind, rest, _ := strings.Cut(ownPart(key), "/")
	switch kind {
	case "throttle":
		_, rest, _ = strings.Cut(rest, "/") // the type
		switch who, _, _ := strings.Cut(rest, "/"); who {
		case "nobody":
			return nobodyCounter
		case "origin":
			return visitorLimit
		}
	case "visits":
		return visitorLimit
	case "token":
		return orphanToken
	}
	return -1
}

// ownPart returns what follows "~/" in the key of a record of the store itself, in any namespace,
// or "".
func ownPart(key string) string {
	for {
		if own, is := strings.CutPrefix(key, "~/"); is {
			return own
		}
		if !strings.HasPrefix(key, "~") {
			return ""
		}
		_, rest, found := strings.Cut(key, "/")
		if !found {
			return ""
		}
		key = rest
	}
}

// tokenOwner returns the key of the entry whose tokens are at key: it stands in braces.
func tokenOwner(key string) string {
	_, owner, _ := strings.Cut(key, "{")
	return strings.TrimSuffix(owner, "}")
}
