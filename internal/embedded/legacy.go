package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"
)

// Before version 2, a file held one record in each line:
//
//	{"userdb":"embedded","version":1,"crc":"…"}
//	{"key":"user/name:Bob/~prk","string":"user/uid:17c0","crc":"…"}
//	{"key":"user/uid:17c0","hash":{"name":"Bob","~isa":"user"},"crc":"…"}
//	{"base64":true,"key":"/w==","list":["AA=="],"until":1767225600000,"crc":"…"}
//	{"records":3,"crc":"…"}
//
// The value is named after its Redis type: string, hash, list, set, zset (pairs of member and
// score) or stream. A record with bytes that are not UTF-8 has all its text in base64. until is the
// time at which it expires, in milliseconds since 1970. crc is the CRC-32C of everything in the
// file before it, without line ends and earlier sums.

// maxFile limits the size in bytes of a file of the first version.
const maxFile = 1 << 30

// readLegacy puts the records of a file of JSON lines into d.
func readLegacy(file diskFile, path string, d *data) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading the embedded store: %w", err)
	}
	size, tooLarge := info.Size(), info.Size() > maxFile
	if tooLarge {
		size = pageSize // enough to check the first line
	}
	all, err := io.ReadAll(io.NewSectionReader(file, 0, size))
	if err != nil {
		return fmt.Errorf("reading the embedded store: %w", err)
	}
	records, line, err := decode(all)
	switch {
	case errors.Is(err, errNewer):
		return fmt.Errorf("%s: %w", path, err)
	case tooLarge && line != 1:
		return fmt.Errorf("reading the embedded store: %s: larger than %d bytes", path, maxFile)
	case err != nil:
		return &DamageError{Path: path, Line: line, Reason: err.Error()}
	}
	d.replaying = true
	defer func() { d.replaying = false }()
	for _, r := range records {
		if err := r.put(d); err != nil {
			return fmt.Errorf("loading %w", err)
		}
	}
	return nil
}

const (
	formatName    = "embedded"
	formatVersion = 1 // of files of JSON lines, which are only read
	logVersion    = 2 // of files that changes are appended to
)

// sumLength is the length of the end of a line: ,"crc":"01234567"}
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

// add adds a line to the sum. body is the line without its own sum; add returns the rest of the
// line, which holds that sum.
func (s *sum) add(body []byte) string {
	*s = sum(crc32.Update(uint32(*s), castagnoli, body))
	return fmt.Sprintf(",\"crc\":\"%08x\"}", uint32(*s))
}

// A decoder reads a file line by line.
type decoder struct {
	rest    []byte
	running sum
	line    int // number of the last line read, from 1
}

// errNewer is not damage: a later version of this program can read the file.
var errNewer = errors.New("embedded: the file was written by a newer userdb; update this one")

// decode reads a whole file. If it fails, line is the number of the faulty line.
func decode(file []byte) (records []record, line int, err error) {
	d := &decoder{rest: file}
	err = d.header()
	if err == nil {
		records, err = d.records()
	}
	if err != nil {
		return nil, d.line, err
	}
	if len(d.rest) != 0 {
		return nil, d.line + 1, errors.New("text after the end")
	}
	return records, 0, nil
}

// next returns the next line as JSON, after checking and removing its sum.
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

// records reads the lines after the header, up to and including the last one, which holds their
// number.
func (d *decoder) records() ([]record, error) {
	var records []record
	for seen := map[string]bool{}; ; {
		line, err := d.next()
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(line, []byte(`{"records":`)) {
			var end trailer
			if err := unmarshal(line, &end); err != nil {
				return nil, err
			}
			if end.Records != len(records) {
				return nil, fmt.Errorf("%d records, want %d", len(records), end.Records)
			}
			return records, nil
		}
		r, err := decodeRecord(line)
		if err != nil {
			return nil, err
		}
		if seen[r.Key] {
			return nil, fmt.Errorf("record %q appears twice", r.Key)
		}
		seen[r.Key], records = true, append(records, r)
	}
}

func decodeRecord(line []byte) (record, error) {
	var r record
	if err := unmarshal(line, &r); err != nil {
		return record{}, err
	}
	values := 0
	for _, present := range []bool{r.String != nil, len(r.Hash) > 0, len(r.List) > 0, len(r.Set) > 0, len(r.ZSet) > 0, len(r.Stream) > 0} {
		if present {
			values++
		}
	}
	if values != 1 {
		return record{}, fmt.Errorf("record %q does not have exactly one value", r.Key)
	}
	if r.Until < 0 {
		return record{}, fmt.Errorf("record %q expires at a negative time", r.Key)
	}
	for _, pair := range r.ZSet {
		if score, err := strconv.ParseFloat(pair[1], 64); err != nil || math.IsNaN(score) {
			return record{}, fmt.Errorf("record %q: %q is not a score", r.Key, pair[1])
		}
	}
	for _, entry := range r.Stream {
		if len(entry)%2 == 0 {
			return record{}, fmt.Errorf("record %q: an entry of a stream lacks a value", r.Key)
		}
	}
	return r.decoded()
}

func unmarshal(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
