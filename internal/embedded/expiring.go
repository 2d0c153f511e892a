package embedded

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/btree"

	"github.com/coffeenode/userdb/recordkey"
)

// The classes of expiring records that strangers can cause, for example by guessing passwords, in
// the order in which they are evicted.
//
// Tokens have three classes, so that none of them can evict the others: an application that sends
// thousands of invitations evicts neither sign-ups nor requests with an idempotency key.
//
// Failed logins at accounts and at unknown identifiers share one class and one order. Otherwise
// strangers who cause too many of them would see which identifiers exist: those at which they must
// still wait.
const (
	orphanHistory = iota // histories of entries that do not exist
	longToken            // tokens with a lifetime of over a day, of entries that do not exist
	shortToken           // other tokens of entries that do not exist
	requestToken         // requests of CreateOnce
	guessCounter         // failures of strangers at an account or an unknown identifier
	visitorLimit         // counters of origins and of visitors' requests
	useCounter           // counters of uses that the application limits
	numClasses
)

// classLimits holds the maximum number of records of each class, and maxStrangers that of all
// classes together. They leave memory for entries and their records. maxStrangers is the sum of all
// limits but that of histories, so only histories are evicted to make room for other classes.
var (
	classLimits  = [numClasses]int{20_000, 4_000, 4_000, 4_000, 20_000, 6_000, 6_000}
	maxStrangers = 44_000
)

// longLife is the maximum lifetime of a shortToken, and the lifetime of a reservation of
// CreateOnce.
const longLife = 24 * time.Hour

// classOf returns the class of the record at key, or -1. Histories and tokens belong to a class
// only while their entry does not exist, and the counters of an account only while they hold
// failures of strangers. A token reported as a shortToken may be a longToken, depending on its
// lifetime.
func classOf(key string) int {
	kind, rest, _ := strings.Cut(ownPart(key), "/")
	switch kind {
	case "throttle":
		_, rest, _ = strings.Cut(rest, "/") // the type
		switch who, _, _ := strings.Cut(rest, "/"); who {
		case "uid", "nobody":
			return guessCounter
		case "origin":
			return visitorLimit
		}
	case "visits":
		_, rest, _ = strings.Cut(rest, "/") // the type
		if strings.HasPrefix(rest, "use/") {
			return useCounter
		}
		return visitorLimit
	case "history":
		return orphanHistory
	case "token":
		if strings.HasPrefix(rest, requestPrefix) {
			return requestToken
		}
		return shortToken
	}
	return -1
}

// requestPrefix follows "token/" in the key of a requestToken. After it come the end of the
// namespace, escaped, a colon and the name of the request.
const requestPrefix = "{~~userdb/once/name"

// requestOf returns the key of the requestToken of a request of CreateOnce. reservation is the key
// of the record that reserves a UID for the request.
func requestOf(reservation, name string) string {
	ns := namespaceOf(reservation)
	ns = recordkey.Escape(ns[max(0, len(ns)-1000):])
	return "~~userdb/~/token/" + requestPrefix + ns + ":" + recordkey.Escape(name) + "}"
}

