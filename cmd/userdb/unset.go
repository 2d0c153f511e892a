package main

import (
	"context"

	"github.com/coffeenode/userdb/userdb"
)

type unsetCmd struct {
	Hint   string   `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Fields []string `arg:"" name:"FIELD" help:"Fields that shall not be; those that are not do no harm."`
	revFlag
}

func (*unsetCmd) Help() string {
	return `All facets are unset in one change. Prints the entry as it is then.

Examples:
  userdb unset email=alice@example.com job name`
}

func (c *unsetCmd) Run(ctx context.Context, s *session) error {
	for _, name := range c.Fields {
		if name == passwordField {
			return usagef("a password is no facet: 'userdb passwd' sets another one")
		}
	}
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	return c.change(ctx, s, p, func(e *userdb.Entry) {
		for _, name := range c.Fields {
			e.Drop(name)
		}
	})
}
