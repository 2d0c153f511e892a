package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/coffeenode/userdb/password"
)

type passwordCmd struct {
	Strength strengthCmd `cmd:"" help:"How hard a password is to guess."`
}

func (*passwordCmd) Help() string {
	return `Examples:
  userdb password strength`
}

type strengthCmd struct {
	passwordFlags
}

func (*strengthCmd) Help() string {
	return `The password is asked for without echo, or read as one line with --password-stdin. No store is needed.
Half of the guesses at 10,000 a second take the time that is told; score 3 and 4 are good. The first
100 characters are looked at.

Examples:
  userdb password strength
  userdb password strength --password-stdin --json < secret.txt`
}

func (*strengthCmd) discreet() {}

func (c *strengthCmd) ask(ctx context.Context, s *session) error { return c.askOnce(ctx, s) }

func (c *strengthCmd) Run(ctx context.Context, s *session) error {
	pw, err := c.password(ctx, s)
	if err != nil {
		return err
	}
	r := password.Strength(pw)
	text := []string{fmt.Sprintf("score %d of 4: guessed in %s (%.3f bits)", r.Score, r.Time, r.Entropy)}
	return s.out.say(r, strings.Join(append(text, r.Suggestions...), "\n"))
}
