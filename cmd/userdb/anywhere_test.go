package main

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Wherever flags stand, the line means the same.
func TestFlagsAnywhere(t *testing.T) {
	lines := []struct {
		words []string
		flags [][]string
	}{
		{[]string{"get", "a", "b", "c"}, [][]string{{"--reveal"}, {"--json"}, {"--type", "t"}, {"--timeout=5s"}}},
		{[]string{"create", "user", "x=y", "z=--json"}, [][]string{{"--tag", "a"}, {"--tag=-b"}, {"--no-password"}, {"--store", "memory:"}}},
		{[]string{"tags", "add", "a", "b"}, [][]string{{"--json"}, {"--namespace", "n"}}},
		{[]string{"key", "split", "a"}, [][]string{{"--only", "prk"}, {"--schema", "s"}}},
		{[]string{"delete", "a"}, [][]string{{"--yes"}}},
	}
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom(lines).Draw(t, "line")
		plain := slices.Clone(line.words)
		for _, flag := range line.flags {
			plain = append(plain, flag...)
		}
		mixed := slices.Clone(line.words)
		at := make([]int, len(line.flags))
		for i := range at {
			at[i] = rapid.IntRange(0, len(line.words)).Draw(t, "at")
		}
		slices.Sort(at)
		for i := len(at) - 1; i >= 0; i-- {
			mixed = slices.Insert(mixed, at[i], line.flags[i]...)
		}
		want, err := parse(plain)
		if err != nil {
			t.Fatalf("parse(%q): %v", plain, err)
		}
		got, err := parse(mixed)
		if err != nil {
			t.Fatalf("parse(%q): %v", mixed, err)
		}
		if !reflect.DeepEqual(got.command, want.command) || !reflect.DeepEqual(got.globals, want.globals) {
			t.Errorf("parse(%q) = %+v %+v, want %+v %+v", mixed, got.command, got.globals, want.command, want.globals)
		}
	})
}

// FuzzParse gives the parser any words: it neither panics nor says anything but what is wrong with
// them, on one line.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"", "get a", "--json\nget\n--\n--x", "create user --tag a b", "-", "--", "---", "--=", "-=x", "--tag", "-h", "--json=x",
		"tags\nadd", "help\nhelp", "__complete\n--\n-", "list\n--limit\n99999999999999999999", "get\n--timeout\n1", "\xff\n\x1b",
		"dump\n--format\n", "key\nsplit\n--only\n${HOME}", "\u2028", "get\n'\n\"",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		inv, err := parse(args)
		if err != nil && !errors.Is(err, errUsage) {
			t.Errorf("parse(%q) fails with %T: %v", args, err, err)
		}
		if err != nil && drives(oneLine(message(err))) {
			t.Errorf("parse(%q): the message is no line: %q", args, oneLine(message(err)))
		}
		if err == nil && inv.command == nil && !inv.Help {
			t.Errorf("parse(%q) gives no command", args)
		}
	})
}
