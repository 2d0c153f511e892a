package main

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/validate"
)

type createCmd struct {
	Type       string   `arg:"" name:"TYPE" help:"A type of the schema, such as user."`
	Facets     []string `arg:"" name:"FIELD=VALUE" optional:"" help:"The facets; the primary one (uid=…) is made up where it is left out."`
	Tag        []string `placeholder:"T…" sep:"none" help:"Tags, set in the same change."`
	NoPassword bool     `help:"Make an entry that cannot log in."`
	passwordFlags
}

func (*createCmd) Help() string {
	return `A password is asked for without echo, or read as one line with --password-stdin. Values are
written as the schema says: numbers, true or false, ISO dates, JSON; other fields hold text.

Examples:
  userdb create user email=carol@example.com name=Carol
  userdb create user email=dave@example.com name=Dave --tag go c++ --password-stdin < secret.txt
  userdb create user uid=robot17 name='Mail Robot' job=mailer --no-password --json`
}

func (c *createCmd) ask(ctx context.Context, s *session) error {
	if err := checkFields(c.Facets); err != nil {
		return err
	}
	if c.NoPassword && c.PasswordStdin {
		return usagef("--no-password and --password-stdin exclude each other")
	}
	if c.NoPassword {
		return nil
	}
	return c.askNew(ctx, s, func(ctx context.Context) error { return c.try(ctx, s) })
}

// try finds what would make a person type a password in vain.
func (c *createCmd) try(ctx context.Context, s *session) error {
	t, n, err := c.draft(ctx, s)
	if err != nil {
		return err
	}
	sc := s.db.Schema().Types[c.Type]
	rules, err := validate.Compile(sc)
	if err != nil {
		return err
	}
	for _, name := range sc.Secondary() {
		v, given := n.Facets[name]
		if !given {
			continue
		}
		if err := rules.Secondary(name, sc.Canonical(v.Wire())); err != nil {
			return ruled(err)
		}
		taken, err := t.Exists(ctx, hints.Any(v.Wire()))
		if err != nil {
			return err
		}
		if taken {
			return &userdb.FieldError{Err: userdb.ErrDuplicate, Field: name}
		}
	}
	return nil
}

// ruled is what the store would say of a value that a rule refuses.
func ruled(err error) error {
	var rule *validate.Error
	if !errors.As(err, &rule) {
		return err
	}
	return &userdb.FieldError{Err: userdb.ErrInvalid, Field: rule.Field, Rule: rule.Rule, Reason: rule.Reason}
}

func (c *createCmd) draft(ctx context.Context, s *session) (*userdb.Type, userdb.NewEntry, error) {
	t, err := s.typ(ctx, c.Type)
	if err != nil {
		return nil, userdb.NewEntry{}, err
	}
	sc := s.db.Schema().Types[c.Type]
	n := userdb.NewEntry{Tags: c.Tag}
	if n.Facets, err = facets(sc, c.Facets); err != nil {
		return nil, n, err
	}
	n.UID, err = takeUID(sc, n.Facets)
	return t, n, err
}

// takeUID takes the primary value out of the facets; "" where a new one is wanted.
func takeUID(sc schema.Type, fs schema.Facets) (string, error) {
	uid, given := fs[sc.Primary]
	if given && uid.Wire() == "" {
		return "", &userdb.FieldError{Err: userdb.ErrInvalid, Field: sc.Primary, Rule: "non-empty", Reason: "it is empty; leave it out to have one made up"}
	}
	delete(fs, sc.Primary)
	return uid.Wire(), nil
}

func (c *createCmd) Run(ctx context.Context, s *session) error {
	var err error
	var pw string
	if !c.NoPassword {
		if pw, err = c.password(ctx, s); err != nil {
			return err
		}
	}
	t, n, err := c.draft(ctx, s)
	if err != nil {
		return err
	}
	n.Password = pw
	e, err := t.Create(ctx, n)
	if err != nil {
		return err
	}
	return s.entry(e, "")
}

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

