package userdb

import (
	"context"
	"errors"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// A NewEntry is what Create makes an entry of.
type NewEntry struct {
	UID      string        // "": the next one that Options.NewUID gives and no entry has
	Facets   schema.Facets // without the primary one
	Tags     []string      // members of the tertiary set "tags", which the schema must declare
	Password string        // "": the entry cannot log in until SetPassword
}

// uidAttempts is how many generated UIDs may be taken before a generator is called broken.
const uidAttempts = 16

// added is the field that Create sets where the schema declares it as a date, as the original does.
const added = "added"

// Create makes an entry, its SRKs, index members and tags in one change, or nothing at all. It
// returns the entry as written. ErrDuplicate names the field of a value that is taken, ErrInvalid a
// value that a rule refuses; a password over 72 bytes or against the type's policy is refused before
// anything is sent.
func (t *Type) Create(ctx context.Context, n NewEntry) (Entry, error) {
	d, err := t.draft(ctx, n)
	if err != nil {
		return Entry{}, err
	}
	for range uidAttempts {
		if n.UID == "" {
			if d.UID, err = t.db.options.NewUID(); err != nil {
				return Entry{}, err
			}
		}
		e, err := t.create(ctx, d)
		var taken *store.DuplicateError
		if n.UID == "" && errors.As(err, &taken) && taken.Primary {
			continue
		}
		return e, named(err)
	}
	return Entry{}, errUIDs
}

var errUIDs = errors.New("the UID generator gives only UIDs that are taken")

// draft checks and encodes what was given.
func (t *Type) draft(ctx context.Context, n NewEntry) (change.Draft, error) {
	if _, given := n.Facets[t.t.Schema.Primary]; given {
		return change.Draft{}, change.Invalid(t.t.Schema.Primary, "primary", "the UID is not given as a facet")
	}
	wires, err := t.t.Encode(n.Facets, nil)
	if err != nil {
		return change.Draft{}, err
	}
	if _, given := wires[added]; !given && t.t.Schema.Fields[added].Codec == schema.CodecDate {
		if err := t.t.EncodeFacet(wires, added, schema.Date(t.db.view.Now()), nil); err != nil {
			return change.Draft{}, err
		}
	}
	if n.Password != "" {
		if wires[store.FieldPassword], err = t.hash(ctx, n.Password, append(t.identifiers(store.Record{Fields: wires}), n.UID)); err != nil {
			return change.Draft{}, err
		}
	}
	d := change.Draft{UID: n.UID, Facets: wires}
	if len(n.Tags) > 0 {
		d.Sets = map[string][]string{change.TagsName: n.Tags}
	}
	if n.Password != "" {
		d.Own = map[string]string{store.FieldChanged: schema.Date(t.db.view.Now()).Wire()}
	}
	return d, nil
}

func (t *Type) create(ctx context.Context, d change.Draft) (Entry, error) {
	d.Facets[t.t.Schema.Primary] = d.UID
	c, err := t.t.Create(d)
	if err != nil {
		return Entry{}, err
	}
	v, err := t.db.view.Apply(ctx, t.t, c)
	if !made(err) {
		return Entry{}, err
	}
	return t.made(change.Created(c, v, d.Facets), err)
}

// made is the entry that a change has made, with what there is to say of the change.
func (t *Type) made(r store.Record, err error) (Entry, error) {
	e, unreadable := t.entry(r)
	if unreadable != nil {
		return e, unreadable
	}
	return e, err
}

// named makes a FieldError of what the store says about a taken value.
func named(err error) error {
	if err == nil {
		return nil
	}
	var taken *store.DuplicateError
	if errors.As(err, &taken) {
		return &FieldError{Err: ErrDuplicate, Field: taken.Field}
	}
	return err
}
