package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

const (
	tourPassword = "correct horse battery"
	tourFile     = "tour.userdb" // what --keep makes in the current folder
)

// A tourStep is a paragraph of the tour: a text and the commands that show it.
type tourStep struct {
	text     string
	commands []tourCommand
}

// A tourCommand is a command line, which the tour shows with everything that it prints.
type tourCommand struct {
	shown string   // what the tour shows in place of the words, if the line has shell syntax
	words []string // of the command; nil for a line that only the shell would execute
	stdin string
	exit  int  // the exit code that the command must have
	brief bool // only the first line is printed, as by "| head -1"
	again bool // the command is repeated while the password is wrong, and equal lines are counted
}

// tourSteps lists what the tour shows before it draws the records.
var tourSteps = []tourStep{
	{"The built-in schema knows an address and a name. This adds a customer number.", []tourCommand{
		{
			shown: "userdb schema add user customer --role identifier --pattern '^c[0-9]{4}$'",
			words: []string{"schema", "add", "user", "customer", "--role", "identifier", "--pattern", "^c[0-9]{4}$"},
		},
	}},
	{"An account with three identifiers.", []tourCommand{
		{shown: "umask 077; echo '" + tourPassword + "' > secret.txt"},
		{
			shown: "userdb create uid=alice email=alice@hotmail.com name=Alice \\\n       customer=C1042 --password-stdin < secret.txt",
			words: []string{"create", "uid=alice", "email=alice@hotmail.com", "name=Alice", "customer=C1042", "--password-stdin"}, stdin: tourPassword,
		},
	}},
	{"She can sign in with any of them, in any case.", []tourCommand{
		tourLogin("alice@hotmail.com"), tourLogin("ALICE"), tourLogin("c1042"),
	}},
	{"Nobody else can take any of them, in any case, letters or field.", []tourCommand{
		{words: []string{"create", "email=Alice@HotMail.com", "--no-password"}, exit: 4},
		{words: []string{"create", "name=Ａｌｉｃｅ", "--no-password"}, exit: 4},
		{words: []string{"create", "name=c1042", "--no-password"}, exit: 4},
	}},
	{"Tags say what an account may do, and find all accounts that may.", []tourCommand{
		{words: []string{"tags", "add", "alice", "editor"}},
		{words: []string{"list", "--tag", "editor", "--fields", "name"}},
	}},
	{"After ten wrong guesses, further ones wait, whichever identifier they use.", []tourCommand{
		{shown: "echo 'letmein123' > guess.txt"},
		{
			shown: "userdb login --password-stdin alice@hotmail.com < guess.txt",
			words: []string{"login", "--password-stdin", "alice@hotmail.com"}, stdin: "letmein123", exit: 5,
		},
		{
			shown: "for i in $(seq %d); do\n    userdb login --password-stdin Alice < guess.txt\n  done 2>&1 | uniq -c",
			words: []string{"login", "--password-stdin", "Alice"}, stdin: "letmein123", exit: 8, again: true,
		},
	}},
}

// tourHold shows what remains of identifiers that are given up.
var tourHold = tourStep{"An identifier that is given up can be held, so that nobody else gets it.", []tourCommand{
	{words: []string{"schema", "add", "user", "customer", "--hold", "90d", "--retire"}},
	{shown: "userdb set alice customer=C2042 | head -1", words: []string{"set", "alice", "customer=C2042"}, brief: true},
	{words: []string{"create", "customer=C1042", "--no-password"}, exit: 4},
	{words: []string{"held", "show", "customer=C1042"}},
	{shown: "userdb create uid=bob name=Bob --no-password | head -1", words: []string{"create", "uid=bob", "name=Bob", "--no-password"}, brief: true},
	{words: []string{"delete", "bob", "--yes"}},
	{words: []string{"create", "uid=bob", "--no-password"}, exit: 4},
}}

// tourLogin returns the command line of a login.
func tourLogin(identifier string) tourCommand {
	return tourCommand{
		shown: "userdb login --password-stdin " + identifier + " < secret.txt | head -1",
		words: []string{"login", "--password-stdin", identifier}, stdin: tourPassword, brief: true,
	}
}

func tourCommandLine(s *session) *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "tour",
		Short: "Show in a few seconds what userdb does",
		Long: `Show in a few seconds what userdb does, on a store in memory that is gone afterwards. Every line that
begins with $ is a command, which you can repeat on a store of your own; what follows is its output.`,
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

// tour shows the tour. With keep it leaves the store in tourFile, unless it fails or is stopped.
// The password in the tour, which everybody knows, has a cheap hash, so that nobody waits. The
// first login after the tour replaces the hash.
func (s *session) tour(ctx context.Context, keep bool) error {
	url := "memory:"
	if keep {
		if embedded.Exists(tourFile) {
			return usagef("%s exists: remove it, or go to another folder", tourFile)
		}
		url = "file:" + tourFile
	}
	return s.tourOn(ctx, url, keep)
}

