package embedded

import (
	"cmp"
	"regexp"
	"slices"
)

// maxPassing limits how many records of a file may be the store's own ones that expire, so that
// what strangers can create leaves room for entries.
const maxPassing = 20_000

// ownRecord matches the keys of the store's own records in any namespace. leastRecord matches those
// that are deleted first: throttle counters of unknown identifiers and of origins, counters of
// visitors' requests, histories, and requests that are known by a name.
var (
	ownRecord   = regexp.MustCompile(`^(~[^/]+/)*~/`)
	leastRecord = regexp.MustCompile(`^(~[^/]+/)*~/(throttle/[^/]+/(nobody|origin)/|visits/|history/|token/\{~~userdb/once/)`)
)

// surplus returns the keys of the records to delete, starting with those that expire first. There
// are some if the store's own expiring records exceed maxPassing, or if all records exceed what a
// file may hold.
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
