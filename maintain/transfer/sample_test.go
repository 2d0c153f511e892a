package transfer_test

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/maintain/transfer"
)

// TestReadSample checks the rows and the text of samples.
func TestReadSample(t *testing.T) {
	long := "a;b\n" + strings.Repeat("x;"+strings.Repeat("y", 300_000)+"\n", 5)
	for _, test := range []struct {
		name, input, text string
		n, rows           int
	}{
		{"few", "a,b\n1,2\n3,4\n5,6\n", "a,b\n1,2\n3,4\n", 2, 2},
		{"all", "a,b\n1,2", "a,b\n1,2", 2, 1},
		{"none", "a,b\n", "a,b\n", 2, 0},
		{"a byte order mark and sep=", "\ufeffsep=;\na;b\n1;\"2\n3\"\n\n4;5\n6;7\n", "\ufeffsep=;\na;b\n1;\"2\n3\"\n\n4;5\n", 2, 2},
		{"open quote", "a,b\n1,\"2\n3,4\n", "a,b\n1,\"2\n3,4\n", 2, 0},
		{"cut", "sep=;\n" + long, "sep=;\n" + strings.Join(strings.SplitAfter(long, "\n")[:4], ""), 10, 3},
	} {
		got, err := transfer.ReadSample(strings.NewReader(test.input), transfer.ImportOptions{}, test.n)
		if err != nil || len(got.Rows) != test.rows || string(got.Text) != test.text || len(got.Header) != 2 {
			t.Errorf("%s: got %d rows of the columns %q in %d bytes, %v; want %d rows of 2 columns in %d bytes", test.name, len(got.Rows), got.Header, len(got.Text), err, test.rows, len(test.text))
		}
		for _, row := range got.Rows {
			if len(row.Cells) != 2 {
				t.Errorf("%s: line %d has the cells %q, want 2", test.name, row.Line, row.Cells)
			}
		}
	}
	if _, err := transfer.ReadSample(strings.NewReader("\xff\xfea"), transfer.ImportOptions{}, 1); err == nil {
		t.Error("ReadSample accepts UTF-16")
	}
}
