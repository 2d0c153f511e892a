package check

import (
	"fmt"

	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A Problem is one thing that Run found wrong.
type Problem struct {
	Invariant int             // 1 to 5 for I1 to I5; 0: none of them
	Key       string          // the record, relative to the view's namespace; raw: it may not parse, and hold any bytes
	Code      string          // what kind of damage: see the package documentation
	Text      string          // the same for people, in one line of printable text
	Warning   bool            // the store can live with it
	Repaired  bool            // it was mended
	Choices   []recordkey.Key // of value_shared: the PRKs of the entries, sorted; else none
	Field     string          // of entry_not_compact: what is too long; "": the number of fields
}

// String is the problem for people, in one line of printable text.
func (p Problem) String() string {
	severity := "error"
	if p.Warning {
		severity = "problem"
	}
	return fmt.Sprintf("%s %s %s: %s", severity, p.Code, records.Shorten(p.Key, int64(len(p.Key))), p.Text)
}

// A finding is a problem and what it was judged by.
type finding struct {
	Problem
	at   int    // index of what was looked at
	seen string // what else tells it from others; the versions of the entries that it was judged by
}

// findings collect what one look finds.
type findings []finding

// add appends a problem of the record at key. seen is what it was judged by.
func (fs *findings) add(at int, code string, key recordkey.Key, seen, format string, args ...any) *finding {
	return fs.addRaw(at, code, records.Relative(key), seen, format, args...)
}

func (fs *findings) addRaw(at int, code, key, seen, format string, args ...any) *finding {
	fact := facts[code]
	*fs = append(*fs, finding{at: at, seen: seen, Problem: Problem{
		Invariant: fact.invariant, Key: key, Code: code, Text: fmt.Sprintf(format, args...), Warning: fact.warning,
	}})
	return &(*fs)[len(*fs)-1]
}
