package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coffeenode/userdb/schema"
)

const about = `userdb keeps accounts in Redis or, where no store is named, in a file: entries that are found by any
identifier they own, such as a name or an e-mail address. One identifier never means two entries.

Flags may stand anywhere; what follows -- is no flag. The forms of --store are file:PATH, memory:,
redis://HOST:PORT/DB, rediss://…, unix://PATH, redis+sentinel://…, redis+cluster://…

Exit codes: 0 done, 1 other failure, 2 bad input, 3 not found, 4 taken or changed meanwhile,
5 wrong identifier or password, 6 store unavailable, 7 check found errors, 8 too many attempts,
130 interrupted.`

// globals are the flags that every command has.
type globals struct {
	Store, Schema, Namespace, Type string
	JSON                           bool
	History                        bool
	Timeout                        *time.Duration
}

// newRoot declares the whole command line. What a verb does is kept in s.do.
func newRoot(s *session) *cobra.Command {
	root := &cobra.Command{
		Use:  "userdb",
		Long: about,
		Example: `  userdb create user email=erin@example.com name=Erin --password-stdin < secret.txt
  userdb login --password-stdin -- erin@example.com < secret.txt
  userdb get '*=Erin'
  userdb list user`,
		SilenceErrors: true, SilenceUsage: true,
		RunE: versionVerb(s).RunE, // with --version
	}
	root.Flags().Bool("version", false, "print the version")
	root.SetOut(&s.help)
	root.SetErr(s.std.err)
	s.globalFlags(root.PersistentFlags())
	cobra.EnableCommandSorting = false
	for _, group := range []struct {
		name  string
		verbs []*cobra.Command
	}{
		{"Entries", []*cobra.Command{createVerb(s), getVerb(s), setVerb(s), unsetVerb(s), deleteVerb(s), tagsVerb(s)}},
		{"Passwords", []*cobra.Command{loginVerb(s), passwdVerb(s), disableVerb(s), enableVerb(s), tokenVerb(s), passwordVerb(s)}},
		{"Listings", []*cobra.Command{listVerb(s), countVerb(s), keysVerb(s), walkVerb(s), dumpVerb(s)}},
		{"Care", []*cobra.Command{statusVerb(s), checkVerb(s), exportVerb(s), importVerb(s), removeVerb(s), schemaVerb(s), namespaceVerb(s)}},
		{"Service", []*cobra.Command{serveVerb(s), apiKeyVerb(s), operatorVerb(s), eventsVerb(s)}},
		{"Tools", []*cobra.Command{hintVerb(s), recordKeyVerb(s), versionVerb(s)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.name, Title: group.name + ":"})
		for _, verb := range group.verbs {
			verb.GroupID = group.name
			s.takeWords(verb)
		}
		root.AddCommand(group.verbs...)
	}
	root.SetHelpCommandGroupID("Tools")
	root.SetCompletionCommandGroupID("Tools")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}

// group is c with the commands below it.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.AddCommand(below...)
	return c
}

func (s *session) globalFlags(flags *pflag.FlagSet) {
	flags.Func("store", "`URL` of the store (USERDB_STORE; else a file in this user's data directory)", func(url string) error {
		if s.Store = url; url == "" { // as of a variable that is not set: accounts would go into the file, and nobody told
			return errors.New("it names no store")
		}
		return nil
	})
	flags.StringVar(&s.Schema, "schema", "", "read the schema from `FILE` (USERDB_SCHEMA; else the stored or built-in one)")
	flags.StringVar(&s.Namespace, "namespace", "", "see one namespace alone; `A/B` is B inside A (USERDB_NAMESPACE)")
	flags.StringVar(&s.Type, "type", "user", "type `T` is meant where a hint names none")
	s.Store, s.Schema, s.Namespace = os.Getenv("USERDB_STORE"), os.Getenv("USERDB_SCHEMA"), os.Getenv("USERDB_NAMESPACE")
	flags.BoolVar(&s.History, "history", os.Getenv("USERDB_HISTORY") != "false", "note what is done, for 'userdb events' (USERDB_HISTORY)")
	flags.BoolVar(&s.JSON, "json", false, "one JSON value per line on standard output, and errors as JSON")
	const usage = "the whole command may take `D`, such as 5s, 2m or 1d; 0 is no limit (default 30s;\n" +
		"where much may be read or written, no limit)"
	flags.Func("timeout", usage, func(text string) error {
		d, err := duration(text)
		s.Timeout = &d
		return err
	})
}

