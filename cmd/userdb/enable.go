package main

import (
	"context"

	"github.com/coffeenode/userdb/userdb"
)

type enableCmd struct {
	Hint string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
}

func (*enableCmd) Help() string {
	return `Tokens from before stay void. Prints the entry's key.

Examples:
  userdb enable email=alice@example.com`
}

func (c *enableCmd) Run(ctx context.Context, s *session) error {
	return s.turn(ctx, c.Hint, "enabled", (*userdb.Type).Enable)
}
