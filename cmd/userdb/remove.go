package main

import (
	"context"
	"strconv"
)

type removeCmd struct {
	Pattern string `arg:"" name:"PATTERN" help:"A Redis glob: * any text, ? one character, [ab] one of them."`
	Yes     bool   `help:"Do it: there is no way back."`
}

func (*removeCmd) Help() string {
	return `An entry goes with all that belongs to it; an identifier or an index of an entry that stays, stays,
too. Without --yes it says how many records match. Prints how many were removed.

Examples:
  userdb remove 'user/uid:*/tags' --yes
  userdb remove 'user/*' --yes`
}

func (c *removeCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	if c.Yes {
		n, err := db.RemoveKeys(ctx, c.Pattern)
		if err != nil {
			return err
		}
		return s.out.say(n, strconv.Itoa(n))
	}
	var n int64
	for _, err := range db.Keys(ctx, c.Pattern) {
		if err != nil {
			return err
		}
		n++
	}
	return usagef("%s matches %s; add --yes to remove what no entry that stays needs", shown(c.Pattern), count(n, "record"))
}
