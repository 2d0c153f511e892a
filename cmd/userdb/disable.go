package main

import (
	"context"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

type disableCmd struct {
	Hint string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
}

func (*disableCmd) Help() string {
	return `A login then exits 5 as for a wrong password, and the entry's tokens are void. It stays readable.
Prints its key.

Examples:
  userdb disable email=alice@example.com`
}

func (c *disableCmd) Run(ctx context.Context, s *session) error {
	return s.turn(ctx, c.Hint, "disabled", (*userdb.Type).Disable)
}

// turn says whether an entry may log in, and prints its key.
func (s *session) turn(ctx context.Context, hint, done string, do func(*userdb.Type, context.Context, hints.Hint) error) error {
	p, err := s.at(ctx, hint)
	if err != nil {
		return err
	}
	e, err := p.typ.Find(ctx, p.hint)
	if err != nil {
		return p.named(err)
	}
	if err := do(p.typ, ctx, hints.Key(e.Key())); err != nil {
		return p.named(err)
	}
	prk := e.Key().String()
	return s.out.say(prk, done+" "+shown(prk))
}
