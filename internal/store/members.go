package store

import (
	"errors"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// MemberBatch is the most members of a tertiary record that one call handles while a record is
// dropped, and about how many one reply returns: every other client waits for a call.
const MemberBatch = 1000

// ErrFull is the answer to an [Op] that would leave a record with more members than Op.Most.
var ErrFull = errors.New("as many members as the record takes")

// An indexed set of more than MemberBatch members that a change replaces or drops is moved away
// first, in the step that makes the change: to ~/drop/REV/{KEY}, in the slot of the record.
// Readers, and a later entry of that UID, no longer see it. Its members then leave it in batches,
// each after its index member. On one server the field ~drop of the entry, or of its tombstone,
// names the records that are still there, as "REV:NAME REV:NAME …"; on a cluster ~fill does.
const dropPrefix = "~/drop/"

// DropKey returns where a record lies that a change with a rev replaced or dropped.
func DropKey(record recordkey.Key, rev string) string { return besideKey(dropPrefix, record, rev) }

// ParseDropKey reads such a key.
func ParseDropKey(raw string) (record recordkey.Key, rev string, ok bool) {
	return parseBeside(dropPrefix, raw)
}

// A Dropped is a record that a change with a rev moved away.
type Dropped struct {
	Record recordkey.Key
	Rev    string
}

// ParseDropped reads the field ~drop of an entry. What no record can be called is left out.
func ParseDropped(entry recordkey.Key, text string) (all []Dropped) {
	for item := range strings.FieldsSeq(text) {
		rev, escaped, _ := strings.Cut(item, ":")
		name, err := recordkey.Unescape(escaped)
		if err != nil {
			continue
		}
		if record, err := entry.Tertiary(name); err == nil {
			all = append(all, Dropped{record, rev})
		}
	}
	return all
}

// besideKey returns the key of a record that lies in the slot of another one: PREFIX REV/{KEY}.
func besideKey(prefix string, record recordkey.Key, rev string) string {
	return record.Namespace().String() + prefix + rev + "/{" + record.String() + "}"
}

// parseBeside reads such a key of a tertiary record.
func parseBeside(prefix, raw string) (record recordkey.Key, rev string, ok bool) {
	namespace, rest, ok := strings.Cut(raw, prefix)
	rev, rest, cut := strings.Cut(rest, "/{")
	inner, closed := strings.CutSuffix(rest, "}")
	record, err := recordkey.Parse(inner)
	ok = ok && cut && closed && err == nil && record.Kind() == recordkey.KindTertiary && record.Namespace().String() == namespace
	return record, rev, ok
}

// Distinct returns the values of a record that was read in pages: those of a set sorted, each
// once.
func Distinct(kind string, values []string) []string {
	if kind != "set" {
		return values
	}
	slices.Sort(values)
	return slices.Compact(values)
}
