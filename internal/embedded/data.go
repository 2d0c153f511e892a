package embedded

import (
	"encoding/binary"
	"math"

	"github.com/tidwall/btree"
)

// root holds all records. Copying it is cheap: the copies share their records until one of them
// changes.
type root struct {
	keys     *btree.Map[string, *object]
	due      *btree.Set[string]       // dueKey of all records that expire
	limited  [numClasses]classRecords // records that strangers can cause, limited in number
	arrivals uint64                   // the number of the newest token in limited
	size     int                      // approximate number of bytes in a file
}

func newRoot() root {
	r := root{keys: btree.NewMap[string, *object](treeDegree), due: new(btree.Set[string])}
	for i := range r.limited {
		r.limited[i] = newClassRecords()
	}
	return r
}

func (r root) copy() root {
	r.keys, r.due = r.keys.Copy(), r.due.Copy()
	for i := range r.limited {
		r.limited[i] = r.limited[i].copy()
	}
	return r
}

// dueKey returns key after a number, such as the time at which its record expires. Such texts sort
// by the number.
func dueKey(number int64, key string) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(number))) + key
}

// data holds the records in memory. Every change goes through one of its methods, which also
// appends the change to a journal. It is not safe for concurrent use.
type data struct {
	root
	epoch   uint64 // incremented by every copy
	now     int64  // Unix time in milliseconds, set before every command
	journal journal
	names   map[string]string // field names that records share
	// lastKey and last are the key and the object that edit returned last, unless last is nil.
	lastKey string
	last    *object
	// replaying means that the changes come from a file, and are not added to the journal.
	replaying bool
	unsaved   bool // there is no file: no journal is kept
	// read and changed are called with the key of every record that is read or changed.
	read, changed func(key string)
}

func newData() *data {
	ignore := func(string) {}
	return &data{root: newRoot(), epoch: 1, names: map[string]string{}, read: ignore, changed: ignore}
}

// freeze returns an immutable copy.
func (d *data) freeze() root {
	d.nextEpoch()
	return d.root.copy()
}

// revert replaces all records with those of a copy.
func (d *data) revert(to root) {
	d.nextEpoch()
	d.root, d.journal = to.copy(), journal{}
}

// nextEpoch ensures that every object is copied before it is changed.
func (d *data) nextEpoch() {
	d.epoch++
	d.last = nil
}

// get returns the record at key, or nil if there is none or it has expired.
func (d *data) get(key string) *object {
	d.read(key)
	o, _ := d.keys.Get(key)
	if o == nil || d.expired(o) {
		return nil
	}
	return o
}

func (d *data) expired(o *object) bool { return !d.replaying && o.until != 0 && o.until <= d.now }

// edit returns the record at key, whose value the caller may then change. If there is none, it adds
// one with the value that fresh returns. A record that exists must have a value of the type that
// fresh returns.
func (d *data) edit(key string, fresh func() any) *object {
	if d.last != nil && d.lastKey == key && !d.expired(d.last) {
		return d.last
	}
	o, found := d.keys.Get(key)
	if found && d.expired(o) {
		d.delete(key)
		found = false
	}
	switch {
	case !found:
		o = &object{epoch: d.epoch, size: baseSize(key, 0), value: fresh()}
		d.size += o.size
		d.keys.Set(key, o)
	case o.epoch != d.epoch:
		c := *o
		c.epoch = d.epoch
		switch v := o.value.(type) {
		case *hash:
			c.value = v.copy()
		case *set:
			c.value = v.copy()
		case *zset:
			c.value = &zset{*v.copy(), v.scored}
		case *stream:
			c.value = &stream{*v.copy(), v.last}
		case *list:
			c.value = &list{v.items[:len(v.items):len(v.items)]}
		}
		o = &c
		d.keys.Set(key, o)
	}
	d.lastKey, d.last = key, o
	return o
}

// baseSize returns the approximate number of bytes that a file needs for a record in addition to
// its value. An estimate below half the true size would cause the file to be rewritten at each
// start.
func baseSize(key string, until int64) int {
	n := 12 + len(key)
	if until != 0 {
		n *= 2
	}
	return n
}

