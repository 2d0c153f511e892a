package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func createCommand(s *session) *cobra.Command {
	var n userdb.NewEntry
	var noPassword bool
	c := &cobra.Command{
		Use:   "create [TYPE] [FIELD=VALUE…]",
		Short: "Create an entry",
		Long: `Create an entry. Without TYPE, it is of the only type of the schema or, if there are several, of the
type user. Without uid=…, a UID is generated. Each field takes what the schema says: a number, true
or false, an ISO date, JSON, or else text. A field that may have several values ("many" in the
schema) may be given several times; the first value is its facet.

The command asks for a password without echo. With --password-stdin it reads the password as one
line.`,
		Example: `  userdb create user email=carol@example.com name=Carol
  userdb create email=dan@example.com --tag go c++ --password-stdin < secret.txt
  userdb create uid=robot17 name='Mail Robot' job=mailer --no-password --json`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			typ := ""
			if len(words) > 0 && !strings.Contains(words[0], "=") {
				if typ, words = words[0], words[1:]; typ == "" { // probably an unset variable
					return usagef("the type is empty; leave it out for the only type")
				}
			}
			if err := checkWords(words); err != nil {
				return err
			}
			create := func(ctx context.Context) error {
				t, err := s.parseNew(ctx, typ, words, &n)
				if err != nil {
					return err
				}
				return s.printEntry(t.Create(ctx, n))
			}
			check := func(ctx context.Context) error {
				n.RequirePassword = true
				return ignoreMissingPassword(create(ctx))
			}
			switch {
			case noPassword && s.fromStdin:
				return usagef("--no-password and --password-stdin cannot be combined")
			case noPassword:
				return s.timed(ctx, create)
			}
			return s.ask(ctx, check, create, secret{"password", newPassword, &n.Password})
		}, asking),
	}
	c.Flags().StringArrayVar(&n.Tags, "tag", nil, "add the tags `T...` in the same change")
	c.Flags().BoolVar(&noPassword, "no-password", false, "create an entry that cannot log in")
	return s.withStdin(c)
}

// parseNew parses texts FIELD=VALUE into n, as the schema says, and returns the type called typ. If
// typ is "", it returns the default type.
func (s *session) parseNew(ctx context.Context, typ string, texts []string, n *userdb.NewEntry) (*userdb.Type, error) {
	t, err := s.typ(ctx, typ)
	if err != nil {
		return nil, err
	}
	sc := s.db.Schema().Types[t.Name()]
	if n.Values, texts, err = splitRepeated(sc, texts); err != nil {
		return nil, err
	}
	if n.Facets, err = parseFacets(sc, texts); err != nil {
		return nil, err
	}
	uid, given := n.Facets[sc.Primary]
	if n.UID = uid.Wire(); given && n.UID == "" {
		const reason = "it is empty; leave it out to have one generated"
		return nil, &userdb.FieldError{Err: userdb.ErrInvalid, Field: sc.Primary, Rule: "non-empty", Reason: reason}
	}
	delete(n.Facets, sc.Primary)
	return t, nil
}

func getCommand(s *session) *cobra.Command {
	var exhaustive, reveal bool
	c := &cobra.Command{
		Use:   "get HINT…",
		Short: "Print entries",
		Long: `Print entries in the order of the hints, with all their values and with their tags as ~tags. If an
entry is not found, the others are still printed, and the exit code is that of the first failure. In
JSON, ~values has all values of the fields that may have several.`,
		Example: `  userdb get email=alice@example.com
  userdb get '*=Alice' '*=bob@example.com' --json
  userdb get '["user","name","Bob"]' --reveal`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			if reveal {
				s.warnExposed()
			}
			all, err := s.subjects(ctx, words)
			if err != nil {
				return err
			}
			return eachReadable(findAll(ctx, all, exhaustive), words, func(e userdb.Entry) error {
				return s.printWithTags(ctx, e, reveal)
			})
		}, reading),
	}
	c.Flags().BoolVar(&exhaustive, "exhaustive", false, "for *, also search fields that the schema no longer declares, by SCAN")
	c.Flags().BoolVar(&reveal, "reveal", false, "also print the password hash")
	return c
}

// printWithTags prints an entry with its tags and, if reveal is set, with the hash of its password.
// If only the tags of this entry cannot be read, it prints the rest and returns the error.
func (s *session) printWithTags(ctx context.Context, e userdb.Entry, reveal bool) error {
	all, tagsErr := s.withTags(ctx, e)
	if tagsErr != nil && !aboutEntry(tagsErr) {
		return tagsErr
	}
	if reveal {
		hash, err := transfer.PasswordHash(ctx, s.db, e.Type(), hints.Key(e.Key()))
		if err != nil {
			return err
		}
		if hash != "" {
			all[passwordField] = schema.Text(hash)
		}
	}
	return cmp.Or(s.printFacets(all), tagsErr)
}

