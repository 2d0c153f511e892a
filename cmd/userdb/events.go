package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/userdb"
)

// pollInterval is the time between two reads of a feed that is followed.
const pollInterval = 250 * time.Millisecond

func eventsCommand(s *session) *cobra.Command {
	var follow bool
	var kinds []string
	c := &cobra.Command{
		Use:   "events [HINT]",
		Short: "Print what was done, by whom and when",
		Long: `Print what was done, by whom and when: to one entry, latest first, or in the whole namespace, oldest
first. Events name fields, but contain no values. With --follow it prints what happens from now on,
until it is interrupted.

Commands and 'userdb serve' record what they do, unless --history=false. A program in Go does so
with Options.History.`,
		Example: `  userdb events
  userdb events '*=Alice' --json
  userdb events --kind create --kind login_failed`,
		RunE: func(c *cobra.Command, words []string) error {
			traits := []trait{reading, opened}
			if follow {
				traits = append(traits, unlimited)
			}
			return s.run(func(ctx context.Context, words []string) error { return s.events(ctx, words, kinds, follow) }, traits...)(c, words)
		},
	}
	c.Flags().BoolVar(&follow, "follow", false, "print what happens from now on")
	c.Flags().StringArrayVar(&kinds, "kind", nil, "print only events of `KIND`, such as update; may be repeated")
	return c
}

func (s *session) events(ctx context.Context, words, names []string, follow bool) error {
	var kinds []userdb.EventKind
	for _, name := range names {
		if !slices.Contains(view.Kinds, userdb.EventKind(name)) {
			return usagef("--kind %s: want one of %s", printable(name), view.KindList())
		}
		kinds = append(kinds, userdb.EventKind(name))
	}
	var only *userdb.Entry
	if len(words) > 0 {
		p, err := s.subject(ctx, words[0])
		if err != nil {
			return err
		}
		e, err := p.typ.Find(ctx, p.hint)
		if err != nil {
			return withHint(words[0], err)
		}
		if !follow {
			return s.printHistory(ctx, p.typ, e, kinds)
		}
		only = &e
	}
	q := userdb.EventQuery{Kinds: kinds, Limit: 1000}
	if follow {
		q.After = userdb.EventsEnd
	}
	for {
		page, err := s.db.Events(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if only != nil && e.Key.String() != only.Key().String() {
				continue
			}
			if err := s.printEvent(e); err != nil {
				return err
			}
		}
		switch {
		case len(page.Events) == 0 && q.After == page.Next && !follow:
			return nil
		case len(page.Events) == 0 && follow:
			if err := s.wait(ctx); err != nil {
				return err
			}
		}
		q.After = page.Next
	}
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

func (s *session) printHistory(ctx context.Context, t *userdb.Type, e userdb.Entry, kinds []userdb.EventKind) error {
	all, err := t.History(ctx, hints.Key(e.Key()))
	if err != nil {
		return err
	}
	for _, event := range all {
		if len(kinds) > 0 && !slices.Contains(kinds, event.Kind) {
			continue
		}
		if err := s.printEvent(event); err != nil {
			return err
		}
	}
	return nil
}

// printEvent prints an event as the service does, or as a line for people.
func (s *session) printEvent(e userdb.HistoryEvent) error {
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
	return s.out.print(serve.NewEvent(e), strings.Join(words, "  "))
}
