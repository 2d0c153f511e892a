package embedded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// maxFile limits the size of a file that is read or written, in bytes.
const maxFile = 1 << 30

// A disk holds the operations that writing a file needs. Tests use disks that fail.
type disk interface {
	create(path string) (syncWriter, error) // fails if path exists
	rename(from, to string) error
	syncDir(dir string) error
}

type syncWriter interface {
	io.WriteCloser
	Sync() error
}

// replace replaces the contents of the file at path with data, all of it or nothing.
func replace(d disk, path string, data []byte) error {
	temp := path + ".tmp"
	// A killed process may have left a temporary file. Writing to it is not safe, because it could
	// be a link that somebody else made.
	if err := ignoreMissing(os.Remove(temp)); err != nil {
		return err
	}
	err := write(d, temp, data)
	if err == nil {
		err = d.rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(temp)))
	}
	return d.syncDir(filepath.Dir(path))
}

func write(d disk, path string, data []byte) error {
	f, err := d.create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readFile returns the records at path, or none if the file does not exist.
func readFile(path string) ([]record, error) {
	data, err := readLimited(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the embedded store: %w", err)
	}
	records, line, err := decode(data)
	if errors.Is(err, errNewer) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, &DamageError{Path: path, Line: line, Reason: err.Error()}
	}
	return records, nil
}

func readLimited(path string) ([]byte, error) {
	f, err := privatefile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, exposedError(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

type osDisk struct{}

func (osDisk) create(path string) (syncWriter, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }

// syncDir makes a rename survive a power failure, if the system can do that.
func (osDisk) syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

const (
	formatName    = "embedded"
	formatVersion = 1
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

// encode returns the file that holds records, which must be sorted by key.
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
	line    int // number of the last line read, from 1
}

// errNewer is not damage: a later version of this program can read the file.
var errNewer = errors.New("embedded: the file was written by a newer userdb; update this one")

// decode reads a whole file. If it fails, line is the line at fault.
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
	for _, is := range []bool{r.String != nil, len(r.Hash) > 0, len(r.List) > 0, len(r.Set) > 0, len(r.ZSet) > 0, len(r.Stream) > 0} {
		if is {
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
