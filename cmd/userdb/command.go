package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coffeenode/userdb/schema"
)

const about = `userdb stores accounts in Redis or, if no store is named, in a file. An account is an entry, which is
found by any identifier that it owns, such as a name or an e-mail address. One identifier never
means two entries.

Flags may appear anywhere; nothing after -- is a flag. The forms of --store are file:PATH, memory:,
redis://HOST:PORT/DB, rediss://…, unix://PATH, redis+sentinel://…, redis+cluster://…

Exit codes: 0 done, 1 other failure, 2 bad input, 3 not found, 4 taken or changed meanwhile,
5 wrong identifier or password, 6 store unavailable, 7 check found errors, 8 too many attempts,
130 interrupted.`

// globals holds the flags that every command has.
type globals struct {
	Store, Schema, Namespace, Type string
	KeyFile                        string
	JSON                           bool
	History                        bool
	Timeout                        *time.Duration
}

// newRoot declares the whole command line. After a line is parsed, s.do holds the function that
// executes the chosen command.
func newRoot(s *session) *cobra.Command {
	root := &cobra.Command{
		Use:  "userdb",
		Long: about,
		Example: `  userdb tour
  userdb create email=erin@example.com name=Erin
  userdb login -- erin@example.com
  userdb get Erin
  userdb list`,
		SilenceErrors: true, SilenceUsage: true,
		RunE: versionCommand(s).RunE, // with --version
	}
	root.Flags().Bool("version", false, "print the version")
	root.SetOut(&s.help)
	root.SetErr(s.std.err)
	s.globalFlags(root.PersistentFlags())
	cobra.EnableCommandSorting = false
	for _, group := range []struct {
		name     string
		commands []*cobra.Command
	}{
		{"Entries", []*cobra.Command{createCommand(s), getCommand(s), setCommand(s), unsetCommand(s), deleteCommand(s), tagsCommand(s)}},
		{"Passwords", []*cobra.Command{loginCommand(s), passwdCommand(s), disableCommand(s), enableCommand(s), tokenCommand(s), sessionCommand(s), factorCommand(s), passwordCommand(s)}},
		{"Listings", []*cobra.Command{listCommand(s), countCommand(s), keysCommand(s), walkCommand(s), dumpCommand(s)}},
		{"Maintenance", []*cobra.Command{statusCommand(s), checkCommand(s), exportCommand(s), importCommand(s), removeCommand(s), schemaCommand(s), namespaceCommand(s), retiredCommand(s), heldCommand(s), compactCommand(s), backupCommand(s), salvageCommand(s)}},
		{"Service", []*cobra.Command{serveCommand(s), apiKeyCommand(s), operatorCommand(s), eventsCommand(s)}},
		{"Tools", []*cobra.Command{tourCommandLine(s), hintCommand(s), recordKeyCommand(s), versionCommand(s)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.name, Title: group.name + ":"})
		for _, cmd := range group.commands {
			cmd.GroupID = group.name
			s.acceptWords(cmd)
		}
		root.AddCommand(group.commands...)
	}
	root.SetHelpCommandGroupID("Tools")
	root.SetCompletionCommandGroupID("Tools")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() { // the commands that cobra adds
		case "help":
			c.Use, c.Short, c.Long = "help [COMMAND]", "Show the help of a command", ""
		case "completion":
			c.Short = "Print the script that completes commands in a shell"
			c.Long = c.Short + ". The help of each subcommand says how to install the script."
		}
	}
	fitHelp(root)
	root.SetUsageTemplate(strings.NewReplacer(
		".FlagUsages ", ".FlagUsagesWrapped "+strconv.Itoa(helpWidth)+" ",
		"{{if .Runnable}}\n  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}",
		"\n  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND [flags]{{else}}{{.UseLine}}{{end}}",
		"Available Commands:", "Commands:",
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`,
		"'{{.CommandPath}} COMMAND --help' shows more about a command.",
	).Replace(root.UsageTemplate()))
	return root
}

// helpWidth is the number of columns of the help. Most terminals have at least that many, and
// longer lines are hard to read on any terminal.
const helpWidth = 80

// fitHelp breaks the help of c and of its subcommands into lines of at most helpWidth columns.
func fitHelp(c *cobra.Command) {
	c.Long = wrapText(c.Long, helpWidth)
	c.LocalFlags().VisitAll(func(flag *pflag.Flag) { flag.Usage = strings.ReplaceAll(flag.Usage, "\n", " ") })
	for _, sub := range c.Commands() {
		fitHelp(sub)
	}
}

// wrapText breaks paragraphs into lines of at most width characters. It keeps lines that begin with
// a space.
func wrapText(text string, width int) string {
	var lines []string
	open := false // whether the last line takes more words
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			lines, open = append(lines, line), false
			continue
		}
		for word := range strings.FieldsSeq(line) {
			last := len(lines) - 1
			if open && utf8.RuneCountInString(lines[last]+" "+word) <= width {
				lines[last] += " " + word
			} else {
				lines, open = append(lines, word), true
			}
		}
	}
	return strings.Join(lines, "\n")
}

// group adds subcommands to c, and returns c.
func group(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.AddCommand(subcommands...)
	return c
}

func (s *session) globalFlags(flags *pflag.FlagSet) {
	flags.Func("store", "`URL` of the store (USERDB_STORE; else a file in this user's data directory)", func(url string) error {
		if s.Store = url; url == "" {
			// Probably an unset variable: accounts would silently go into the default file.
			return errors.New("the URL is empty")
		}
		return nil
	})
	flags.StringVar(&s.Schema, "schema", "", "read the schema from `FILE` (USERDB_SCHEMA; else the stored or built-in one)")
	flags.StringVar(&s.Namespace, "namespace", "", "work in one namespace only; `A/B` is B inside A (USERDB_NAMESPACE)")
	flags.StringVar(&s.Type, "type", "", "the type `T` of hints that do not name one (default: the only type or, of several, user)")
	s.Store, s.Schema, s.Namespace = os.Getenv("USERDB_STORE"), os.Getenv("USERDB_SCHEMA"), os.Getenv("USERDB_NAMESPACE")
	flags.BoolVar(&s.History, "history", os.Getenv("USERDB_HISTORY") != "false", "record what is done, for 'userdb events' (USERDB_HISTORY)")
	flags.StringVar(&s.KeyFile, "key-file", os.Getenv("USERDB_KEY_FILE"), "the keys of second factors are in `FILE` (USERDB_KEY_FILE; else STORE.keys for a file)")
	flags.BoolVar(&s.JSON, "json", false, "one JSON value per line on standard output, and errors as JSON")
	const usage = "limit the whole command to `D`, such as 5s, 2m or 1d; 0 is no limit (default 30s;\n" +
		"no limit for commands that may read or write a lot)"
	flags.Func("timeout", usage, func(text string) error {
		d, err := parseDuration(text)
		s.Timeout = &d
		return err
	})
}

// parseDuration parses a duration such as 90s, 15m, 2d or 1d12h. A day has 24 hours; the rest is as
// in [time.ParseDuration], but not negative.
func parseDuration(text string) (time.Duration, error) {
	days, rest := "0", text
	if before, after, has := strings.Cut(text, "d"); has {
		days, rest = before, cmp.Or(after, "0s")
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d, restErr := time.ParseDuration(rest)
	if err != nil || restErr != nil || d < 0 {
		return 0, errors.New("want a duration such as 90s, 15m or 2d")
	}
	return time.Duration(n)*24*time.Hour + d, nil
}

// choiceFlag declares a flag whose value is one of the choices.
func choiceFlag(c *cobra.Command, to *string, name, usage string, choices ...string) {
	c.Flags().Func(name, usage, func(word string) error {
		if *to = word; !slices.Contains(choices, word) {
			return errors.New("want one of " + strings.Join(choices, ", "))
		}
		return nil
	})
	// This fails only for a flag that is not declared.
	c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// declareDisabled declares --disabled. Without the flag, *to stays nil.
func declareDisabled(c *cobra.Command, to **bool) {
	c.Flags().BoolFunc("disabled", "only entries that may not log in; with =false, only those that may", func(text string) (err error) {
		*to = new(bool)
		**to, err = strconv.ParseBool(text)
		return err
	})
}

// wordHelp explains the words of usage lines.
var wordHelp = map[string]string{
	"HINT":    "HINT points at an entry; see 'userdb hint --help' for its forms.",
	"TYPE":    "TYPE is a type of the schema, such as user.",
	"PATTERN": "PATTERN is a Redis glob: * matches any text, ? any character, [ab] a or b.",
}

// acceptWords makes cmd and its subcommands accept as many words (arguments that are not flags) as
// their usage lines name, such as TYPE, [HINT] or FIELD=VALUE…, and adds explanations of these
// words to their help.
func (s *session) acceptWords(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		s.acceptWords(sub)
	}
	names := strings.Fields(cmd.Use)[1:]
	variadic := len(names) > 0 && strings.HasSuffix(strings.Trim(names[len(names)-1], "[]"), "…")
	for _, name := range names {
		if text, ok := wordHelp[strings.Trim(name, "[]…")]; ok && cmd.Name() != "hint" {
			cmd.Long = cmp.Or(cmd.Long, cmd.Short+".") + "\n\n" + text
		}
	}
	cmd.Args = func(_ *cobra.Command, words []string) error {
		if len(words) < len(names) && names[len(words)][0] != '[' {
			return errors.New("missing: " + names[len(words)])
		}
		if len(words) > len(names) && !variadic {
			return errors.New("unexpected argument: " + words[len(names)])
		}
		return nil
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, words []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(words) < len(names) && strings.Trim(names[len(words)], "[]") == "TYPE" {
			// If the schema cannot be read, no types are offered.
			sc, _ := s.namedSchema(context.Background(), schema.User())
			return sc.Names(), cobra.ShellCompDirectiveNoFileComp
		}
		if len(words) < len(names) && names[len(words)] == "FILE" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// A disabledHelpFlag is the value of --help for a command whose exit code scripts use to let
// visitors in. Scripts pass it words that visitors entered, so no flag may make it exit 0.
type disabledHelpFlag struct{ pflag.Value }

func (disabledHelpFlag) Set(string) error { return errHelpFlag }

var errHelpFlag = errors.New("no flag makes this command exit 0, because scripts rely on its exit code")

// disableHelpFlag makes --help fail for c, a command whose exit code scripts use to let visitors
// in.
func disableHelpFlag(c *cobra.Command) {
	c.Flags().BoolP("help", "h", false, "")
	flag := c.Flags().Lookup("help")
	flag.Value, flag.Hidden = disabledHelpFlag{flag.Value}, true
}

// helpFlagDisabled reports whether disableHelpFlag was called for c.
func helpFlagDisabled(c *cobra.Command) bool {
	flag := c.Flags().Lookup("help")
	if flag == nil {
		return false
	}
	_, disabled := flag.Value.(disabledHelpFlag)
	return disabled
}

// helpOf returns the command line that shows the help of c.
func helpOf(c *cobra.Command) string {
	if c.Name() == "help" {
		c = c.Root()
	}
	if helpFlagDisabled(c) {
		return strings.Replace(c.CommandPath(), " ", " help ", 1)
	}
	return c.CommandPath() + " --help"
}

// parse parses a command line and stores the flags, and the function to execute, in s. It sets
// s.JSON even if it returns an error, because s.JSON decides how the error is printed.
func (s *session) parse(args []string) error {
	root := newRoot(s)
	if len(args) == 0 {
		args = []string{"--help"}
	}
	l := arrange(root, args)
	s.literalDash = l.literalDash
	c, err := l.c, l.err
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		// A shell asks for completions.
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
	err = rewordError(err)
	if helpFlagDisabled(c) && l.has("--help", "-h") {
		if !s.JSON {
			c.SetOut(s.std.err)
			_ = c.Help() // it can only fail to write
			fmt.Fprintln(s.std.err)
		}
		err = errHelpFlag
	}
	return usagef("%v; see '%s'", err, helpOf(c))
}

// rewordError puts an error of cobra or pflag about a command line into the words of this program.
func rewordError(err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		reason := bad.Unwrap()
		if number, ok := errors.AsType[*strconv.NumError](reason); ok && number.Func == "ParseBool" {
			reason = errors.New("want true or false")
		} else if ok {
			reason = errors.New("not a number, or out of range")
		}
		flag := "--" + bad.GetFlag().Name
		if bad.GetFlag().NoOptDefVal == "" { // the text given to a boolean flag may be a password
			flag += " " + printable(bad.GetValue())
		}
		return fmt.Errorf("%s: %w", flag, reason)
	}
	if rest, ok := strings.CutPrefix(err.Error(), `unknown command "`); ok {
		word, _, _ := strings.Cut(rest, `" for "`)
		return errors.New("unexpected argument: " + word)
	}
	if name, ok := strings.CutPrefix(err.Error(), "required flag(s) "); ok {
		return errors.New("missing: --" + strings.NewReplacer(`"`, "", ", ", ", --", " not set", "").Replace(name))
	}
	return err
}

