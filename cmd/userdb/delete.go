package main

import (
	"context"

	"github.com/coffeenode/userdb/hints"
)

type deleteCmd struct {
	Hint string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Yes  bool   `help:"Do it: there is no way back."`
}

func (*deleteCmd) Help() string {
	return `With an entry go its identifiers, its places in indexes and its tertiary records, such as tags.
Prints the key of the entry that was.

Examples:
  userdb delete email=bob@example.com --yes`
}

func (c *deleteCmd) Run(ctx context.Context, s *session) error {
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	e, err := p.typ.Find(ctx, p.hint)
	if err != nil {
		return p.named(err)
	}
	prk := e.Key().String()
	if !c.Yes {
		return usagef("would delete %s with all that belongs to it: add --yes", shown(prk))
	}
	if err := p.typ.Delete(ctx, hints.Key(e.Key())); err != nil {
		return p.named(err)
	}
	return s.out.say(prk, "deleted "+shown(prk))
}
