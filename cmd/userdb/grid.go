package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/coffeenode/userdb/schema"
)

// A grid prints rows in columns on a terminal, under a head and no wider than the terminal. The
// first sampleSize rows determine the widths, so that long listings begin at once. If the columns
// do not fit even when they are cut, a grid prints each cell on a line of its own.
type grid struct {
	out    io.Writer
	width  int // of the terminal
	head   []string
	whole  []string   // columns that are never cut, by their heads
	rows   [][]string // not yet printed, because the widths are not known
	widths []int      // of the columns; nil until the first row is printed
	tall   bool       // each cell has a line of its own
}

// newGrid returns a grid if the output is a terminal and is not JSON, and nil otherwise. Columns in
// whole are never cut.
func (s *session) newGrid(whole []string, head ...string) *grid {
	if s.std.width == 0 || s.JSON {
		return nil
	}
	return &grid{out: s.out, width: s.std.width, head: head, whole: whole}
}

// add prints a row or, until the widths are known, keeps it for later.
func (g *grid) add(cells ...string) error {
	if g.widths != nil {
		return g.print(cells)
	}
	if g.rows = append(g.rows, cells); len(g.rows) < sampleSize {
		return nil
	}
	return g.begin()
}

// end prints the rows that add kept, without the columns that are empty in all of them.
func (g *grid) end() error {
	if g == nil || g.widths != nil || len(g.rows) == 0 {
		return nil
	}
	for i := len(g.head) - 1; i >= 0; i-- {
		if slices.ContainsFunc(g.rows, func(row []string) bool { return row[i] != "" }) {
			continue
		}
		g.head = slices.Delete(slices.Clone(g.head), i, i+1)
		for n := range g.rows {
			g.rows[n] = slices.Delete(g.rows[n], i, i+1)
		}
	}
	return g.begin()
}

// begin prints the head and the rows that add kept.
func (g *grid) begin() error {
	g.widths = make([]int, len(g.head))
	for _, row := range append([][]string{g.head}, g.rows...) {
		for i, cell := range row {
			g.widths[i] = max(g.widths[i], uniseg.StringWidth(cell))
		}
	}
	least := make([]int, len(g.widths))
	for i, name := range g.head {
		if !slices.Contains(g.whole, name) {
			least[i] = minWidth
		}
	}
	var err error
	if g.tall = !narrow(g.widths, g.width, least); !g.tall {
		err = g.print(g.head)
	}
	for _, row := range g.rows {
		err = cmp.Or(err, g.print(row))
	}
	g.rows = nil
	return err
}

func (g *grid) print(cells []string) error {
	if !g.tall {
		return printRow(g.out, cells, g.widths, g.width)
	}
	longest := 0
	for _, name := range g.head {
		longest = max(longest, len(name))
	}
	var b strings.Builder
	for i, cell := range cells {
		switch {
		case i == 0:
			b.WriteString(cell + "\n")
		case cell != "":
			fmt.Fprintf(&b, "%s%-*s%s%s\n", gap, longest, g.head[i], gap, cell)
		}
	}
	_, err := io.WriteString(g.out, b.String())
	return err
}

// rows prints what a command lists: as a grid on a terminal, elsewhere as lines of text or JSON.
type rows struct {
	s    *session
	grid *grid
	n    int // printed so far
}

func (s *session) newRows(whole []string, head ...string) *rows {
	return &rows{s: s, grid: s.newGrid(whole, head...)}
}

// add prints one row: v as JSON, text for people, or cells in the grid.
func (r *rows) add(v any, text string, cells ...string) error {
	if r.n++; r.grid != nil {
		return r.grid.add(cells...)
	}
	return r.s.out.print(v, text)
}

// end prints the rest of the grid or, if add was never called, the note none.
func (r *rows) end(none string) error {
	if r.n == 0 {
		r.s.noteSilence(none)
	}
	return r.grid.end()
}

// narrow reduces the widest of widths until a row fits in width columns of a terminal. It reduces
// none below its minimum in least, and leaves those whose minimum is 0 as they are. It reports
// whether the row fits.
func narrow(widths []int, width int, least []int) bool {
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := -1
		for i, w := range widths {
			if least[i] > 0 && w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// printRow prints cells in columns, and cuts the line to width.
func printRow(out io.Writer, cells []string, widths []int, width int) error {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString(gap)
		}
		cell = truncate(cell, widths[i])
		b.WriteString(cell + strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell)))
	}
	line := truncate(strings.TrimRight(b.String(), " "), width)
	if cut := ellipsis + ellipsis; strings.HasSuffix(line, cut) { // of the cell and of the line
		line = strings.TrimSuffix(line, ellipsis)
	}
	_, err := io.WriteString(out, line+"\n")
	return err
}

// shortTime formats a time for a column, in UTC and to the minute.
func shortTime(t time.Time) string {
	if t = t.UTC(); t.Equal(t.Truncate(24 * time.Hour)) {
		return t.Format(time.DateOnly)
	}
	return t.Format("2006-01-02 15:04Z")
}

// shortCell formats a value for a column.
func shortCell(v schema.Value) string {
	if t, ok := v.Time(); ok {
		return shortTime(t)
	}
	return printable(v.Wire())
}
