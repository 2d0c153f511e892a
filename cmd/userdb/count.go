package main

import (
	"context"
	"strconv"

	"github.com/coffeenode/userdb/userdb"
)

type countCmd struct {
	Type     string `arg:"" name:"TYPE" help:"A type of the schema, such as user."`
	Disabled *bool  `help:"Only entries that may not log in; with =false, only those that may."`
}

func (*countCmd) Help() string {
	return `Counts by SCAN: on a large server that takes its time, and stops nobody else.

Examples:
  userdb count user`
}

func (c *countCmd) Run(ctx context.Context, s *session) error {
	t, err := s.typ(ctx, c.Type)
	if err != nil {
		return err
	}
	n, err := c.count(ctx, t)
	if err != nil {
		return err
	}
	return s.out.say(n, strconv.FormatInt(n, 10))
}

func (c *countCmd) count(ctx context.Context, t *userdb.Type) (n int64, err error) {
	if c.Disabled == nil {
		return t.Count(ctx)
	}
	var unreadable failures
	for _, err := range t.All(ctx, userdb.Query{Disabled: c.Disabled}) {
		switch {
		case err == nil:
			n++
		case !unreadable.note(err):
			return n, err
		}
	}
	return n, unreadable.unread()
}