// duration reads a duration as Go writes it, after days of 24 hours: 90s, 15m, 2d, 1d12h.
func duration(text string) (time.Duration, error) {
	days, rest := "0", text
	if before, after, has := strings.Cut(text, "d"); has {
		days, rest = before, cmp.Or(after, "0s")
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d, restErr := time.ParseDuration(rest)
	if err != nil || restErr != nil || d < 0 {
		return 0, errors.New("no duration, such as 90s, 15m or 2d")
	}
	return time.Duration(n)*24*time.Hour + d, nil
}

// choice declares a flag that takes one of some words.
func choice(c *cobra.Command, to *string, name, usage string, words ...string) {
	c.Flags().Func(name, usage, func(word string) error {
		if *to = word; !slices.Contains(words, word) {
			return errors.New("want one of " + strings.Join(words, ", "))
		}
		return nil
	})
	c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // it was declared above
}

// disabledFlag declares --disabled; to stays nil where it is not given.
func disabledFlag(c *cobra.Command, to **bool) {
	c.Flags().BoolFunc("disabled", "only entries that may not log in; with =false, only those that may", func(text string) (err error) {
		*to = new(bool)
		**to, err = strconv.ParseBool(text)
		return err
	})
}

// wordHelp is what the words of usage lines mean.
var wordHelp = map[string]string{
	"HINT":    "HINT points at an entry; 'userdb hint --help' has its forms.",
	"TYPE":    "TYPE is a type of the schema, such as user.",
	"PATTERN": "PATTERN is a Redis glob: * is any text, ? one character, [ab] one of them.",
}

// takeWords has verb, and those below it, take as many words as its usage names, such as TYPE, [HINT] or
// FIELD=VALUE…, and tell what they mean.
func (s *session) takeWords(verb *cobra.Command) {
	for _, below := range verb.Commands() {
		s.takeWords(below)
	}
	names := strings.Fields(verb.Use)[1:]
	many := len(names) > 0 && strings.HasSuffix(strings.Trim(names[len(names)-1], "[]"), "…")
	for _, name := range names {
		if text, ok := wordHelp[strings.Trim(name, "[]…")]; ok && verb.Name() != "hint" {
			verb.Long = cmp.Or(verb.Long, verb.Short+".") + "\n\n" + text
		}
	}
	verb.Args = func(_ *cobra.Command, words []string) error {
		if len(words) < len(names) && names[len(words)][0] != '[' {
			return errors.New("missing: " + names[len(words)])
		}
		if len(words) > len(names) && !many {
			return errors.New("one word too many: " + words[len(names)])
		}
		return nil
	}
	verb.ValidArgsFunction = func(_ *cobra.Command, words []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(words) < len(names) && names[len(words)] == "TYPE" {
			sc, _ := s.namedSchema(context.Background(), schema.User()) // of one that cannot be read, nothing is offered
			return sc.Names(), cobra.ShellCompDirectiveNoFileComp
		}
		if len(words) < len(names) && names[len(words)] == "FILE" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// refusesHelp is the --help of a verb by whose exit code scripts let visitors in. Scripts give it words that visitors
// wrote: no flag among them makes it exit 0.
type refusesHelp struct{ pflag.Value }

func (refusesHelp) Set(string) error {
	return errors.New("scripts grant by the exit code of this command")
}

func grants(c *cobra.Command) {
	c.Flags().BoolP("help", "h", false, "")
	flag := c.Flags().Lookup("help")
	flag.Value, flag.Hidden = refusesHelp{flag.Value}, true
}

// refuses reports whether c grants.
func refuses(c *cobra.Command) bool {
	flag := c.Flags().Lookup("help")
	if flag == nil {
		return false
	}
	_, does := flag.Value.(refusesHelp)
	return does
}

// helpOf is the command line that shows the help of c.
func helpOf(c *cobra.Command) string {
	if refuses(c) {
		return strings.Replace(c.CommandPath(), " ", " help ", 1)
	}
	return c.CommandPath() + " --help"
}

// parse reads a command line, and leaves in s what is to be done. On an error, too, s.JSON tells whether JSON
// is wanted.
func (s *session) parse(args []string) error {
	root := newRoot(s)
	l := arrange(root, args)
	s.guarded = l.guarded
	c, err := l.c, l.err
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // a shell asks how a line may go on
		root.SetArgs(args)
		c, err = root.ExecuteC()
	} else if err == nil {
		root.SetArgs(l.args())
		c, err = root.ExecuteC()
	}
	if err == nil {
		s.out.json = s.JSON && (s.do != nil || c.HasParent() && c.Parent().Name() == "completion")
		return nil
	}
	s.JSON = l.has("--json")
	var number *strconv.NumError
	if bad, is := errors.AsType[*pflag.InvalidValueError](err); is && errors.As(err, &number) {
		err = fmt.Errorf("--%s %s: no number that it takes", bad.GetFlag().Name, shown(bad.GetValue()))
	}
	return usagef("%v; see '%s'", err, helpOf(c))
}

// A line is a command line in the one order in which the library takes all of it: its own flags of a command may
// not stand before the command, and a value that begins with a hyphen would pass for the next flag.
type line struct {
	c       *cobra.Command // the command that the first words name
	flags   []string       // each with its value after =
	words   []string       // those after the command
	guarded bool           // words stood after --: a - there is not standard input
	err     error
}

func arrange(root *cobra.Command, args []string) line {
	flags := map[string]*pflag.Flag{}
	knownFlags(root, flags)
	var l line
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			l.words, l.guarded, args = append(l.words, args...), len(args) > 0, nil
		case isFlag(arg):
			args = l.takeFlag(flags, arg, args)
		default:
			l.words = append(l.words, arg)
		}
	}
	l.c, l.words = command(root, l.words)
	if l.err = cmp.Or(l.err, l.wantsCommand()); l.wantsHelp() {
		l.err = nil
	}
	return l
}

