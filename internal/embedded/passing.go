package embedded

import (
	"cmp"
	"regexp"
	"slices"
)

// maxPassing is how many of a file's records may be the store's own that end by themselves: what strangers can make must leave
// room for entries.
const maxPassing = 20_000

// The store's own records, in whatever namespace, and those of them that go first: counters of identifiers that nobody has and of
// what visitors ask for, histories, and requests that are known by their name.
var (
	ownRecord   = regexp.MustCompile(`^(~[^/]+/)*~/`)
	leastRecord = regexp.MustCompile(`^(~[^/]+/)*~/(throttle/[^/]+/(nobody|origin)/|visits/|history/|token/\{~~userdb/once/)`)
)

// surplus are the keys of the records that go, the oldest first, where more than maxPassing are the store's own and end by themselves, or
// all are more than the file may have.
func surplus(records []record) map[string]bool {
	passing := 0
	var least []int
	for i, r := range records {
		if r.Until == 0 || !ownRecord.MatchString(r.Key) {
			continue
		}
		if passing++; leastRecord.MatchString(r.Key) {
			least = append(least, i)
		}
	}
	most := min(maxPassing, max(0, MaxRecords-(len(records)-passing)))
	if passing <= most {
		return nil
	}
	slices.SortStableFunc(least, func(a, b int) int { return cmp.Compare(records[a].Until, records[b].Until) })
	goes := map[string]bool{}
	for _, i := range least[:min(passing-most, len(least))] {
		goes[records[i].Key] = true
	}
	return goes
}