// ownPart returns the part after "~/" of the key of an internal record, in any namespace, or "" for
// other keys.
func ownPart(key string) string {
	for {
		if own, ok := strings.CutPrefix(key, "~/"); ok {
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

// namespaceOf returns the namespace of the internal record at key, with a slash, or "". The
// namespace of a requestToken is escaped.
func namespaceOf(key string) string {
	own := ownPart(key)
	if request, ok := strings.CutPrefix(own, "token/"+requestPrefix); ok {
		ns, _, _ := strings.Cut(request, ":")
		return ns
	}
	return strings.TrimSuffix(key, "~/"+own)
}

// ownerOf returns the key of the entry whose tokens or history are at key. It is the part of key in
// braces.
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
	h, ok := o.value.(*hash)
	if !ok {
		return false
	}
	typ, _ := h.get(typeField)
	return typ != ""
}

// schedule updates due and limited after the time at which the record at key expires has changed. 0
// means never.
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
	switch {
	case class == guessCounter:
		d.countGuesses(key, to)
	case to != 0 && (class == visitorLimit || !d.isEntry(ownerOf(key))):
		d.count(class, key, to)
	case from != 0:
		d.uncount(class, key)
	}
}

// Fields of login counters that count the failures of strangers, as in package throttle.
// windowField holds the end of their window.
const windowField = "su"

var guessFields = []string{"sn", windowField, "sa"}

// countGuesses adds the record at key, which expires at until, to the class guessCounter if it
// holds failures of strangers, or else removes it from that class. Records whose windows began
// first are evicted first.
func (d *data) countGuesses(key string, until int64) {
	d.uncount(guessCounter, key)
	o, found := d.keys.Get(key)
	if !found || until == 0 {
		return
	}
	ends := ""
	if h, ok := o.value.(*hash); ok {
		ends, _ = h.get(windowField)
	}
	if ends != "" || isUnknown(key) {
		number, _ := strconv.ParseUint(ends, 10, 63)
		d.limited[guessCounter].add(key, number)
	}
}

// isUnknown reports whether the counters at key are those of an identifier that no entry has.
func isUnknown(key string) bool {
	parts := strings.SplitN(ownPart(key), "/", 4)
	return len(parts) == 4 && parts[2] == "nobody"
}

// scheduleRecords removes the history and the tokens of the entry at key from their classes after
// the entry was created, or adds them after it was deleted.
func (d *data) scheduleRecords(key string) {
	exists := d.isEntry(key)
	for _, record := range recordsOf(key) {
		o, found := d.keys.Get(record)
		if !found || o.until == 0 {
			continue
		}
		if class := classOf(record); exists {
			d.uncount(class, record)
		} else {
			d.count(class, record, o.until)
		}
	}
}

// count adds the record at key, which expires at until, to a class. The oldest tokens are evicted
// first, so that a new one stays for a while, however short its lifetime. Other records are evicted
// in the order in which they expire: counters with higher counts live longer.
func (d *data) count(class int, key string, until int64) {
	d.uncount(class, key)
	if class == shortToken && until-d.now > longLife.Milliseconds() {
		class = longToken
	}
	number := uint64(until)
	if class == longToken || class == shortToken || class == requestToken {
		d.arrivals++
		number = d.arrivals
	}
	d.limited[class].add(key, number)
}

// uncount removes the record at key from a class.
func (d *data) uncount(class int, key string) {
	d.limited[class].remove(key)
	if class == shortToken {
		d.limited[longToken].remove(key)
	}
}

// A classRecords holds the records of a class. Copying it is cheap. If there are too many records,
// the namespace with the most of them loses the one with the lowest number.
type classRecords struct {
	numbers    *btree.Map[string, uint64] // by key
	inOrder    *btree.Set[string]         // namespace, NUL, number and key of each record
	namespaces *btree.Map[string, int]    // the number of records in each namespace
	bySize     *btree.Set[string]         // number of records and namespace
}

func newClassRecords() classRecords {
	return classRecords{
		numbers:    new(btree.Map[string, uint64]),
		inOrder:    new(btree.Set[string]),
		namespaces: new(btree.Map[string, int]),
		bySize:     new(btree.Set[string]),
	}
}

func (c classRecords) copy() classRecords {
	return classRecords{c.numbers.Copy(), c.inOrder.Copy(), c.namespaces.Copy(), c.bySize.Copy()}
}

func (c classRecords) len() int { return c.numbers.Len() }

func (c classRecords) add(key string, number uint64) {
	c.numbers.Set(key, number)
	c.inOrder.Insert(namespaceOf(key) + "\x00" + dueKey(int64(number), key))
	c.resize(namespaceOf(key), 1)
}

func (c classRecords) remove(key string) {
	if number, found := c.numbers.Delete(key); found {
		c.inOrder.Delete(namespaceOf(key) + "\x00" + dueKey(int64(number), key))
		c.resize(namespaceOf(key), -1)
	}
}

// resize changes the number of records in a namespace.
func (c classRecords) resize(namespace string, by int) {
	old, _ := c.namespaces.Get(namespace)
	c.bySize.Delete(dueKey(int64(old), namespace))
	if old+by == 0 {
		c.namespaces.Delete(namespace)
		return
	}
	c.namespaces.Set(namespace, old+by)
	c.bySize.Insert(dueKey(int64(old+by), namespace))
}

// first returns the key of the next record to evict, or "" if there is none.
func (c classRecords) first() (key string) {
	largest, found := c.bySize.Max()
	if !found {
		return ""
	}
	from := largest[8:] + "\x00"
	c.inOrder.Ascend(from, func(element string) bool {
		key = element[len(from)+8:]
		return false
	})
	return key
}

// maxSwept limits the records that one command removes for each reason.
const maxSwept = 100

// sweep removes some of the expired and excess records.
func (d *data) sweep() {
	for n := 0; n < maxSwept && d.anyExpired(); n++ {
		first, _ := d.due.Min()
		d.delete(first[8:])
	}
	all := 0
	for class, limit := range classLimits {
		d.removeFirst(class, d.limited[class].len()-limit)
		all += d.limited[class].len()
	}
	for class := range classLimits {
		all -= d.removeFirst(class, all-maxStrangers)
	}
}

func (d *data) anyExpired() bool {
	first, found := d.due.Min()
	return found && int64(binary.BigEndian.Uint64([]byte(first))) <= d.now
}

// removeFirst removes up to n records of a class, but not more than maxSwept, and returns their
// number.
func (d *data) removeFirst(class, n int) int {
	n = min(n, d.limited[class].len(), maxSwept)
	for range n {
		key := d.limited[class].first()
		switch {
		case class == guessCounter && !isUnknown(key):
			d.forgetGuesses(key)
		case class == longToken || class == shortToken:
			d.forgetRequests(key)
			d.delete(key)
		default:
			d.delete(key)
		}
	}
	return max(n, 0)
}

// forgetRequests removes the requests of CreateOnce that rely on a reservation at key. Without its
// reservation, a request would look as if its entry had been created and deleted.
func (d *data) forgetRequests(key string) {
	o, found := d.keys.Get(key)
	if !found {
		return
	}
	if h, ok := o.value.(*hash); ok {
		for _, name := range h.keys() {
			d.delete(requestOf(key, name))
		}
	}
}

// forgetGuesses removes the failures of strangers from the counters of an account. Origins that
// logged in before stay; otherwise strangers could lock out the owner.
func (d *data) forgetGuesses(key string) {
	for _, field := range guessFields {
		o, found := d.keys.Get(key)
		if !found {
			return // it held nothing else
		}
		if _, found := o.value.(*hash).get(field); found {
			d.deleteField(key, field)
		}
	}
}