// A line is a command line in an order that cobra always understands: the command, its flags, each
// joined to its value by =, then -- and the other words. Cobra accepts no flag of a command before
// the command, and can mistake a flag for the value of the flag before it.
type line struct {
	c           *cobra.Command // the command that the first words name
	flags       []string       // each with its value after =
	words       []string       // the words after the command
	literalDash bool           // some words follow --, so - does not mean standard input
	err         error
}

// arrange brings arguments into the order of a line.
func arrange(root *cobra.Command, args []string) line {
	flags := map[string]*pflag.Flag{}
	collectFlags(root, flags)
	// If several commands have a flag of the same name, the named command's flag is meant. This
	// works only if the line begins with the command.
	if named, _ := findCommand(root, args); named.HasParent() {
		collectFlags(named, flags)
	}
	var l line
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			l.words, l.literalDash, args = append(l.words, args...), len(args) > 0, nil
		case isFlag(arg):
			args = l.takeFlag(flags, arg, args)
		default:
			l.words = append(l.words, arg)
		}
	}
	l.c, l.words = findCommand(root, l.words)
	if l.err = cmp.Or(l.err, l.commandError()); l.wantsHelp() {
		l.err = nil
	}
	return l
}

// findCommand returns the command under c that the first words name, and the remaining words.
func findCommand(c *cobra.Command, words []string) (*cobra.Command, []string) {
	for _, sub := range c.Commands() {
		if len(words) > 0 && sub.Name() == words[0] {
			return findCommand(sub, words[1:])
		}
	}
	return c, words
}

