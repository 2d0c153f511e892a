package transfer_test

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coffeenode/userdb/maintain/transfer"
)

// A lineReader returns lines, at most one in each Read, and counts the lines that it has begun.
type lineReader struct {
	lines []string
	rest  string // of the current line
	begun atomic.Int64
}

func (r *lineReader) Read(p []byte) (n int, err error) {
	if r.rest == "" {
		if int(r.begun.Load()) == len(r.lines) {
			return 0, io.EOF
		}
		r.rest = r.lines[r.begun.Add(1)-1]
	}
	n = copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// TestLongLinesInMemory checks that an import holds few long lines at a time: the one that it
// writes, and the next.
func TestLongLinesInMemory(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		const count = 12
		r := &lineReader{}
		for i := range count {
			r.lines = append(r.lines, fmt.Sprintf(`{"facets":{"uid":"u%d"}%s}`+"\n", i, strings.Repeat(" ", 1_100_000)))
		}
		var saved int64
		o := transfer.ImportOptions{Save: func(transfer.ImportState) error {
			saved++
			if begun := r.begun.Load(); begun > saved+2 {
				t.Errorf("%d lines were read when %d batches were written, want at most %d", begun, saved, saved+2)
			}
			return nil
		}}
		report, err := transfer.Import(s.Ctx, s.DB, r, o)
		if err != nil || counts(report) != created(count) || saved < count {
			t.Errorf("got %+v, %v after %d batches; want %d entries in as many batches", report, err, saved, count)
		}
	})
}
