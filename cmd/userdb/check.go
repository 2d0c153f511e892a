package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func checkCommand(s *session) *cobra.Command {
	var o check.Options
	var keep []string
	c := &cobra.Command{
		Use:   "check [HINT]",
		Short: "Check records for damage, and repair them",
		Long: `Check one entry, or all records, those of operators and API keys included: whether every identifier
leads to its entry and to no other, and whether every record belongs to an entry. Exits 7 if it
leaves errors. Mere problems, such as an entry that lacks one of its identifiers, are printed but
are not a failure. Without --repair it changes nothing.

--repair repairs everything that needs no decision from you, while the system runs. It never deletes
a facet. It lists entries that share an identifier, and --keep says which of them keeps it. The
others are no longer found by it: in them it becomes ~lost:FIELD, which get shows and unset removes.

If a stored schema is lost or cannot be read, every command for its type fails. --repair stores it
again if its fingerprint still exists and is that of the schema that this command uses. Otherwise
add --schema FILE with the schema under which the entries were written, which all records must fit.`,
		Example: `  userdb check
  userdb check email=alice@example.com --json
  userdb check --repair
  userdb check --repair --keep user/uid:17c07627d35e`,
		RunE: s.readingIf(func() bool { return !o.Repair }, s.run(func(ctx context.Context, words []string) error {
			var err error
			if o.Keep, err = parseKeep(keep, o.Repair); err != nil {
				return err
			}
			o.Restate = o.Repair && s.Schema != ""
			var sum checkSummary
			if err := sum.check(ctx, s, words, o); err != nil {
				return err
			}
			if sum.nothingThere() {
				return withHint(words[0], userdb.ErrNotFound)
			}
			if p := sum.missing; p != nil {
				if err := s.out.print(p, oneLine(p.String())); err != nil && !brokenPipe(err) {
					return err
				}
			}
			if err := s.out.print(sum, sum.text()); err != nil && !brokenPipe(err) {
				return err
			}
			return sum.failure(o.Repair)
		}, unlimited, allTypes)),
	}
	c.Flags().BoolVar(&o.Repair, "repair", false, "repair what needs no decision; may be stopped and run again")
	c.Flags().StringArrayVar(&keep, "keep", nil, "with --repair: of entries that share an identifier, `PRK` keeps it; may be repeated")
	return c
}