// tagsField is the tertiary record that holds the tags of an entry.
const tagsField = "tags"

// withTags returns the facets of an entry and, as ~tags, its tags if it has any. If the tags cannot
// be read, it returns the facets and the error.
func (s *session) withTags(ctx context.Context, e userdb.Entry) (schema.Facets, error) {
	all := e.Flat()
	if s.db.Schema().Types[e.Type()].Tertiary[tagsField].Kind != "set" {
		return all, nil
	}
	t, err := s.db.Type(e.Type())
	if err != nil {
		return all, err
	}
	tags, err := t.Tags(hints.Key(e.Key())).Members(ctx)
	if err != nil || len(tags) == 0 {
		return all, err
	}
	text, err := strictjson.Marshal(tags)
	if err == nil {
		// Unlike schema.JSON, Decode takes a text of any size.
		all["~tags"], err = schema.Decode(schema.CodecJSON, strings.TrimSpace(string(text)))
	}
	return all, err
}

// findAll yields the entry of each subject. Consecutive subjects of one type take one round trip,
// unless exhaustive is set.
func findAll(ctx context.Context, subjects []subject, exhaustive bool) iter.Seq2[userdb.Entry, error] {
	return func(yield func(userdb.Entry, error) bool) {
		for len(subjects) > 0 {
			typ, hs := subjects[0].typ, []hints.Hint{subjects[0].hint}
			for subjects = subjects[1:]; len(subjects) > 0 && subjects[0].typ.Name() == typ.Name() && !exhaustive; subjects = subjects[1:] {
				hs = append(hs, subjects[0].hint)
			}
			found := typ.FindAll(ctx, hs...)
			if exhaustive {
				found = func(yield func(userdb.Entry, error) bool) { yield(typ.FindExhaustive(ctx, hs[0])) }
			}
			for e, err := range found {
				if !yield(e, err) {
					return
				}
			}
		}
	}
}

func setCommand(s *session) *cobra.Command {
	var first []string
	c := changeCommand(s, &cobra.Command{
		Use:   "set HINT [FIELD=VALUE…]",
		Short: "Set facets of an entry",
		Long: `Set facets of an entry in one change: all or none. Prints the changed entry.

If a field may have several values ("many" in the schema), FIELD=VALUE replaces the first value,
FIELD+=VALUE adds one after the others, FIELD-=VALUE removes one, and --first FIELD=VALUE moves one
to the front. If the entry already has a value to add, or lacks one to remove or to move, nothing
changes and the exit code is 2.`,
		Example: `  userdb set email=alice@example.com name='Alice Liddell' job=author
  userdb set '*=bob@example.com' email=bob@example.org --json
  userdb set uid=17c07627d35e email+=alice@work.example
  userdb set uid=17c07627d35e --first email=alice@work.example`,
	}, func(words []string) (parseEdit, error) {
		if len(words)+len(first) == 0 {
			return nil, usagef("missing: FIELD=VALUE…; see 'userdb set --help'")
		}
		if err := cmp.Or(checkEdits(words), checkWords(first)); err != nil {
			return nil, err
		}
		return func(t *userdb.Type) (entryEdit, error) { return s.parseSet(t, words, first) }, nil
	})
	c.Flags().StringArrayVar(&first, "first", nil, "move a value that the entry has to the front of its field: `FIELD=VALUE`; may\nbe repeated")
	return c
}

func unsetCommand(s *session) *cobra.Command {
	return changeCommand(s, &cobra.Command{
		Use:   "unset HINT FIELD…",
		Short: "Unset facets of an entry",
		Long: `Unset facets of an entry in one change. Prints the changed entry. Declared facets that it does not
have are ignored. If a field has several values, all of them are removed; 'userdb set HINT
FIELD-=VALUE' removes one. ~lost:FIELD is a value that 'userdb check --repair' or 'userdb schema
apply' took out of the field.`,
		Example: `  userdb unset email=alice@example.com job name
  userdb unset 17c07627d35e '~lost:name'`,
	}, func(names []string) (parseEdit, error) {
		if slices.Contains(names, passwordField) {
			return nil, usagef("a password is not a facet: 'userdb passwd' sets it")
		}
		unset := func(e *userdb.Entry) error { return s.unset(e, names) }
		return func(*userdb.Type) (entryEdit, error) { return unset, nil }, nil
	})
}