// negative matches a negative number. It may be the value of a flag, although it begins with -.
var negative = regexp.MustCompile(`^-[0-9]`)

func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

// takeFlag joins a flag to its value and returns the arguments after them. rest holds the arguments
// after arg.
func (l *line) takeFlag(flags map[string]*pflag.Flag, arg string, rest []string) []string {
	name, _, joined := strings.Cut(arg, "=")
	flag := flags[name]
	switch {
	case flag == nil:
		l.err = errors.New("unknown flag: " + name + " (write text that begins with - after --)")
		return rest
	case joined || flag.NoOptDefVal != "":
		l.flags = append(l.flags, arg)
		return rest
	case len(rest) == 0 || isFlag(rest[0]) && !negative.MatchString(rest[0]):
		l.err = errors.New(arg + " needs a value; write one that begins with - as " + arg + "=VALUE")
		return rest
	}
	l.flags, rest = append(l.flags, arg+"="+rest[0]), rest[1:]
	for takesMore(flag) && len(l.words) > 1 && len(rest) > 0 && !isFlag(rest[0]) && !strings.Contains(rest[0], "=") {
		l.flags, rest = append(l.flags, arg+"="+rest[0]), rest[1:]
	}
	return rest
}

// takesMore reports whether a flag may be followed by several values, as in --tag a b. takeFlag
// allows that only after two words, such as "create user", and only up to a FIELD=VALUE, because
// elsewhere it is not clear which words are values.
func takesMore(flag *pflag.Flag) bool {
	name, _ := pflag.UnquoteUsage(flag)
	return strings.HasSuffix(name, "...")
}

