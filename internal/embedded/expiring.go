package embedded

import (
	"cmp"
	"regexp"
	"slices"
)

// maxExpiring is the largest number of the store's own expiring records in a file. Strangers can
// cause such records, for example by guessing passwords, so they must leave room for entries.
const maxExpiring = 20_000

// ownRecord matches the keys of the store's own records in any namespace. leastRecord matches those
// that are deleted first: throttle counters of unknown identifiers and of origins, counters of
// visitors' requests, histories, and requests that are known by a name.
var (
	ownRecord   = regexp.MustCompile(`^(~[^/]+/)*~/`)
	leastRecord = regexp.MustCompile(`^(~[^/]+/)*~/(throttle/[^/]+/(nobody|origin)/|visits/|history/|token/\{~~userdb/once/)`)
)

// surplus returns the keys of the records to delete, starting with those that expire first. There
// are none unless the store's own expiring records exceed maxExpiring, or all records together
// exceed the limit of a file.
func surplus(records []record) map[string]bool {
	expiring := 0
	var least []int
	for i, r := range records {
		if r.Until == 0 || !ownRecord.MatchString(r.Key) {
			continue
		}
		if expiring++; leastRecord.MatchString(r.Key) {
			least = append(least, i)
		}
	}
	most := min(maxExpiring, max(0, MaxRecords-(len(records)-expiring)))
	if expiring <= most {
		return nil
	}
	slices.SortStableFunc(least, func(a, b int) int { return cmp.Compare(records[a].Until, records[b].Until) })
	deleted := map[string]bool{}
	for _, i := range least[:min(expiring-most, len(least))] {
		deleted[records[i].Key] = true
	}
	return deleted
}