type setCmd struct {
	Hint   string   `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Facets []string `arg:"" name:"FIELD=VALUE" help:"What shall be."`
	revFlag
}

func (*setCmd) Help() string {
	return `All facets are set in one change, or none is. Prints the entry as it is then.

Examples:
  userdb set email=alice@example.com name='Alice Liddell' job=author
  userdb set '*=bob@example.com' email=bob@example.org --json`
}

func (c *setCmd) Run(ctx context.Context, s *session) error {
	if err := checkFields(c.Facets); err != nil {
		return err
	}
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	var fs schema.Facets
	if fs, err = facets(s.db.Schema().Types[p.typ.Name()], c.Facets); err != nil {
		return err
	}
	return c.change(ctx, s, p, func(e *userdb.Entry) {
		for name, v := range fs {
			e.Put(name, v)
		}
	})
}

// revFlag is that of a command that changes an entry.
type revFlag struct {
	IfRev string `placeholder:"REV" help:"Change nothing, and exit 4, if the entry's ~rev is not this any more."`
}

func (r *revFlag) change(ctx context.Context, s *session, p place, f func(*userdb.Entry)) error {
	e, err := p.typ.Update(ctx, p.hint, func(e *userdb.Entry) error {
		if r.IfRev != "" && e.Rev() != r.IfRev {
			return userdb.ErrConflict
		}
		f(e)
		return nil
	})
	if err != nil {
		return p.named(err)
	}
	return s.entry(e, "")
}

type unsetCmd struct {
	Hint   string   `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Fields []string `arg:"" name:"FIELD" help:"Fields that shall not be; those that are not do no harm."`
	revFlag
}

func (*unsetCmd) Help() string {
	return `All facets are unset in one change. Prints the entry as it is then.

Examples:
  userdb unset email=alice@example.com job name`
}

func (c *unsetCmd) Run(ctx context.Context, s *session) error {
	for _, name := range c.Fields {
		if name == passwordField {
			return usagef("a password is no facet: 'userdb passwd' sets another one")
		}
	}
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	return c.change(ctx, s, p, func(e *userdb.Entry) {
		for _, name := range c.Fields {
			e.Drop(name)
		}
	})
}

type deleteCmd struct {
	Hint string `arg:"" name:"HINT" help:"The entry: see 'userdb hint --help'."`
	Yes  bool   `help:"Do it: there is no way back."`
}

func (*deleteCmd) Help() string {
	return `With an entry go its identifiers, its places in indexes and its tertiary records, such as tags.
Prints the key of the entry that was.

Examples:
  userdb delete email=bob@example.com --yes`
}

func (c *deleteCmd) Run(ctx context.Context, s *session) error {
	p, err := s.at(ctx, c.Hint)
	if err != nil {
		return err
	}
	e, err := p.typ.Find(ctx, p.hint)
	if err != nil {
		return p.named(err)
	}
	prk := e.Key().String()
	if !c.Yes {
		return usagef("would delete %s with all that belongs to it: add --yes", shown(prk))
	}
	if err := p.typ.Delete(ctx, hints.Key(e.Key())); err != nil {
		return p.named(err)
	}
	return s.out.say(prk, "deleted "+shown(prk))
}

// passwordField is where the original and we keep the hash.
const passwordField = "password"

// checkFields refuses what is no FIELD=VALUE before anything else happens.
func checkFields(texts []string) error {
	seen := map[string]bool{}
	for _, text := range texts {
		name, _, ok := strings.Cut(text, "=")
		switch {
		case !ok || name == "":
			return usagef("%s is not FIELD=VALUE", shown(text))
		case name == passwordField:
			return usagef("a password is no argument, for others could read it: leave it out to be asked, or use --password-stdin; 'userdb passwd' changes it")
		case seen[name]:
			return usagef("the field %s is given twice", shown(name))
		}
		seen[name] = true
	}
	return nil
}

// facets makes values of FIELD=VALUE, each by the codec of its field.
func facets(t schema.Type, texts []string) (schema.Facets, error) {
	fs := make(schema.Facets, len(texts))
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		v, err := schema.ParseText(t.Codec(name), value)
		if err != nil {
			return nil, refused(name, err)
		}
		fs[name] = v
	}
	return fs, nil
}

// refused is an ErrInvalid that names the field, which a codec does not know.
func refused(name string, err error) error {
	reason := err.Error()
	var value *schema.ValueError
	if errors.As(err, &value) {
		reason = "no " + string(value.Codec) + ": " + value.Reason
	}
	return &userdb.FieldError{Err: userdb.ErrInvalid, Field: name, Rule: "codec", Reason: reason}
}
