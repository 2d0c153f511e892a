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

	"github.com/coffeenode/userdb/internal/redistest/testdb"
)

const (
	accounts = 4 // in each epoch
	values   = 5 // in each epoch, numbered from 1; 0 is no value
)

// fields are the secondary fields of an account. Any value may be in any of them.
var fields = [3]string{"email", "name", "nick"}

// facets holds the values of an account, by field: 0 for no value, -1 for one that does not belong
// to the epoch.
type facets [len(fields)]int8

// A question is the first half of an operation: a verb, which names what to do, and its arguments.
type question struct {
	Verb     string   `json:"verb"` // one of verbs
	UID      int      `json:"uid"`
	Facets   facets   `json:"facets"`           // for create; see facets
	Change   string   `json:"change,omitempty"` // for update: put, drop, move or exchange
	Field    int      `json:"field"`            // for update and find; -1 finds in any field
	To       int      `json:"to"`               // for move and exchange
	Value    int8     `json:"value"`            // for update, find and login
	Password int8     `json:"password,omitempty"`
	Tags     []string `json:"tags,omitempty"` // for create, tag and replace
	Secret   string   `json:"secret,omitempty"`
	ID       string   `json:"id,omitempty"`   // ID of a session
	Name     string   `json:"name,omitempty"` // idempotency key of once

	List *testdb.ListQuestion `json:"list,omitempty"` // for list
}

// An answer holds what a call returned, in words that the judge compares. What is one of
//
//   - ok: it succeeded
//   - taken: another account has a value, or the UID is in use
//   - absent: there is no such account, value or secret
//   - refused: nothing was written, because the store was unavailable or attempts were throttled
//   - conflict: nothing was written, because another client wrote at the same time
//   - unknown: the operation may have taken effect, or may still do so
//   - denied: the login failed
//   - odd: an answer that is not documented
type answer struct {
	What   string   `json:"what"`             // one of the words above
	Fields []string `json:"fields,omitempty"` // the fields with a taken value
	// UID is the account that was found, -1 if none was, -2 if it belongs to another epoch.
	UID int `json:"uid"`
	// Facets are those of the entry that was written or found. If What is taken, they are those
	// that the caller wanted to write.
	Facets   facets   `json:"facets"`
	Disabled bool     `json:"disabled,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Secret   string   `json:"secret,omitempty"` // the secret that the call returned
	// ID is the ID of a session, or the UID of an entry that is not one of the accounts.
	ID   string             `json:"id,omitempty"`
	Text string             `json:"text,omitempty"` // text of the error
	List *testdb.ListAnswer `json:"list,omitempty"`
	// Late is the time in milliseconds that the call went on after its context ended, or 0 for less
	// than grace.
	Late int64 `json:"late,omitempty"`
}

// An op is a question with its answer, and the times at which they were recorded.
type op struct {
	Client     string
	N          int // number of the operation at its client
	Epoch      int
	Begin, End int64 // nanoseconds; End is math.MaxInt64 if the operation may still take effect
	Ask        question
	Answer     answer
}

// who returns the actor of the operation in histories and events. No other operation has this
// actor.
func (o op) who() string { return whoOf(o.Client, o.N) }

func whoOf(client string, n int) string { return fmt.Sprintf("%s/%d", client, n) }

func (o op) String() string {
	end := "…"
	if o.End != math.MaxInt64 {
		end = fmt.Sprintf("%.4f", float64(o.End)/1e9)
	}
	return fmt.Sprintf("%-5s %.4f–%s %s → %s", o.Client, float64(o.Begin)/1e9, end, o.Ask, o.Answer)
}

func (q question) String() string {
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
	case "list":
		return fmt.Sprintf("list %+v", *q.List)
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
	if a.List != nil {
		text += fmt.Sprintf(" %+v", *a.List)
	}
	if a.Late > 0 {
		text += fmt.Sprintf(" %d ms late", a.Late)
	}
	if a.Text != "" && a.What != "taken" && a.What != "absent" {
		text += ": " + a.Text
	}
	return text
}

// A line is one line of a history file: a question before it is asked, or its answer.
type line struct {
	N      int       `json:"n"`
	Epoch  int       `json:"epoch,omitempty"`
	At     int64     `json:"at"`
	Ask    *question `json:"ask,omitempty"`
	Answer *answer   `json:"answer,omitempty"`
}

// now returns the machine's monotonic clock in nanoseconds. All processes share it.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// A recorder writes the history of one client, each line at once, because the client may be killed.
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

// readHistory returns the operations that a client recorded. It ignores an incomplete last line.
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

// byEpoch groups operations by epoch and sorts each group by the time at which they began.
func byEpoch(ops []op) map[int][]op {
	sorted := map[int][]op{}
	for _, o := range ops {
		sorted[o.Epoch] = append(sorted[o.Epoch], o)
	}
	for _, group := range sorted {
		slices.SortFunc(group, func(a, b op) int { return int(a.Begin - b.Begin) })
	}
	return sorted
}
