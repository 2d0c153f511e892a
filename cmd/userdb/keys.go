package main

import (
	"context"
	"slices"
)

type keysCmd struct {
	Pattern string `arg:"" name:"PATTERN" help:"A Redis glob: * any text, ? one character, [ab] one of them."`
}

func (*keysCmd) Help() string {
	return `The store's own records (~/…) are left out. Keys hold values in canonical form: under the fold
casefold in small letters, and domains as A-labels (xn--strae-oqa.de).

Examples:
  userdb keys 'user/uid:*'
  userdb keys 'user/*/~prk' --json`
}

func (c *keysCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	var keys []string
	for key, err := range db.Keys(ctx, c.Pattern) {
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if err := s.out.say(key, shown(key)); err != nil {
			return err
		}
	}
	return nil
}
