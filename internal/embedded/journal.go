package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Types of changes in a journal. Each change has a key and further arguments.
const (
	opDelete   = 'd' // key
	opString   = 's' // key, value
	opField    = 'h' // key, then field, value, …
	opUnfield  = 'H' // key, field, …
	opMember   = 'm' // key, member, …
	opUnmember = 'M' // key, member, …
	opScore    = 'z' // key, then member, score, …; a score is a float64 in 8 bytes
	opUnscore  = 'Z' // key, member, …
	opPush     = 'l' // key, item, …
	opItems    = 'L' // key, all items
	opEntry    = 'x' // key, ID in 16 bytes, then field, value, …, or nothing
	opUnentry  = 'Y' // key, ID in 16 bytes
	opTrim     = 'X' // key, number of entries as uvarint
	opUntil    = 'e' // key, Unix time in milliseconds in 8 bytes
	opRename   = 'r' // from, to
	opCopy     = 'c' // from, to
)

// A journal holds changes. Each begins with its op (1 byte) and the number of its arguments (4
// bytes, little-endian). The arguments follow, each after its length as a uvarint. Numbers of 8
// bytes in arguments are big-endian.
type journal struct {
	buf  []byte
	last struct { // the change that the next one may extend
		op    byte
		key   string
		count int // index of the number of arguments
	}
}

func (j *journal) add(op byte, args ...string) {
	if len(j.buf) > 0 && op == j.last.op && args[0] == j.last.key && extendable(op) {
		args = args[1:]
	} else {
		j.buf = append(j.buf, op, 0, 0, 0, 0)
		j.last.op, j.last.key, j.last.count = op, args[0], len(j.buf)-4
	}
	count := j.buf[j.last.count:]
	binary.LittleEndian.PutUint32(count, binary.LittleEndian.Uint32(count)+uint32(len(args)))
	for _, arg := range args {
		j.buf = binary.AppendUvarint(j.buf, uint64(len(arg)))
		j.buf = append(j.buf, arg...)
	}
}

// extendable reports whether a change can take the arguments of further changes.
func extendable(op byte) bool {
	switch op {
	case opField, opUnfield, opMember, opUnmember, opScore, opUnscore, opPush:
		return true
	}
	return false
}

// take returns the changes and empties the journal.
func (j *journal) take() []byte {
	buf := j.buf
	*j = journal{}
	return buf
}

var errChange = errors.New("a change that cannot be made")

// apply makes the changes of a journal.
func (d *data) apply(changes []byte) error { return d.applyEach(changes, errChange) }

// applyEach makes changes. If one of them does not fit the records, it returns refused, or
// continues with the next one if refused is nil.
func (d *data) applyEach(changes []byte, refused error) error {
	d.replaying = true
	defer func() { d.replaying = false }()
	for len(changes) > 0 {
		if len(changes) < 5 {
			return errChange
		}
		op, n := changes[0], binary.LittleEndian.Uint32(changes[1:])
		changes = changes[5:]
		if uint64(n) > uint64(len(changes)) {
			return errChange
		}
		args := make([]string, 0, min(n, 1024)) // n may be wrong
		for range n {
			length, w := binary.Uvarint(changes)
			if w <= 0 || length > uint64(len(changes)-w) {
				return errChange
			}
			args = append(args, string(changes[w:w+int(length)]))
			changes = changes[w+int(length):]
		}
		if (n == 0 || !d.applyOne(op, args[0], args[1:])) && refused != nil {
			return fmt.Errorf("%w: %q", refused, op)
		}
	}
	return nil
}

