package main

import (
	"context"
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
