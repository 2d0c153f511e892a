package main

import (
	"context"
	"strconv"
)

type countCmd struct {
	Type string `arg:"" name:"TYPE" help:"A type of the schema, such as user."`
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
	n, err := t.Count(ctx)
	if err != nil {
		return err
	}
	return s.out.say(n, strconv.FormatInt(n, 10))
}