// applyOne makes a change, and reports whether it fits the records.
func (d *data) applyOne(op byte, key string, args []string) bool {
	o, _ := d.keys.Get(key)
	switch n := len(args); op {
	case opDelete:
		d.delete(key)
		return n == 0
	case opString:
		if n == 1 {
			d.setString(key, args[0])
		}
		return n == 1
	case opField:
		return hasType[*hash](o, true) && eachOf(args, 2, func(a []string) { d.setField(key, a[0], a[1]) })
	case opUnfield:
		return hasType[*hash](o, false) && eachOf(args, 1, func(a []string) { d.deleteField(key, a[0]) })
	case opMember:
		return hasType[*set](o, true) && eachOf(args, 1, func(a []string) { d.addMember(key, a[0]) })
	case opUnmember:
		return hasType[*set](o, false) && eachOf(args, 1, func(a []string) { d.deleteMember(key, a[0]) })
	case opScore:
		return hasType[*zset](o, true) && eachOf(args, 2, func(a []string) {
			d.setScore(key, a[0], math.Float64frombits(number(a[1])))
		})
	case opUnscore:
		return hasType[*zset](o, false) && eachOf(args, 1, func(a []string) { d.deleteScore(key, a[0]) })
	case opPush:
		if !hasType[*list](o, true) || n == 0 {
			return false
		}
		d.push(key, args...)
		return true
	case opItems:
		if !hasType[*list](o, true) {
			return false
		}
		d.setItems(key, args)
		return true
	case opEntry:
		if !hasType[*stream](o, true) || n%2 == 0 || len(args[0]) != 16 {
			return false
		}
		d.addEntry(key, parseStreamKey(args[0]), args[1:]...)
		return true
	}
	return o != nil && len(args) == 1 && d.applyToExisting(op, key, args[0])
}

// applyToExisting makes a change that has one further argument and needs an existing record.
func (d *data) applyToExisting(op byte, key, arg string) bool {
	o, _ := d.keys.Get(key)
	switch op {
	case opTrim:
		n, w := binary.Uvarint([]byte(arg))
		if w != len(arg) || !hasType[*stream](o, false) {
			return false
		}
		d.trim(key, int(n))
	case opUnentry:
		if len(arg) != 16 || !hasType[*stream](o, false) {
			return false
		}
		d.deleteEntry(key, parseStreamKey(arg))
	case opUntil:
		d.setUntil(key, int64(number(arg)))
	case opRename:
		d.rename(key, arg)
	case opCopy:
		d.copyTo(key, arg)
	default:
		return false
	}
	return true
}

// hasType reports whether o has a value of type T, or is nil and may be created.
func hasType[T any](o *object, create bool) bool {
	if o == nil {
		return create
	}
	_, ok := o.value.(T)
	return ok
}

// eachOf calls do with every n of args. If their number is not a multiple of n, it reports false
// and does not call do.
func eachOf(args []string, n int, do func([]string)) bool {
	if len(args)%n != 0 {
		return false
	}
	for some := range slices.Chunk(args, n) {
		do(some)
	}
	return true
}

func number(text string) uint64 {
	if len(text) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(text))
}

// maxChunk is the size in bytes at which root.records writes a piece.
const maxChunk = 64 << 10

// records calls write with the changes that create all records, in pieces of about maxChunk bytes.
func (r root) records(write func(changes []byte) error) (err error) {
	var j journal
	add := func(op byte, args ...string) bool {
		if len(j.buf) >= maxChunk {
			err = write(j.take())
		}
		if err == nil {
			j.add(op, args...)
		}
		return err == nil
	}
	r.keys.Scan(func(key string, o *object) bool {
		switch v := o.value.(type) {
		case string:
			add(opString, key, v)
		case *hash:
			v.ascend("", func(field, value string) bool { return add(opField, key, field, value) })
		case *set:
			v.ascend("", func(member string, _ struct{}) bool { return add(opMember, key, member) })
		case *zset:
			v.ascend("", func(member string, score float64) bool {
				return add(opScore, key, member, string(binary.BigEndian.AppendUint64(nil, math.Float64bits(score))))
			})
		case *list:
			for _, item := range v.items {
				add(opPush, key, item)
			}
		case *stream:
			v.ascend("", func(id string, fields []string) bool {
				return add(opEntry, append([]string{key, id}, fields...)...)
			})
			add(opEntry, key, v.last.key())
		}
		if o.until != 0 {
			add(opUntil, key, string(binary.BigEndian.AppendUint64(nil, uint64(o.until))))
		}
		return err == nil
	})
	if err == nil && len(j.buf) > 0 {
		err = write(j.take())
	}
	return err
}
