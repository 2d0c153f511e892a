package main

import (
	"context"
	"os"

	"github.com/coffeenode/userdb/maintain"
)

type dumpCmd struct {
	Pattern string `arg:"" name:"PATTERN" optional:"" default:"*" help:"A Redis glob; without it, all records."`
	Format  string `placeholder:"F" enum:"long,short,keys" default:"long" help:"How much to show: long, short (a line each) or keys."`
	Reveal  bool   `help:"Also password hashes."`
}

func (*dumpCmd) Help() string {
	return `For people: scripts take get, list and keys. Password hashes are only shown with --reveal.

Examples:
  userdb dump
  userdb dump 'user/uid:*' --format short`
}

func (c *dumpCmd) Run(ctx context.Context, s *session) error {
	if s.JSON {
		return usagef("dump is for people: leave --json out, or take get, list or keys")
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	o := maintain.DumpOptions{Pattern: c.Pattern, Format: c.Format, Reveal: c.Reveal, Color: s.out.eager && colors()}
	return maintain.Dump(ctx, db, s.out, o)
}

// colors says whether the terminal shows them and nobody minds.
func colors() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
