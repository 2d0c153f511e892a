package main

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/userdb"
)

// pollInterval is how long a command that follows a feed waits after a read that found no events.
const pollInterval = 250 * time.Millisecond

func eventsCommand(s *session) *cobra.Command {
	var o eventOptions
	c := &cobra.Command{
		Use:   "events [HINT]",
		Short: "Print what was done, by whom and when",
		Long: `Print what was done, by whom and when: to one entry, latest first, or in the whole namespace, oldest
first unless --latest is given. Events name fields, but contain no values. With --follow it prints
what happens from now on, until it is interrupted or has printed --limit events.

Commands and 'userdb serve' record what they do, unless --history=false. A program in Go does so
with Options.History.`,
		Example: `  userdb events
  userdb events '*=Alice' --json
  userdb events --kind create --kind login_failed --since 7d
  userdb events --latest --limit 10`,
		RunE: func(c *cobra.Command, words []string) error {
			traits := []trait{reading, opened, allTypes}
			if o.follow {
				traits = append(traits, unlimited)
			}
			return s.run(func(ctx context.Context, words []string) error { return s.events(ctx, words, o) }, traits...)(c, words)
		},
	}
	c.Flags().BoolVar(&o.follow, "follow", false, "print what happens from now on")
	c.Flags().BoolVar(&o.latest, "latest", false, "print the newest events first")
	c.Flags().IntVar(&o.limit, "limit", 0, "print at most `N` events, or 0 for all")
	c.Flags().Func("since", "print only events since `WHEN`: a date, a time or how long ago, such as 2h", func(text string) (err error) {
		o.since, err = parseSince(text, time.Now())
		return err
	})
	c.Flags().StringArrayVar(&o.kinds, "kind", nil, "print only events of `KIND`, such as update; may be repeated")
	return c
}

// An eventOptions holds the flags of events.
type eventOptions struct {
	kinds          []string
	follow, latest bool
	ofOne          bool // the events are the history of one entry
	limit          int
	since          time.Time
}

// parseSince parses a point in time: a duration before now, a date (in UTC), or a time with a zone.
func parseSince(text string, now time.Time) (time.Time, error) {
	if d, err := parseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("want a date such as 2026-01-31, a time such as 2026-01-31T15:04:05Z or a duration such as 2h or 7d")
}

func (s *session) events(ctx context.Context, words []string, o eventOptions) error {
	var kinds []userdb.EventKind
	for _, name := range o.kinds {
		if !slices.Contains(view.Kinds, userdb.EventKind(name)) {
			return usagef("--kind %s: want one of %s", printable(name), view.KindList())
		}
		kinds = append(kinds, userdb.EventKind(name))
	}
	switch {
	case o.limit < 0:
		return usagef("--limit %d: want a number from 1, or 0 for all", o.limit)
	case o.follow && (o.latest || !o.since.IsZero()):
		return usagef("--follow prints what happens from now on, and excludes --latest and --since")
	}
	if len(words) == 0 {
		return s.printEvents(s.feed(ctx, userdb.EventQuery{Kinds: kinds, Limit: 1000, Latest: o.latest}, o.follow), o)
	}
	p, err := s.subject(ctx, words[0])
	if err != nil {
		return err
	}
	e, err := p.typ.Find(ctx, p.hint)
	if err != nil {
		return withHint(words[0], err)
	}
	if o.follow {
		key := e.Key()
		return s.printEvents(s.feed(ctx, userdb.EventQuery{Kinds: kinds, Limit: 1000, Key: key}, true), o)
	}
	all, err := p.typ.History(ctx, hints.Key(e.Key()))
	o.latest, o.ofOne = true, true // History returns the newest event first
	return s.printEvents(func(yield func(userdb.HistoryEvent, error) bool) {
		for _, event := range all {
			if (len(kinds) == 0 || slices.Contains(kinds, event.Kind)) && !yield(event, nil) {
				return
			}
		}
		if err != nil {
			yield(userdb.HistoryEvent{}, err)
		}
	}, o)
}

// feed yields the events that q selects. With follow it yields the events that happen from now on,
// until ctx ends.
func (s *session) feed(ctx context.Context, q userdb.EventQuery, follow bool) iter.Seq2[userdb.HistoryEvent, error] {
	return func(yield func(userdb.HistoryEvent, error) bool) {
		if follow {
			q.After = userdb.EventsEnd
		}
		for {
			page, err := s.db.Events(ctx, q)
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			switch {
			case err != nil:
			case follow && len(page.Events) == 0:
				err = s.wait(ctx)
			case !follow && (page.Next == "" || page.Next == q.After):
				return
			}
			if err != nil {
				yield(userdb.HistoryEvent{}, err)
				return
			}
			q.After = page.Next
		}
	}
}

// printEvents prints the events that the flags select.
func (s *session) printEvents(events iter.Seq2[userdb.HistoryEvent, error], o eventOptions) error {
	head := []string{"time", "kind", "entry", "about", "by", "from"}
	if o.ofOne {
		head = slices.Delete(head, 2, 3)
	}
	list := s.newRows([]string{"time", "kind"}, head...)
	if o.follow {
		list.grid = nil // each event is printed when it happens
	}
	for e, err := range events {
		switch {
		case err != nil:
		case !e.Time.Before(o.since):
			row := s.eventRow(e)
			if o.ofOne {
				row = slices.Delete(row, 2, 3)
			}
			if err = list.add(serve.NewEvent(e), eventText(e), row...); list.n == o.limit {
				return cmp.Or(err, list.grid.end())
			}
		case o.latest: // all others are older
			return list.grid.end()
		}
		if err != nil {
			return cmp.Or(list.grid.end(), err)
		}
	}
	return list.end("no events")
}

// wait flushes the output, and waits for pollInterval or until ctx ends.
func (s *session) wait(ctx context.Context) error {
	if err := s.out.flush(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollInterval):
		return nil
	}
}

// eventRow returns the columns of a table of events.
func (s *session) eventRow(e userdb.HistoryEvent) []string {
	entry := ""
	switch {
	case !e.Key.IsValid():
	case e.Key.Type() == s.defaultType(s.db.Schema()): // its UID is a hint
		entry = printable(e.Key.Value())
	default:
		entry = printable(e.Key.String())
	}
	about := strings.Join(e.Fields, ", ")
	if e.Purpose != "" {
		about = strings.TrimSpace(about + " for " + e.Purpose)
	}
	return []string{e.Time.UTC().Format("2006-01-02 15:04:05Z"), string(e.Kind), entry, cell(about), cell(e.Actor), cell(e.Origin)}
}

// eventText describes an event in one line.
func eventText(e userdb.HistoryEvent) string {
	words := []string{e.Time.UTC().Format(time.RFC3339), string(e.Kind)}
	if e.Key.IsValid() {
		words = append(words, printable(e.Key.String()))
	}
	if len(e.Fields) > 0 {
		words = append(words, printable(strings.Join(e.Fields, ", ")))
	}
	if e.Purpose != "" {
		words = append(words, "for "+printable(e.Purpose))
	}
	words = append(words, "by "+printable(e.Actor))
	if e.Origin != "" {
		words = append(words, "from "+printable(e.Origin))
	}
	return strings.Join(words, "  ")
}
