package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/maintain/inspect"
)

func statusCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the store, its servers, schema and counts",
		Long: `Show where the records are, what the servers would lose in a crash, how far their clocks are ahead of
this machine's, which schema is in force, and how many entries and namespaces there are. Warnings
come last. They do not change the exit code; scripts read them as "warnings" with --json.

To count the namespaces, the command scans all keys of the database, which may take long on a large
server but does not block it. Settings are read with CONFIG GET; a setting that this user may not read
is "unknown".`,
		Example: `  userdb status
  userdb status --json`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			// If the store is open but its schema cannot be read, the status says so.
			if err := s.open(ctx); s.db == nil {
				return err
			}
			p := s.progress("counting", !s.JSON)
			st, err := inspect.StatusOf(ctx, s.db, p.bar)
			p.clear()
			if err != nil {
				return err
			}
			return s.out.print(st, s.statusText(st))
		}, unlimited, reading, allTypes),
	}
}

// statusText formats a status for people.
func (s *session) statusText(st inspect.Status) string {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, words ...string) {
		fmt.Fprintf(columns, "%s\t%s\n", name, oneLine(strings.Join(words, ", ")))
	}
	if row("store", st.Store); st.File != "" {
		row("file", printable(st.File))
	}
	for _, server := range st.Servers {
		serverRows(row, server)
	}
	for _, t := range st.Types {
		words := []string{pluralOrUnknown(t.Entries, "entry"), plural(t.Fields, "field"), s.origin(t)}
		if t.Retired > 0 {
			words = slices.Insert(words, 1, plural(t.Retired, "retired UID"))
		}
		row("type "+printable(t.Type), words...)
	}
	for _, n := range st.Namespaces {
		row("namespace "+printable(n.Namespace), plural(n.Entries, "entry"), plural(n.Records, "record"))
	}
	if len(st.Namespaces) == 0 && st.Namespaces != nil {
		row("namespaces", "none")
	}
	columns.Flush() // a strings.Builder takes everything
	for _, w := range st.Warnings {
		b.WriteString("WARNING: " + oneLine(w.Text) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// serverRows adds rows with what a server says about itself.
func serverRows(row func(string, ...string), s inspect.Server) {
	row("server", s.Name, orUnknown(s.Version), orUnknown(s.Role))
	row("  when full", "maxmemory-policy "+orUnknown(s.Eviction))
	if s.AppendOnly == "no" {
		row("  append-only file", "no")
	} else {
		row("  append-only file", orUnknown(s.AppendOnly), "appendfsync "+orUnknown(s.AppendFsync), "last write "+orUnknown(s.LastAppend))
	}
	row("  snapshots", orUnknown(s.Save), "last one "+orUnknown(s.LastSave))
	row("  a crash may lose", orUnknown(s.MayLose))
	row("  replicas", pluralOrUnknown(s.Replicas, "replica"), "min-replicas-to-write "+pluralOrUnknown(s.MinReplicas, ""))
	clock := orUnknown("")
	if s.Clock != nil {
		ahead := math.Round(s.Clock.Ahead)/1000 + 0 // the sum is never -0
		clock = fmt.Sprintf("%+.3f s, give or take %.3f s", ahead, s.Clock.Within/1000)
	}
	row("  clock", clock)
}

// orUnknown returns text, or "unknown" if it is empty.
func orUnknown(text string) string { return cmp.Or(text, "unknown") }

// pluralOrUnknown formats a number of things, or returns "unknown" if n is nil.
func pluralOrUnknown(n *int64, thing string) string {
	switch {
	case n == nil:
		return orUnknown("")
	case thing == "":
		return fmt.Sprint(*n)
	}
	return plural(*n, thing)
}

// origin returns words that say where the schema of a type comes from, and which version of the
// canonical form its records have.
func (s *session) origin(t inspect.TypeStatus) string {
	from := "stored schema"
	switch {
	case t.Stored && t.Changing:
		from = "stored schema that is being changed"
	case !t.Stored && s.Schema != "":
		from = "schema of --schema"
	case !t.Stored:
		from = "built-in schema"
	}
	if t.Canonical != "" {
		from += ", canonical form " + t.Canonical
	}
	return from
}
