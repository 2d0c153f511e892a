package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/userdb"
)

func sessionCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "session",
		Short: "List and end the sessions of an entry",
		Long: `A session lets the holder of its secret act as an entry, such as a browser in which a user has
signed in. The service, programs in Go and the flag --session of 'userdb login' start sessions.`,
		Example: `  userdb login --session --password-stdin -- Alice < secret.txt
  userdb session list email=alice@example.com`,
	}, listSessionsCommand(s), endSessionCommand(s))
}

// A sessionLine holds what is printed about a session of an entry.
type sessionLine struct {
	ID      string `json:"id"`
	Started string `json:"started"`
	Seen    string `json:"last_seen"`
	Expires string `json:"expires"`
	Origin  string `json:"origin,omitempty"`
	Agent   string `json:"agent,omitempty"`
}

func (l sessionLine) text() string {
	words := []string{printable(l.ID), "started " + l.Started, "last seen " + l.Seen, "expires " + l.Expires}
	if l.Origin != "" {
		words = append(words, "from "+printable(l.Origin))
	}
	if l.Agent != "" {
		words = append(words, printable(l.Agent))
	}
	return strings.Join(words, "  ")
}

// shortID is how many characters of an ID are shown on a terminal. They hold 72 random bits, so no
// two sessions of an entry share them.
const shortID = 12

func listSessionsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list HINT",
		Short: "List the sessions of an entry",
		Long: `List the sessions of an entry, the most recently seen first. Prints the ID of each, which is not its
secret, when it was started and last seen (to the minute), and when it expires at the latest. On a
terminal, IDs are shortened and the start is left out.`,
		Example: `  userdb login --session --password-stdin -- Alice < secret.txt
  userdb session list '*=Alice' --json`,
		RunE: s.runOn(func(ctx context.Context, p subject, _ []string) error {
			list := s.newRows([]string{"id", "last seen", "expires", "origin"}, "id", "last seen", "expires", "origin", "agent")
			err := each(p.typ.Sessions(ctx, p.hint), func(active userdb.Session) error {
				line := sessionLine{active.ID, formatTime(active.Started), formatTime(active.LastSeen), formatTime(active.Expires), active.Origin, active.Agent}
				return list.add(line, line.text(), active.ID[:min(shortID, len(active.ID))], shortTime(active.LastSeen),
					active.Expires.UTC().Format(time.DateOnly), cell(active.Origin), cell(active.Agent))
			})
			if err != nil {
				return err
			}
			return list.end("no sessions")
		}, reading),
	}
}

// cell formats an optional text for a column.
func cell(text string) string {
	if text == "" {
		return ""
	}
	return printable(text)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

var errNoSession = coded.New(userdb.CodeNotFound, "the entry has no such session")

func noSessionError(id string) error {
	return fmt.Errorf("%w: %s; 'userdb session list' prints all sessions", errNoSession, printable(id))
}

// completeIDs returns, for each text, the known ID that begins with it. Each text must begin
// exactly one ID.
func completeIDs(known, texts []string) (ids []string, err error) {
	for _, text := range texts {
		var found []string
		for _, id := range known {
			if text != "" && strings.HasPrefix(id, text) {
				found = append(found, id)
			}
		}
		switch len(found) {
		case 0:
			return nil, noSessionError(text)
		case 1:
			ids = append(ids, found[0])
		default:
			return nil, usagef("%d sessions have IDs that begin with %s: write more of the ID", len(found), printable(text))
		}
	}
	return ids, nil
}

func endSessionCommand(s *session) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "end HINT [ID…]",
		Short: "End sessions of an entry",
		Long: `End the sessions with these IDs, which 'userdb session list' prints, or all sessions of an entry. The
beginning of an ID is enough, if no other session of the entry has it.`,
		Example: `  userdb session end email=alice@example.com --all`,
		RunE: s.runOn(func(ctx context.Context, p subject, ids []string) error {
			switch {
			case all == (len(ids) > 0):
				return usagef("give either IDs of sessions, which 'userdb session list' prints, or --all")
			case all:
				e, err := p.typ.EndSessions(ctx, p.hint)
				key := e.Key().String()
				return s.printResult(key, "ended all sessions of "+printable(key), err)
			}
			e, err := p.typ.Find(ctx, p.hint)
			var open []string
			if err == nil {
				err = each(p.typ.Sessions(ctx, hints.Key(e.Key())), func(active userdb.Session) error {
					open = append(open, active.ID)
					return nil
				})
			}
			if err == nil {
				ids, err = completeIDs(open, ids)
			}
			for _, id := range ids {
				if err != nil {
					return err
				}
				if err = p.typ.EndSessionID(ctx, hints.Key(e.Key()), id); errors.Is(err, userdb.ErrNotFound) {
					err = noSessionError(id)
				}
			}
			key := e.Key().String()
			return s.printResult(key, "ended "+plural(len(ids), "session")+" of "+printable(key), err)
		}),
	}
	c.Flags().BoolVar(&all, "all", false, "end all sessions of the entry")
	return c
}