// tourOn shows the tour on the store at url, which must be new.
func (s *session) tourOn(ctx context.Context, url string, keep bool) (err error) {
	db, err := userdb.Open(ctx, url, userdb.Options{History: s.History})
	if err != nil {
		return err
	}
	if _, err := os.Lstat(tourFile); keep && !errors.Is(err, fs.ErrNotExist) {
		// Another tour was here while this one waited for the file.
		return cmp.Or(db.Close(), usagef("%s exists: remove it, or go to another folder", tourFile))
	}
	defer func() {
		err = cmp.Or(err, db.Close())
		if keep && err != nil { // half of the tour would keep the next one from starting
			os.Remove(tourFile)
			os.Remove(tourFile + ".lock")
		}
	}()
	if err := view.HooksOf(db).UseCheapHashes(); err != nil {
		return err
	}
	t := tour{s, db}
	if err := t.printf("userdb keeps accounts, and finds them by any identifier that they own. One\n" +
		"identifier never means two people. This tour has a store of its own.\n\n"); err != nil {
		return err
	}
	for i, step := range tourSteps {
		if err := t.show(ctx, i+1, step); err != nil {
			return err
		}
	}
	if err := t.drawRecords(ctx, len(tourSteps)+1); err != nil {
		return err
	}
	if err := t.show(ctx, len(tourSteps)+2, tourHold); err != nil {
		return err
	}
	last := tourStep{"The check proves that no two accounts share an identifier.", []tourCommand{{words: []string{"check"}}}}
	if err := t.show(ctx, len(tourSteps)+3, last); err != nil {
		return err
	}
	if keep {
		// The login that end suggests must not wait because of the guesses.
		users, err := db.Type("user")
		if err == nil {
			err = users.ResetThrottle(ctx, hints.UID("alice"))
		}
		if err != nil {
			return err
		}
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

// runCommand runs a command line, and prints it and its output. It returns an error if the command
// does not exit as the tour says.
func (t tour) runCommand(ctx context.Context, c tourCommand) error {
	var output strings.Builder
	runs, exit := 0, c.exit
	if c.words != nil {
		const most = 100 // more wrong passwords than any throttle admits at once
		for again := true; again; again = c.again && exit == userdb.CodeLogin.ExitStatus() && runs < most {
			var text string
			text, exit = t.run(ctx, c.stdin, c.words)
			output.WriteString(text)
			runs++
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	shown := cmp.Or(c.shown, "userdb "+strings.Join(c.words, " "))
	if c.again {
		shown = fmt.Sprintf(shown, runs)
	}
	if err := t.printf("   $ %s\n", strings.ReplaceAll(shown, "\n", "\n   ")); err != nil {
		return err
	}
	if exit != c.exit {
		return fmt.Errorf("userdb %s: exit code %d, not %d: %s", strings.Join(c.words, " "), exit, c.exit, output.String())
	}
	text := output.String()
	if c.again {
		text = countLines(text)
	}
	for line := range strings.Lines(text) {
		if err := t.printf("   %s", wrapLine(line)); err != nil || c.brief {
			return err
		}
	}
	return nil
}

// wrapLine breaks a line of output that would have over 80 columns in the tour.
func wrapLine(line string) string {
	const width = 77
	var b strings.Builder
	for len(line) > width+1 { // with its line break
		at := strings.LastIndex(line[:width+1], " ")
		if at <= 0 {
			break
		}
		b.WriteString(line[:at] + "\n   ")
		line = line[at+1:]
	}
	return b.String() + line
}

// countLines puts the number of consecutive equal lines before each, as uniq -c does.
func countLines(text string) string {
	var b strings.Builder
	lines := slices.Collect(strings.Lines(text))
	for i, n := 0, 0; i < len(lines); i++ {
		if n++; i+1 == len(lines) || lines[i+1] != lines[i] {
			fmt.Fprintf(&b, "%7d %s", n, lines[i])
			n = 0
		}
	}
	return b.String()
}

// run runs a command line on the store of the tour. It returns the exit code and the output,
// including that to standard error.
func (t tour) run(ctx context.Context, stdin string, words []string) (text string, exit int) {
	var all bytes.Buffer
	s := newSession(stdio{in: strings.NewReader(stdin), out: &all, err: &all})
	s.db, s.borrowed = t.db, true
	err := s.parse(words)
	if err == nil {
		s.Schema, s.Namespace = "", "" // the tour ignores the environment
		err = cmp.Or(s.useStored(ctx), s.do(ctx), s.out.flush())
	}
	exit = report(&all, false, err)
	return all.String(), exit
}

// drawRecords lists the keys of all records of accounts, and draws how the keys of identifiers lead
// to the account.
func (t tour) drawRecords(ctx context.Context, number int) error {
	if err := t.printf("%d. What Redis holds: a key for each identifier, which leads to the account.\n\n", number); err != nil {
		return err
	}
	text, exit := t.run(ctx, "", []string{"keys", "user/*"})
	if exit != 0 {
		return fmt.Errorf("userdb keys: exit code %d: %s", exit, text)
	}
	if err := t.printf("   $ userdb keys 'user/*'\n   %s\n\n", strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n   ")); err != nil {
		return err
	}
	if err := t.printf("   Drawn, with the other records of the account:\n\n"); err != nil {
		return err
	}
	entries := map[string]*drawing{}
	drawingOf := func(prk string) *drawing {
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
			d := drawingOf(e)
			d.identifiers = append(d.identifiers, key.String())
		case recordkey.KindTertiary:
			d := drawingOf(key.PRK().String())
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
	return t.printf("One identifier never means two people. The account is in the file\n%s. To go on:\n\n"+
		"   %s list%s\n   echo '%s' | %s login --password-stdin Alice%s\n   %s serve%s\n",
		tourFile, name, store, tourPassword, name, store, name, store)
}

// programName returns the words that start this program.
func programName() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/userdb"
	}
	return "userdb"
}
