package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
)

const (
	formatName    = "embedded"
	formatVersion = 1
)

// sumLength is that of the end of a line: ,"crc":"01234567"}
const sumLength = 18

type header struct {
	Userdb  string `json:"userdb"`
	Version int    `json:"version"`
}

type trailer struct {
	Records int `json:"records"`
}

// A sum is the running checksum of a file.
type sum uint32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// add takes in one line, without its own sum, and returns how it has to end.
func (s *sum) add(body []byte) string {
	*s = sum(crc32.Update(uint32(*s), castagnoli, body))
	return fmt.Sprintf(",\"crc\":\"%08x\"}", uint32(*s))
}

// encode returns the file that holds records, whose keys are sorted.
func encode(records []record) ([]byte, error) {
	var out bytes.Buffer
	var running sum
	write := func(v any) error {
		start := out.Len()
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return err
		}
		out.Truncate(out.Len() - len("}\n"))
		out.WriteString(running.add(out.Bytes()[start:]))
		out.WriteByte('\n')
		return nil
	}
	if err := write(header{formatName, formatVersion}); err != nil {
		return nil, err
	}
	for _, r := range records {
		r, err := r.wire()
		if err == nil {
			err = write(r)
		}
		if err != nil {
			return nil, fmt.Errorf("encoding record %q: %w", r.Key, err)
		}
	}
	err := write(trailer{len(records)})
	return out.Bytes(), err
}

// A decoder reads a file line by line.
type decoder struct {
	rest    []byte
	running sum
	line    int // the one read last, from 1
	records []record
	seen    map[string]bool
}

// errNewer is no damage: a later version of this program can read the file.
var errNewer = errors.New("embedded: the file was written by a newer userdb; update this one")

// decode reads a whole file. An error belongs to the line that is returned.
func decode(file []byte) (records []record, line int, err error) {
	d := &decoder{rest: file, seen: map[string]bool{}}
	if err := d.header(); err != nil {
		return nil, d.line, err
	}
	for done := false; !done; {
		if done, err = d.record(); err != nil {
			return nil, d.line, err
		}
	}
	if len(d.rest) != 0 {
		return nil, d.line + 1, errors.New("text after the end")
	}
	return d.records, 0, nil
}

// next returns the next line as JSON, its sum checked and cut off.
func (d *decoder) next() ([]byte, error) {
	d.line++
	line, rest, found := bytes.Cut(d.rest, []byte("\n"))
	if !found {
		return nil, errors.New("the file ends too early")
	}
	d.rest = rest
	if len(line) < sumLength {
		return nil, errors.New("the checksum is missing")
	}
	body := line[:len(line)-sumLength]
	if string(line[len(body):]) != d.running.add(body) {
		return nil, errors.New("the checksum is wrong")
	}
	return append(bytes.Clone(body), '}'), nil
}

func (d *decoder) header() error {
	line, err := d.next()
	if err != nil {
		return err
	}
	var h header
	if err := unmarshal(line, &h); err != nil {
		return err
	}
	if h.Userdb != formatName || h.Version < 1 {
		return errors.New("not the header of an embedded store")
	}
	if h.Version > formatVersion {
		return errNewer
	}
	return nil
}

// record reads one line; done says that it was the trailer.
func (d *decoder) record() (done bool, err error) {
	line, err := d.next()
	if err != nil {
		return false, err
	}
	if bytes.HasPrefix(line, []byte(`{"records":`)) {
		return true, d.trailer(line)
	}
	r, err := decodeRecord(line)
	if err != nil {
		return false, err
	}
	if d.seen[r.Key] {
		return false, fmt.Errorf("record %q for the second time", r.Key)
	}
	d.seen[r.Key] = true
	d.records = append(d.records, r)
	return false, nil
}

func (d *decoder) trailer(line []byte) error {
	var end trailer
	if err := unmarshal(line, &end); err != nil {
		return err
	}
	if end.Records != len(d.records) {
		return fmt.Errorf("%d records, but there should be %d", len(d.records), end.Records)
	}
	return nil
}

func decodeRecord(line []byte) (record, error) {
	var r record
	if err := unmarshal(line, &r); err != nil {
		return record{}, err
	}
	if r.values() != 1 || r.Until < 0 {
		return record{}, fmt.Errorf("record %q has not one value of one type", r.Key)
	}
	for _, pair := range r.ZSet {
		if score, err := strconv.ParseFloat(pair[1], 64); err != nil || math.IsNaN(score) {
			return record{}, fmt.Errorf("record %q: %q is no score", r.Key, pair[1])
		}
	}
	return r.plain()
}

func unmarshal(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
