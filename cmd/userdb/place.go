package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A place is what an operator's text points at: a hint, and the view of its type.
type place struct {
	text string
	hint hints.Hint
	typ  *userdb.Type
}

// at reads a hint and finds its type.
func (s *session) at(ctx context.Context, text string) (place, error) {
	h, err := hints.Parse(text)
	if err != nil {
		return place{}, err
	}
	db, err := s.open(ctx)
	if err != nil {
		return place{}, err
	}
	target, err := resolve(h, db.Schema(), s.Type)
	if err != nil {
		return place{}, err
	}
	t, err := s.typ(ctx, target.Type)
	return place{text, h, t}, err
}

// resolve reads a hint as one of the type that it names, else as one of the type that is meant.
func resolve(h hints.Hint, sc schema.Schema, meant string) (hints.Target, error) {
	target, err := h.Resolve(sc, "")
	if err == nil || h.Type() != "" {
		return target, err
	}
	return h.Resolve(sc, meant)
}

// named says in an error about an entry which hint it was.
func (p place) named(err error) error {
	if !aboutEntry(err) {
		return err
	}
	return fmt.Errorf("%s: %w", shown(p.text), err)
}

// aboutEntry says whether an error is about one entry, so that others may be well.
func aboutEntry(err error) bool {
	return errors.Is(err, userdb.ErrNotFound) || errors.Is(err, userdb.ErrCorrupt)
}

// failures gathers what is wrong with some of many, so that one line says it in the end.
type failures struct {
	of    int // how many were asked for; 0: unknown
	first error
	texts []string
}

// maxNamed is how many failures are named.
const maxNamed = 5

// add takes an error about one entry, and refuses any other.
func (f *failures) add(text string, err error) bool {
	if !aboutEntry(err) {
		return false
	}
	if f.first == nil {
		f.first = err
	}
	f.texts = append(f.texts, text)
	return true
}

func (f *failures) err() error {
	if len(f.texts) < 2 {
		if f.first == nil {
			return nil
		}
		return place{text: f.texts[0]}.named(f.first)
	}
	var named []string
	for _, text := range f.texts[:min(len(f.texts), maxNamed)] {
		named = append(named, shown(text))
	}
	if len(f.texts) > maxNamed {
		named = append(named, "…")
	}
	return fmt.Errorf("%w (%d of %d: %s)", f.first, len(f.texts), f.of, strings.Join(named, ", "))
}

// note takes an error about an entry of a listing, which names its key itself.
func (f *failures) note(err error) bool { return f.add("", err) }

// unread says in the end of a listing what was left out of it.
func (f *failures) unread() error {
	if len(f.texts) < 2 {
		return f.first
	}
	return fmt.Errorf("%d entries are left out; the first: %w", len(f.texts), f.first)
}
