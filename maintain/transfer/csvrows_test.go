package transfer

import (
	"bufio"
	"errors"
	"strings"
	"testing"
)

// TestLongestRow checks that a row may be as long as a JSON line, at any place in the input and
// with any line ending.
func TestLongestRow(t *testing.T) {
	for _, before := range []string{"", "1," + strings.Repeat("A", 4000) + "\n"} {
		for _, tt := range []struct{ begin, end, after string }{
			{"x,", "\n", "2,B\n"}, {"x,", "\r\n", ""}, {"x,", "", ""}, {`x,"`, "\"\n", "2,B\n"},
		} {
			for over := range 2 {
				row := tt.begin + strings.Repeat("N", maxImportLine-len(tt.begin)-len(tt.end)+over) + tt.end
				in := strings.NewReader("uid,name\n" + before + row + tt.after)
				s, err := newCSVRows(bufio.NewReaderSize(in, 1<<20), csvOptions{delimiter: ','})
				if err != nil {
					t.Fatal(err)
				}
				longest, last := readAll(s)
				var readErr *ReadError
				accepted := last == nil && longest == maxImportLine
				if refused := errors.As(last, &readErr); accepted != (over == 0) || refused == accepted {
					t.Errorf("a row of %d bytes after one of %d, ended by %q: the longest row read has %d bytes, error %v; want it read: %v",
						len(row), len(before), tt.end, longest, last, over == 0)
				}
			}
		}
	}
}

// readAll reads rows up to the end or the first error, and returns the size of the longest one.
func readAll(s *csvRows) (longest int64, last error) {
	for {
		var l line
		more, err := s.next(&l)
		if err != nil || !more {
			return longest, err
		}
		if longest = max(longest, l.size); l.err != nil {
			return longest, l.err
		}
	}
}
