package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func listCommand(s *session) *cobra.Command {
	var q userdb.Query
	var where, fields []string
	var asCSV bool
	var split map[string]rune
	bounds := map[string]string{}
	c := &cobra.Command{
		Use:   "list [TYPE]",
		Short: "List entries of a type",
		Long: `List entries of a type. Without --order they come in the order in which they are found. With --order
they are sorted by the values of an ordered field, compared as the schema says. Entries without a
value come first, or are left out if there are bounds. The key of an entry that may not log in is
followed by the word disabled. On a terminal the list is a table as wide as the terminal, in which …
marks text that is cut. Elsewhere it has one line per entry. All values of a field are shown, in
their order; CSV shows only the first, unless --split names the field. Without TYPE it lists the only
type or, if there are several, user.`,
		Example: `  userdb list user
  userdb list user --where email=ALICE@example.com --json
  userdb list user --limit 2 --fields name,email
  userdb list user --order added --gte 2026-01-01 --reverse
  userdb list --csv > users.csv`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if q.Limit < 0 {
				return usagef("--limit %d: want a number from 1, or 0 for no limit", q.Limit)
			}
			if asCSV && s.JSON {
				return usagef("--csv and --json cannot be combined")
			}
			if len(split) > 0 && !asCSV {
				return usagef("--split needs --csv; elsewhere all values are shown")
			}
			t, err := s.selectType(ctx, &q, words, where)
			if err != nil {
				return err
			}
			if err := s.checkFieldNames("--fields", fields, t.Name()); err != nil {
				return err
			}
			if err := s.checkFieldNames("--split", slices.Sorted(maps.Keys(split)), t.Name()); err != nil {
				return err
			}
			if err := parseBounds(&q, s.db.Schema().Types[t.Name()], bounds); err != nil {
				return err
			}
			if q.Before != "" && (q.Limit == 0 || q.Order == "" || q.After != "") {
				return usagef("--before needs --order and --limit, and excludes --after")
			}
			to := &counted{listing: s.newListing(t.Name(), fields)}
			if asCSV {
				to.listing = newCSV(s.out, s.std.err, s.db.Schema().Types[t.Name()], fields, split)
			}
			if q.Limit == 0 {
				err = printEntries(to, t.All(ctx, q))
			} else {
				err = s.pages(ctx, t, q, to)
			}
			if err != nil || to.n > 0 {
				return err
			}
			return s.noteNoEntries(ctx)
		}, reading),
	}
	selectFlags(c, &q, &where)
	c.Flags().StringSliceVar(&fields, "fields", nil, "only the fields `A,B`, in this order; JSON has all fields")
	c.Flags().BoolVar(&asCSV, "csv", false, "print CSV with a header, as 'userdb import' reads it: the declared\nfields, or those of --fields")
	splitFlag(c, &split, "with --csv: all values of a field in its cell, with a character between\nthem: `FIELD=CHAR`, such as 'email=;'; may be repeated")
	pageFlags(c, &q)
	orderFlags(c, &q, bounds)
	return c
}

// counted counts the entries of a listing.
type counted struct {
	listing
	n int
}

func (c *counted) add(e userdb.Entry) error {
	c.n++
	return c.listing.add(e)
}

// noteNoEntries says that a list has no entries. If the namespace has never had any, its name may
// be mistyped.
func (s *session) noteNoEntries(ctx context.Context) error {
	if s.Namespace == "" {
		s.noteSilence("no entries")
		return nil
	}
	stored, err := migrate.StoredSchema(ctx, s.db)
	if err == nil && len(stored.Types) == 0 {
		s.note("the namespace %s is empty; 'userdb namespace list' prints those that are not", printable(s.Namespace))
	} else if err == nil {
		s.noteSilence("no entries")
	}
	return err
}

// pageFlags declares the flags that divide a listing into pages.
func pageFlags(c *cobra.Command, q *userdb.Query) {
	c.Flags().IntVar(&q.Limit, "limit", 0, "at most `N` entries, or 0 for all; if there may be more,\n"+
		"standard error says how to continue")
	c.Flags().StringVar(&q.After, "after", "", "continue after `CURSOR`, which a list with --limit printed")
	c.Flags().StringVar(&q.Before, "before", "", "go back before `CURSOR`, which a list with --order and --limit printed")
}

