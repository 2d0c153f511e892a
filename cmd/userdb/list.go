package main

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/jsonline"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
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

// orderFlags say in which order entries are listed, and from where to where. A range without a value is
// none; for the empty text there is nothing to bound.
type orderFlags struct {
	Order   string  `placeholder:"FIELD" help:"By the values of an ordered field: text by code points, numbers by size, dates by time."`
	Gt      *string `placeholder:"VALUE" help:"With --order: only greater values."`
	Gte     *string `placeholder:"VALUE" help:"With --order: only this value or greater ones."`
	Lt      *string `placeholder:"VALUE" help:"With --order: only lesser values."`
	Lte     *string `placeholder:"VALUE" help:"With --order: only this value or lesser ones."`
	Prefix  string  `placeholder:"TEXT" help:"With --order: only values that begin so."`
	Reverse bool    `help:"With --order: from the greatest value down."`
}

func (o orderFlags) order(q *userdb.Query, t schema.Type) error {
	if o.Order == "" {
		if o.Gt != nil || o.Gte != nil || o.Lt != nil || o.Lte != nil || o.Prefix != "" || o.Reverse {
			return usagef("--gt, --gte, --lt, --lte, --prefix and --reverse need --order FIELD")
		}
		return nil
	}
	q.Order, q.Reverse, q.Range.Prefix = o.Order, o.Reverse, o.Prefix
	for _, b := range []struct {
		text *string
		to   **schema.Value
	}{{o.Gt, &q.Range.GT}, {o.Gte, &q.Range.GTE}, {o.Lt, &q.Range.LT}, {o.Lte, &q.Range.LTE}} {
		if b.text == nil {
			continue
		}
		v, err := schema.ParseText(t.Codec(o.Order), *b.text)
		if err != nil {
			return refused(o.Order, err)
		}
		*b.to = &v
	}
	return nil
}

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