// unset removes the named facets from a copy of an entry.
func (s *session) unset(e *userdb.Entry, names []string) error {
	for _, name := range names {
		if err := s.checkUnset(*e, name); err != nil {
			return err
		}
		e.Drop(name)
	}
	return nil
}

// An entryEdit changes a copy of an entry.
type entryEdit func(*userdb.Entry) error

// A parseEdit returns what the words of a command do to an entry of a type.
type parseEdit func(*userdb.Type) (entryEdit, error)

// changeCommand makes c update an entry in one change. check returns a function that parses the
// words for a type, or an error if they are wrong whatever the store holds.
func changeCommand(s *session, c *cobra.Command, check func(words []string) (parseEdit, error)) *cobra.Command {
	var rev string
	c.RunE = s.run(func(ctx context.Context, words []string) error {
		parse, err := check(words[1:])
		if err != nil {
			return err
		}
		return s.onSubject(words[0], func(ctx context.Context, p subject) error {
			edit, err := parse(p.typ)
			if err != nil {
				return err
			}
			return s.printEntry(p.typ.Update(ctx, p.hint, func(e *userdb.Entry) error {
				if rev != "" && e.Rev() != rev {
					return userdb.ErrConflict
				}
				return edit(e)
			}))
		})(ctx)
	})
	c.Flags().StringVar(&rev, "if-rev", "", "change nothing and exit 4 if the entry's ~rev is no longer `REV`")
	return c
}

// lostPrefix begins the names of values that a repair or a change of the schema took out of their
// fields.
const lostPrefix = "~lost:"

// checkUnset returns an error if an entry has no facet called name and cannot have one, or if the
// facet belongs to the store.
func (s *session) checkUnset(e userdb.Entry, name string) error {
	_, has := e.Flat()[name]
	field, isLost := strings.CutPrefix(name, lostPrefix)
	switch {
	case has && (isLost || !strings.HasPrefix(name, "~")):
		return nil
	case isLost: // like a declared facet, it may be absent
		field, _, _ = strings.Cut(field, ":")
	case has:
		return usagef("%s belongs to the store and cannot be unset", printable(name))
	}
	t, err := view.Of(s.db).Type(e.Type())
	if err != nil || t.Schema.Open {
		return err
	}
	if reason := t.UndeclaredReason(field); reason != "" {
		return &userdb.FieldError{Err: userdb.ErrInvalid, Field: name, Rule: "undeclared", Reason: reason}
	}
	return nil
}

func deleteCommand(s *session) *cobra.Command {
	var release bool
	c := &cobra.Command{
		Use:   "delete HINT",
		Short: "Delete an entry and everything that belongs to it",
		Long: `Delete an entry with its identifiers, its members in indexes and its tertiary records, such as tags.
Prints the key of the deleted entry. Here a bare word is always a UID, never a name.

If the schema has "hold" for a field, nobody else can take the entry's values of that field for that
time; an address is held only if it was verified. With --release, others can take them at once, and
may get mail that is meant for the former owner.`,
		Example: `  userdb delete email=bob@example.com --yes`,
		RunE: s.runOnKey("deleted", func(ctx context.Context, p subject) error {
			if !s.yes {
				return usagef("would delete %s and everything that belongs to it: add --yes", printable(p.text))
			}
			if release {
				return p.typ.Delete(ctx, p.hint, userdb.ReleaseAtOnce())
			}
			return p.typ.Delete(ctx, p.hint)
		}, byUID),
	}
	c.Flags().BoolVar(&release, "release", false, "free the values of the entry at once instead of holding them")
	return s.withYes(c)
}

// suggestKey adds to ErrNotFound how to name the entry, if the hint is a bare word and an
// identifier of an entry. It returns any other error as it is.
func suggestKey(ctx context.Context, p subject, err error) error {
	word, isWord := p.hint.Word()
	if !isWord || !errors.Is(err, userdb.ErrNotFound) {
		return err
	}
	e, findErr := p.typ.Find(ctx, hints.Any(word).Of(p.typ.Name()))
	if findErr != nil {
		return err
	}
	return fmt.Errorf("%w; delete takes a UID or FIELD=VALUE, and %s is an identifier of %s: write 'userdb delete %s'",
		err, printable(word), printable(e.UID()), printable(e.Key().String()))
}

func (s *session) withYes(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&s.yes, "yes", false, "do it; this cannot be undone")
	return c
}