// command is what the first words name below c, and the other words.
func command(c *cobra.Command, words []string) (*cobra.Command, []string) {
	for _, below := range c.Commands() {
		if len(words) > 0 && below.Name() == words[0] {
			return command(below, words[1:])
		}
	}
	return c, words
}

func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// takeFlag joins a flag with its value.
func (l *line) takeFlag(flags map[string]*pflag.Flag, arg string, rest []string) []string {
	name, _, joined := strings.Cut(arg, "=")
	flag := flags[name]
	switch {
	case flag == nil:
		l.err = errors.New("unknown flag: " + name + " (a text that begins with - goes after --)")
		return rest
	case joined || flag.NoOptDefVal != "":
		l.flags = append(l.flags, arg)
		return rest
	case len(rest) == 0 || isFlag(rest[0]):
		l.err = errors.New(arg + " wants a value; one that begins with - is written " + arg + "=VALUE")
		return rest
	}
	l.flags, rest = append(l.flags, arg+"="+rest[0]), rest[1:]
	for takesMore(flag) && len(l.words) > 1 && len(rest) > 0 && !isFlag(rest[0]) && !strings.Contains(rest[0], "=") {
		l.flags, rest = append(l.flags, arg+"="+rest[0]), rest[1:]
	}
	return rest
}

// takesMore reports whether a flag takes several values in a row. Only after the command and its first
// word, and only up to a FIELD=VALUE, is it clear what belongs to it.
func takesMore(flag *pflag.Flag) bool {
	name, _ := pflag.UnquoteUsage(flag)
	return strings.HasSuffix(name, "...")
}

// knownFlags gathers the flags of all commands; a name is the same kind of flag wherever it stands.
func knownFlags(c *cobra.Command, to map[string]*pflag.Flag) {
	add := func(flag *pflag.Flag) {
		if to["--"+flag.Name] = flag; flag.Shorthand != "" {
			to["-"+flag.Shorthand] = flag
		}
	}
	c.Flags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	for _, below := range c.Commands() {
		knownFlags(below, to)
	}
}

func (l line) has(flags ...string) bool {
	return slices.ContainsFunc(l.flags, func(have string) bool {
		return slices.Contains(flags, strings.TrimSuffix(have, "=true"))
	})
}

// wantsHelp reports whether help is wanted, which goes before all else where no word grants anything.
func (l line) wantsHelp() bool { return l.has("--help", "-h") && !refuses(l.c) }

// wantsCommand says what is missing where the first words, or those after help, name no verb.
func (l line) wantsCommand() error {
	c, words := l.c, l.words
	switch {
	case c.Name() == "help":
		if c, words = command(c.Root(), words); len(words) == 0 {
			return nil
		}
	case !c.HasSubCommands() || !c.HasParent() && len(words) == 0 && l.has("--version"):
		return nil
	case len(words) == 0:
		return errors.New("a command is missing")
	}
	c.SuggestionsMinimumDistance = 2
	text := "unknown command: " + words[0]
	if near := c.SuggestionsFor(words[0]); len(near) > 0 {
		text += ", did you mean " + strings.Join(near, " or ")
	}
	return errors.New(text)
}

func (l line) args() []string {
	path := strings.Fields(l.c.CommandPath())[1:]
	if l.wantsHelp() {
		return append(path, "--help")
	}
	return slices.Concat(path, l.flags, []string{"--"}, l.words)
}
