package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/userdb"
)

func retiredCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "retired",
		Short: "List and free the UIDs of deleted entries",
		Long: `If the schema of a type has "retire": true, the UID of a deleted entry is never given to another one.
'userdb status' counts such UIDs.`,
		Example: `  userdb delete 17c07627d35e --yes
  userdb retired list`,
	}, listRetiredCommand(s), forgetRetiredCommand(s))
}

func listRetiredCommand(s *session) *cobra.Command {
	type line struct {
		UID     string `json:"uid"`
		Deleted string `json:"deleted"`
	}
	return &cobra.Command{
		Use:   "list",
		Short: "List the UIDs of deleted entries that are not reused",
		Long: `List the UIDs of deleted entries that are not given to another one, with the time at which each entry
was deleted. --type selects the type.`,
		Example: `  userdb delete 17c07627d35e --yes
  userdb retired list --json`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			t, err := s.typ(ctx, s.Type)
			if err != nil {
				return err
			}
			list := s.newRows([]string{"uid"}, "uid", "deleted")
			for r, err := range t.RetiredUIDs(ctx) {
				if err != nil {
					return err
				}
				deleted := ""
				if !r.At.IsZero() {
					deleted = formatTime(r.At)
				}
				uid := printable(r.UID)
				text := uid + "  deleted " + cmp.Or(deleted, "at an unknown time")
				if err := list.add(line{r.UID, deleted}, text, uid, deleted); err != nil {
					return err
				}
			}
			return list.end("no retired UIDs")
		}, unlimited, reading),
	}
}

func forgetRetiredCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "forget UID…",
		Short: "Allow the UIDs of deleted entries to be reused",
		Long: `Allow the UIDs of deleted entries to be reused. Whatever still names such a UID, such as an order of a
shop, will then mean the next entry that gets it. Prints how many UIDs were freed, or exits 3 if one of
them is not retired. --type selects the type.`,
		Example: `  userdb delete 17c07627d35e --yes
  userdb retired forget 17c07627d35e`,
		RunE: s.run(func(ctx context.Context, uids []string) error {
			t, err := s.typ(ctx, s.Type)
			if err != nil {
				return err
			}
			n, missing := int64(0), error(nil)
			for _, uid := range uids {
				err := t.ForgetUID(ctx, uid)
				switch {
				case err == nil:
					n++
				case errors.Is(err, userdb.ErrNotFound):
					missing = cmp.Or(missing, fmt.Errorf("%s is not retired: %w", printable(uid), err))
				default:
					return err
				}
			}
			return cmp.Or(s.printNumber(n, nil), missing)
		}),
	}
}
