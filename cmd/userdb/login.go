package main

import (
	"context"

	"github.com/coffeenode/userdb/userdb"
)

type loginCmd struct {
	Identifier string `arg:"" name:"IDENTIFIER" help:"Any secondary value: a name, an address. It is never taken for a hint."`
	Origin     string `placeholder:"O" help:"Where the attempt comes from, an address or a name: failures are counted for each."`
	passwordFlags
}

func (*loginCmd) Help() string {
	return `Prints the entry, or exits 5, in the same way and after the same work whoever is asked for. --type
says of which type the entry is. After too many failures it exits 8 and says how long to wait; nothing
was checked then. An origin from where the entry logged in before keeps attempts of its own, which
nobody else can use up; without --origin failures are only counted for the entry.

Examples:
  userdb login alice@example.com
  userdb login alice@example.com --origin 192.0.2.7
  userdb login Alice --password-stdin --json < secret.txt`
}

func (*loginCmd) discreet() {}

func (c *loginCmd) ask(ctx context.Context, s *session) error { return c.askOnce(ctx, s) }

func (c *loginCmd) Run(ctx context.Context, s *session) error {
	pw, err := c.password(ctx, s)
	if err != nil {
		return err
	}
	t, err := s.typ(ctx, s.Type)
	if err != nil {
		return err
	}
	e, err := t.Login(ctx, c.Identifier, pw, userdb.Attempt{Origin: c.Origin})
	if err != nil {
		return err
	}
	return s.entry(e, "")
}
