package main

import "context"

type walkCmd struct {
	Pattern string `arg:"" name:"PATTERN" help:"A Redis glob: * any text, ? one character, [ab] one of them."`
}

func (*walkCmd) Help() string {
	return `Like keys, but each key is printed when it is found: in no order, one perhaps twice.

Examples:
  userdb walk '*'`
}

func (c *walkCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	for key, err := range db.Keys(ctx, c.Pattern) {
		if err != nil {
			return err
		}
		if err := s.out.say(key, shown(key)); err != nil {
			return err
		}
	}
	return nil
}
