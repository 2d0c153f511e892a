package embedded

import (
	"encoding/binary"
	"strings"
)

// The classes of expiring records that strangers can cause, for example by guessing passwords, in
// the order in which they give way. Counters that limit visitors come last: without them, strangers
// could go on.
const (
	nobodyCounter = iota // throttle counters of identifiers that no entry has
	orphanHistory        // histories of entries that do not exist
	orphanToken          // tokens of entries that do not exist, such as invitations
	visitorLimit         // counters of origins and of visitors' requests
	numClasses
)

// classLimits holds the maximum number of records of each class, and maxStrangers that of all
// classes together. They leave memory for entries, and for the records of entries.
var (
	classLimits  = [numClasses]int{20_000, 20_000, 4_000, 6_000}
	maxStrangers = 20_000
)

// classOf returns the class of the record at key, or -1. Histories and tokens are of a class only
// while their entry does not exist.
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
	case "history":
		return orphanHistory
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

// ownerOf returns the key of the entry whose tokens or history are at key: it stands in braces.
func ownerOf(key string) string {
	_, owner, _ := strings.Cut(key, "{")
	return strings.TrimSuffix(owner, "}")
}

// recordsOf returns the keys of the history and the tokens of the entry at key.
func recordsOf(key string) []string {
	path := key
	for strings.HasPrefix(path, "~") && strings.Contains(path, "/") {
		_, path, _ = strings.Cut(path, "/")
	}
	namespace := strings.TrimSuffix(key, path)
	return []string{namespace + "~/history/{" + key + "}", namespace + "~/token/{" + key + "}"}
}

// typeField is the field of an entry that holds its type. Without it, the entry is not live.
const typeField = "~isa"

// isEntry reports whether the record at key is a live entry.
func (d *data) isEntry(key string) bool {
	o, _ := d.keys.Get(key)
	return o != nil && o.isEntry()
}

func (o *object) isEntry() bool {
	h, is := o.value.(*hash)
	if !is {
		return false
	}
	typ, _ := h.get(typeField)
	return typ != ""
}

// schedule moves a record in the indexes by time.
func (d *data) schedule(key string, from, to int64) {
	if from == to {
		return
	}
	if from != 0 {
		d.due.Delete(dueKey(from, key))
	}
	if to != 0 {
		d.due.Insert(dueKey(to, key))
	}
	class := classOf(key)
	if class < 0 {
		return
	}
	if from != 0 {
		d.limited[class].Delete(dueKey(from, key))
	}
	if to != 0 && (class != orphanHistory && class != orphanToken || !d.isEntry(ownerOf(key))) {
		d.limited[class].Insert(dueKey(to, key))
	}
}

// scheduleRecords moves the history and the tokens of the entry at key into their class, or out of
// it, after the entry has come to exist or has ceased to.
func (d *data) scheduleRecords(key string) {
	exists := d.isEntry(key)
	for _, record := range recordsOf(key) {
		o, found := d.keys.Get(record)
		if !found || o.until == 0 {
			continue
		}
		if class := d.limited[classOf(record)]; exists {
			class.Delete(dueKey(o.until, record))
		} else {
			class.Insert(dueKey(o.until, record))
		}
	}
}

// maxSwept limits how many records one command removes for each reason.
const maxSwept = 100

// sweep removes records that have expired, and those that are too many. Within a class it removes
// those that expire first.
func (d *data) sweep() {
	for n := 0; n < maxSwept && d.anyExpired(); n++ {
		first, _ := d.due.Min()
		d.delete(first[8:])
	}
	all := 0
	for class, limit := range classLimits {
		d.removeFirst(class, d.limited[class].Len()-limit)
		all += d.limited[class].Len()
	}
	for class := range classLimits {
		all -= d.removeFirst(class, all-maxStrangers)
	}
}

func (d *data) anyExpired() bool {
	first, found := d.due.Min()
	return found && int64(binary.BigEndian.Uint64([]byte(first))) <= d.now
}

// removeFirst removes up to n records of a class, but not more than maxSwept, and returns how many
// it removed.
func (d *data) removeFirst(class, n int) int {
	n = min(n, d.limited[class].Len(), maxSwept)
	for range n {
		first, _ := d.limited[class].Min()
		d.delete(first[8:])
	}
	return max(n, 0)
}
