package main

import (
	"context"

	"github.com/coffeenode/userdb/userdb"
)

type loginCmd struct {
	Identifier string `arg:"" name:"IDENTIFIER" help:"Any secondary value: a name, an address. It is never taken for a hint. With --password-stdin, - is the first line of standard input, before the password."`
	Origin     string `placeholder:"O" help:"Where the attempt comes from, an address or a name: failures are counted for each."`
	passwordFlags
}

func (*loginCmd) Help() string {
	return `Prints the entry, or exits 5, in the same way and after the same work whoever is asked for. --type
says of which type the entry is. After too many failures it exits 8 and says how long to wait; nothing
was checked then. An origin from where the entry logged in before keeps attempts of its own, which
nobody else can use up; without --origin failures are only counted for the entry.

Scripts write -- before what a visitor gave, or pass it on standard input: no flag in its place makes
this command exit 0, and this help is 'userdb help login' alone.

Examples:
  userdb login -- alice@example.com
  userdb login --origin 192.0.2.7 -- alice@example.com
  userdb login --password-stdin --json -- Alice < secret.txt
  userdb login - --password-stdin < name-and-secret.txt`
}

func (*loginCmd) discreet() {}

func (*loginCmd) grants() {}

func (c *loginCmd) ask(ctx context.Context, s *session) error {
	if s.firstLine(c.Identifier) && !c.PasswordStdin {
		return usagef("- stands for the first line of standard input, and needs --password-stdin")
	}
	return c.askOnce(ctx, s)
}

func (c *loginCmd) Run(ctx context.Context, s *session) error {
	if s.firstLine(c.Identifier) {
		var err error
		if c.Identifier, err = secretLine(ctx, s.std.in, "identifier"); err != nil {
			return err
		}
	}
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
