package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/coffeenode/userdb/schema"
)

type completionCmd struct {
	Shell string `arg:"" name:"SHELL" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (*completionCmd) Help() string {
	return `To have it in every shell: 'source <(userdb completion bash)' in ~/.bashrc, the same with zsh in
~/.zshrc behind compinit, or 'userdb completion fish | source' in ~/.config/fish/config.fish.

Examples:
  userdb completion bash`
}

//go:embed completion/userdb.bash
var bashScript string

//go:embed completion/userdb.zsh
var zshScript string

//go:embed completion/userdb.fish
var fishScript string

func (c *completionCmd) Run(_ context.Context, s *session) error {
	script := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell]
	return s.out.say(script, strings.TrimSuffix(script, "\n"))
}

// completeCmd is what the scripts ask: it prints what a command line can go on with, one offer a
// line, each with a tab and what it means.
type completeCmd struct {
	Words []string `arg:"" optional:""`
}

func (c *completeCmd) Run(_ context.Context, s *session) error {
	var grammar cli
	parser, err := newParser(&grammar)
	if err != nil {
		return err
	}
	for _, o := range offers(parser.Model.Node, c.Words) {
		if _, err := fmt.Fprintf(s.out, "%s\t%s\n", o.word, o.meaning); err != nil {
			return err
		}
	}
	return nil
}

type offer struct{ word, meaning string }

// offers are the words that the last one of a command line may become.
func offers(root *kong.Node, words []string) []offer {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	before := words[:len(words)-1]
	l := arrange(root, before)
	var all []offer
	switch flag := waiting(root, before); {
	case flag != nil:
		all = values(flag.Value)
	case strings.HasPrefix(last, "-"):
		all = flagOffers(l.node)
	case len(l.node.Children) > 0 && len(l.words) > 0: // behind a word that is no command
	case len(l.node.Children) > 0:
		all = commandOffers(l.node)
	default:
		all = wordOffers(l)
	}
	var fit []offer
	for _, o := range all {
		if strings.HasPrefix(o.word, last) {
			fit = append(fit, o)
		}
	}
	return fit
}

// waiting is the flag at the end that still wants its value.
func waiting(root *kong.Node, words []string) *kong.Flag {
	if len(words) == 0 {
		return nil
	}
	flag := allFlags(root)[words[len(words)-1]]
	if flag == nil || flag.IsBool() {
		return nil
	}
	return flag
}

func values(v *kong.Value) (all []offer) {
	for _, word := range v.EnumSlice() {
		if word != "" {
			all = append(all, offer{word, v.Help})
		}
	}
	return all
}

func flagOffers(node *kong.Node) (all []offer) {
	for n := node; n != nil; n = n.Parent {
		for _, flag := range n.Flags {
			all = append(all, offer{"--" + flag.Name, flag.Help})
		}
	}
	return all
}

func commandOffers(node *kong.Node) (all []offer) {
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, offer{child.Name, child.Help})
		}
	}
	return all
}

// wordOffers are for the next word of a command that takes some.
func wordOffers(l line) (all []offer) {
	if len(l.words) >= len(l.node.Positional) {
		return nil
	}
	arg := l.node.Positional[len(l.words)]
	if arg.Name != "TYPE" {
		return values(arg)
	}
	for _, name := range schema.User().Names() {
		all = append(all, offer{name, "a type"})
	}
	return all
}