// orderFlags declares the flags that order a listing.
func orderFlags(c *cobra.Command, q *userdb.Query, bounds map[string]string) {
	c.Flags().StringVar(&q.Order, "order", "", "sort by an ordered `FIELD`: text by its canonical form, numbers by size,\n"+
		"dates by time")
	for name, usage := range map[string]string{
		"gt": "only values greater than `VALUE`", "gte": "only `VALUE` and greater values",
		"lt": "only values less than `VALUE`", "lte": "only `VALUE` and lesser values",
	} {
		c.Flags().Func(name, "with --order: "+usage, func(text string) error {
			bounds[name] = text
			return nil
		})
	}
	c.Flags().StringVar(&q.Prefix, "prefix", "", "with --order: only values that begin with `TEXT`")
	c.Flags().BoolVar(&q.Reverse, "reverse", false, "with --order: from the greatest value down")
}

// parseBounds parses the bounds of a query, which are keyed by flag. An empty text is also a bound.
func parseBounds(q *userdb.Query, t schema.Type, bounds map[string]string) (err error) {
	if q.Order == "" && (len(bounds) > 0 || q.Prefix != "" || q.Reverse) {
		return usagef("--gt, --gte, --lt, --lte, --prefix and --reverse need --order FIELD")
	}
	for _, two := range [][2]string{{"gt", "gte"}, {"lt", "lte"}} {
		_, open := bounds[two[0]]
		if _, closed := bounds[two[1]]; open && closed {
			return usagef("--%s and --%s cannot be combined", two[0], two[1])
		}
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

// failures collects errors about single entries, so that one line reports them at the end.
type failures struct {
	asked int // number of hints on the command line; 0 for a listing
	first error
	// hints are those of the failed entries, as they are printed. They are "" in a listing, whose
	// errors name keys.
	hints []string
}

// maxNamed is the maximum number of hints that an error names.
const maxNamed = 5

// add records an error about one entry and returns true. For any other error it returns false.
func (f *failures) add(hint string, err error) bool {
	if !aboutEntry(err) {
		return false
	}
	f.first = cmp.Or(f.first, err)
	f.hints = append(f.hints, printable(hint))
	return true
}

func (f *failures) err() error {
	n := len(f.hints)
	switch {
	case n == 0 || n == 1 && f.asked == 0:
		return f.first
	case f.asked == 0:
		return fmt.Errorf("%d entries cannot be read; the first: %w", n, f.first)
	case n == 1:
		return fmt.Errorf("%s: %w", f.hints[0], f.first)
	}
	text := strings.Join(f.hints[:min(n, maxNamed)], ", ")
	if n > maxNamed {
		text += ", …"
	}
	return fmt.Errorf("%w (%d of %d: %s)", f.first, n, f.asked, text)
}

// eachReadable calls do with each entry that can be read. At the end it returns an error about the
// others, which names their hints. hints is nil for a listing.
func eachReadable(entries iter.Seq2[userdb.Entry, error], hints []string, do func(userdb.Entry) error) error {
	failed, i := failures{asked: len(hints)}, 0
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

// printEntries prints entries, and at the end returns an error about those that cannot be read.
func printEntries(to listing, entries iter.Seq2[userdb.Entry, error]) error {
	err := eachReadable(entries, nil, to.add)
	return cmp.Or(to.end(), err)
}

// checkFieldNames returns an error if no entry of a type can have one of the fields of a flag.
func (s *session) checkFieldNames(flag string, fields []string, typ string) error {
	t := s.db.Schema().Types[typ]
	for _, field := range fields {
		_, declared := t.Fields[field]
		if _, isRecord := t.Tertiary[field]; isRecord && !declared {
			return usagef("%s: %s is a tertiary record, not a field; 'userdb get' and 'userdb export' print it", flag, printable(field))
		}
		if !declared && field != t.Primary && !t.Open {
			return usagef("%s: type %s has no field %s", flag, printable(typ), printable(field))
		}
	}
	return nil
}

// pageSize is how many entries are read at a time. The page before a cursor is always read in one
// piece, because it is read backward from the cursor.
const pageSize = 500

// pages prints up to q.Limit entries and then the cursors of the next and the previous page.
func (s *session) pages(ctx context.Context, t *userdb.Type, q userdb.Query, to listing) error {
	var unreadable failures
	var ends userdb.Page
	first := true
	for left := q.Limit; left > 0; first = false {
		if q.Limit = left; q.Before == "" {
			q.Limit = min(left, pageSize)
		}
		page, err := t.Page(ctx, q)
		if err != nil && !unreadable.add("", err) {
			return err
		}
		for _, e := range page.Entries {
			if err := to.add(e); err != nil {
				return err
			}
		}
		if ends.Next = page.Next; first {
			ends.Prev = page.Prev
		}
		if left, q.After = left-len(page.Entries), page.Next; page.Next == "" || q.Before != "" {
			break
		}
	}
	return cmp.Or(s.printCursors(to, ends), unreadable.err())
}

// printCursors ends a listing and prints the cursors of the next and the previous page.
func (s *session) printCursors(to listing, page userdb.Page) error {
	if err := cmp.Or(to.end(), s.out.flush()); err != nil { // print the cursors after the entries
		return err
	}
	cursors, text := map[string]string{}, []string{}
	if page.Next != "" {
		cursors["after"] = page.Next
		text = append(text, "more: --after "+oneLine(page.Next))
	}
	if page.Prev != "" {
		cursors["before"] = page.Prev
		text = append(text, "back: --before "+oneLine(page.Prev))
	}
	if len(text) == 0 {
		return nil
	}
	return errorOutput(s.std.err, s.JSON).print(cursors, strings.Join(text, "\n"))
}

func countCommand(s *session) *cobra.Command {
	var q userdb.Query
	var where []string
	c := &cobra.Command{
		Use:   "count [TYPE]",
		Short: "Count entries of a type",
		Long: `Count entries of a type. A count is immediate if an index has it: entries with one value of an
indexed field, with one tag or, except on a cluster, all entries of a type with an ordered field.
Any other count needs a SCAN, which may take long on a large server but does not block it. Without
conditions, entries are counted by their keys, damaged ones included; with conditions, they are read.
Without TYPE it counts the only type or, if there are several, user.`,
		Example: `  userdb count user
  userdb count user --tag admin`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			t, err := s.selectType(ctx, &q, words, where)
			if err != nil {
				return err
			}
			n, err := t.Count(ctx, q)
			if err != nil && !aboutEntry(err) {
				return err
			}
			if n.Estimate && !s.JSON {
				fmt.Fprintln(s.std.err, "userdb: this is an estimate: on a cluster an index may have surplus members, which 'userdb check' finds")
			}
			return cmp.Or(s.printNumber(n.Entries, nil), err)
		}, reading),
	}
	selectFlags(c, &q, &where)
	return c
}

// selectFlags declares the flags by which list and count select entries.
func selectFlags(c *cobra.Command, q *userdb.Query, where *[]string) {
	c.Flags().StringArrayVar(where, "where", nil, "only entries with `FIELD=VALUE`, an indexed or secondary field; may be\nrepeated")
	c.Flags().StringArrayVar(&q.Tags, "tag", nil, "only entries with all of the tags `T...`")
	declareDisabled(c, &q.Disabled)
}

// selectType returns the type that the first word names or, without words, the default type. It
// adds the conditions of --where to the query.
func (s *session) selectType(ctx context.Context, q *userdb.Query, words []string, where []string) (*userdb.Type, error) {
	if err := checkFields(where); err != nil {
		return nil, err
	}
	name := ""
	if len(words) > 0 {
		if name = words[0]; name == "" { // probably an unset variable
			return nil, usagef("the type is empty; leave it out for the only type")
		}
	}
	t, err := s.typ(ctx, name)
	if err == nil {
		q.Where, err = parseFacets(s.db.Schema().Types[t.Name()], where)
	}
	return t, err
}

func keysCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "keys PATTERN",
		Short: "List record keys, sorted",
		Long: `List record keys, sorted. The store's own records (~/…) are left out. Keys hold values in canonical
form: in lower case if the fold is casefold, and with domains as A-labels (xn--strae-oqa.de).`,
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
			if len(keys) == 0 {
				s.noteSilence("no keys")
			}
			slices.Sort(keys)
			return printEach(s.out, slices.Compact(keys))
		}, opened, reading, allTypes),
	}
}

func walkCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "walk PATTERN",
		Short:   "List record keys as they are found",
		Long:    `List record keys like 'userdb keys', but as soon as each is found: unsorted, and perhaps twice.`,
		Example: `  userdb walk '*'`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			err := each(inspect.Keys(ctx, s.db, words[0]), func(key string) error { return s.out.print(key, printable(key)) })
			if err == nil && !s.out.wrote {
				s.noteSilence("no keys")
			}
			return err
		}, opened, reading, allTypes),
	}
}

// printEach prints values, one on a line. For people it prints texts as printable returns them, and
// other values as JSON.
func printEach[T any](o *output, values []T) error {
	for _, v := range values {
		var err error
		if text, ok := any(v).(string); ok {
			err = o.print(text, printable(text))
		} else {
			err = o.printJSON(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls do with each value of seq, up to the first error.
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

func removeCommand(s *session) *cobra.Command {
	return s.withYes(&cobra.Command{
		Use:   "remove PATTERN",
		Short: "Remove records by pattern",
		Long: `Remove records. Everything that belongs to a removed entry is removed with it. Identifiers and
indexes are kept if an entry that is not removed needs them. Without --yes it only says how many
records match. Prints how many were removed.
A pattern matches whole keys: in the root, '*' matches keys in all namespaces and 'user/*' does not.`,
		Example: `  userdb remove 'user/uid:*/tags' --yes
  userdb remove 'user/*' --yes`,
		RunE: s.readingIf(s.withoutYes, s.run(func(ctx context.Context, words []string) error {
			if s.yes {
				n, err := inspect.RemoveKeys(ctx, s.db, words[0])
				if err != nil && n > 0 {
					s.warn("stopped after " + plural(n, "record") + "; the same command removes the rest")
				}
				return s.printNumber(n, err)
			}
			n := 0
			err := each(inspect.Keys(ctx, s.db, words[0]), func(string) error { n++; return nil })
			if n == 0 {
				return cmp.Or(err, usagef("%s matches no records", printable(words[0])))
			}
			return cmp.Or(err, usagef("%s matches %s; add --yes to remove those that no remaining entry needs",
				printable(words[0]), plural(n, "record")))
		}, opened, allTypes)),
	})
}

func dumpCommand(s *session) *cobra.Command {
	o := inspect.Options{Pattern: "*", Format: "long"}
	c := &cobra.Command{
		Use:   "dump [PATTERN]",
		Short: "Show records and their contents",
		Long: `Show records and their contents, all or those that match PATTERN. The output is for people: in
scripts, use get, list and keys. Password hashes are only shown with --reveal.

Up to 10,000 records are sorted by key. If there are more, they are shown as they are found: in no
particular order, and a record may appear twice.`,
		Example: `  userdb dump
  userdb dump 'user/uid:*' --format short`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if s.JSON {
				return usagef("dump is for people: leave --json out, or use get, list or keys")
			}
			if len(words) > 0 {
				o.Pattern = words[0]
			}
			if o.Reveal {
				s.warnExposed()
			}
			if err := s.open(ctx); err != nil {
				return err
			}
			o.Color = s.out.live && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
			err := inspect.Dump(ctx, s.db, s.out, o)
			if err == nil && !s.out.wrote {
				s.noteSilence("no records")
			}
			return err
		}, reading, allTypes),
	}
	choiceFlag(c, &o.Format, "format", "show them as `FORMAT`: long, short (one line each) or keys (default long)", "long", "short", "keys")
	c.Flags().BoolVar(&o.Reveal, "reveal", false, "also show password hashes")
	return c
}
