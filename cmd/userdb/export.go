package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/coffeenode/userdb/maintain"
)

type exportCmd struct {
	Hint    string `arg:"" name:"HINT" optional:"" help:"One entry, with all that is held of it; without it, all entries."`
	Secrets bool   `help:"Also password hashes: keep the output where nobody else can read it."`
}

func (*exportCmd) Help() string {
	return `Prints one JSON line an entry: its type, its facets, its tertiary records, and since when it is
disabled. 'userdb import' reads that. Entries come in no order, and no lock is held.

Examples:
  userdb export > users.jsonl
  userdb export email=alice@example.com
  userdb export --secrets > backup.jsonl`
}

// patient: a large store takes its time.
func (*exportCmd) patient() {}

func (c *exportCmd) Run(ctx context.Context, s *session) error {
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	var unreadable failures
	bar := newProgress(s.std.err, time.Now)
	o := maintain.ExportOptions{
		Secrets: c.Secrets, Type: s.Type,
		Unreadable: func(err error) { unreadable.note(err) },
		Progress:   func(done int64) { bar.show(fmt.Sprintf("%d entries, %s", done, bar.rate(done))) },
	}
	if c.Hint != "" {
		p, err := s.at(ctx, c.Hint)
		if err != nil {
			return err
		}
		o.Only = p.hint.Of(p.typ.Name())
	}
	_, err = maintain.Export(ctx, db, io.Writer(s.out), o)
	bar.end()
	return firstOf(notWhole(firstOf(err, s.out.flush())), unreadable.unread())
}

// notWhole makes an error also of a reader that went away: what it kept would pass for a backup.
func notWhole(err error) error {
	if enough(err) {
		return fmt.Errorf("%v: the export is not whole", err)
	}
	return err
}
