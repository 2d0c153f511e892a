package main

import (
	"context"

	"github.com/coffeenode/userdb/userdb"
)

type passwdCmd struct {
	Hint   string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Change bool   `help:"Ask for the old password first; a wrong one exits 5, and counts as a failed login."`
	passwordFlags
	old string
}

func (*passwdCmd) Help() string {
	return `The new password is asked for twice without echo, or read as one line with --password-stdin; with
--change the first line is the old one, the second the new one. All tokens of the entry become void,
and its failed logins are forgotten. Scripts write -- before what a visitor gave: no flag in its place
makes this command exit 0, and this help is 'userdb help passwd' alone.

Examples:
  userdb passwd -- email=alice@example.com
  userdb passwd --change --password-stdin -- email=alice@example.com < old-and-new.txt
  userdb passwd --password-stdin -- '*=Alice' < secret.txt`
}

func (*passwdCmd) grants() {}

func (c *passwdCmd) ask(ctx context.Context, s *session) error {
	find := func(ctx context.Context) error {
		p, err := s.at(ctx, c.Hint)
		if err != nil {
			return err
		}
		_, err = p.typ.Find(ctx, p.hint)
		return p.named(err)
	}
	if !c.Change || c.PasswordStdin {
		return c.askNew(ctx, s, find)
	}
	err := s.needTerminal()
	if err == nil {
		err = s.timed(ctx, find)
	}
	if err == nil {
		c.old, err = s.std.term.ask(ctx, "Old password: ")
	}
	if err != nil {
		return err
	}
	return c.askNew(ctx, s, func(context.Context) error { return nil })
}

func (c *passwdCmd) Run(ctx context.Context, s *session) error {
	if c.Change && c.PasswordStdin {
		var err error
		if c.old, err = secretLine(ctx, s.std.in, "password"); err != nil {
			return err
		}
	}
	pw, err := c.password(ctx, s)
	if err != nil {
		return err
	}
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	if c.Change {
		return p.named(p.typ.ChangePassword(ctx, p.hint, c.old, pw, userdb.Attempt{}))
	}
	return p.named(p.typ.SetPassword(ctx, p.hint, pw))
}
