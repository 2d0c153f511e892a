package store

import (
	"errors"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// MemberBatch is the maximum number of members of a tertiary record that one call removes while it
// drops a record, and about the number that one reply returns. It is limited because every other
// client waits while the server carries out the call.
const MemberBatch = 1000

// ErrFull means that an [Op] was not carried out, because the record would then have more than
// Op.MaxMembers members.
var ErrFull = errors.New("the record is full")

// A script that replaces an indexed set of more than MemberBatch members, or drops it on one
// server, renames the set to ~/drop/REV/{KEY}, in the slot of the record. Neither readers nor a
// later entry with that UID see it anymore. Its members are then removed in batches, each after its
// index member. On one server, the field ~drop of the entry or of its tombstone names the records
// that are left, as "REV:NAME REV:NAME …". On a cluster, ~fill names them.
const dropPrefix = "~/drop/"

// DropKey returns the key to which the change that wrote rev moves a record.
func DropKey(record recordkey.Key, rev string) string { return siblingKey(dropPrefix, record, rev) }

// ParseDropKey parses a key made by DropKey.
func ParseDropKey(raw string) (record recordkey.Key, rev string, ok bool) {
	return parseSiblingKey(dropPrefix, raw)
}

// A Dropped names a record that a change moved away. Rev is the rev that the change wrote.
type Dropped struct {
	Record recordkey.Key
	Rev    string
}

// ParseDropped parses the field ~drop of an entry. It ignores names that no record can have.
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

// siblingKey returns a key that a change with this rev uses beside a record. The record's own key
// between braces puts it into the same slot: ~/drop/REV/{KEY}, for example.
func siblingKey(prefix string, record recordkey.Key, rev string) string {
	return record.Namespace().String() + prefix + rev + "/{" + record.String() + "}"
}

// parseSiblingKey parses a key made by siblingKey for a tertiary record.
func parseSiblingKey(prefix, raw string) (record recordkey.Key, rev string, ok bool) {
	namespace, rest, ok := strings.Cut(raw, prefix)
	rev, rest, cut := strings.Cut(rest, "/{")
	inner, closed := strings.CutSuffix(rest, "}")
	record, err := recordkey.Parse(inner)
	ok = ok && cut && closed && err == nil && record.Kind() == recordkey.KindTertiary && record.Namespace().String() == namespace
	return record, rev, ok
}

// SortedUnique returns the values of a record that was read in pages. The values of a set are
// sorted and free of duplicates.
func SortedUnique(kind string, values []string) []string {
	if kind != "set" {
		return values
	}
	slices.Sort(values)
	return slices.Compact(values)
}
