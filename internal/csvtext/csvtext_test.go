package csvtext

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"
)

// TestSplit checks which cells a row has, and which of them are in quotes.
func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		row  string
		trim bool
		want []Cell
		err  error
	}{
		{row: "a,b\n", want: []Cell{{"a", false}, {"b", false}}},
		{row: "\r\n\na,\"\\N\",\\N\r\n", want: []Cell{{"a", false}, {`\N`, true}, {`\N`, false}}},
		{row: "\"a\r\nb\",\"c\"\"d\"", want: []Cell{{"a\r\nb", true}, {`c"d`, true}}},
		{row: "=\"00123\",=\"a,\"\"b\"\"\",=1\n", want: []Cell{{`="00123"`, false}, {`="a,""b"""`, false}, {"=1", false}}},
		{row: "a, \"b\"\n", trim: true, want: []Cell{{"a", false}, {"b", true}}},
		{row: "a,\n", want: []Cell{{"a", false}, {"", false}}},
		{row: "a \"b\",c\n", err: ErrQuote},
		{row: "=\"a\"b,c\n", err: ErrQuote},
		{row: "\"a\"b,c\n", err: ErrQuote},
		{row: "\"a\"b\n", err: ErrQuote},
		{row: "a,\"b\n", err: ErrOpen},
		{row: "=\"a\",=\"b\n", err: ErrOpen},
		{row: "5\" pipe,\"b\n", err: ErrOpen},
		{row: "\"a\"b,\"c\n", err: ErrOpen},
	} {
		got, err := Split(tt.row, ',', tt.trim)
		if err != tt.err || err == nil && !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %v, %v; want %v, %v", tt.row, got, err, tt.want, tt.err)
		}
	}
	if got, err := Split("a§\"b§c\"", '§', false); err != nil || !slices.Equal(got, []Cell{{"a", false}, {"b§c", true}}) {
		t.Errorf("with another delimiter: got %v, %v; want a and b§c, the second in quotes", got, err)
	}
}

// TestEscape checks that Unescape and UnwrapText undo Escape and WrapText, and that no spreadsheet
// runs what Escape returns.
func TestEscape(t *testing.T) {
	for cell, want := range map[string]string{
		"=1": "'=1", "+2": "'+2", "-3": "'-3", "@4": "'@4", "\t5": "'\t5", "＝7": "'＝7",
		"'=8": "''=8", "'9": "'9", "b=c": "b=c", "": "", "'": "'",
	} {
		got := Escape(cell)
		back, escaped := Unescape(got)
		if got != want || back != cell || escaped != (got != cell) || IsFormula(got) {
			t.Errorf("%q: got %q, and back %q, %v; want %q", cell, got, back, escaped, want)
		}
	}
	for text, want := range map[string]string{
		"x": "x", `="x"`: `="=""x"""`, `="`: `="`, `="x`: `="x`, `="a"b"`: `="a"b"`, `=""`: `="="""""`, "=1": "=1",
		"'68": `="'68"`, "'+49 (170) 1-2": `="'+49 (170) 1-2"`, "'68er": "'68er", "'=1": "'=1",
	} {
		if got := WrapText(text); got != want || IsGuardedNumber(got) || UnwrapText(got) != text {
			t.Errorf("%q: got %q, and back %q; want %q", text, got, UnwrapText(got), want)
		}
	}
}

// FuzzWrite checks that a csv.Reader and Split read what Write has written.
func FuzzWrite(f *testing.F) {
	f.Add("a", "\\N", true)
	f.Add(" a\r\nb", `="x"`, false)
	f.Add("", "\r", false)
	f.Fuzz(func(t *testing.T, first, second string, quote bool) {
		var out strings.Builder
		if err := Write(&out, ';', []string{first, second}, func(string) bool { return quote }); err != nil {
			t.Fatal(err)
		}
		cells, err := Split(out.String(), ';', false)
		if err != nil || len(cells) != 2 || cells[0].Text != first || cells[1].Text != second || quote && !cells[0].Quoted {
			t.Errorf("%q: split into %v, %v; want %q and %q", out.String(), cells, err, first, second)
		}
		r := csv.NewReader(strings.NewReader(out.String()))
		r.Comma = ';'
		row, err := r.Read()
		lf := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
		if err != nil || len(row) != 2 || row[0] != lf(first) || row[1] != lf(second) {
			t.Errorf("%q: read as %q, %v; want %q and %q", out.String(), row, err, lf(first), lf(second))
		}
	})
}
