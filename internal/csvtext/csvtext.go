// Package csvtext reads and writes cells of CSV where package encoding/csv does not suffice. It
// distinguishes quoted cells from others, reads and writes cells that a spreadsheet must treat as
// text, and escapes cells that a spreadsheet would run as formulas.
package csvtext

import (
	"errors"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Cell is one cell of a row.
type Cell struct {
	Text   string
	Quoted bool // it was in quotes
}

// The errors of Split.
var (
	ErrQuote = errors.New("a quote in the wrong place")
	ErrOpen  = errors.New("a cell whose quote is not closed")
)

// Split returns the cells of a row that a csv.Reader has read, with line breaks inside quotes
// unchanged. It also reads a cell of the form ="TEXT", in which programs write a text that a
// spreadsheet must not convert, and returns it unchanged. If trim is set, white space before a cell
// is left out. The error is ErrOpen if the last cell may continue on the next line, else ErrQuote.
func Split(row string, delimiter rune, trim bool) (cells []Cell, err error) {
	for strings.HasPrefix(row, "\n") || strings.HasPrefix(row, "\r\n") { // a csv.Reader skips them
		_, row, _ = strings.Cut(row, "\n")
	}
	row = strings.TrimSuffix(strings.TrimSuffix(row, "\n"), "\r")
	for {
		if trim {
			row = strings.TrimLeftFunc(row, unicode.IsSpace)
		}
		var c Cell
		switch {
		case strings.HasPrefix(row, `"`):
			end := quotedLength(row)
			if end == 0 {
				return nil, ErrOpen
			}
			c, row = Cell{strings.ReplaceAll(row[1:end-1], `""`, `"`), true}, row[end:]
		case strings.HasPrefix(row, `="`):
			end := 1 + quotedLength(row[1:])
			if end == 1 {
				return nil, ErrOpen
			}
			c.Text, row = row[:end], row[end:]
		default:
			end := strings.IndexRune(row, delimiter)
			if end < 0 {
				end = len(row)
			}
			if c.Text, row = row[:end], row[end:]; strings.Contains(c.Text, `"`) {
				err = ErrQuote // a later cell may be open
			}
		}
		cells = append(cells, c)
		if !strings.HasPrefix(row, string(delimiter)) && row != "" {
			err = ErrQuote
			_, row, _ = strings.Cut(row, string(delimiter))
			row = string(delimiter) + row
		}
		if row == "" {
			return cells, err
		}
		row = row[utf8.RuneLen(delimiter):]
	}
}

// quotedLength returns the length of the quoted text at the beginning of s, with its quotes, or 0
// if the quote is not closed.
func quotedLength(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != '"':
		case i+1 < len(s) && s[i+1] == '"':
			i++
		default:
			return i + 1
		}
	}
	return 0
}

// Write writes a row. It puts a cell in quotes if it needs them or quote reports true.
func Write(w io.Writer, delimiter rune, cells []string, quote func(cell string) bool) error {
	var row strings.Builder
	for i, cell := range cells {
		if i > 0 {
			row.WriteRune(delimiter)
		}
		if first, _ := utf8.DecodeRuneInString(cell); quote(cell) || unicode.IsSpace(first) ||
			strings.ContainsRune(cell, delimiter) || strings.ContainsAny(cell, "\"\r\n") {
			cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
		}
		row.WriteString(cell)
	}
	row.WriteByte('\n')
	_, err := io.WriteString(w, row.String())
	return err
}

// UnwrapText returns TEXT if a cell is ="TEXT", and any other cell unchanged.
func UnwrapText(cell string) string {
	if !strings.HasPrefix(cell, `="`) || quotedLength(cell[1:]) != len(cell)-1 {
		return cell
	}
	return strings.ReplaceAll(cell[2:len(cell)-1], `""`, `"`)
}

// WrapText returns a cell that UnwrapText turns into text, and that is not a guarded number.
func WrapText(text string) string {
	if UnwrapText(text) == text && !IsGuardedNumber(text) {
		return text
	}
	return `="` + strings.ReplaceAll(text, `"`, `""`) + `"`
}

var guardedNumber = regexp.MustCompile(`^'[+-]?\d[\d .()/-]*$`)

// IsGuardedNumber reports whether a cell is a number, such as a telephone number, after an
// apostrophe that makes a spreadsheet treat it as text.
func IsGuardedNumber(cell string) bool {
	return strings.HasPrefix(cell, "'") && guardedNumber.MatchString(cell)
}

// IsFormula reports whether a spreadsheet may run a cell as a formula.
func IsFormula(cell string) bool {
	first, size := utf8.DecodeRuneInString(cell)
	return size > 0 && strings.ContainsRune("=+-@\t\r＝＋－＠", first)
}

// Escape returns a cell with an apostrophe before it if a spreadsheet may run it as a formula, or
// if Unescape would otherwise change it.
func Escape(cell string) string {
	if IsFormula(strings.TrimLeft(cell, "'")) {
		return "'" + cell
	}
	return cell
}

// Unescape removes the apostrophe that Escape has added, and reports whether there was one.
func Unescape(cell string) (text string, escaped bool) {
	if strings.HasPrefix(cell, "'") && IsFormula(strings.TrimLeft(cell, "'")) {
		return cell[1:], true
	}
	return cell, false
}
