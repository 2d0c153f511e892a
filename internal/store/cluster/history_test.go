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
	kind := "update"
	if c.Create {
		kind = "create"
	} else if c.Delete {
		kind = "delete"
	}
	return a.line(kind)
}

// line returns what a running verb notes, by its actor and number; nothing where it does not note.
func (a *actor) line(kind string) store.Note {
	if !a.noting {
		return store.Note{}
	}
	return store.Note{Lines: []string{kind + " " + a.name + "." + strings.Fields(a.verb)[0] + " / / /"}}
}

// historyScenarios are changes that leave lines, of one entry A.
func historyScenarios() []scenario {
	a := entries(some, "A email=a")
	one := func(v ...verb) (all []verb) {
		for _, v := range v {
			all = append(all, noted(v))
		}
		return all
	}
	had := withEpoch(a)
	var all []scenario
	for _, s := range []struct {
		name        string
		start       func() map[string]*cell
		wins        int
		left, right []verb
	}{
		{"update | update", a, 2, one(update("A", "email=x")), one(update("A", "email=y"))},
		{"update, update | update", a, 3, one(update("A", "job=x"), update("A", "job=y")), one(update("A", "job=z"))},
		{"create | update", nothing, 0, one(create("A", "email=x")), one(update("A", "email=y"))},
		{"create, log in | update", nothing, 0, one(create("A", "email=x"), logIn("h1")), one(update("A", "name=y"))},
		{"create, issue | update", nothing, 0, one(create("A", "email=x"), issue("A", "h9")), one(update("A", "name=y"))},
		{"create, tag | update", nothing, 0, one(create("A", "email=x"), tag("A", "red")), one(update("A", "name=y"))},
		{"log in, end | update", had, 0, one(logIn("h1"), endOne("h1")), one(update("A", "name=y"))},
		{"tag | tag", a, 2, one(tag("A", "red")), one(tag("A", "red"))},
		{"delete, create | update", a, 0, one(remove("A"), create("A", "email=x")), one(update("A", "job=y"))},
	} {
		all = append(all, scenario{name: "history: " + s.name, start: s.start, actors: [][]verb{s.left, s.right}, wins: s.wins, history: true})
	}
	return all
}

// linesOfA are the lines of the history of A, as a reader has them, without marks.
func (s *simulation) linesOfA() (lines []string) {
	if c := s.world.at(historyOfA); c != nil {
		lines = strings.Split(c.text, "\n")
	}
	if waiting, is := s.world.at("user/uid:A").field(store.FieldNote).(string); is {
		lines = append(lines, strings.Split(waiting, "\n")...)
	}
	has := map[string]bool{}
	lines = slices.DeleteFunc(lines, func(line string) bool {
		name := store.LineName(line)
		defer func() { has[name] = true }()
		return has[name]
	})
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line)[:6], " ")
	}
	return lines
}

// fedOfA returns the lines of A in the feed.
func (s *simulation) fedOfA() (lines []string) {
	prk, _ := people.PRK("A")
	key, _ := store.FeedKey(prk.Namespace(), store.FeedChanges, store.FeedPart(prk))
	if c := s.world.at(key.String()); c != nil {
		for text := range strings.SplitSeq(c.text, "\n") {
			_, line, _ := strings.Cut(text, " ")
			lines = append(lines, line)
		}
	}
	return lines
}

// unnoted says which change has no line in the history, or more than one, which line tells of what was not done, and which is out of
// order in the feed, or missing before others; "" for none. What a server refused half-way may leave a line of what was not done, or
// one twice in the feed.
func (x *explorer) unnoted(m moment) string {
	if !x.scenario.history {
		return ""
	}
	lines := x.sim.linesOfA()
	for i, r := range m.cast {
		for j := range x.scenario.actors[i] {
			n := 0
			for _, line := range lines {
				if strings.Contains(line, fmt.Sprintf(" %d.%d ", i, j)) {
					n++
				}
			}
			least, most := x.changed(m, r, i, j)
			if n < least || n > most && m.fault < refused {
				return fmt.Sprintf("history: %d lines of %d.%d, want %d to %d: %q", n, i, j, least, most, lines)
			}
		}
	}
	fed := x.sim.fedOfA()
	if m.fault < refused && (len(fed) > len(lines) || !slices.Equal(fed, lines[:len(fed)])) {
		return fmt.Sprintf("feed: %q, while the history is %q", fed, lines)
	}
	return ""
}

// changed returns how many lines a verb must have, and may have.
func (x *explorer) changed(m moment, r role, i, j int) (least, most int) {
	word, _, _ := strings.Cut(x.scenario.actors[i][j].name, " ")
	acknowledged := r.at.done > j && r.at.errs[j] == nil
	switch word {
	case "log", "end":
		session, is := x.sim.world.at(sessionsOfA).field("h1").(string)
		if done := is && (word == "log" || strings.HasPrefix(session, "- ")); done {
			most = 1
		} else {
			acknowledged = false // there was none to end
		}
	case "issue":
		if x.sim.world.at(tokensOfA).field("h9") != nil {
			most = 1
		}
	case "tag": // of two that add the same, one changes something
		if x.sim.world.at("user/uid:A/tags").field("red") != nil {
			most = 1
		}
		acknowledged = acknowledged && len(x.scenario.actors[1-i]) == 1 && strings.HasPrefix(x.scenario.actors[1-i][0].name, "update")
	default:
		n := int(m.commits >> (4 * (i*mostVerbs + j)) & 15)
		return n, n
	}
	if acknowledged {
		least = 1
	}
	return least, most
}

// unfed says what the feed lacks when all have ended, or died: of the lines up to the last one of somebody who has not died.
func (x *explorer) unfed(m moment) string {
	if !x.scenario.history {
		return ""
	}
	lines, want := x.sim.linesOfA(), 0
	for n, line := range lines {
		for i, r := range m.cast {
			if !r.dead && strings.Contains(line, fmt.Sprintf(" %d.", i)) {
				want = n + 1
			}
		}
	}
	if fed := x.sim.fedOfA(); len(fed) < want {
		return fmt.Sprintf("feed: %q, while the history is %q", fed, lines)
	}
	return ""
}