func (s *session) withoutYes() bool { return !s.yes }

func tagsCommand(s *session) *cobra.Command {
	change := func(done string, do func(userdb.Set, context.Context, ...string) (int64, error)) func(*cobra.Command, []string) error {
		return s.runOn(func(ctx context.Context, p subject, tags []string) error {
			n, err := do(p.typ.Tags(p.hint), ctx, tags...)
			return s.printResult(n, done+" "+plural(n, "tag"), err)
		})
	}
	return group(&cobra.Command{Use: "tags", Short: "Add, remove, list and find tags", Example: `  userdb tags add email=alice@example.com go
  userdb tags find go`}, &cobra.Command{
		Use:     "add HINT TAG…",
		Short:   "Add tags to an entry",
		Long:    `Add tags to an entry. Tags that it already has are kept. Prints the number of new tags.`,
		Example: `  userdb tags add email=alice@example.com go python`,
		RunE:    change("added", userdb.Set.Add),
	}, &cobra.Command{
		Use:     "remove HINT TAG…",
		Short:   "Remove tags from an entry",
		Long:    `Remove tags from an entry. Tags that it does not have are ignored. Prints how many were removed.`,
		Example: `  userdb tags remove email=alice@example.com c++`,
		RunE:    change("removed", userdb.Set.Remove),
	}, &cobra.Command{
		Use:   "list HINT",
		Short: "List the tags of an entry",
		Example: `  userdb tags list email=alice@example.com
  userdb tags list '*=Alice' --json`,
		RunE: s.runOn(func(ctx context.Context, p subject, _ []string) error {
			tags, err := p.typ.Tags(p.hint).Members(ctx)
			switch {
			case err != nil:
				return err
			case s.JSON:
				return s.out.printJSON(append([]string{}, tags...))
			}
			if len(tags) == 0 {
				s.noteSilence("no tags")
			}
			return printEach(s.out, tags)
		}, reading),
	}, &cobra.Command{
		Use:   "find TAG…",
		Short: "Find the entries that have all given tags",
		Long:  `Find the entries that have all given tags. --type selects their type.`,
		Example: `  userdb tags find python
  userdb tags find python c++ --json`,
		RunE: s.run(func(ctx context.Context, tags []string) error {
			t, err := s.typ(ctx, s.Type)
			if err != nil {
				return err
			}
			to := &counted{listing: s.newListing(t.Name(), nil)}
			if err := printEntries(to, t.All(ctx, userdb.Query{Tags: tags})); err != nil || to.n > 0 {
				return err
			}
			return s.noteNoEntries(ctx)
		}, reading),
	})
}

// passwordField is the field in which records hold the password hash, as in CoffeeNode UserDB.
const passwordField = "password"

// checkFields returns an error unless each text is FIELD=VALUE, no field is given twice and none is
// the password.
func checkFields(texts []string) error {
	if err := checkWords(texts); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, text := range texts {
		name, _, _ := strings.Cut(text, "=")
		if seen[name] {
			return usagef("the field %s is given twice", printable(name))
		}
		seen[name] = true
	}
	return nil
}

// checkWords returns an error unless each text is FIELD=VALUE, and no field is the password.
func checkWords(texts []string) error {
	for _, text := range texts {
		switch name, _, ok := strings.Cut(text, "="); {
		case !ok || name == "":
			return usagef("%s is not FIELD=VALUE", printable(text))
		case strings.TrimRight(name, "+-") == passwordField:
			return usagef("a password cannot be an argument, because others could read it: " +
				"leave it out to be asked for it, or use --password-stdin; 'userdb passwd' changes it")
		}
	}
	return nil
}

// parseFacets parses texts FIELD=VALUE, each by the codec of its field.
func parseFacets(t schema.Type, texts []string) (schema.Facets, error) {
	fs := make(schema.Facets, len(texts))
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		var err error
		if fs[name], err = parseFacet(t, name, value); err != nil {
			return nil, err
		}
	}
	return fs, nil
}

// parseFacet parses a value by the codec of its field. Unlike an error of the codec, its error
// names the field.
func parseFacet(t schema.Type, name, text string) (schema.Value, error) {
	v, err := schema.ParseText(t.Codec(name), text)
	if err == nil {
		return v, nil
	}
	reason := err.Error()
	if value, ok := errors.AsType[*schema.ValueError](err); ok {
		reason = value.Reason
	}
	return v, &userdb.FieldError{Err: userdb.ErrInvalid, Field: name, Rule: "codec", Reason: reason}
}
