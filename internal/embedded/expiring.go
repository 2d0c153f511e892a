package embedded

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Limits on the store's own expiring records in a file. Strangers can cause such records, for
// example by guessing passwords, so these must leave room for entries, and for the histories of
// accounts.
const (
	maxExpiring      = 20_000
	maxOrphanTokens  = 4_000 // tokens of entries that do not exist, such as invitations
	maxVisitorLimits = 6_000 // counters of origins and of visitors' requests
)

// The classes of records that are deleted if there are too many, in the order in which they give
// way. Counters that limit visitors come last: without them, strangers could go on.
const (
	nobodyCounter = iota // throttle counters of identifiers that no entry has
	history
	orphanToken
	visitorLimit
	numClasses
)

// classLimits holds the maximum number of records of each class.
var classLimits = [numClasses]int{maxExpiring, maxExpiring, maxOrphanTokens, maxVisitorLimits}

// ownRecord matches the keys of the store's own records in any namespace. It has a group for each
// class, and one for the entry of a token.
var ownRecord = regexp.MustCompile(`^(?:~[^/]+/)*~/(?:(throttle/[^/]+/nobody/)|(history/)|(token/\{(.*)\}$)|(throttle/[^/]+/origin/|visits/)|)`)

// surplus returns the keys of the records to delete: those beyond the limit of their class, and
// then as many as necessary if the store's own expiring records exceed maxExpiring, or all records
// together the limit of a file. Within a class it deletes those that expire first. records must be
// sorted by key.
func surplus(records []record) map[string]bool {
	expiring := 0
	var classes [numClasses][]record
	for _, r := range records {
		if r.Until == 0 {
			continue
		}
		m := ownRecord.FindStringSubmatch(r.Key)
		if m == nil {
			continue
		}
		expiring++
		switch {
		case m[1] != "":
			classes[nobodyCounter] = append(classes[nobodyCounter], r)
		case m[2] != "":
			classes[history] = append(classes[history], r)
		case m[3] != "" && !isEntry(records, m[4]):
			classes[orphanToken] = append(classes[orphanToken], r)
		case m[5] != "":
			classes[visitorLimit] = append(classes[visitorLimit], r)
		}
	}
	most := min(maxExpiring, max(0, MaxRecords-(len(records)-expiring)))
	deleted := map[string]bool{}
	remove := func(class, n int) {
		n = min(n, len(classes[class]))
		if n <= 0 {
			return
		}
		slices.SortStableFunc(classes[class], func(a, b record) int { return cmp.Compare(a.Until, b.Until) })
		for _, r := range classes[class][:n] {
			deleted[r.Key] = true
		}
		classes[class] = classes[class][n:]
		expiring -= n
	}
	for class, limit := range classLimits {
		remove(class, len(classes[class])-limit)
	}
	for class := range classes {
		remove(class, expiring-most)
	}
	return deleted
}

// isEntry reports whether the record under key is a live entry: a hash with a type.
func isEntry(records []record, key string) bool {
	i, found := slices.BinarySearchFunc(records, key, func(r record, key string) int { return strings.Compare(r.Key, key) })
	return found && records[i].Hash["~isa"] != ""
}
