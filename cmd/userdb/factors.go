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

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func factorCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "factor",
		Short: "List and remove the second factors of an entry",
		Long: `An entry with a second factor needs two steps to log in: its password, or a link by mail, and then a
code of an authenticator app or a recovery code. Owners enrol factors themselves, through the service
or a program in Go, if the schema says "factors": true and there is a file of keys (--key-file).`,
		Example: `  userdb factor list email=alice@example.com
  userdb factor remove email=alice@example.com --yes`,
	}, listFactorsCommand(s), removeFactorCommand(s), removeLostFactorsCommand(s), rotateKeysCommand(s))
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
			list := s.newRows([]string{"kind", "name", "used", "id"}, "kind", "name", "added", "used", "unused", "id")
			for _, f := range all {
				line := factorLine{ID: f.ID, Kind: f.Method, Name: f.Name, Added: formatTime(f.Added), Used: formatTime(f.Used)}
				unused := ""
				if f.Method == "recovery" {
					line.Unused, unused = &f.Left, strconv.Itoa(f.Left)
				}
				err := list.add(line, line.text(), f.Method, cell(f.Name), f.Added.UTC().Format(time.DateOnly), shortTime(f.Used), unused, f.ID)
				if err != nil {
					return err
				}
			}
			return list.end("no second factors")
		}, reading),
	}
}

func removeFactorCommand(s *session) *cobra.Command {
	c := &cobra.Command{
		Use:   "remove HINT [ID]",
		Short: "Remove a second factor of an entry, or all of them",
		Long: `Remove a second factor of an entry, or all of them, and end its sessions. Once
none is left, its password alone logs in, or a link by mail. So first make sure
who is asking: somebody who has learnt the password would ask for just this.`,
		Example: `  userdb factor remove email=alice@example.com --yes`,
		RunE: s.runOn(func(ctx context.Context, p subject, ids []string) error {
			e, err := p.typ.Find(ctx, p.hint)
			if err != nil {
				return err
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

func removeLostFactorsCommand(s *session) *cobra.Command {
	return s.withYes(&cobra.Command{
		Use:   "remove-lost",
		Short: "Remove the second factors whose key is lost",
		Long: `Remove the second factors of one namespace that no key of the file (--key-file) decrypts, and end the
sessions of their owners. It concerns the types of the schema (of --schema, if given) and, without
--namespace and --type, also operators. From then on a password alone logs in, or a
link by mail, until the owner adds a factor again; operators who need a second factor get in only
with a link of 'userdb operator enrol'. First look for a copy of the key: a key that is found later
brings nothing back. Without --yes, only count the factors. It may be interrupted and started again.`,
		Example: `  userdb factor remove-lost
  userdb factor remove-lost --yes`,
		RunE: s.run(func(ctx context.Context, _ []string) error { return s.removeLostFactors(ctx) }, opened, unlimited),
	})
}

// removeLostFactors removes the second factors that no key decrypts or, without --yes, counts them.
// It skips entries that cannot be read, and at the end returns the error about the first of them.
func (s *session) removeLostFactors(ctx context.Context) error {
	file := s.keyFile(s.url)
	if file == "" {
		return usagef("give --key-file: a file with the keys that are left or, if none is left, with a new one; factors of other keys count as lost")
	}
	removed, entries, kept := 0, 0, 0
	var unreadable error
	err := s.eachTypeWithFactors(ctx, func(db *userdb.DB, t *userdb.Type) error {
		for found, err := range admin.FindLostFactors(ctx, db, t) {
			kept += found.Kept
			if err == nil && len(found.IDs) == 0 {
				continue
			}
			if err == nil && s.yes {
				err = s.removeLost(ctx, db, t, found)
			}
			if errors.Is(err, userdb.ErrCorrupt) {
				unreadable = cmp.Or(unreadable, err)
				continue
			}
			if err != nil {
				return err
			}
			removed, entries = removed+len(found.IDs), entries+1
		}
		return nil
	})
	if err != nil {
		return err
	}
	what := plural(removed, "second factor") + " of " + plural(entries, "entry")
	why := ""
	switch {
	case removed > 0 && s.hasKeys:
		why = ": no key in " + printable(file) + " decrypts them"
	case removed > 0:
		why = ": every factor counts as lost, because there is no " + printable(file)
	}
	if removed == 0 || s.yes {
		return cmp.Or(s.printResult(removed, fmt.Sprintf("removed %s and kept %d%s", what, kept, why), nil), unreadable)
	}
	dry := usagef("would remove %s and keep %d%s; add --yes", what, kept, why)
	if unreadable != nil {
		return fmt.Errorf("%s; %w", dry.Error(), unreadable)
	}
	return dry
}

// removeLost removes the lost factors of an entry. If the entry is an operator, it also records an
// event.
func (s *session) removeLost(ctx context.Context, db *userdb.DB, t *userdb.Type, lost admin.LostFactors) error {
	_, err := t.ResetFactors(ctx, hints.Key(lost.Entry.Key()), lost.IDs...)
	if err != nil || db == s.db {
		return err
	}
	name := lost.Entry.Text(admin.OperatorName)
	return s.recordEvent(ctx, "removed second factors of the operator "+printable(name), userdb.EventOperatorNoFactor, name)
}

// eachTypeWithFactors calls do with the type of --type. Without the flag, it calls do with all
// types of the schema and, in the root namespace, with the type of operators. do also gets the
// database that has the type, because operators have one of their own.
func (s *session) eachTypeWithFactors(ctx context.Context, do func(*userdb.DB, *userdb.Type) error) error {
	names := s.db.Schema().Names()
	if s.Type != "" {
		names = []string{s.Type}
	}
	for _, name := range names {
		t, err := s.typ(ctx, name)
		if err != nil {
			return err
		}
		if err := do(s.db, t); err != nil {
			return err
		}
	}
	if s.Type != "" || s.Namespace != "" {
		return nil
	}
	db, err := admin.OpenOperators(s.db)
	if err != nil {
		return err
	}
	t, err := admin.Operators(s.db)
	if err != nil {
		return err
	}
	return do(db, t)
}

func rotateKeysCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate-keys",
		Short: "Encrypt the secrets of second factors with the first key",
		Long: `Encrypt the secrets of all second factors with the first key of the file (--key-file), and print how
many were encrypted anew. Without --namespace and --type, the factors of operators are included. To
rotate keys, add a new one at the end of the file and restart all services, so that each can read
what another one encrypts. Then make it the first line, restart them again, and run this command.
After that the other keys are needed only for backups. It may be interrupted and started again.`,
		Example: `  userdb factor rotate-keys`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			if err := s.checkKeys(ctx); err != nil {
				return err
			}
			n := 0
			var unreadable error
			err := s.eachTypeWithFactors(ctx, func(_ *userdb.DB, t *userdb.Type) error {
				rotated, err := t.RotateKeys(ctx)
				n += rotated
				if errors.Is(err, userdb.ErrCorrupt) {
					unreadable = cmp.Or(unreadable, err)
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
			return cmp.Or(s.printResult(n, "encrypted "+plural(n, "secret")+" with the first key", nil), unreadable)
		}, opened, unlimited),
	}
}

// proofOf returns the proof for an entered code. Six digits are a code of an app, and everything
// else is a recovery code.
func proofOf(entered string) userdb.Proof {
	digits := strings.Join(strings.Fields(entered), "")
	if len(digits) == 6 && strings.Trim(digits, "0123456789") == "" {
		return userdb.TOTP(digits)
	}
	return userdb.RecoveryCode(entered)
}
