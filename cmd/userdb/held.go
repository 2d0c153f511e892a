package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/userdb"
)

func heldCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "held",
		Short: "Show and release identifiers that are held",
		Long: `If the schema gives a field a "hold" such as "90d", a value that an entry gives up, by an edit or
because it is deleted, is held for that time: nobody else can take it. The entry itself can take it
back at once.`,
		Example: `  userdb set name=Alice name=Alicia
  userdb held show name=Alice`,
	}, showHeldCommand(s), releaseHeldCommand(s))
}

func showHeldCommand(s *session) *cobra.Command {
	type line struct {
		UID   string `json:"uid"`
		Field string `json:"field"`
		Value string `json:"value"`
		Until string `json:"until"`
	}
	return &cobra.Command{
		Use:   "show FIELD=VALUE",
		Short: "Show which entry holds a value, and until when",
		Long: `Show the UID of the entry that holds a value, which may have been deleted, and until when nobody else
can take the value. Exits 3 if the value is not held. --type selects the type of the entry.`,
		Example: `  userdb set name=Alice name=Alicia
  userdb held show name=Alice --json`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			t, field, value, err := s.parseHeld(ctx, words[0])
			if err != nil {
				return err
			}
			h, err := t.FindHeld(ctx, field, value)
			if err != nil {
				return notHeld(words[0], err)
			}
			l := line{h.UID, h.Field, h.Value, formatTime(h.Until)}
			return s.out.print(l, printable(l.UID)+"  "+printable(l.Field)+"="+printable(l.Value)+"  until "+l.Until)
		}, reading),
	}
}

func releaseHeldCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "release FIELD=VALUE",
		Short: "Let others take a value that is held",
		Long: `Let others take a value that is held, before its time is up. The next owner may get mail that is
meant for the former one. Exits 3 if the value is not held. --type selects the type of the entry.`,
		Example: `  userdb set name=Alice name=Alicia
  userdb held release name=Alice`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			t, field, value, err := s.parseHeld(ctx, words[0])
			if err != nil {
				return err
			}
			return s.printResult(1, "released", notHeld(words[0], t.ReleaseHeld(ctx, field, value)))
		}),
	}
}

// notHeld replaces ErrNotFound with an error which says that word, a FIELD=VALUE, is not held. It
// returns any other error as it is.
func notHeld(word string, err error) error {
	if errors.Is(err, userdb.ErrNotFound) {
		return coded.New(userdb.CodeNotFound, printable(word)+" is not held")
	}
	return err
}

// parseHeld returns the type of --type, and both parts of a word FIELD=VALUE.
func (s *session) parseHeld(ctx context.Context, word string) (t *userdb.Type, field, value string, err error) {
	if err := checkFields([]string{word}); err != nil {
		return nil, "", "", err
	}
	field, value, _ = strings.Cut(word, "=")
	t, err = s.typ(ctx, s.Type)
	if err == nil && value != "" {
		_, err = hints.Field(field, value).Resolve(s.db.Schema(), t.Name())
	}
	return t, field, value, err
}
