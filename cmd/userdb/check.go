package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

type checkCmd struct {
	Hint   string   `arg:"" name:"HINT" optional:"" help:"One entry; without it, all records."`
	Repair bool     `help:"Mend what needs no decision; may be stopped and run again."`
	Keep   []string `placeholder:"PRK" sep:"none" help:"Where entries have one identifier, this one keeps it (with --repair; as often as needed)."`
}

func (*checkCmd) Help() string {
	return `Looks whether every identifier leads to its entry and to no other, and whether anything is left
without its entry. Exits 7 where errors stand; what is only a problem, such as an entry without one
of its identifiers, is printed and is no failure. Without --repair it changes nothing.

With --repair everything is mended that needs no decision of yours, while the system runs. No facet
is ever deleted. Two entries with one identifier are listed; --keep says which of them keeps it:
what the others wrote moves to their field ~lost:FIELD, by which nobody finds them.

A stored schema that is lost or cannot be read stops every command of its type. --repair stores it
again where its fingerprint is left and is that of the schema in hand; else only --repair with
--schema FILE does, with the schema that the entries were written by, and if all records fit it.

Examples:
  userdb check
  userdb check email=alice@example.com --json
  userdb check --repair
  userdb check --repair --keep user/uid:17c0`
}

// patient: a large store takes its time.
func (*checkCmd) patient() {}

// problemLine is a problem as JSON.
type problemLine struct {
	Code      string `json:"code"`
	Invariant int    `json:"invariant"`
	Key       string `json:"key"`
	Message   string `json:"message"`
	Severity  string `json:"severity"`
	Repaired  bool   `json:"repaired"`

	Choices []string `json:"choices,omitempty"` // of value_shared
	Field   string   `json:"field,omitempty"`   // of entry_not_compact
}

// checkSum is the last line of a check.
type checkSum struct {
	Entries  int64 `json:"entries"`
	Errors   int64 `json:"errors"`
	Problems int64 `json:"problems"`
	Repaired int64 `json:"repaired"`
}

func (c checkSum) text() string {
	text := count(c.Entries, "entry") + ", " + count(c.Errors, "error") + ", " + count(c.Problems, "problem")
	if c.Repaired > 0 {
		text += ", " + strconv.FormatInt(c.Repaired, 10) + " repaired"
	}
	return text
}

func (c *checkCmd) Run(ctx context.Context, s *session) error {
	sum, err := c.check(ctx, s)
	if err != nil {
		return err
	}
	if err := s.out.say(sum, sum.text()); err != nil && !enough(err) {
		return err
	}
	if sum.Errors > 0 {
		return fmt.Errorf("%w: %s", errDamage, count(sum.Errors, "error"))
	}
	return nil
}

func (c *checkCmd) check(ctx context.Context, s *session) (sum checkSum, err error) {
	o, err := c.options()
	if err != nil {
		return sum, err
	}
	o.Restate = o.Repair && s.Schema != ""
	db, err := s.open(ctx)
	if s.db != nil && errors.Is(err, userdb.ErrCorrupt) { // the stored schema cannot be read
		if err = sum.all(s, maintain.CheckOwn(ctx, s.db, o), func() {}); err == nil && sum.Errors == 0 {
			err = s.useStored(ctx)
			db = s.db
		}
	}
	if err != nil || sum.Errors > 0 {
		return sum, err
	}
	if sum.Entries, err = c.subject(ctx, s, &o); err != nil {
		return sum, err
	}
	m := s.meter("checking")
	defer m.clear()
	o.Progress = m.show
	err = sum.all(s, maintain.Check(ctx, db, o), m.clear)
	return sum, err
}

// all counts and prints problems, each behind what before does.
func (c *checkSum) all(s *session, problems iter.Seq2[maintain.Problem, error], before func()) error {
	for p, err := range problems {
		if err != nil {
			return err
		}
		before()
		if err := c.add(s.out, p); err != nil && !enough(err) { // who reads but the beginning gets the whole verdict
			return err
		}
	}
	return nil
}

// options reads the flags.
func (c *checkCmd) options() (o maintain.CheckOptions, err error) {
	if len(c.Keep) > 0 && !c.Repair {
		return o, usagef("--keep %s decides what --repair does: add --repair", shown(c.Keep[0]))
	}
	o.Repair = c.Repair
	for _, text := range c.Keep {
		key, err := recordkey.Parse(text)
		if err != nil {
			return o, fmt.Errorf("--keep: %w", err)
		}
		o.Keep = append(o.Keep, key)
	}
	return o, nil
}

// add counts a problem and prints it.
func (c *checkSum) add(out *output, p maintain.Problem) error {
	line := lineOfProblem(p)
	text := p.String()
	switch {
	case p.Repaired:
		c.Repaired++
		text = "repaired: " + text
	case p.Warning:
		c.Problems++
	default:
		c.Errors++
	}
	return out.say(line, oneLine(text))
}

func lineOfProblem(p maintain.Problem) problemLine {
	line := problemLine{
		Code: p.Code, Invariant: p.Invariant, Key: p.Key, Message: p.Text, Severity: "error", Repaired: p.Repaired, Field: p.Field,
	}
	if p.Warning {
		line.Severity = "problem"
	}
	for _, k := range p.Choices {
		line.Choices = append(line.Choices, k.String())
	}
	return line
}

// subject says how many entries are checked, and which one if it is one.
func (c *checkCmd) subject(ctx context.Context, s *session, o *maintain.CheckOptions) (int64, error) {
	if c.Hint == "" {
		return s.entries(ctx)
	}
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return 0, err
	}
	o.Only = p.hint.Of(p.typ.Name())
	_, err = p.typ.Find(ctx, p.hint)
	if errors.Is(err, userdb.ErrNotFound) {
		return 0, nil
	}
	if err != nil && !aboutEntry(err) {
		return 0, err
	}
	return 1, nil
}

// entries counts the entries of all types.
func (s *session) entries(ctx context.Context) (int64, error) {
	var all int64
	for _, name := range s.db.Schema().Names() {
		t, err := s.typ(ctx, name)
		if err != nil {
			return 0, err
		}
		n, err := t.Count(ctx)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}
