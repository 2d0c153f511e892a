package userdb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
)

// problems collects what is wrong with user input: a *FieldError for each field and a
// *password.PolicyError.
type problems []error

// add records err if it is about a field or the password. Of two errors about one field it keeps
// the first. It returns any other error.
func (p *problems) add(err error) error {
	err = publicError(err)
	_, ofField := errors.AsType[*FieldError](err)
	_, ofPassword := errors.AsType[*password.PolicyError](err)
	switch {
	case err == nil:
		return nil
	case !ofField && !ofPassword:
		return err
	case !ofField || !slices.Contains(p.fields(), fieldOf(err)):
		*p = append(*p, err)
	}
	return nil
}

func fieldOf(err error) string {
	e, _ := errors.AsType[*FieldError](err)
	return e.Field
}

// fields returns the names of the fields that have a problem.
func (p problems) fields() (names []string) {
	for _, err := range p {
		if e, ok := errors.AsType[*FieldError](err); ok {
			names = append(names, e.Field)
		}
	}
	return names
}

// problemsIn returns the errors that err joins. It reports whether each of them says what is wrong
// with a value or with the password.
func problemsIn(err error) (all problems, only bool) {
	if err == nil {
		return nil, true
	}
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		_, ofField := errors.AsType[*FieldError](err)
		_, ofPassword := errors.AsType[*password.PolicyError](err)
		return problems{err}, (ofField || ofPassword) && (CodeOf(err) == CodeInvalid || CodeOf(err) == CodeDuplicate)
	}
	for _, e := range joined.Unwrap() {
		more, only := problemsIn(e)
		if !only {
			return nil, false
		}
		all = append(all, more...)
	}
	return all, true
}

