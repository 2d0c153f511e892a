package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/coffeenode/userdb/internal/jsonline"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

type schemaCmd struct {
	Show  schemaShowCmd  `cmd:"" help:"Print the schema in force."`
	Check schemaCheckCmd `cmd:"" help:"Say whether fields can be mistaken for each other."`
	Apply schemaApplyCmd `cmd:"" help:"Bring the records to a changed schema."`
}

func (*schemaCmd) Help() string {
	return `Examples:
  userdb schema show
  userdb schema check`
}

// inForce is the schema that other commands would use.
func (s *session) inForce(ctx context.Context) (schema.Schema, error) {
	if s.Schema != "" {
		sc, err := s.schemaFile()
		return sc, err
	}
	db, err := s.open(ctx)
	if err != nil {
		return schema.Schema{}, err
	}
	return db.Schema(), nil
}

type schemaShowCmd struct{}

func (*schemaShowCmd) Help() string {
	return `That is the one of --schema, else the one stored in the database by the first write, else the
built-in one. What it prints can be edited and given to --schema.

Examples:
  userdb schema show
  userdb schema show --schema schema.json --json`
}

func (*schemaShowCmd) Run(ctx context.Context, s *session) error {
	sc, err := s.inForce(ctx)
	if err != nil {
		return err
	}
	text, err := jsonline.Indent(sc)
	if err != nil {
		return err
	}
	return s.out.say(sc, strings.TrimSuffix(string(text), "\n"))
}

type schemaCheckCmd struct{}

func (*schemaCheckCmd) Help() string {
	return `Shows each pair of secondary fields: orthogonal, where it is proved that no value can belong to
both; overlap, with a shortest value that can; or not decided. Overlap is no error: one value is
still never two entries. A line follows for what keeps all entries out of Redis' compact form of
hashes, if the schema alone tells that: too many fields, names or a type name that are too long.

Examples:
  userdb schema check
  userdb schema check --schema schema.json --json`
}

// patient: a proof takes what it takes.
func (*schemaCheckCmd) patient() {}

// verdictLine is one pair, as JSON.
type verdictLine struct {
	Type    string `json:"type"`
	A       string `json:"a"`
	B       string `json:"b"`
	Verdict string `json:"verdict"`
	Witness string `json:"witness,omitempty"`
	Note    string `json:"note,omitempty"`
}

func (l verdictLine) text() string {
	words := []string{shown(l.Type), shown(l.A), shown(l.B), l.Verdict}
	if l.Witness != "" {
		words = append(words, "both take "+shown(l.Witness))
	}
	if l.Note != "" {
		words = append(words, oneLine(l.Note))
	}
	return strings.Join(words, "\t") + "\n"
}

