//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	accounts = 4 // of an epoch
	values   = 5 // of an epoch, from 1; 0 is no value
)

var fields = [3]string{"email", "name", "nick"}

// facets are the values of an account, by field.
type facets [len(fields)]int8

// An ask is what a client asks for.
type ask struct {
	Verb     string   `json:"verb"` // of verbs, or such as come with them
	UID      int      `json:"uid"`
	Facets   facets   `json:"facets"`           // of create
	Change   string   `json:"change,omitempty"` // of update: put drop move exchange
	Field    int      `json:"field"`            // of update and find; -1 in find: any
	To       int      `json:"to"`               // of move and exchange
	Value    int8     `json:"value"`            // of update, find and login
	Password int8     `json:"password,omitempty"`
	Tags     []string `json:"tags,omitempty"` // of create, tag and replace
	Secret   string   `json:"secret,omitempty"`
	ID       string   `json:"id,omitempty"`   // of a session
	Name     string   `json:"name,omitempty"` // of a request that makes one entry however often it is sent
}

// An answer is what it is told.
type answer struct {
	What     string   `json:"what"`             // ok taken absent refused conflict unknown denied odd
	Fields   []string `json:"fields,omitempty"` // that are taken
	UID      int      `json:"uid"`              // found
	Facets   facets   `json:"facets"`           // of the entry that was written or found; where taken: that were wanted
	Disabled bool     `json:"disabled,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Secret   string   `json:"secret,omitempty"` // that was given
	ID       string   `json:"id,omitempty"`     // of a session, or of an entry besides the accounts
	Text     string   `json:"text,omitempty"`   // of an error
	Late     int64    `json:"late,omitempty"`   // milliseconds for which the call went on after its context, beyond grace
}

// An op is a question and its answer.
type op struct {
	Client     string
	N          int // among those of the client
	Epoch      int
	Begin, End int64 // End is math.MaxInt64 where it may still be carried out
	Ask        ask
	Answer     answer
}

// who returns the operation as the history has it: an actor of its own.
func (o op) who() string { return whoOf(o.Client, o.N) }

func whoOf(client string, n int) string { return fmt.Sprintf("%s/%d", client, n) }

func (o op) String() string {
	end := "…"
	if o.End != math.MaxInt64 {
		end = fmt.Sprintf("%.4f", float64(o.End)/1e9)
	}
	return fmt.Sprintf("%-5s %.4f–%s %s → %s", o.Client, float64(o.Begin)/1e9, end, o.Ask, o.Answer)
}

func (q ask) String() string {
	switch q.Verb {
	case "create":
		return fmt.Sprintf("create account %d with %v, password %d, tags %q", q.UID, q.Facets, q.Password, q.Tags)
	case "update":
		what := fmt.Sprintf("update account %d: %s %s", q.UID, q.Change, fields[q.Field])
		switch q.Change {
		case "put":
			return fmt.Sprintf("%s = %d", what, q.Value)
		case "move", "exchange":
			return what + " " + fields[q.To]
		}
		return what
	case "find":
		if q.Field >= 0 {
			return fmt.Sprintf("find value %d in %s", q.Value, fields[q.Field])
		}
		return fmt.Sprintf("find value %d", q.Value)
	case "login":
		return fmt.Sprintf("login as value %d with password %d", q.Value, q.Password)
	case "password":
		return fmt.Sprintf("set password %d of account %d", q.Password, q.UID)
	case "tag", "replace":
		return fmt.Sprintf("%s account %d %q", q.Verb, q.UID, q.Tags)
	case "check", "end", "endid", "redeem", "accept":
		return fmt.Sprintf("%s %s of account %d", q.Verb, q.Secret, q.UID)
	case "once":
		return "once " + q.Name
	}
	return fmt.Sprintf("%s account %d", q.Verb, q.UID)
}

func (a answer) String() string {
	text := a.What
	for _, field := range a.Fields {
		text += " " + field
	}
	if a.UID >= 0 {
		text += fmt.Sprintf(" account %d", a.UID)
	}
	if a.UID >= 0 || a.Fields != nil {
		text += fmt.Sprint(" ", a.Facets)
	}
	if a.Disabled {
		text += " disabled"
	}
	if a.Tags != nil {
		text += fmt.Sprintf(" %q", a.Tags)
	}
	if a.Secret+a.ID != "" {
		text += " " + a.Secret + " " + a.ID
	}
	if a.Late > 0 {
		text += fmt.Sprintf(" %d ms late", a.Late)
	}
	if a.Text != "" && a.What != "taken" && a.What != "absent" {
		text += ": " + a.Text
	}
	return text
}

// A line is what a client writes: before it asks, and once it was told.
type line struct {
	N      int     `json:"n"`
	Epoch  int     `json:"epoch,omitempty"`
	At     int64   `json:"at"`
	Ask    *ask    `json:"ask,omitempty"`
	Answer *answer `json:"answer,omitempty"`
}

// now is the machine's monotonic clock, which all processes share.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// A recorder writes the history of one client: each line at once, for it may be killed.
type recorder struct {
	file *os.File
	n    int
}

func (r *recorder) write(l line) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	return err
}

// readHistory reads what a client wrote. A last line that is cut short was never finished.
func readHistory(path, client string) ([]op, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ops := []op{}
	sc := bufio.NewScanner(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1]))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case l.Ask != nil && l.N == len(ops):
			ops = append(ops, op{client, l.N, l.Epoch, l.At, math.MaxInt64, *l.Ask, answer{What: "unknown", UID: -1}})
		case l.Answer != nil && l.N == len(ops)-1:
			o := &ops[l.N]
			o.Answer = *l.Answer
			if l.Answer.What != "unknown" {
				o.End = l.At
			}
		default:
			return nil, fmt.Errorf("%s: line %q is out of order", path, sc.Text())
		}
	}
	return ops, sc.Err()
}

// byEpoch sorts operations by epochs and by when they began.
func byEpoch(ops []op) map[int][]op {
	sorted := map[int][]op{}
	for _, o := range ops {
		sorted[o.Epoch] = append(sorted[o.Epoch], o)
	}
	for _, of := range sorted {
		slices.SortFunc(of, func(a, b op) int { return int(a.Begin - b.Begin) })
	}
	return sorted
}
