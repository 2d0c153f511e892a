package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// An invocation is a command line taken apart.
type invocation struct {
	globals
	command command    // nil where only help is asked for
	node    *kong.Node // the command, or what is known of it
	guarded bool       // words stood after --, and so none of them is -
}

func newParser(grammar *cli) (*kong.Kong, error) {
	return kong.New(grammar, kong.Name("userdb"), kong.NoDefaultHelp(), kong.KindMapper(reflect.String, kong.MapperFunc(bytesAsTheyAre)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(durationOf)), kong.ExplicitGroups([]kong.Group{
			{Key: "Entries", Title: "Entries"},
			{Key: "Passwords", Title: "Passwords"},
			{Key: "Listings", Title: "Listings"},
			{Key: "Care", Title: "Care"},
			{Key: "Tools", Title: "Tools"},
		}))
}

// bytesAsTheyAre takes a text as it was given. The parser's own way is through JSON, which makes all
// that is not UTF-8 one and the same character, and so two identifiers one.
func bytesAsTheyAre(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text, ok := token.Value.(string)
	if !ok {
		return fmt.Errorf("%v is no text", token.Value)
	}
	target.SetString(text)
	return nil
}

// durationOf takes a duration as Go writes it, behind days of 24 hours: 90s, 15m, 2d, 1d12h.
func durationOf(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	days, rest, has := strings.Cut(text, "d")
	if !has {
		days, rest = "0", text
	} else if rest == "" {
		rest = "0s"
	}
	n, err := strconv.ParseUint(days, 10, 16)
	d, wrong := time.ParseDuration(rest)
	if err != nil || wrong != nil || has && d < 0 {
		return fmt.Errorf("%s is no duration, such as 90s, 15m or 2d", shown(text))
	}
	target.SetInt(int64(time.Duration(n)*24*time.Hour + d))
	return nil
}

// parse reads a command line. On an error the invocation still says whether JSON is wanted.
func parse(args []string) (invocation, error) {
	var grammar cli
	parser, err := newParser(&grammar)
	if err != nil {
		return invocation{}, err
	}
	line := arrange(parser.Model.Node, args)
	inv := invocation{node: line.node, globals: globals{JSON: line.has("--json"), Help: line.has("--help", "-h")}}
	if len(line.words) > 0 && line.words[0] == "help" && line.node.Parent == nil {
		line = arrange(parser.Model.Node, line.words[1:])
		inv.node, inv.Help = line.node, true
	} else if grants(line.node) && line.wantsHelp() {
		return inv, usagef("scripts grant by the exit code of '%s', so its help is '%s'; a text that begins with - goes behind --", line.node.FullPath(), helpOf(line.node))
	}
	if inv.Help {
		return inv, nil
	}
	if line.node.Parent == nil && len(line.words) == 0 && line.has("--version") {
		line = arrange(parser.Model.Node, slices.DeleteFunc(append(slices.Clone(args), "version"), func(a string) bool { return a == "--version" }))
	}
	if len(line.node.Children) > 0 && len(line.words) == 0 {
		return inv, usagef("a command is missing: '%s --help' lists them", line.node.FullPath())
	}
	found, err := parser.Parse(line.args())
	if err != nil {
		return inv, usagef("%s; see '%s'", complaint(err), helpOf(line.node))
	}
	inv.globals, inv.guarded = grammar.globals, line.after > 0
	inv.node = found.Selected()
	var ok bool
	if inv.command, ok = inv.node.Target.Addr().Interface().(command); !ok {
		return inv, errors.New("the command " + inv.node.FullPath() + " does nothing")
	}
	return inv, nil
}

// A granting command is one that lets somebody in: scripts do so by its exit code, and give it words that
// visitors wrote. No flag among them makes it exit 0.
type granting interface{ grants() }

func grants(node *kong.Node) bool {
	if !node.Target.CanAddr() {
		return false
	}
	_, is := node.Target.Addr().Interface().(granting)
	return is
}

