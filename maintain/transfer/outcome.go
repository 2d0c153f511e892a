package transfer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// record counts what became of a batch, and has that saved.
func (im *importer) record(b *batch) error {
	s := &im.state
	for i := range b.lines {
		l := &b.lines[i]
		s.Lines++
		s.Bytes += l.size
		if l.blank() {
			continue
		}
		s.Report.Read++
		switch l.done {
		case createdLine:
			s.Report.Created++
		case updatedLine:
			s.Report.Updated++
		case skippedLine:
			s.Report.Skipped++
		case refusedLine:
			s.Report.Refused++
			if err := im.refuse(l); err != nil {
				return err
			}
		}
	}
	s.Sum = b.sum
	if im.o.Save == nil {
		return nil
	}
	return im.o.Save(*s)
}

func (im *importer) refuse(l *line) error {
	if im.o.Refused != nil {
		im.o.Refused(l.no, l.err.Error())
	}
	if im.rejects == nil {
		return nil
	}
	if err := im.rejects.write(l); err != nil {
		return fmt.Errorf("writing a refused line: %w", err)
	}
	return nil
}

// A rejection says why a line was refused.
type rejection struct {
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
}

// rejects writes refused lines in the form of the input, so that they can be mended and imported again.
type rejects interface{ write(l *line) error }

// jsonRejects adds a member ~rejected to a line; a line that is no JSON object stands in it as a text.
type jsonRejects struct{ w io.Writer }

const memberRejected = `,"~rejected":`

func (r jsonRejects) write(l *line) error {
	why, err := json.Marshal(rejection{l.no, l.err.Error()})
	if err != nil {
		return err
	}
	text := bytes.TrimSpace([]byte(l.raw))
	if i := bytes.LastIndex(text, []byte(memberRejected)); i > 0 {
		text = append(bytes.Clone(text[:i]), '}')
	}
	var out []byte
	if body, ok := bytes.CutSuffix(text, []byte("}")); ok && json.Valid(text) && len(bytes.TrimSpace(body)) > 1 {
		out = append(append(append(bytes.Clone(body), memberRejected...), why...), "}\n"...)
	} else {
		quotedText, err := json.Marshal(string(text))
		if err != nil {
			return err
		}
		out = append(append(append(append([]byte(`{"~text":`), quotedText...), memberRejected...), why...), "}\n"...)
	}
	_, err = r.w.Write(out)
	return err
}

// csvRejects adds columns to a row: its line, the reason and, of a row that cannot be taken apart, its text.
type csvRejects struct {
	w      *csv.Writer
	header []string
	begun  bool // the header stands there
}

const (
	columnLine   = "~line"
	columnReason = "~reason"
	columnText   = "~text"
)

func (r *csvRejects) write(l *line) error {
	if !r.begun {
		if err := r.w.Write(append(r.strip(r.header), columnLine, columnReason, columnText)); err != nil {
			return err
		}
		r.begun = true
	}
	cells, text := l.cells, ""
	if len(cells) != len(r.header) {
		cells, text = make([]string, len(r.header)), strings.TrimRight(l.raw, "\r\n")
	}
	if i := slices.Index(r.header, columnText); i >= 0 && text == "" {
		text = cells[i]
	}
	if err := r.w.Write(append(r.strip(cells), strconv.FormatInt(l.no, 10), l.err.Error(), text)); err != nil {
		return err
	}
	r.w.Flush()
	return r.w.Error()
}

// strip leaves out what an earlier import has added.
func (r *csvRejects) strip(cells []string) []string {
	var kept []string
	for i, cell := range cells {
		if r.header[i] != columnLine && r.header[i] != columnReason && r.header[i] != columnText {
			kept = append(kept, cell)
		}
	}
	return kept
}
