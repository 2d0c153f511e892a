package main

import (
	"context"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

type setCmd struct {
	Hint   string   `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Facets []string `arg:"" name:"FIELD=VALUE" help:"What shall be."`
	revFlag
}

func (*setCmd) Help() string {
	return `All facets are set in one change, or none is. Prints the entry as it is then.

Examples:
  userdb set email=alice@example.com name='Alice Liddell' job=author
  userdb set '*=bob@example.com' email=bob@example.org --json`
}

func (c *setCmd) Run(ctx context.Context, s *session) error {
	if err := checkFields(c.Facets); err != nil {
		return err
	}
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	var fs schema.Facets
	if fs, err = facets(s.db.Schema().Types[p.typ.Name()], c.Facets); err != nil {
		return err
	}
	return c.change(ctx, s, p, func(e *userdb.Entry) {
		for name, v := range fs {
			e.Put(name, v)
		}
	})
}

// revFlag is that of a command that changes an entry.
type revFlag struct {
	IfRev string `placeholder:"REV" help:"Change nothing, and exit 4, if the entry's ~rev is not this any more."`
}

func (r *revFlag) change(ctx context.Context, s *session, p place, f func(*userdb.Entry)) error {
	e, err := p.typ.Update(ctx, p.hint, func(e *userdb.Entry) error {
		if r.IfRev != "" && e.Rev() != r.IfRev {
			return userdb.ErrConflict
		}
		f(e)
		return nil
	})
	if err != nil {
		return p.named(err)
	}
	return s.entry(e, "")
}
