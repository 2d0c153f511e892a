package main

import (
	"context"
	"iter"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/userdb"
)

type getCmd struct {
	Hints      []string `arg:"" name:"HINT" help:"Entries: see 'userdb hint --help'."`
	Exhaustive bool     `help:"Search * also under fields that the schema no longer declares, by SCAN."`
	Reveal     bool     `help:"Print the password hash, too."`
}

func (*getCmd) Help() string {
	return `Entries are printed in the order of the hints. Where one is not found, the others are printed all
the same, and the exit code is that of the first that failed.

Examples:
  userdb get email=alice@example.com
  userdb get '*=Alice' '*=bob@example.com' --json
  userdb get '["user","name","Bob"]' --reveal`
}

func (c *getCmd) Run(ctx context.Context, s *session) error {
	places := make([]place, len(c.Hints))
	for i, text := range c.Hints {
		var err error
		if places[i], err = s.at(ctx, text); err != nil {
			return err
		}
	}
	failed := failures{of: len(places)}
	for len(places) > 0 {
		n := sameType(places)
		if err := c.some(ctx, s, places[:n], &failed); err != nil {
			return err
		}
		places = places[n:]
	}
	return failed.err()
}

// some prints entries of one type.
func (c *getCmd) some(ctx context.Context, s *session, places []place, failed *failures) error {
	for e, err := range c.find(ctx, places) {
		at := places[0]
		places = places[1:]
		if err != nil {
			if !failed.add(at.text, err) {
				return err
			}
			continue
		}
		hash := ""
		if c.Reveal {
			if hash, err = maintain.PasswordHash(ctx, s.db, e.Type(), hints.Key(e.Key())); err != nil {
				return at.named(err)
			}
		}
		if err := s.entry(e, hash); err != nil {
			return err
		}
	}
	return nil
}

func (c *getCmd) find(ctx context.Context, places []place) iter.Seq2[userdb.Entry, error] {
	if !c.Exhaustive {
		hs := make([]hints.Hint, len(places))
		for i, p := range places {
			hs[i] = p.hint
		}
		return places[0].typ.FindAll(ctx, hs...)
	}
	return func(yield func(userdb.Entry, error) bool) {
		for _, p := range places {
			if !yield(p.typ.FindExhaustive(ctx, p.hint)) {
				return
			}
		}
	}
}

// sameType is how many of the first places are of one type, so that they can be read together.
func sameType(places []place) int {
	n := 1
	for n < len(places) && places[n].typ.Name() == places[0].typ.Name() {
		n++
	}
	return n
}