// collectFlags adds the flags of c and of all its subcommands to a map. Flags with the same name
// must be of the same kind in all commands.
func collectFlags(c *cobra.Command, to map[string]*pflag.Flag) {
	add := func(flag *pflag.Flag) {
		if to["--"+flag.Name] = flag; flag.Shorthand != "" {
			to["-"+flag.Shorthand] = flag
		}
	}
	c.Flags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	for _, sub := range c.Commands() {
		collectFlags(sub, to)
	}
}

func (l line) has(flags ...string) bool {
	return slices.ContainsFunc(l.flags, func(have string) bool {
		return slices.Contains(flags, strings.TrimSuffix(have, "=true"))
	})
}

// wantsHelp reports whether to show help. Help takes precedence over everything else, except in
// commands whose exit code scripts use to let visitors in.
func (l line) wantsHelp() bool { return l.has("--help", "-h") && !helpFlagDisabled(l.c) }

// commandError returns an error if the first words, or the words after help, do not name a command.
func (l line) commandError() error {
	c, words := l.c, l.words
	switch {
	case c.Name() == "help":
		if c, words = findCommand(c.Root(), words); len(words) == 0 {
			return nil
		}
	case !c.HasSubCommands() || !c.HasParent() && len(words) == 0 && l.has("--version"):
		return nil
	case len(words) == 0:
		return errors.New("a command is missing")
	}
	text := "unknown command: " + words[0]
	if near := suggestCommands(c, words[0]); len(near) > 0 {
		text += ", did you mean " + strings.Join(near, " or ")
	}
	return errors.New(text)
}

