package transfer

import (
	"bufio"
	"strings"
	"testing"
)

// TestLargeProductExports checks that everything in an export except an account may have any size.
func TestLargeProductExports(t *testing.T) {
	const one = `{"localId":"1"}`
	much := `["` + strings.Repeat(`0123456789","`, 3<<19) + `"]`
	for _, tt := range []struct {
		name, in string
		lines    []int64 // of the accounts
		refused  bool    // the last account is refused
		err      string
	}{
		{"other members before and after", "{\"a\":" + much + ",\n\"users\":[\n" + one + ",\n" + one + "],\"b\":" + much + "}", []int64{3, 4}, false, ""},
		{"no list", `{"a":` + much + `}`, nil, false, "no list of accounts, but an account of over 8 MiB"},
		{"a large account", "[" + one + `,{"localId":"` + strings.Repeat("1", maxAccount) + `"}]`, []int64{1, 1}, true, ""},
		{"a larger account", "[" + one + `,{"localId":"` + strings.Repeat("1", maxImportLine+maxImportLine/4) + `"}]`, []int64{1}, false, "an account of over 16 MiB"},
	} {
		s := newProductUsers(bufio.NewReader(strings.NewReader(tt.in)), 0, &importer{o: ImportOptions{From: "firebase"}})
		var lines []int64
		var bytes int64
		var l line
		more, err := true, error(nil)
		for {
			l = line{}
			if more, err = s.next(&l); !more {
				break
			}
			lines = append(lines, l.no)
			bytes += l.size
			if refused := l.err != nil; refused != (tt.refused && len(lines) == len(tt.lines)) {
				t.Errorf("%s: account %d: got error %v, want one for the last account only: %v", tt.name, len(lines), l.err, tt.refused)
			}
		}
		if len(lines) != len(tt.lines) || len(lines) > 0 && lines[len(lines)-1] != tt.lines[len(lines)-1] ||
			(err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || bytes > int64(len(tt.in)) {
			t.Errorf("%s: got accounts in lines %v of %d bytes, %v; want lines %v, error %q", tt.name, lines, bytes, err, tt.lines, tt.err)
		}
	}
}
