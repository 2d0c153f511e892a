package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/validate"
)

func schemaCommand(s *session) *cobra.Command {
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the schema in force",
		Long: `Print the schema in force: the one of --schema, else the stored one, else the built-in one. You can
edit the output and pass it to --schema.`,
		Example: `  userdb schema show
  userdb schema show --schema schema.json --json`,
		RunE: s.runWithSchema(func(sc schema.Schema) error {
			text, err := strictjson.Indent(sc)
			return s.printResult(sc, strings.TrimSuffix(string(text), "\n"), err)
		}, reading),
	}
	check := &cobra.Command{
		Use:   "check",
		Short: "Show which fields can be mistaken for each other",
		Long: `Show each pair of secondary fields: orthogonal, if it is proved that no value can belong to both;
overlap, with a shortest value that can; or not decided. Overlap is not an error: one value still
never means two entries. Further lines show what keeps entries from the compact form of Redis hashes,
as far as the schema alone determines it: too many fields, or too long a name of a field or type.`,
		Example: `  userdb schema check
  userdb schema check --schema schema.json --json`,
		RunE: s.runWithSchema(s.checkSchema, unlimited, reading), // a proof may take a long time
	}
	return group(&cobra.Command{Use: "schema", Short: "Show, check and change the schema", Example: `  userdb schema show
  userdb schema check`}, show, check, diffSchemaCommand(s), addToSchemaCommand(s), applySchemaCommand(s))
}

// runWithSchema returns a RunE function that passes f the schema in force: that of --schema or,
// without the flag, that of the store.
func (s *session) runWithSchema(f func(schema.Schema) error, traits ...trait) func(*cobra.Command, []string) error {
	return s.run(func(ctx context.Context, _ []string) error {
		sc, err := s.namedSchema(ctx, schema.Schema{})
		if err == nil && s.Schema == "" {
			if err = s.open(ctx); err == nil {
				sc = s.db.Schema()
			}
		}
		if err != nil {
			return err
		}
		return f(sc)
	}, traits...)
}

// checkSchema prints how each pair of secondary fields relates, and what prevents compact hashes.
func (s *session) checkSchema(sc schema.Schema) error {
	columns := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, name := range sc.Names() {
		pairs, err := validate.Check(sc.Types[name])
		if err != nil {
			return err
		}
		for _, p := range pairs {
			if err := s.printPair(columns, name, p); err != nil {
				return err
			}
		}
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for _, p := range check.NotCompact(sc) {
		if err := s.out.print(p, oneLine(p.String())); err != nil {
			return err
		}
	}
	return nil
}

// printPair prints how two fields of a type relate: as JSON, or in columns for people.
func (s *session) printPair(columns io.Writer, typ string, p validate.Pair) error {
	if s.JSON {
		type line struct {
			Type string `json:"type"`
			validate.Pair
		}
		return s.out.printJSON(line{typ, p})
	}
	words := []string{printable(typ), printable(p.A), printable(p.B), string(p.Verdict)}
	if p.Witness != "" {
		words = append(words, "both accept "+printable(p.Witness))
	}
	if p.Note != "" {
		words = append(words, oneLine(p.Note))
	}
	_, err := fmt.Fprintln(columns, strings.Join(words, "\t"))
	return err
}

func namespaceCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "namespace",
		Short: "List, copy and drop namespaces",
		Long: `List, copy and drop namespaces. Names are written as for --namespace. If --namespace is given, they
are relative to it. To move a namespace, copy it and drop the old one.`,
		Example: `  userdb create user name=Carol --namespace acme --no-password
  userdb namespace list`,
	}, listNamespacesCommand(s), copyNamespaceCommand(s), dropNamespaceCommand(s))
}

// parseNamespace parses the name of a namespace inside the one of --namespace.
func (s *session) parseNamespace(path string) (recordkey.Namespace, error) {
	if path == "" {
		return recordkey.Namespace{}, usagef("the name of the namespace is empty")
	}
	if s.Namespace != "" {
		path = s.Namespace + "/" + path
	}
	ns, err := recordkey.ParseNamespace(path)
	if err != nil {
		return ns, usagef("namespace %s: %s", printable(path), syntaxReason(err))
	}
	return ns, nil
}

func listNamespacesCommand(s *session) *cobra.Command {
	type line struct {
		Namespace string `json:"namespace"`
		Entries   int64  `json:"entries"`
		Records   int64  `json:"records"`
	}
	return &cobra.Command{
		Use:   "list",
		Short: "List namespaces with their counts",
		Long: `List each namespace that holds records, with the number of its entries and of all its records.
Namespaces inside it are counted on their own.`,
		Example: `  userdb create user name=Carol --namespace acme --no-password
  userdb namespace list --json`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			found, err := migrate.Namespaces(ctx, s.db)
			if err != nil {
				return err
			}
			list := s.newRows([]string{"namespace"}, "namespace", "entries", "records")
			for _, n := range found {
				// Without --namespace this removes nothing, because no path begins with a slash.
				path := strings.TrimPrefix(n.Namespace.Path(), s.Namespace+"/")
				text := printable(path) + "  " + plural(n.Entries, "entry") + ", " + plural(n.Records, "record")
				err := list.add(line{path, n.Entries, n.Records}, text, printable(path), strconv.FormatInt(n.Entries, 10), strconv.FormatInt(n.Records, 10))
				if err != nil {
					return err
				}
			}
			return list.end("no namespaces")
		}, unlimited, opened, reading, allTypes),
	}
}

func copyNamespaceCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "copy FROM TO",
		Short: "Copy a namespace to another name",
		Long: `Copy a namespace, with those inside it, to another name, which must hold nothing. Nobody may write to
FROM meanwhile. If a copy was stopped, the same command continues it. The secrets of second factors
are encrypted anew, so the command needs their keys (--key-file); without them it stops at the first
entry with a factor. Prints how many records there are.`,
		Example: `  userdb create user name=Carol --namespace acme --no-password
  userdb namespace copy acme acme-test`,
		RunE: s.run(func(ctx context.Context, words []string) error {
			from, err := s.parseNamespace(words[0])
			to, toErr := s.parseNamespace(words[1])
			if err := cmp.Or(err, toErr); err != nil {
				return err
			}
			n, err := migrate.CopyNamespace(ctx, s.db, from, to)
			return s.printResult(n, "copied "+plural(n, "record"), err)
		}, unlimited, opened, allTypes),
	}
}

func dropNamespaceCommand(s *session) *cobra.Command {
	return s.withYes(&cobra.Command{
		Use:   "drop NAME",
		Short: "Remove all records of a namespace",
		Long: `Remove all records of a namespace, and of those inside it. API keys, jobs, links and groups of
directories that belong to them are removed first, and their operators disabled. If the store ever
had keys or operators, even removed ones, the command then waits for 55 seconds, until all processes
have finished their work for them. Without --yes it only says what it would remove. Nothing else
outside the namespace is touched. Prints how many records were removed, or exits 3 if there is nothing.`,
		Example: `  userdb create user name=Carol --namespace acme --no-password
  userdb namespace drop acme --yes`,
		RunE: s.readingIf(s.withoutYes, s.run(func(ctx context.Context, words []string) error {
			ns, err := s.parseNamespace(words[0])
			if err != nil {
				return err
			}
			name, handleRecords, handleOwned := printable(words[0]), migrate.CountNamespace, admin.CountOwned
			if s.yes {
				handleRecords, handleOwned = migrate.DropNamespace, s.removeOwned
			}
			// Remove keys and operators first, so that they write nothing meanwhile.
			owned, err := handleOwned(ctx, s.db, ns)
			if err != nil {
				return err
			}
			n, err := handleRecords(ctx, s.db, ns)
			var texts []string
			if n > 0 || err != nil {
				texts = append(texts, plural(n, "record"))
			}
			for _, o := range owned {
				texts = append(texts, plural(o.N, o.Thing))
			}
			switch {
			case err == nil && len(texts) == 0:
				return fmt.Errorf("namespace %s holds no records: %w", name, userdb.ErrNotFound)
			case err == nil && !s.yes:
				return usagef("namespace %s holds %s; add --yes to remove them", name, strings.Join(texts, ", "))
			}
			return s.printResult(n, "removed "+strings.Join(texts, ", "), err)
		}, unlimited, opened, allTypes)),
	})
}

// removeOwned removes what the service keeps for a namespace. If the store was ever served, it then
// waits until all processes have finished their work for removed keys, operators and jobs, and
// removes what they wrote meanwhile. It waits even if it found nothing, because keys may have been
// revoked a moment ago.
func (s *session) removeOwned(ctx context.Context, db *userdb.DB, ns recordkey.Namespace) (all []admin.Owned, err error) {
	wait, err := admin.EverServed(ctx, db)
	for err == nil {
		var found []admin.Owned
		found, err = admin.RemoveOwned(ctx, db, ns)
		all = addOwned(all, found)
		if err != nil || !wait && !slices.ContainsFunc(found, mayAct) || s.std.sleep == nil {
			break
		}
		fmt.Fprintf(s.std.err, "userdb: waiting %s until all processes have finished their work for removed API keys, operators and jobs\n", admin.RevocationTime)
		err = s.std.sleep(ctx, admin.RevocationTime)
		wait = false
	}
	return all, err
}

// mayAct reports whether a process may still be acting for what was removed.
func mayAct(o admin.Owned) bool {
	return o.Thing == "API key" || o.Thing == "operator" || o.Thing == "job"
}

// addOwned adds the numbers in found to the totals, and returns the totals.
func addOwned(totals, found []admin.Owned) []admin.Owned {
	for _, o := range found {
		if i := slices.IndexFunc(totals, func(a admin.Owned) bool { return a.Thing == o.Thing }); i >= 0 {
			totals[i].N += o.N
		} else {
			totals = append(totals, o)
		}
	}
	return totals
}
