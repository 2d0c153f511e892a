package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/userdb"
)

func compactCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "compact",
		Short: "Rewrite the file of a store without deleted records",
		Long: `Rewrite the file of an embedded store, which keeps deleted and replaced records
until this command removes them. FILE.old, which an older version wrote, is also
removed: it holds accounts that have been deleted since. Others may use the store
meanwhile, through 'userdb serve'.

Copies of the file, and the free blocks of the disk, may still hold deleted
accounts.`,
		Example: `  userdb compact
  userdb compact --store file:accounts.db`,
		Args: cobra.NoArgs,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			path, err := s.existingFile()
			if err != nil {
				return err
			}
			stop := s.announceWait(path)
			store, err := embedded.Open(ctx, path)
			stop()
			if err != nil {
				return fmt.Errorf("%w: %w", userdb.ErrUnavailable, err)
			}
			result, err := store.Compact(ctx)
			if err = errors.Join(explainFolder(err), store.Close()); err != nil {
				return fmt.Errorf("%w: %w", userdb.ErrUnavailable, err)
			}
			text := fmt.Sprintf("%s: %d bytes (was %d)", printable(path), result.After, result.Before)
			if result.Removed != "" {
				text += "\nremoved " + printable(result.Removed) + ", which held accounts that have since been deleted"
			}
			return s.out.print(compactOutput{result.Before, result.After, result.Removed}, text)
		}, unlimited, reading),
	}
}

// explainFolder adds to an error of compact why the folder of the store must be writable.
func explainFolder(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; the new file is written beside the old one: run this as a user who may create files in that folder", err)
	}
	return err
}

type compactOutput struct {
	Before  int64  `json:"before"`
	After   int64  `json:"after"`
	Removed string `json:"removed,omitempty"`
}

func backupCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the file of a store in use",
		Long: `Copy the file of an embedded store to FILE, which must not exist and which only
this user can read. Others may use the store meanwhile. The copy is checked, and
is itself a store: file:FILE.

The keys of second factors are not in it. Also keep a copy of STORE.keys, in
another place, and put it beside a copy that you use, as FILE.keys.`,
		Example: `  userdb backup accounts-monday.db
  userdb count user --store file:accounts-monday.db`,
		Args: cobra.ExactArgs(1),
		RunE: s.run(func(_ context.Context, words []string) error {
			path, err := s.existingFile()
			if err != nil {
				return err
			}
			to := pathOf(words[0])
			n, err := embedded.Backup(path, to)
			if err != nil {
				return fileError(to, err)
			}
			return errors.Join(s.out.print(backupOutput{to, n}, fmt.Sprintf("%s: %d bytes", printable(to), n)), s.remindOfKeys(to))
		}, unlimited, reading),
	}
}

type backupOutput struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func salvageCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "salvage FILE",
		Short: "Save what can be read of a damaged file into a new store",
		Long: `Read the file of an embedded store that is refused because it is damaged, and
write what can still be read to FILE, which must not exist. Changes in the
damaged parts are missing: accounts may be gone, or as they were before, and
deleted ones may be there again. Prefer a backup, if there is one.

The keys of second factors are not in it: copy STORE.keys to FILE.keys. Then
check the new store, and export it or use it in place of the damaged one.`,
		Example: `  userdb salvage rest.db --store file:accounts.db
  userdb check --repair --store file:rest.db
  userdb export --store file:rest.db > rest.jsonl`,
		Args: cobra.ExactArgs(1),
		RunE: s.run(func(_ context.Context, words []string) error {
			path, err := s.existingFile()
			if err != nil {
				return err
			}
			to := pathOf(words[0])
			salvaged, err := embedded.Salvage(path, to)
			if err != nil {
				return fileError(to, err)
			}
			err = s.out.print(salvageOutput{to, salvaged.Records, salvaged.Lost},
				fmt.Sprintf("%s: %s; %d bytes of %s could not be read", printable(to), plural(salvaged.Records, "record"), salvaged.Lost, printable(path)))
			return errors.Join(err, s.remindOfKeys(to))
		}, unlimited, reading),
	}
}

type salvageOutput struct {
	File    string `json:"file"`
	Records int    `json:"records"`
	Lost    int64  `json:"lost"` // in bytes
}

// pathOf returns the path in a store's URL file:PATH, and any other word as it is.
func pathOf(word string) string { return cmp.Or(connect.File(word), word) }

// existingFile returns the path of the embedded store that --store names, or of this user's store.
// It returns an error if the store is not a file or does not exist.
func (s *session) existingFile() (string, error) {
	storeURL, err := s.storeURL()
	if err != nil {
		return "", err
	}
	path := connect.File(storeURL)
	if path == "" {
		return "", usagef("--store: want file:PATH, because only a store in a file can do this")
	}
	if !embedded.Exists(path) {
		return "", fmt.Errorf("%w: %s", errNoStore, printable(path))
	}
	return path, nil
}

// fileError returns a usage error if err says that the file to write already exists, and err
// otherwise.
func fileError(to string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s exists: name a new file to write to; --store names the one to read", printable(to))
	}
	return err
}