func (d *data) grow(o *object, n int) {
	o.size += n
	d.size += n
}

// delete removes the record at key, even if it has expired.
func (d *data) delete(key string) {
	if d.drop(key) {
		d.log(opDelete, key)
	}
}

// drop does what delete does, but does not write to the journal.
func (d *data) drop(key string) bool {
	o, found := d.keys.Delete(key)
	d.last = nil
	if found {
		d.size -= o.size
		d.schedule(key, o.until, 0)
		if o.isEntry() {
			d.scheduleRecords(key)
		}
	}
	return found
}

// setString replaces the record at key. The new one does not expire.
func (d *data) setString(key, value string) {
	d.drop(key)
	o := &object{epoch: d.epoch, size: baseSize(key, 0) + len(value), value: value}
	d.size += o.size
	d.keys.Set(key, o)
	d.log(opString, key, value)
}

func newHash() any { return new(hash) }

// setField sets a field of the hash at key and reports whether it is new.
func (d *data) setField(key, field, value string) bool {
	o := d.edit(key, newHash)
	h := o.value.(*hash)
	old, found := h.get(field)
	if !found {
		d.grow(o, len(field)+4)
		field = d.shareName(field)
	}
	d.grow(o, len(value)-len(old))
	h.set(field, value)
	if field == typeField && (old == "") != (value == "") {
		d.scheduleRecords(key)
	}
	if field == windowField && classOf(key) == guessCounter {
		d.countGuesses(key, o.until)
	}
	d.log(opField, key, field, value)
	return !found
}

// maxNames limits the number of shared field names.
const maxNames = 4096

func (d *data) shareName(name string) string {
	if shared, found := d.names[name]; found {
		return shared
	}
	if len(d.names) < maxNames {
		d.names[name] = name
	}
	return name
}

func (d *data) deleteField(key, field string) {
	o := d.edit(key, newHash)
	h := o.value.(*hash)
	old, _ := h.get(field)
	d.grow(o, -len(field)-len(old)-4)
	h.delete(field)
	if field == typeField {
		d.scheduleRecords(key)
	}
	if field == windowField && classOf(key) == guessCounter {
		d.countGuesses(key, o.until)
	}
	d.log(opUnfield, key, field)
	d.dropEmpty(key, h.len())
}

// dropEmpty removes the record at key if it has no elements left.
func (d *data) dropEmpty(key string, elements int) {
	if elements == 0 {
		d.drop(key)
	}
}

func newSet() any { return new(set) }

func (d *data) addMember(key, member string) {
	o := d.edit(key, newSet)
	o.value.(*set).set(member, struct{}{})
	d.grow(o, len(member)+2)
	d.log(opMember, key, member)
}

func (d *data) deleteMember(key, member string) {
	o := d.edit(key, newSet)
	s := o.value.(*set)
	s.delete(member)
	d.grow(o, -len(member)-2)
	d.log(opUnmember, key, member)
	d.dropEmpty(key, s.len())
}

func newZSet() any { return new(zset) }

// setScore adds a member of the zset at key or changes its score, and reports whether it is new.
func (d *data) setScore(key, member string, score float64) bool {
	o := d.edit(key, newZSet)
	z := o.value.(*zset)
	old, found := z.get(member)
	if found && old != 0 {
		z.scored--
	}
	if score != 0 {
		z.scored++
	}
	if !found {
		d.grow(o, len(member)+10)
	}
	z.set(member, score)
	d.log(opScore, key, member, string(binary.BigEndian.AppendUint64(nil, math.Float64bits(score))))
	return !found
}

func (d *data) deleteScore(key, member string) {
	o := d.edit(key, newZSet)
	z := o.value.(*zset)
	if score, _ := z.get(member); score != 0 {
		z.scored--
	}
	z.delete(member)
	d.grow(o, -len(member)-10)
	d.log(opUnscore, key, member)
	d.dropEmpty(key, z.len())
}

func newList() any { return new(list) }

