package transfer_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/transfer"
)

// TestImportReadError checks that an input that cannot be read to its end leads to an error with
// the position. The lines before it are imported and saved, so that Resume can continue when the
// input is readable.
func TestImportReadError(t *testing.T) {
	errBroken := errors.New("the cable is out")
	jsonLine, row := `{"facets":{"uid":"%d","name":"N%d"}}`+"\n", "%d,N%d\n"
	lines := func(form string, n int) (text string) {
		for i := range n {
			text += fmt.Sprintf(form, i, i)
		}
		return text
	}
	for _, tt := range []struct {
		name   string
		csv    bool
		good   string // the readable part
		rest   string // the rest after the input was repaired
		broken bool   // the reader fails after good
		bad    string // replaces rest in the first import
		lines  int64  // number of lines before the error
		line   int64  // line number of the error
		all    int64  // number of entries after the resumed import
	}{
		{"before the first line", false, "", lines(jsonLine, 3), true, "", 0, 1, 0},
		{"after a line", false, lines(jsonLine, 2), `{"facets":{"uid":"x"}}`, true, "", 2, 3, 3},
		{"within a line", false, lines(jsonLine, 2), `{"facets":{"uid":"x"}}`, true, `{"facets":{"u`, 2, 3, 3},
		{"after many lines", false, lines(jsonLine, 100), `{"facets":{"uid":"x"}}`, true, "", 100, 101, 101},
		{"after a byte order mark", false, "\ufeff" + lines(jsonLine, 2), `{"facets":{"uid":"x"}}`, true, "", 2, 3, 3},
		{"within a CSV header", true, "", "uid,name\n" + lines(row, 3), true, "uid,na", 0, 1, 0},
		{"CSV after a row", true, "uid,name\n" + lines(row, 3), "x,X\n", true, "", 3, 5, 4},
		{"CSV after a byte order mark", true, "\ufeffuid,name\n" + lines(row, 3), "x,X\n", true, "", 3, 5, 4},
		{"CSV within a row", true, "uid,name\n" + lines(row, 3), "x,X\n", true, "x", 3, 5, 4},
		{"CSV within a malformed row", true, "uid,name\n" + lines(row, 3), `x,"X ""the"" "` + "\n", true, `x,"X "the" `, 3, 5, 4},
		{"CSV within quotes", true, "uid,job\n" + lines(row, 3), "x,\"X\n X\"\n", true, "x,\"X\n", 3, 5, 4},
		{"unclosed quote", true, "uid,name\n" + lines(row, 3), "x,X\ny,Y\n", false, "x,\"X\ny,Y\n", 3, 5, 5},
		{"unclosed quote with CRLF", true, "uid,name\r\n" + lines(row, 3), "x,X\r\ny,Y\r\n", false, "x,\"X\r\ny,Y\r\n", 3, 5, 5},
		{"unclosed quote in the last line", true, "uid,name\n" + lines(row, 3), "x,X", false, "x,\"X", 3, 5, 4},
		{"endless row", true, "uid,name\n" + lines(row, 3), "x,X\ny,Y\n", false, "x,\"X" + strings.Repeat("0123456,N\n", 1_700_000), 3, 5, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				s = s.Under(t, fullSchema())
				in := io.Reader(strings.NewReader(tt.good + tt.bad))
				if tt.broken {
					in = io.MultiReader(in, iotest.ErrReader(errBroken))
				}
				var state transfer.ImportState
				o := transfer.ImportOptions{
					CSV: tt.csv, WithoutIdentifier: true, Save: func(st transfer.ImportState) error { state = st; return nil },
					Refused: func(line int64, reason string) { t.Errorf("line %d: %s", line, reason) },
				}
				report, err := transfer.Import(s.Ctx, s.DB, in, o)
				var readErr *transfer.ReadError
				if !errors.As(err, &readErr) || readErr.Line != tt.line || readErr.Offset != int64(len(tt.good)) || counts(report) != created(tt.lines) {
					t.Fatalf("got %+v, %v; want a ReadError in line %d, at byte %d, and %d lines created", report, err, tt.line, len(tt.good), tt.lines)
				}
				if errors.Is(err, errBroken) != tt.broken || errors.Is(err, transfer.ErrInput) == tt.broken {
					t.Errorf("the error %v wraps errBroken: want %v", err, tt.broken)
				}
				if tt.lines == 0 {
					return
				}
				if state.Lines != tt.lines || state.Report != report {
					t.Errorf("saved state %+v, want %d lines and the report %+v", state, tt.lines, report)
				}
				o.Resume = state
				s.importText(t, tt.good+tt.rest, o, created(tt.all))
			})
		})
	}
}

// TestImportUnclosedQuote checks the errors for quotes that turn whole rows into a part of a cell.
func TestImportUnclosedQuote(t *testing.T) {
	const in = "uid,job\n1,\"Ann\n2,Ben\n3,\"Cid\"\n4,Dan\n5,\"E\n\"\n6,Fay,\"\n\"\n"
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		var reasons []string
		o := transfer.ImportOptions{CSV: true, WithoutIdentifier: true, Refused: func(line int64, reason string) { reasons = append(reasons, fmt.Sprint(line, " ", reason)) }}
		s.importText(t, in, o, transfer.Report{Read: 4, Created: 2, Refused: 2})
		want := []string{
			`2 a quote that is not doubled, inside a cell in quotes, in a row that continues to line 4: is a quote not closed?`,
			`8 3 cells, but the header has 2, in a row that continues to line 9: is a quote not closed?`,
		}
		testdb.Same(t, "reasons", reasons, want)
	})
}