// synonyms holds, for each command, words that other programs use for it.
var synonyms = map[string]string{
	"create":           "add new insert register signup",
	"get":              "find show search lookup read view cat",
	"set":              "update edit change modify",
	"delete":           "rm del destroy",
	"tags add":         "set create",
	"tags remove":      "delete rm del drop unset",
	"tags list":        "get show ls",
	"tags find":        "search",
	"login":            "signin auth",
	"disable":          "lock block ban suspend",
	"enable":           "unlock unblock unban",
	"token issue":      "create new add",
	"token redeem":     "use spend verify",
	"session list":     "show get ls",
	"session end":      "delete remove rm revoke kill",
	"list":             "ls user users account accounts entries",
	"keys":             "scan",
	"status":           "info ping stats",
	"check":            "fsck doctor repair",
	"export":           "backup",
	"import":           "load restore",
	"schema show":      "get list cat",
	"schema apply":     "remove rm drop delete set update migrate",
	"namespace drop":   "delete remove rm",
	"serve":            "server start run",
	"apikey create":    "add new",
	"apikey revoke":    "delete remove rm disable",
	"operator add":     "create new",
	"operator disable": "delete remove rm",
	"events":           "log history audit",
	"tour":             "demo",
}

// suggestCommands returns the subcommands of c that may be meant by word, which names none of them.
func suggestCommands(c *cobra.Command, word string) (near []string) {
	for _, sub := range c.Commands() {
		_, path, _ := strings.Cut(sub.CommandPath(), " ")
		if slices.Contains(strings.Fields(synonyms[path]), word) {
			near = append(near, sub.Name())
		}
	}
	if len(near) > 0 {
		return near
	}
	c.SuggestionsMinimumDistance = 2
	return c.SuggestionsFor(word)
}

func (l line) args() []string {
	path := strings.Fields(l.c.CommandPath())[1:]
	if l.wantsHelp() {
		return append(path, "--help")
	}
	return slices.Concat(path, l.flags, []string{"--"}, l.words)
}