// parseKeep parses the values of --keep.
func parseKeep(texts []string, repair bool) (keys []recordkey.Key, err error) {
	if len(texts) > 0 && !repair {
		return nil, usagef("--keep %s decides what --repair does: add --repair", printable(texts[0]))
	}
	for _, text := range texts {
		key, err := recordkey.Parse(text)
		if err != nil || key.Kind() != recordkey.KindPRK {
			return nil, usagef("--keep %s: want the key of an entry, such as user/uid:17c0", printable(text))
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// A checkSummary counts what a check found. It is the last line of the output.
type checkSummary struct {
	Entries  int64 `json:"entries"`
	Errors   int64 `json:"errors"`
	Problems int64 `json:"problems"`
	Repaired int64 `json:"repaired"`

	// missing says that the hint leads to no entry. It is printed only beside other problems.
	missing *check.Problem
	choices []recordkey.Key // keys of entries that share an identifier; nil if none do
}

// nothingThere reports whether the hint of the check leads to no record at all, neither to an entry
// nor to a damaged record.
func (c *checkSummary) nothingThere() bool {
	return c.missing != nil && c.Errors+c.Problems+c.Repaired == 1
}

// failure returns an error, which says what to do next, if the check left errors.
func (c *checkSummary) failure(repair bool) error {
	next := "--repair repairs what needs no decision"
	switch {
	case c.Errors == 0:
		return nil
	case repair && c.choices != nil:
		next = "of those that share an identifier, --keep says which one keeps it: --keep " + joinKeys(c.choices, " or --keep ")
	case repair:
		next = "a person must decide: docs/check.md says what each code means"
	}
	return fmt.Errorf("%w: %s; %s", errDamage, plural(c.Errors, "error"), next)
}

// joinKeys formats keys for people, with a separator between them.
func joinKeys(keys []recordkey.Key, between string) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = printable(key.String())
	}
	return strings.Join(texts, between)
}

func (c *checkSummary) text() string {
	text := plural(c.Entries, "entry") + ", " + plural(c.Errors, "error") + ", " + plural(c.Problems, "problem")
	if c.Repaired > 0 {
		text += fmt.Sprintf(", %d repaired", c.Repaired)
	}
	return text
}

// check checks the entry that a word names or, without a word, all records.
func (c *checkSummary) check(ctx context.Context, s *session, words []string, o check.Options) error {
	p := s.progress("checking", !s.JSON)
	defer p.clear()
	o.Progress = p.bar
	err := s.open(ctx)
	if s.db != nil && errors.Is(err, userdb.ErrCorrupt) { // the stored schema cannot be read
		if err = c.print(s, check.Own(ctx, s.db, o), p); err == nil && c.Errors == 0 {
			err = s.useStored(ctx)
		}
	}
	if err != nil || c.Errors > 0 {
		return err
	}
	if len(words) == 0 {
		c.Entries, err = s.countEntries(ctx)
	} else {
		c.Entries, err = s.selectOnly(ctx, words[0], &o)
	}
	if err != nil {
		return err
	}
	if err := s.checkKept(ctx, o.Keep); err != nil {
		return err
	}
	if err := c.print(s, check.Run(ctx, s.db, o), p); err != nil || len(words) > 0 || s.Namespace != "" {
		return err
	}
	return c.print(s, checkReserved(ctx, s.db, o), p)
}

// checkReserved checks the entries that the service keeps for itself, such as operators. It
// prefixes the keys in problems with the namespace of these entries.
func checkReserved(ctx context.Context, db *userdb.DB, o check.Options) iter.Seq2[check.Problem, error] {
	return func(yield func(check.Problem, error) bool) {
		reserved, err := admin.Open(db)
		if err != nil {
			yield(check.Problem{}, err)
			return
		}
		o.Keep = nil // --keep names keys of accounts
		for p, err := range check.Run(ctx, reserved, o) {
			if err == nil {
				p.Key = view.Reserved.String() + p.Key
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// print counts problems and prints them.
func (c *checkSummary) print(s *session, problems iter.Seq2[check.Problem, error], bar *progress) error {
	return each(problems, func(p check.Problem) error {
		bar.clear()
		text := oneLine(p.String())
		switch {
		case p.Repaired:
			c.Repaired++
			text = "repaired: " + text
		case p.Severity == check.SeverityWarning:
			c.Problems++
		default:
			c.Errors++
		}
		if c.choices == nil && !p.Repaired {
			c.choices = p.Choices
		}
		if p.Code == "entry_missing" {
			c.missing = &p
			return nil
		}
		// The exit code covers all problems, even if the reader of the output stops early.
		if err := s.out.print(p, text); err != nil && !brokenPipe(err) {
			return err
		}
		return nil
	})
}

// checkKept returns an error if one of the keys of --keep is not that of an entry.
func (s *session) checkKept(ctx context.Context, keys []recordkey.Key) error {
	for _, key := range keys {
		t, err := s.typ(ctx, key.Type())
		if err != nil {
			return err
		}
		if _, err := t.Find(ctx, hints.Key(key)); err != nil && !errors.Is(err, userdb.ErrCorrupt) {
			return fmt.Errorf("--keep %s: %w", printable(key.String()), err)
		}
	}
	return nil
}

// selectOnly restricts a check to one entry. It returns 1, or 0 if the entry does not exist.
func (s *session) selectOnly(ctx context.Context, text string, o *check.Options) (int64, error) {
	p, err := s.subject(ctx, text)
	if err != nil {
		return 0, err
	}
	o.Only = p.hint.Of(p.typ.Name())
	_, err = p.typ.Find(ctx, p.hint)
	if errors.Is(err, userdb.ErrNotFound) {
		return 0, nil
	} else if err != nil && !aboutEntry(err) {
		return 0, err
	}
	return 1, nil
}

// countEntries returns the number of entries of all types.
func (s *session) countEntries(ctx context.Context) (all int64, err error) {
	for _, name := range s.db.Schema().Names() {
		t, err := s.typ(ctx, name)
		if err != nil {
			return 0, err
		}
		n, err := t.Count(ctx, userdb.Query{})
		if err != nil && !aboutEntry(err) { // the check itself reports errors about entries
			return 0, err
		}
		all += n.Entries
	}
	return all, nil
}
