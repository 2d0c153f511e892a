package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// tourSchema declares an account with three identifiers.
const tourSchema = `{"types": {"user": {
	"primary": "uid",
	"fold": "casefold",
	"fields": {
		"email":    {"role": ["identifier", "ordered"], "kind": "email"},
		"name":     {"role": ["identifier", "ordered"], "kind": "nickname"},
		"customer": {"role": "identifier", "kind": "pattern", "pattern": "^[Cc][0-9]{4}$"},
		"added":    {"codec": "date", "role": "ordered"}
	},
	"tertiary": {"tags": {"kind": "set", "indexed": true}},
	"password": {"cost": 12, "min": 8, "blocklist": true}
}}}`

const (
	tourPassword = "correct horse battery"
	tourFile     = "tour.userdb" // what --keep makes in the current folder
)

// A tourStep is a paragraph of the tour: a text and the commands that show it.
type tourStep struct {
	text     string
	commands []tourCommand
}

// A tourCommand is a command line and what the tour shows of its output.
type tourCommand struct {
	words    []string
	password string // the standard input; "" for none
	file     string // the name that the tour shows for the standard input
	exit     int    // the exit code that the command must have
	brief    bool   // show the first line only
	until    int    // repeat the command, without showing it, until it has this exit code
}

// tourSteps lists what the tour shows before it draws the records.
var tourSteps = []tourStep{
	{"An account with three identifiers: an address, a name, a customer number.", []tourCommand{
		{words: []string{"create", "uid=alice", "email=alice@hotmail.com", "name=Alice", "customer=C1042"}, password: tourPassword, file: "secret.txt"},
	}},
	{"She signs in by any of them, in any case.", []tourCommand{
		{words: []string{"login", "alice@hotmail.com"}, password: tourPassword, file: "secret.txt", brief: true},
		{words: []string{"login", "ALICE"}, password: tourPassword, file: "secret.txt", brief: true},
		{words: []string{"login", "c1042"}, password: tourPassword, file: "secret.txt", brief: true},
	}},
	{"Nobody else gets one of them, in whatever case, letters or field.", []tourCommand{
		{words: []string{"create", "email=Alice@HotMail.com"}, exit: 4},
		{words: []string{"create", "name=Ａｌｉｃｅ"}, exit: 4},
		{words: []string{"create", "name=c1042"}, exit: 4},
	}},
	{"Tags say what an account may do, and find it.", []tourCommand{
		{words: []string{"tags", "add", "alice", "editor"}},
		{words: []string{"list", "--tag", "editor", "--fields", "name"}},
	}},
	{"Guesses of a password wait longer and longer, by whatever identifier.", []tourCommand{
		{words: []string{"login", "alice@hotmail.com"}, password: "letmein123", file: "guess.txt", exit: 5},
		{words: []string{"login", "Alice"}, password: "letmein123", file: "guess.txt", exit: 8, until: 8},
	}},
}

func tourCommandLine(s *session) *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "tour",
		Short: "Show in a few seconds what userdb does",
		Long: `Show in a few seconds what userdb does, on a store in memory that is gone afterwards. Every line that
begins with $ is a command, and what follows is its output.`,
		Example: `  userdb tour
  userdb tour --keep`,
		RunE: s.run(func(ctx context.Context, _ []string) error {
			if s.Store != os.Getenv("USERDB_STORE") {
				return usagef("the tour has a store of its own: leave --store out")
			}
			if s.JSON {
				return usagef("the tour is for people: leave --json out")
			}
			return s.tour(ctx, keep)
		}, public),
	}
	c.Flags().BoolVar(&keep, "keep", false, "keep the store as the file "+tourFile+" in this folder")
	return c
}

// tour shows the tour. With keep it leaves the store in tourFile.
func (s *session) tour(ctx context.Context, keep bool) (err error) {
	url := "memory:"
	if keep {
		if embedded.Exists(tourFile) {
			return usagef("%s exists: remove it, or go to another folder", tourFile)
		}
		url = "file:" + tourFile
	}
	sc, err := schema.Load(strings.NewReader(tourSchema))
	if err != nil {
		return err
	}
	db, err := userdb.Open(ctx, url, userdb.Options{Schema: sc, History: s.History})
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	t := tour{s, db}
	for i, step := range tourSteps {
		if err := t.show(ctx, i+1, step); err != nil {
			return err
		}
	}
	if err := t.drawRecords(ctx, len(tourSteps)+1); err != nil {
		return err
	}
	last := tourStep{"The check proves that no two accounts share an identifier.", []tourCommand{{words: []string{"check"}}}}
	if err := t.show(ctx, len(tourSteps)+2, last); err != nil {
		return err
	}
	return t.end(keep)
}

// A tour runs commands on one open store.
type tour struct {
	s  *session
	db *userdb.DB
}

// show prints a step, and runs its commands.
func (t tour) show(ctx context.Context, number int, step tourStep) error {
	if err := t.printf("%d. %s\n\n", number, step.text); err != nil {
		return err
	}
	for _, c := range step.commands {
		if err := t.runCommand(ctx, c); err != nil {
			return err
		}
	}
	return t.printf("\n")
}

func (t tour) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(t.s.out, format, args...)
	return cmp.Or(outputError(err), t.s.out.flush())
}

