package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
)

const historyOfA = "~/history/{user/uid:A}"

// noted is a verb whose commit leaves a line of its own.
func noted(v verb) verb {
	do := v.do
	v.do = func(ctx context.Context, a *actor) error {
		a.noting = true
		return do(ctx, a)
	}
	return v
}

// noteOf is the line that a running verb leaves.
func (a *actor) noteOf(c store.Change) store.Note {
	if !a.noting {
		return store.Note{}
	}
	kind := "update"
	if c.Create {
		kind = "create"
	}
	return store.Note{Lines: []string{kind + " " + a.name + "." + strings.Fields(a.verb)[0] + " / / /"}}
}

// historyScenarios are changes that leave lines, of one entry A.
func historyScenarios() []scenario {
	a := entries(some, "A email=a")
	one := func(v verb) []verb { return []verb{noted(v)} }
	return []scenario{
		{name: "history: update | update", start: a, actors: [][]verb{one(update("A", "email=x")), one(update("A", "email=y"))}, wins: 2, history: true},
		{name: "history: update, update | update", start: a, actors: [][]verb{{noted(update("A", "job=x")), noted(update("A", "job=y"))}, one(update("A", "job=z"))}, wins: 3, history: true},
		{name: "history: create | update", start: nothing, actors: [][]verb{one(create("A", "email=x")), one(update("A", "email=y"))}, history: true},
	}
}

// linesOf are the lines of the history of A, those without a number last.
func (s *simulation) linesOfA() (lines []string) {
	if c := s.world.at(historyOfA); c != nil {
		lines = strings.Split(c.text, "\n")
	}
	if pending, is := s.world.at("user/uid:A").field(store.FieldNote).(string); is {
		lines = append(lines, strings.Split(pending, "\n")...)
	}
	return lines
}

// unnoted says which commit has no line in the history, or more than one, and what is out of order; "" for none. What a server refused
// half-way may leave a line of what was not done, or one twice in the feed.
func (x *explorer) unnoted(m moment) string {
	if !x.scenario.history {
		return ""
	}
	lines := x.sim.linesOfA()
	for i := range m.cast {
		for j := range mostVerbs {
			commits, n := int(m.commits>>(4*(i*mostVerbs+j))&15), 0
			for _, line := range lines {
				if strings.Contains(line, fmt.Sprintf(" %d.%d ", i, j)) {
					n++
				}
			}
			if n < commits || n > commits && m.fault < refused {
				return fmt.Sprintf("history: %d lines of %d commits of %d.%d: %q", n, commits, i, j, lines)
			}
		}
	}
	var fed []string
	for part := range store.FeedParts {
		prk, _ := people.PRK("A")
		key, _ := store.FeedKey(prk.Namespace(), store.FeedChanges, part)
		if c := x.sim.world.at(key.String()); c != nil {
			fed = append(fed, strings.Split(c.text, "\n")...)
		}
	}
	last := -1
	for _, text := range fed {
		_, line, _ := strings.Cut(text, " ")
		at := slices.Index(lines, line)
		if at <= last && m.fault < refused {
			return fmt.Sprintf("feed: %q, while the history is %q", fed, lines)
		}
		last = at
	}
	return ""
}

// unfed says what the feed lacks when all have ended.
func (x *explorer) unfed() string {
	if !x.scenario.history {
		return ""
	}
	lines := x.sim.linesOfA()
	for part := range store.FeedParts {
		prk, _ := people.PRK("A")
		key, _ := store.FeedKey(prk.Namespace(), store.FeedChanges, part)
		if c := x.sim.world.at(key.String()); c != nil && len(strings.Split(c.text, "\n")) == len(lines) {
			return ""
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return fmt.Sprintf("feed: it lacks some of %q", lines)
}
