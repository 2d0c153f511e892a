package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/coffeenode/userdb/internal/jsonline"
	"github.com/coffeenode/userdb/userdb"
)

type listCmd struct {
	Type  string   `arg:"" name:"TYPE" help:"A type of the schema, such as user."`
	Where []string `placeholder:"FIELD=VALUE" sep:"none" help:"Only entries with this value, of an indexed or a secondary field; may be given again."`
	Limit int      `placeholder:"N" help:"At most so many; where there may be more, standard error says --after what."`
	After string   `placeholder:"CURSOR" help:"Go on behind a limit."`

	Disabled *bool `help:"Only entries that may not log in; with =false, only those that may."`
	orderFlags
}

func (*listCmd) Help() string {
	return `Entries come in no order, as they are found, or with --order by the values of an ordered field;
those without a value are left out then. Values are compared as the schema says. Behind the key of
an entry that may not log in stands the word disabled.

Examples:
  userdb list user
  userdb list user --where email=ALICE@example.com --json
  userdb list user --limit 2
  userdb list user --order added --gte 2026-01-01 --reverse`
}

func (c *listCmd) Run(ctx context.Context, s *session) error {
	if c.Limit < 0 {
		return usagef("--limit %d: want a number from 1, or 0 for no limit", c.Limit)
	}
	if err := checkFields(c.Where); err != nil {
		return err
	}
	t, err := s.typ(ctx, c.Type)
	if err != nil {
		return err
	}
	q := userdb.Query{After: c.After, Limit: c.Limit, Disabled: c.Disabled}
	if q.Where, err = facets(s.db.Schema().Types[c.Type], c.Where); err != nil {
		return err
	}
	if err := c.order(&q, s.db.Schema().Types[c.Type]); err != nil {
		return err
	}
	if c.Limit == 0 {
		return s.list(t.All(ctx, q))
	}
	return s.pages(ctx, t, q)
}

// list prints entries as they come. One that cannot be read is told in the end.
func (s *session) list(entries iter.Seq2[userdb.Entry, error]) error {
	var unreadable failures
	for e, err := range entries {
		if err == nil {
			err = s.entryLine(e)
		} else if unreadable.note(err) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return unreadable.unread()
}

// pageSize is how many entries are held at a time.
const pageSize = 500

// pages prints up to q.Limit entries, and the continuation.
func (s *session) pages(ctx context.Context, t *userdb.Type, q userdb.Query) error {
	var unreadable failures
	left := q.Limit
	for {
		q.Limit = min(left, pageSize)
		es, next, err := t.Page(ctx, q)
		if err != nil && !unreadable.note(err) {
			return err
		}
		for _, e := range es {
			if err := s.entryLine(e); err != nil {
				return err
			}
		}
		left -= len(es)
		q.After = next
		if next == "" {
			return unreadable.unread()
		}
		if left == 0 {
			return firstOf(s.more(next), unreadable.unread())
		}
	}
}

// more says how to go on, behind the entries.
func (s *session) more(cursor string) error {
	if err := s.out.flush(); err != nil {
		return err
	}
	if !s.JSON {
		fmt.Fprintln(s.std.err, "more: --after "+oneLine(cursor))
		return nil
	}
	line, err := jsonline.Marshal(map[string]string{"after": cursor})
	if err == nil {
		_, err = s.std.err.Write(line)
	}
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
