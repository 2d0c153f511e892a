package transfer

import (
	"bufio"
	"bytes"
	"io"
)

// maxSample is the maximum number of bytes that a sample takes from an input.
const maxSample = 1 << 20

// A Sample holds the beginning of an input of CSV.
type Sample struct {
	Header []string
	Rows   []SampleRow
	IsCut  bool // maxSample may have cut the row after these, which is left out
	// Text is the header and the rows as an input of its own. If the input cannot be read after the
	// rows, it is all of the input, so that an import of it reports why.
	Text []byte
}

// A SampleRow is a row of a Sample. Line is the number by which an import reports it.
type SampleRow struct {
	Line  int64
	Cells []string // nil if the row cannot be split into cells, one for each column
}

// ReadSample returns the first rows of an input of CSV, at most n and fewer if they are long. It
// does not look at what the columns mean: of the options, it uses Delimiter and Null.
func ReadSample(r io.Reader, o ImportOptions, n int) (Sample, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSample))
	if err != nil {
		return Sample{}, &ReadError{Line: 1, Err: err}
	}
	o.CSV = true
	isCut := len(text) == maxSample
	in := bufio.NewReaderSize(bytes.NewReader(text), maxSample)
	offset, err := skipMark(in)
	if err == nil {
		_, err = detectForm(in, o)
	}
	if err != nil {
		return Sample{}, err
	}
	rows, err := openCSV(in, o, offset, false)
	if err != nil {
		return Sample{}, err
	}
	sample := Sample{Header: rows.header, Text: text[:rows.offset+rows.size]}
	for len(sample.Rows) < n {
		var l line
		more, err := rows.next(&l)
		end := rows.offset + rows.size
		switch {
		case isCut && (err != nil || end == int64(len(text))): // the row may go on
			sample.IsCut = true
			return sample, nil
		case err != nil:
			sample.Text = text
			return sample, nil
		case !more:
			return sample, nil
		}
		sample.Text = text[:end]
		if l.err != nil { // it was not split as intended
			l.cells = nil
		}
		if !l.isBlank() {
			sample.Rows = append(sample.Rows, SampleRow{l.no, l.cells})
		}
	}
	return sample, nil
}