// runCommand prints a command line, runs it and prints its output. It returns an error if the
// command does not exit as the tour says.
func (t tour) runCommand(ctx context.Context, c tourCommand) error {
	words, shown := c.words, c.words
	switch {
	case c.password != "":
		words = append(words[:1:1], append([]string{"--password-stdin"}, words[1:]...)...)
		shown = append(slices.Clone(words), "<", c.file)
	case words[0] == "create":
		words = append(slices.Clone(words), "--no-password")
		shown = words
	}
	if c.until != 0 {
		shown = append(slices.Clone(shown), " # again and again")
	}
	if err := t.printf("   $ %s\n", breakLine(append([]string{"userdb"}, shown...))); err != nil {
		return err
	}
	const most = 100 // more wrong passwords than any throttle admits at once
	text, exit := t.run(ctx, c.password, words)
	for range most {
		if c.until == 0 || exit == c.until {
			break
		}
		text, exit = t.run(ctx, c.password, words)
	}
	if exit != c.exit {
		return fmt.Errorf("userdb %s: exit code %d, not %d: %s", strings.Join(words, " "), exit, c.exit, text)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if c.brief {
		lines = lines[:1]
	}
	for _, line := range lines {
		if err := t.printf("   %s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// breakLine joins the words of a command line, and breaks it as a shell allows if it is long.
func breakLine(words []string) string {
	const width = 76 // of a terminal with 80 columns, without the margin
	line, left := "", width
	for _, word := range words {
		if len(word)+len(` \`) > left {
			line, left = line+" \\\n        ", width
		}
		if line != "" && left < width {
			line += " "
		}
		line, left = line+word, left-len(word)-1
	}
	return line
}

// run runs a command line on the store of the tour. It returns what the command prints, also to
// standard error, and its exit code.
func (t tour) run(ctx context.Context, stdin string, words []string) (text string, exit int) {
	var all bytes.Buffer
	s := newSession(stdio{in: strings.NewReader(stdin), out: &all, err: &all})
	s.db, s.borrowed = t.db, true
	err := s.parse(words)
	if err == nil {
		s.Schema, s.Namespace = "", "" // the tour ignores the environment
		err = cmp.Or(s.do(ctx), s.out.flush())
	}
	exit = report(&all, false, err)
	return all.String(), exit
}

// drawRecords draws the keys of all records: those of identifiers lead to the entry.
func (t tour) drawRecords(ctx context.Context, number int) error {
	if err := t.printf("%d. What Redis holds: a key for each identifier, which leads to the account.\n\n", number); err != nil {
		return err
	}
	text, exit := t.run(ctx, "", []string{"keys", "user/*"})
	if exit != 0 {
		return fmt.Errorf("userdb keys: exit code %d: %s", exit, text)
	}
	if err := t.printf("   $ userdb keys 'user/*'\n"); err != nil {
		return err
	}
	entries := map[string]*drawing{}
	of := func(prk string) *drawing {
		if entries[prk] == nil {
			entries[prk] = &drawing{prk: prk}
		}
		return entries[prk]
	}
	for line := range strings.Lines(text) {
		key, err := recordkey.Parse(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		switch key.Kind() {
		case recordkey.KindSRK:
			e, err := t.find(ctx, key)
			if err != nil {
				return err
			}
			d := of(e)
			d.identifiers = append(d.identifiers, key.String())
		case recordkey.KindTertiary:
			d := of(key.PRK().String())
			d.records = append(d.records, key.String())
		}
	}
	for _, prk := range slices.Sorted(maps.Keys(entries)) {
		if err := t.printf("%s", entries[prk]); err != nil {
			return err
		}
	}
	return t.printf("\n")
}

// find returns the key of the entry that an identifier's key leads to.
func (t tour) find(ctx context.Context, srk recordkey.Key) (string, error) {
	text, exit := t.run(ctx, "", []string{"get", srk.String()})
	if exit != 0 {
		return "", fmt.Errorf("userdb get %s: exit code %d: %s", srk, exit, text)
	}
	prk, _, _ := strings.Cut(text, "\n")
	return prk, nil
}

// A drawing holds the keys of the records of one entry.
type drawing struct {
	prk                  string
	identifiers, records []string
}

// String draws the keys of the identifiers, with lines to the key of the entry, and below it the
// keys of its other records.
func (d drawing) String() string {
	width := 0
	for _, key := range d.identifiers {
		width = max(width, len(key))
	}
	var b strings.Builder
	middle := len(d.identifiers) / 2
	for i, key := range d.identifiers {
		corner, target := "─┤", ""
		switch {
		case len(d.identifiers) == 1:
			corner = "──"
		case i == 0:
			corner = "─┐"
		case i == len(d.identifiers)-1:
			corner = "─┘"
		case i == middle:
			corner = "─┼"
		}
		if i == middle {
			target = "──▶ " + d.prk
		}
		fmt.Fprintf(&b, "   %-*s %s%s\n", width, key, corner, target)
	}
	for _, key := range d.records {
		fmt.Fprintf(&b, "   %*s     └─ %s\n", width+2, "", key)
	}
	return b.String()
}

// end prints what to do next.
func (t tour) end(keep bool) error {
	name := programName()
	if !keep {
		return t.printf("One identifier never means two people. To keep this store, and for more:\n\n"+
			"   %s tour --keep\n   %s --help\n", name, name)
	}
	store := " --store file:" + tourFile
	return t.printf("One identifier never means two people. The account is in the file %s; its password is %q. To go on:\n\n"+
		"   %s list%s\n   %s login Alice%s\n   %s serve%s\n",
		tourFile, tourPassword, name, store, name, store, name, store)
}

// programName returns the words with which this program was started.
func programName() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/userdb"
	}
	return "userdb"
}
