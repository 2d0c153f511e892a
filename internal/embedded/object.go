package embedded

import "encoding/binary"

// An object is the record at a key. It does not change after the data that hold it were copied: see
// data.edit.
type object struct {
	epoch uint64 // of the data when the object was made
	until int64  // Unix time in milliseconds at which the record expires; 0 means never
	size  int    // approximate number of bytes in a file
	value any    // string, *list, *hash, *set, *zset or *stream
}

type (
	hash = table[string]
	set  = table[struct{}]
	list struct{ items []string }
	// A zset maps members to scores. The store gives all its members the score 0, so that they are
	// in the order of the table; other scores are sorted when they are read.
	zset struct {
		table[float64]
		scored int // members with a score other than 0
	}
	// A stream maps the binary form of an ID to fields and values.
	stream struct {
		table[[]string]
		last streamID
	}
)

type streamID struct{ ms, seq uint64 }

func (id streamID) key() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 16), id.ms)
	return string(binary.BigEndian.AppendUint64(b, id.seq))
}

func (id streamID) less(other streamID) bool {
	return id.ms < other.ms || id.ms == other.ms && id.seq < other.seq
}

func parseStreamKey(key string) streamID {
	return streamID{binary.BigEndian.Uint64([]byte(key)), binary.BigEndian.Uint64([]byte(key[8:]))}
}
