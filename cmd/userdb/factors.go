package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func factorCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "factor",
		Short: "List and remove the second factors of an entry",
		Long: `An entry with a second factor needs two steps to log in: its password, or a link by mail, and then a
code of an authenticator app or a recovery code. Entries enrol factors themselves, by the service or a
program in Go, if the schema says "factors": true and there is a file of keys (--key-file).`,
		Example: `  userdb factor list email=alice@example.com
  userdb factor remove email=alice@example.com --yes`,
	}, listFactorsCommand(s), removeFactorCommand(s), rotateKeysCommand(s))
}

// A factorLine holds what is printed about a second factor of an entry.
type factorLine struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Name   string `json:"name,omitempty"`
	Added  string `json:"added"`
	Used   string `json:"used"`
	Unused *int   `json:"unused,omitempty"`
}

func (l factorLine) text() string {
	words := []string{printable(l.ID), l.Kind, "added " + l.Added, "used " + l.Used}
	if l.Name != "" {
		words = append(words, printable(l.Name))
	}
	if l.Unused != nil {
		words = append(words, strconv.Itoa(*l.Unused)+" unused")
	}
	return strings.Join(words, "  ")
}

func listFactorsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list HINT",
		Short: "List the second factors of an entry",
		Long: `List the second factors of an entry, without their secrets: the ID of each, its kind, when it was added
and last used, its name, and how many recovery codes can still be used. totp is an authenticator app.`,
		Example: `  userdb factor list email=alice@example.com --json`,
		RunE: s.runOn(func(ctx context.Context, p subject, _ []string) error {
			all, err := p.typ.Factors(ctx, p.hint)
			if err != nil {
				return err
			}
			table := s.newGrid([]string{"kind", "name", "used", "id"}, "kind", "name", "added", "used", "unused", "id")
			for _, f := range all {
				line := factorLine{ID: f.ID, Kind: f.Method, Name: f.Name, Added: formatTime(f.Added), Used: formatTime(f.Used)}
				unused := ""
				if f.Method == "recovery" {
					line.Unused, unused = &f.Left, strconv.Itoa(f.Left)
				}
				if table != nil {
					err = table.add(f.Method, cell(f.Name), f.Added.UTC().Format(time.DateOnly), shortTime(f.Used), unused, f.ID)
				} else {
					err = s.out.print(line, line.text())
				}
				if err != nil {
					return err
				}
			}
			if len(all) == 0 {
				s.noteSilence("no second factors")
			}
			return table.end()
		}, reading),
	}
}

func removeFactorCommand(s *session) *cobra.Command {
	c := &cobra.Command{
		Use:   "remove HINT [ID]",
		Short: "Remove a second factor of an entry, or all of them",
		Long: `Remove a second factor of an entry, or all of them, and end its sessions. From
then on its password alone logs in, or a link by mail. So first make sure who is
asking: somebody who has learnt the password would ask for just this.`,
		Example: `  userdb factor remove email=alice@example.com --yes`,
		RunE: s.runOn(func(ctx context.Context, p subject, ids []string) error {
			e, err := p.typ.Find(ctx, p.hint)
			if err != nil {
				return suggestKey(ctx, p, err)
			}
			if !s.yes {
				return usagef("would remove second factors of %s: add --yes", printable(e.Key().String()))
			}
			before := len(e.FactorIDs())
			e, err = p.typ.ResetFactors(ctx, p.hint, ids...)
			n := before - len(e.FactorIDs())
			if err == nil && n == 0 {
				return fmt.Errorf("the entry has no such factor: %w", userdb.ErrNotFound)
			}
			return s.printResult(n, "removed "+plural(n, "second factor"), err)
		}),
	}
	return s.withYes(c)
}

func rotateKeysCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate-keys",
		Short: "Encrypt the secrets of second factors with the first key",
		Long: `Encrypt the secrets of all second factors with the first key of the file (--key-file), and print how
many were encrypted anew. Without --namespace and --type that includes those of operators. To rotate
keys, put a new one on the first line, restart all services, and run this command; then the other keys
are not needed anymore, except for backups. It may be interrupted and started again.`,
		Example: `  userdb factor rotate-keys`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			if err := s.checkKeys(ctx); err != nil {
				return err
			}
			n := 0
			var failure error
			rotate := func(t *userdb.Type, err error) error {
				if err != nil {
					return err
				}
				rotated, err := t.RotateKeys(ctx)
				n += rotated
				if errors.Is(err, userdb.ErrCorrupt) {
					failure = cmp.Or(failure, err)
					return nil
				}
				return err
			}
			for _, name := range s.db.Schema().Names() {
				if s.Type != "" && name != s.Type {
					continue
				}
				if err := rotate(s.db.Type(name)); err != nil {
					return err
				}
			}
			if s.Type == "" && s.Namespace == "" {
				if err := rotate(admin.Operators(s.db)); err != nil {
					return err
				}
			}
			return cmp.Or(s.printResult(n, "encrypted "+plural(n, "secret")+" with the first key", nil), failure)
		}, opened, unlimited),
	}
}

// proofOf returns the proof for a typed code. Six digits are a code of an app, and everything else
// is a recovery code.
func proofOf(typed string) userdb.Proof {
	digits := strings.Join(strings.Fields(typed), "")
	if len(digits) == 6 && strings.Trim(digits, "0123456789") == "" {
		return userdb.TOTP(digits)
	}
	return userdb.RecoveryCode(typed)
}