func (*schemaCheckCmd) Run(ctx context.Context, s *session) error {
	sc, err := s.inForce(ctx)
	if err != nil {
		return err
	}
	columns := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, name := range sc.Names() {
		pairs, err := validate.Check(sc.Types[name])
		if err != nil {
			return err
		}
		for _, p := range pairs {
			l := verdictLine{name, p.A, p.B, p.Verdict.String(), p.Witness, p.Note}
			if s.JSON {
				err = s.out.say(l, "")
			} else {
				_, err = columns.Write([]byte(l.text()))
			}
			if err != nil {
				return err
			}
		}
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for _, p := range maintain.NotCompact(sc) {
		if err := s.out.say(lineOfProblem(p), oneLine(p.String())); err != nil {
			return err
		}
	}
	return nil
}

type schemaApplyCmd struct {
	Plan bool `help:"Only say what it would do."`
}

func (*schemaApplyCmd) Help() string {
	return `Brings the records to the schema of --schema: identifiers and indexes that are new are made, those
that are gone are removed, another fold is put into force. A field that says {"was":"OLDNAME"} is a
renamed one. Where entries would then have one identifier, they are listed and nothing is changed:
'userdb unset', or 'userdb set' by the schema in force, takes it from one of them.

While it works, nobody else can write entries of the types that change, and everybody finds them as
before. It may be stopped; the same command goes on, also without --schema. On a cluster it first
waits 15 s for other programs to notice. Without --schema it also brings records to this program's
version of the canonical form, where they are of another.

Examples:
  userdb schema apply --plan --schema schema.json
  userdb schema apply --schema schema.json`
}

// patient: a large store takes its time.
func (*schemaApplyCmd) patient() {}

// changeLine is what happens to one type, as JSON.
type changeLine struct {
	Type       string          `json:"type"`
	What       string          `json:"what"`
	UnderWay   bool            `json:"under_way"`
	Entries    int64           `json:"entries"`
	Rewritten  int64           `json:"rewritten"`
	SRKs       int64           `json:"srks"`
	Collisions []collisionLine `json:"collisions,omitempty"`
}

type collisionLine struct {
	Field   string   `json:"field"`
	Value   string   `json:"value"`
	Message string   `json:"message"`
	Entries []string `json:"entries"`
}

func (l changeLine) text() string {
	what := l.What
	if what == "" {
		what = "only what is stored of the schema"
	}
	if l.UnderWay {
		what += " (under way)"
	}
	text := fmt.Sprintf("%s: %s: %s, of which %d change; identifiers to write: %d",
		shown(l.Type), what, count(l.Entries, "entry"), l.Rewritten, l.SRKs)
	for _, c := range l.Collisions {
		text += "\ncollision: " + oneLine(c.Message)
	}
	return text
}

func lineOf(tc maintain.TypeChange) changeLine {
	l := changeLine{Type: tc.Type, What: tc.What, UnderWay: tc.UnderWay, Entries: tc.Entries, Rewritten: tc.Rewritten, SRKs: tc.SRKs}
	for _, c := range tc.Collisions {
		line := collisionLine{Field: c.Field, Value: c.Value, Message: c.Reason}
		for _, k := range c.Entries {
			line.Entries = append(line.Entries, k.String())
		}
		l.Collisions = append(l.Collisions, line)
	}
	return l
}

func (c *schemaApplyCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	to, err := s.next(ctx)
	if err != nil {
		return err
	}
	ch, err := maintain.Plan(ctx, db, to)
	if err != nil {
		return err
	}
	collisions := 0
	for _, tc := range ch.Types {
		collisions += len(tc.Collisions)
		l := lineOf(tc)
		if err := s.out.say(l, l.text()); err != nil {
			return err
		}
	}
	switch {
	case len(ch.Types) == 0 && !s.JSON:
		return s.out.say(nil, "nothing to do: the records are as the schema says")
	case collisions > 0:
		return fmt.Errorf("%w: %s; nothing was changed: 'userdb unset', or 'userdb set' by the schema in force, takes the value from one of them", maintain.ErrCollision, count(int64(collisions), "collision"))
	case c.Plan || len(ch.Types) == 0:
		return nil
	}
	m := s.meter("applying")
	defer m.clear()
	if err := ch.Apply(ctx, m.show); err != nil {
		return err
	}
	m.clear()
	if s.JSON {
		return nil
	}
	return s.out.say(nil, "applied")
}

// next is the schema to bring the records to: that of --schema, else one that was begun with, else the
// stored one, where its records have another canonical form than this program gives.
func (s *session) next(ctx context.Context) (schema.Schema, error) {
	if s.Schema != "" {
		return s.schemaFile()
	}
	begun, err := maintain.BegunSchema(ctx, s.db)
	if err != nil || len(begun.Types) > 0 {
		return begun, err
	}
	stored, err := maintain.StoredSchema(ctx, s.db)
	for _, t := range stored.Types {
		if t.InForm().OtherForm(t) {
			return stored, err
		}
	}
	if err == nil {
		err = usagef("no schema to apply: --schema FILE names it; by the stored one there is nothing to bring over")
	}
	return stored, err
}
