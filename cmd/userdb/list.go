package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func listVerb(s *session) *cobra.Command {
	var q userdb.Query
	var where []string
	bounds := map[string]string{}
	c := &cobra.Command{
		Use:   "list TYPE",
		Short: "List entries of a type",
		Long: `List entries of a type. They come in no order, as they are found, or with --order by the values of
an ordered field; those without a value are left out then. Values are compared as the schema says.
After the key of an entry that may not log in stands the word disabled.`,
		Example: `  userdb list user
  userdb list user --where email=ALICE@example.com --json
  userdb list user --limit 2
  userdb list user --order added --gte 2026-01-01 --reverse`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if q.Limit < 0 {
				return usagef("--limit %d: want a number from 1, or 0 for no limit", q.Limit)
			}
			if err := checkFields(where); err != nil {
				return err
			}
			t, err := s.typ(ctx, words[0])
			if err != nil {
				return err
			}
			sc := s.db.Schema().Types[words[0]]
			if q.Where, err = facets(sc, where); err != nil {
				return err
			}
			if err := bound(&q, sc, bounds); err != nil {
				return err
			}
			if q.Limit == 0 {
				return eachReadable(t.All(ctx, q), nil, s.entryLine)
			}
			return s.pages(ctx, t, q)
		}),
	}
	c.Flags().StringArrayVar(&where, "where", nil, "only entries with `FIELD=VALUE`, an indexed or secondary field; may be\ngiven again")
	c.Flags().IntVar(&q.Limit, "limit", 0, "at most `N`; where there may be more, standard error says --after what")
	c.Flags().StringVar(&q.After, "after", "", "go on after `CURSOR`, which a list with --limit printed")
	disabledFlag(c, &q.Disabled)
	c.Flags().StringVar(&q.Order, "order", "", "by the values of an ordered `FIELD`: text by code points, numbers by size,\ndates by time")
	for name, usage := range map[string]string{
		"gt": "only greater values than `VALUE`", "gte": "only `VALUE` or greater ones",
		"lt": "only lesser values than `VALUE`", "lte": "only `VALUE` or lesser ones",
	} {
		c.Flags().Func(name, "with --order: "+usage, func(text string) error {
			bounds[name] = text
			return nil
		})
	}
	c.Flags().StringVar(&q.Prefix, "prefix", "", "with --order: only values that begin with `TEXT`")
	c.Flags().BoolVar(&q.Reverse, "reverse", false, "with --order: from the greatest value down")
	return c
}

// bound reads the bounds of a query, each by its flag. An empty text is one, too.
func bound(q *userdb.Query, t schema.Type, bounds map[string]string) (err error) {
	if q.Order == "" && (len(bounds) > 0 || q.Prefix != "" || q.Reverse) {
		return usagef("--gt, --gte, --lt, --lte, --prefix and --reverse need --order FIELD")
	}
	to := map[string]**schema.Value{"gt": &q.GT, "gte": &q.GTE, "lt": &q.LT, "lte": &q.LTE}
	for name, text := range bounds {
		*to[name] = new(schema.Value)
		if **to[name], err = parseFacet(t, q.Order, text); err != nil {
			return err
		}
	}
	return nil
}

// failures gathers what is wrong with some of many, so that one line tells it at the end.
type failures struct {
	of    int // how many were asked for; 0: a listing
	first error
	hints []string // as they are shown; "" in a listing, where errors name keys themselves
}

// maxNamed is how many failures are named.
const maxNamed = 5

// add takes an error about one entry, and refuses any other.
func (f *failures) add(hint string, err error) bool {
	if !aboutEntry(err) {
		return false
	}
	f.first = cmp.Or(f.first, err)
	f.hints = append(f.hints, shown(hint))
	return true
}

func (f *failures) err() error {
	n := len(f.hints)
	switch {
	case n == 0 || n == 1 && f.of == 0:
		return f.first
	case f.of == 0:
		return fmt.Errorf("%d entries are left out; the first: %w", n, f.first)
	case n == 1:
		return fmt.Errorf("%s: %w", f.hints[0], f.first)
	}
	text := strings.Join(f.hints[:min(n, maxNamed)], ", ")
	if n > maxNamed {
		text += ", …"
	}
	return fmt.Errorf("%w (%d of %d: %s)", f.first, n, f.of, text)
}

// eachReadable does something with each entry that can be read, and tells at the end of the others, by the hints that
// they were asked for by; a listing has none.
func eachReadable(entries iter.Seq2[userdb.Entry, error], hints []string, do func(userdb.Entry) error) error {
	failed, i := failures{of: len(hints)}, 0
	for e, err := range entries {
		if err == nil {
			err = do(e)
		}
		hint := ""
		if i < len(hints) {
			hint = hints[i]
		}
		if i++; err != nil && !failed.add(hint, err) {
			return err
		}
	}
	return failed.err()
}

// pageSize is how many entries are held at a time.
const pageSize = 500

