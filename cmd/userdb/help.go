package main

import (
	"io"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
)

const about = `userdb keeps accounts in Redis or, where no store is named, in a file: entries that are found by any
identifier they own, such as a name or an e-mail address. One identifier never means two entries.

Examples:
  userdb create user email=erin@example.com name=Erin --password-stdin < secret.txt
  userdb login --password-stdin -- erin@example.com < secret.txt
  userdb get '*=Erin'
  userdb list user

--store redis://HOST:PORT/0, or USERDB_STORE, takes a Redis server in place of the file.
'userdb COMMAND --help' has more. Flags may stand anywhere; what follows -- is no flag.
Exit codes: 0 done, 1 other failure, 2 bad input, 3 not found, 4 taken or changed meanwhile,
5 wrong identifier or password, 6 store unavailable, 7 check found errors, 8 too many attempts,
130 interrupted.`

// printHelp prints what a command does.
func printHelp(w io.Writer, node *kong.Node) error {
	var b strings.Builder
	b.WriteString("Usage: " + usage(node) + "\n\n")
	if node.Parent == nil {
		b.WriteString(about + "\n")
	} else {
		b.WriteString(node.Help + "\n")
	}
	if node.Detail != "" {
		b.WriteString("\n" + node.Detail + "\n")
	}
	printCommands(&b, node)
	if len(node.Positional) > 0 {
		printRows(&b, "Arguments", argumentRows(node))
	}
	printRows(&b, "Flags", flagRows(node.Flags, node.Parent == nil))
	if node.Parent != nil {
		printRows(&b, "Flags of every command", flagRows(root(node).Flags, true))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func root(node *kong.Node) *kong.Node {
	for node.Parent != nil {
		node = node.Parent
	}
	return node
}

func usage(node *kong.Node) string {
	words := []string{node.FullPath()}
	if node.Parent == nil {
		words = append(words, "[flags]")
	}
	if len(node.Children) > 0 {
		words = append(words, "COMMAND")
	}
	for _, arg := range node.Positional {
		words = append(words, argument(arg))
	}
	for _, flag := range node.Flags {
		if node.Parent != nil {
			words = append(words, "["+flagText(flag)+"]")
		}
	}
	return strings.Join(words, " ")
}

func argument(arg *kong.Positional) string {
	text := arg.Name
	if arg.IsSlice() {
		text += "…"
	}
	if !arg.Required {
		text = "[" + text + "]"
	}
	return text
}

// printCommands lists the commands below node, by group.
func printCommands(b *strings.Builder, node *kong.Node) {
	var title string
	var rows [][2]string
	for _, child := range node.Children {
		if child.Hidden {
			continue
		}
		group := "Commands"
		if child.Group != nil {
			group = child.Group.Title
		}
		if group != title && len(rows) > 0 {
			printRows(b, title, rows)
			rows = nil
		}
		title = group
		rows = append(rows, [2]string{child.Name, child.Help})
	}
	printRows(b, title, rows)
}

func argumentRows(node *kong.Node) (rows [][2]string) {
	for _, arg := range node.Positional {
		rows = append(rows, [2]string{argument(arg), arg.Help})
	}
	return rows
}

func flagRows(flags []*kong.Flag, global bool) (rows [][2]string) {
	for _, flag := range flags {
		text := flag.Help
		for _, env := range flag.Envs {
			text += " Environment: " + env + "."
		}
		name := flagText(flag)
		if global && flag.Short != 0 {
			name = "-" + string(flag.Short) + ", " + name
		}
		rows = append(rows, [2]string{name, text})
	}
	return rows
}

func flagText(flag *kong.Flag) string {
	if flag.IsBool() {
		return "--" + flag.Name
	}
	return "--" + flag.Name + " " + flag.PlaceHolder
}

const (
	helpWidth = 100
	helpLeft  = 24 // how wide the left column may be before the right one begins below it
)

func printRows(b *strings.Builder, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n" + title + ":\n")
	columns := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, text := range wrap(row[1], helpWidth-helpLeft) {
			left := ""
			if i == 0 {
				left = row[0]
			}
			columns.Write([]byte("  " + left + "\t" + text + "\n"))
		}
	}
	columns.Flush() // a strings.Builder takes everything
}

// wrap breaks a text into lines of at most width bytes, if its words allow it.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
