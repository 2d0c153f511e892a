package main

import (
	"context"
	"errors"

	"github.com/coffeenode/userdb/hints"
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