// pages prints up to q.Limit entries, and the continuation.
func (s *session) pages(ctx context.Context, t *userdb.Type, q userdb.Query) error {
	var unreadable failures
	for left := q.Limit; left > 0; {
		q.Limit = min(left, pageSize)
		es, next, err := t.Page(ctx, q)
		if err != nil && !unreadable.add("", err) {
			return err
		}
		for _, e := range es {
			if err := s.entryLine(e); err != nil {
				return err
			}
		}
		if q.After = next; next == "" {
			return unreadable.err()
		}
		left -= len(es)
	}
	if err := s.out.flush(); err != nil { // what follows stands after the entries
		return err
	}
	err := errorOutput(s.std.err, s.JSON).say(map[string]string{"after": q.After}, "more: --after "+oneLine(q.After))
	return cmp.Or(err, unreadable.err())
}

func countVerb(s *session) *cobra.Command {
	var q userdb.Query
	c := &cobra.Command{
		Use:     "count TYPE",
		Short:   "Count entries of a type",
		Long:    `Count entries of a type by SCAN: on a large server that takes its time, and stops nobody else.`,
		Example: `  userdb count user`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			t, err := s.typ(ctx, words[0])
			if err != nil {
				return err
			}
			if q.Disabled == nil {
				return s.number(t.Count(ctx))
			}
			n := 0
			err = eachReadable(t.All(ctx, q), nil, func(userdb.Entry) error { n++; return nil })
			return s.number(n, err)
		}),
	}
	disabledFlag(c, &q.Disabled)
	return c
}

func keysVerb(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "keys PATTERN",
		Short: "List record keys, sorted",
		Long: `List record keys, sorted. The store's own records (~/…) are left out. Keys hold values in canonical
form: under the fold casefold in small letters, and domains as A-labels (xn--strae-oqa.de).`,
		Example: `  userdb keys 'user/uid:*'
  userdb keys 'user/*/~prk' --json`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			var keys []string
			for key, err := range inspect.Keys(ctx, s.db, words[0]) {
				if err != nil {
					return err
				}
				keys = append(keys, key)
			}
			slices.Sort(keys)
			return sayEach(s.out, slices.Compact(keys))
		}, opened),
	}
}

func walkVerb(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "walk PATTERN",
		Short:   "List record keys as they are found",
		Long:    `List record keys as keys does, but each when it is found: in no order, one perhaps twice.`,
		Example: `  userdb walk '*'`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			return each(inspect.Keys(ctx, s.db, words[0]), func(key string) error { return s.out.say(key, shown(key)) })
		}, opened),
	}
}

// sayEach prints values, one a line: a text as it is, and anything else as JSON, for people, too.
func sayEach[T any](o *output, values []T) error {
	for _, v := range values {
		var err error
		if text, ok := any(v).(string); ok {
			err = o.say(text, shown(text))
		} else {
			err = o.line(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// each does something with each value of seq, up to the first error.
func each[T any](seq iter.Seq2[T, error], do func(T) error) error {
	for v, err := range seq {
		if err == nil {
			err = do(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func removeVerb(s *session) *cobra.Command {
	return s.withYes(&cobra.Command{
		Use:   "remove PATTERN",
		Short: "Remove records by pattern",
		Long: `Remove records. An entry goes with all that belongs to it; an identifier or an index of an entry
that stays, stays, too. Without --yes it says how many records match. Prints how many were removed.
A pattern matches whole keys: '*' in the root reaches into all namespaces, 'user/*' does not.`,
		Example: `  userdb remove 'user/uid:*/tags' --yes
  userdb remove 'user/*' --yes`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if s.yes {
				return s.number(inspect.RemoveKeys(ctx, s.db, words[0]))
			}
			n := 0
			err := each(inspect.Keys(ctx, s.db, words[0]), func(string) error { n++; return nil })
			return cmp.Or(err, usagef("%s matches %s; add --yes to remove what no entry that stays needs",
				shown(words[0]), count(n, "record")))
		}, opened),
	})
}

func dumpVerb(s *session) *cobra.Command {
	o := inspect.Options{Pattern: "*", Format: "long"}
	c := &cobra.Command{
		Use:   "dump [PATTERN]",
		Short: "Show records with what is in them",
		Long: `Show records with what is in them, all or those that PATTERN matches. It is for people: scripts take
get, list and keys. Password hashes are only shown with --reveal.`,
		Example: `  userdb dump
  userdb dump 'user/uid:*' --format short`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if s.JSON {
				return usagef("dump is for people: leave --json out, or take get, list or keys")
			}
			if len(words) > 0 {
				o.Pattern = words[0]
			}
			if err := s.open(ctx); err != nil {
				return err
			}
			o.Color = s.out.live && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
			return inspect.Dump(ctx, s.db, s.out, o)
		}),
	}
	choice(c, &o.Format, "format", "show them as `FORMAT`: long, short (a line each) or keys (default long)", "long", "short", "keys")
	c.Flags().BoolVar(&o.Reveal, "reveal", false, "also password hashes")
	return c
}