// push appends to the list at key.
func (d *data) push(key string, items ...string) {
	o := d.edit(key, newList)
	l := o.value.(*list)
	l.items = append(l.items, items...)
	for _, item := range items {
		d.grow(o, len(item)+2)
	}
	d.log(opPush, append([]string{key}, items...)...)
}

// setItems replaces all items of the list at key.
func (d *data) setItems(key string, items []string) {
	o := d.edit(key, newList)
	l := o.value.(*list)
	for _, item := range l.items {
		d.grow(o, -len(item)-2)
	}
	for _, item := range items {
		d.grow(o, len(item)+2)
	}
	l.items = items
	d.log(opItems, append([]string{key}, items...)...)
	d.dropEmpty(key, len(items))
}

func newStream() any { return new(stream) }

// addEntry appends an entry to the stream at key. Without fields it only sets the last ID.
func (d *data) addEntry(key string, id streamID, fields ...string) {
	o := d.edit(key, newStream)
	s := o.value.(*stream)
	s.last = id
	if len(fields) > 0 {
		s.set(id.key(), fields)
		d.grow(o, entrySize(fields))
	}
	d.log(opEntry, append([]string{key, id.key()}, fields...)...)
}

func entrySize(fields []string) int {
	n := 60 // with the key
	for _, f := range fields {
		n += len(f) + 2
	}
	return n
}

func (d *data) deleteEntry(key string, id streamID) {
	o := d.edit(key, newStream)
	s := o.value.(*stream)
	fields, _ := s.get(id.key())
	s.delete(id.key())
	d.grow(o, -entrySize(fields))
	d.log(opUnentry, key, id.key())
}

// trim removes the first n entries of the stream at key.
func (d *data) trim(key string, n int) {
	o := d.edit(key, newStream)
	s := o.value.(*stream)
	var ids []string
	s.ascend("", func(id string, fields []string) bool {
		if len(ids) == n {
			return false
		}
		ids = append(ids, id)
		d.grow(o, -entrySize(fields))
		return true
	})
	for _, id := range ids {
		s.delete(id)
	}
	if len(ids) > 0 {
		d.log(opTrim, key, string(binary.AppendUvarint(nil, uint64(len(ids)))))
	}
}

// setUntil sets the time at which the record at key expires; 0 means never.
func (d *data) setUntil(key string, until int64) {
	o := d.edit(key, nil)
	d.schedule(key, o.until, until)
	d.grow(o, baseSize(key, until)-baseSize(key, o.until))
	o.until = until
	d.log(opUntil, key, string(binary.BigEndian.AppendUint64(nil, uint64(until))))
}

// rename moves the record at from, which must exist, to the key to, and replaces a record there.
func (d *data) rename(from, to string) {
	o := d.edit(from, nil)
	d.drop(from)
	o.size += baseSize(to, o.until) - baseSize(from, o.until)
	d.put(to, o)
	d.log(opRename, from, to)
}

// put places o, which must not be in d, at key.
func (d *data) put(key string, o *object) {
	d.drop(key)
	d.keys.Set(key, o)
	d.size += o.size
	d.schedule(key, 0, o.until)
	if o.isEntry() {
		d.scheduleRecords(key)
	}
}

// copyTo copies the record at from, which must exist, to the key to, and replaces a record there.
func (d *data) copyTo(from, to string) {
	o, _ := d.keys.Get(from)
	c := *o
	d.nextEpoch() // so that neither record changes the value that they share
	c.size += baseSize(to, c.until) - baseSize(from, c.until)
	d.put(to, &c)
	d.log(opCopy, from, to)
}

func (d *data) allKeys() []string {
	keys := make([]string, 0, d.keys.Len())
	d.keys.Scan(func(key string, _ *object) bool {
		keys = append(keys, key)
		return true
	})
	return keys
}

// log appends a change to the journal. The first of args is the key.
func (d *data) log(op byte, args ...string) {
	d.changed(args[0])
	if op == opRename || op == opCopy {
		d.changed(args[1])
	}
	if !d.replaying && !d.unsaved {
		d.journal.add(op, args...)
	}
}