// err returns the problems as one error: nil if there are none, a single problem as it is, and
// several joined, sorted by field, with that of the password last.
func (p problems) err() error {
	slices.SortStableFunc(p, func(a, b error) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	if len(p) == 1 {
		return p[0]
	}
	return errors.Join(p...)
}

// sortKey returns the key that problems are sorted by.
func sortKey(err error) string {
	if _, ofField := errors.AsType[*FieldError](err); ofField {
		return fieldOf(err)
	}
	return "\U0010ffff"
}

// addMissingAndTaken adds to p the required fields that are missing and the values that other
// entries have, and returns all problems as one error. facets are the facets that could be encoded.
func (t *Type) addMissingAndTaken(ctx context.Context, p problems, old store.Record, facets map[string]string) error {
	wrong := p.fields()
	for _, err := range t.declared.MissingErrors(old, facets) {
		if !slices.Contains(wrong, fieldOf(publicError(err))) {
			_ = p.add(err)
		}
	}
	for _, err := range t.duplicateErrors(ctx, old, facets, wrong) {
		_ = p.add(err)
	}
	return p.err()
}

// duplicateErrors returns an error for each value of a secondary field that another entry has or
// holds, except for the fields in wrong. It returns none if the store does not answer.
func (t *Type) duplicateErrors(ctx context.Context, old store.Record, facets map[string]string, wrong []string) (errs []error) {
	var duplicates []*FieldError // the error for each lookup, if it finds an entry
	var lookups []store.Lookup
	addLookup := func(field, written string, number int) {
		canonical, _ := t.declared.Schema.Identifier(written)
		if canonical == "" || old.HasValue(field, canonical) {
			return
		}
		var srks []recordkey.Key
		for _, other := range t.declared.Rivals(field) {
			if srk, ok := t.declared.SRK(other, canonical); ok {
				srks = append(srks, srk)
			}
		}
		if len(srks) > 0 {
			duplicates, lookups = append(duplicates, duplicateValue(field, number)), append(lookups, store.Lookup{SRKs: srks})
		}
	}
	for _, field := range t.declared.Secondary {
		if slices.Contains(wrong, field) {
			continue
		}
		further := store.FurtherIn(facets, field)
		addLookup(field, facets[field], min(1, len(further)))
		for i, f := range further {
			addLookup(field, f.Written, i+2)
		}
	}
	found, err := t.view.FindMany(ctx, lookups)
	if err != nil {
		return nil // the caller reports the problems found so far
	}
	held := t.heldByOthers(ctx, old.Key, lookups)
	for i, f := range found {
		switch {
		case f.Err == nil && f.Record.Key != old.Key:
			errs = append(errs, duplicates[i])
		case held[i]:
			duplicates[i].Rule = store.RuleHeld
			errs = append(errs, duplicates[i])
		}
	}
	return errs
}

// duplicateValue returns the error for a value that another entry has. number counts the values of
// the field from 1; it is 0 if the field has only one.
func duplicateValue(field string, number int) *FieldError {
	e := &FieldError{Err: ErrDuplicate, Field: field}
	if number > 0 {
		e.Reason = "value " + strconv.Itoa(number)
	}
	return e
}

// numberDuplicate adds the number of the taken value to err, if err is an ErrDuplicate for a field
// with several values.
func (t *Type) numberDuplicate(ctx context.Context, err error, old store.Record, facets map[string]string) error {
	taken, ok := publicError(err).(*FieldError)
	if !ok || !errors.Is(err, ErrDuplicate) || len(store.FurtherIn(facets, taken.Field)) == 0 {
		return err
	}
	for _, found := range t.duplicateErrors(ctx, old, facets, nil) {
		if fieldOf(found) == taken.Field {
			return found
		}
	}
	return err
}

// allProblems returns all problems of a change that was refused with err, which reports only one of
// them.
func (t *Type) allProblems(ctx context.Context, err error, old store.Record, facets map[string]string) error {
	var p problems
	if other := p.add(t.numberDuplicate(ctx, err, old, facets)); other != nil || len(p) == 0 {
		return other
	}
	if slices.Contains(p.fields(), t.declared.Schema.Primary) {
		// An entry with this UID exists. The other values may be its own.
		return p.err()
	}
	return t.addMissingAndTaken(ctx, p, old, facets)
}

// withOtherProblems joins found, which reports problems of an edited entry, with the problems of
// its other fields. It returns any other error as it is.
func (t *Type) withOtherProblems(ctx context.Context, found error, r store.Record, e Entry) error {
	p, only := problemsIn(found)
	if !only || len(e.edits) == 0 && len(e.newSets) == 0 {
		return found
	}
	_, _, _, refused := t.editChange(ctx, r, e)
	if refused == nil {
		own := map[string]string{}
		encoded, _, err := t.encodeFacets(r, e, own)
		if err != nil {
			return found
		}
		refused = t.addMissingAndTaken(ctx, nil, r, change.WithFurther(r, encoded, own))
	}
	known := len(p)
	others, _ := problemsIn(publicError(refused))
	for _, other := range others {
		_ = p.add(other)
	}
	if len(p) == known {
		return found
	}
	return p.err()
}

// Check returns all problems that Save would find with the facets of an entry, joined into one
// error. It writes nothing. A value that is free now may be taken by the time Save is called.
func (t *Type) Check(ctx context.Context, e Entry) (err error) {
	ctx, v := t.db.begin(ctx, "Check", &err)
	defer v.end(&err)
	return t.retryOnSchemaChange(ctx, func(t *Type) error {
		if !e.key.IsValid() || e.Type() != t.Name() {
			return notOfType(t)
		}
		r := store.Record{Key: e.key.In(t.view.NS), Fields: e.fields}
		if _, _, _, err := t.editChange(ctx, r, e); err != nil {
			return publicError(err)
		}
		own := map[string]string{}
		encoded, _, err := t.encodeFacets(r, e, own)
		if err != nil {
			return publicError(err)
		}
		return t.addMissingAndTaken(ctx, nil, r, change.WithFurther(r, encoded, own))
	})
}