// helpOf is the command line that shows a command's help.
func helpOf(node *kong.Node) string {
	if !grants(node) {
		return node.FullPath() + " --help"
	}
	return strings.Replace(node.FullPath(), " ", " help ", 1)
}

// complaint is what the parser says, in the words of --help.
func complaint(err error) string {
	text := strings.TrimSuffix(err.Error(), "?")
	switch {
	case strings.HasPrefix(text, "expected \"<"):
		text = strings.NewReplacer("expected ", "missing: ", "<", "", ">", "", " ...", "…", `"`, "").Replace(text)
	case strings.HasPrefix(text, "unexpected argument "):
		text = "unknown command or too many words: " + strings.TrimPrefix(text, "unexpected argument ")
	case strings.HasPrefix(text, "unknown flag "):
		text += " (a text that begins with - goes behind --)"
	case strings.Contains(text, " must be one of "):
		text = strings.NewReplacer(`,""`, "", "<", "", ">", "").Replace(text)
	}
	return text
}

// A line is a command line whose flags were put before its words, which is the one order in which
// the parser takes them everywhere: its own flags of a command may not stand before the command,
// nor any flag between words of a list.
type line struct {
	node  *kong.Node // the command that the first words name
	path  []string   // those words
	flags []string   // each with its value behind =
	words []string   // the others
	after int        // how many of these stood after --
}

func (l line) args() []string {
	args := append(append([]string{}, l.path...), l.flags...)
	return append(append(args, "--"), l.words...)
}

func (l line) has(flags ...string) bool {
	for _, have := range l.flags {
		for _, flag := range flags {
			if have == flag || have == flag+"=true" {
				return true
			}
		}
	}
	return false
}

// wantsHelp reports whether a flag asks for help, in whatever way the parser may take it.
func (l line) wantsHelp() bool {
	return slices.ContainsFunc(l.flags, func(flag string) bool {
		return flag == "--help" || strings.HasPrefix(flag, "--help=") || strings.HasPrefix(flag, "-h")
	})
}

func arrange(root *kong.Node, args []string) line {
	known := allFlags(root)
	l := line{node: root}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			l.words, l.after, args = append(l.words, args...), len(args), nil
		case !isFlag(arg):
			l.words = append(l.words, arg)
		default:
			args = l.takeFlag(known[arg], arg, args)
		}
	}
	for len(l.words) > 0 && l.descend(l.words[0]) {
		l.words = l.words[1:]
	}
	return l
}

// takeFlag joins a flag with its value, and leaves what it does not know to the parser.
func (l *line) takeFlag(flag *kong.Flag, arg string, rest []string) []string {
	if flag == nil || flag.IsBool() || len(rest) == 0 || isFlag(rest[0]) {
		l.flags = append(l.flags, arg)
		return rest
	}
	l.flags = append(l.flags, arg+"="+rest[0])
	rest = rest[1:]
	if !takesMore(flag) || len(l.words) < 2 {
		return rest
	}
	for len(rest) > 0 && !isFlag(rest[0]) && !strings.Contains(rest[0], "=") {
		l.flags = append(l.flags, arg+"="+rest[0])
		rest = rest[1:]
	}
	return rest
}

// takesMore says whether a flag takes several values in a row. Only behind the command and its first
// word, and only up to a FIELD=VALUE, is it plain what belongs to it.
func takesMore(flag *kong.Flag) bool { return strings.HasSuffix(flag.PlaceHolder, "…") }

func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

func (l *line) descend(word string) bool {
	for _, child := range l.node.Children {
		if child.Name == word {
			l.node, l.path = child, append(l.path, word)
			return true
		}
	}
	return false
}

// allFlags are the flags of all commands; a name is the same kind of flag wherever it stands.
func allFlags(node *kong.Node) map[string]*kong.Flag {
	known := map[string]*kong.Flag{}
	for _, flag := range node.Flags {
		known["--"+flag.Name] = flag
		if flag.Short != 0 {
			known["-"+string(flag.Short)] = flag
		}
	}
	for _, child := range node.Children {
		for name, flag := range allFlags(child) {
			known[name] = flag
		}
	}
	return known
}
