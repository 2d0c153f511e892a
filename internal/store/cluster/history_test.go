package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/token"
)

const historyOfA = "~/history/{user/uid:A}"

// withNote returns v with a history line for each of its commits.
func withNote(v verb) verb {
	do := v.do
	v.do = func(ctx context.Context, a *actor) error {
		a.noting = true
		return do(ctx, a)
	}
	return v
}

// noteOf returns the note for a change that the running verb makes.
func (a *actor) noteOf(c store.Change) history.Note {
	kind := "update"
	if c.Create {
		kind = "create"
	} else if c.Delete {
		kind = "delete"
	}
	return a.line(kind)
}

// line returns a note that names the running verb by its actor and number. It is empty if the actor
// notes nothing.
func (a *actor) line(kind string) history.Note {
	if !a.noting {
		return history.Note{}
	}
	return history.Note{Lines: []string{kind + " " + a.name + "." + strings.Fields(a.verb)[0] + " / / /"}}
}

// publish returns a verb that does what a repair does when it reads an entry.
func publish(uid string) verb {
	return verb{name: "publish " + uid, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK(uid)
		_, err := a.engine.Repair(ctx, store.Publish{Entry: prk})
		return err
	}}
}

// published reports whether actor i, with the state r, published the history after all others had
// ended or died.
func (x *explorer) published(r actorState, i int) bool {
	verbs := x.scenario.actors[i]
	last := len(verbs) - 1
	return x.scenario.late && strings.HasPrefix(verbs[last].name, "publish") && r.at.done > last && r.at.errs[last] == nil
}

// historyScenarios returns scenarios in which verbs add lines to the history of an entry A.
func historyScenarios() []scenario {
	a := entries(someRev, "A email=a")
	noted := func(v ...verb) (all []verb) {
		for _, v := range v {
			all = append(all, withNote(v))
		}
		return all
	}
	hadSessions := withEpoch(a)
	var all []scenario
	for _, s := range []struct {
		name        string
		start       func() map[string]*cell
		wins        int
		left, right []verb
	}{
		{"update | update", a, 2, noted(update("A", "email=x")), noted(update("A", "email=y"))},
		{"update, update | update", a, 3, noted(update("A", "job=x"), update("A", "job=y")), noted(update("A", "job=z"))},
		{"create | update", noRecords, 0, noted(create("A", "email=x")), noted(update("A", "email=y"))},
		{"create, log in | update", noRecords, 0, noted(create("A", "email=x"), logIn("h1")), noted(update("A", "name=y"))},
		{"create, issue | update", noRecords, 0, noted(create("A", "email=x"), issue("A", "h9")), noted(update("A", "name=y"))},
		{"create, tag | update", noRecords, 0, noted(create("A", "email=x"), tag("A", "red")), noted(update("A", "name=y"))},
		{"log in, end | update", hadSessions, 0, noted(logIn("h1"), endSession("h1")), noted(update("A", "name=y"))},
		{"tag | tag", a, 2, noted(tag("A", "red")), noted(tag("A", "red"))},
		{"delete, create | update", a, 0, noted(remove("A"), create("A", "email=x")), noted(update("A", "job=y"))},
	} {
		all = append(all, scenario{name: "history: " + s.name, start: s.start, actors: [][]verb{s.left, s.right}, wins: s.wins, history: true})
	}
	all = append(all, scenario{
		name: "history: update, delete", start: a, actors: [][]verb{noted(update("A", "job=x"), remove("A"))}, history: true, answers: checkExpires,
	})
	for name, last := range map[string]verb{"update": update("A", "job=z"), "publish": publish("A")} {
		actors := [][]verb{noted(update("A", "email=x"), update("A", "job=x")), noted(wait(7300), last)}
		all = append(all, scenario{name: "history: updates | hours, " + name, start: a, actors: actors, history: true, late: true})
	}
	return all
}

// linesOfA returns the history lines of A as a reader sees them: each only once, and without the
// mark by which a command that is sent again recognizes its line.
func (s *simulation) linesOfA() (lines []string) {
	if c := s.world.at(historyOfA); c != nil {
		lines = strings.Split(c.text, "\n")
	}
	if waiting, is := s.world.at("user/uid:A").field(history.FieldNote).(string); is {
		lines = append(lines, strings.Split(waiting, "\n")...)
	}
	has := map[string]bool{}
	lines = slices.DeleteFunc(lines, func(line string) bool {
		name := history.LineID(line)
		defer func() { has[name] = true }()
		return has[name]
	})
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line)[:6], " ")
	}
	return lines
}

// feedOfA returns the lines of A in the feed.
func (s *simulation) feedOfA() (lines []string) {
	prk, _ := people.PRK("A")
	key, _ := history.FeedKey(prk.Namespace(), history.FeedChanges, history.FeedPart(prk))
	if c := s.world.at(key.String()); c != nil {
		for text := range strings.SplitSeq(c.text, "\n") {
			_, line, _ := strings.Cut(text, " ")
			lines = append(lines, line)
		}
	}
	return lines
}

// checkHistory returns what is wrong with the history, or "". Each change must have one line, and a
// line must be about something that was done. The feed must have the lines in their order, without
// gaps. A line may be missing only if its change was refused halfway and not acknowledged.
func (x *explorer) checkHistory(m state) string {
	if !x.scenario.history {
		return ""
	}
	lines := x.sim.linesOfA()
	if n := countTagLines(lines); n > 1 && x.onlyTags() {
		return fmt.Sprintf("history: %d lines of a tag that was added once: %q", n, lines)
	}
	for i, r := range m.actors {
		for j := range x.scenario.actors[i] {
			n := 0
			for _, line := range lines {
				if strings.Contains(line, fmt.Sprintf(" %d.%d ", i, j)) {
					n++
				}
			}
			least, most := x.lineLimits(m, r, i, j)
			if n < least || n > most {
				return fmt.Sprintf("history: verb %d of actor %d has %d lines, want %d to %d: %q", j, i, n, least, most, lines)
			}
		}
	}
	fed := x.sim.feedOfA()
	if len(fed) > len(lines) || !slices.Equal(fed, lines[:len(fed)]) {
		return fmt.Sprintf("feed: %q, while the history is %q", fed, lines)
	}
	return ""
}

// lineLimits returns the minimum and maximum number of history lines that verb j of actor i may
// have.
func (x *explorer) lineLimits(m state, r actorState, i, j int) (least, most int) {
	word, _, _ := strings.Cut(x.scenario.actors[i][j].name, " ")
	acknowledged := r.at.done > j && r.at.errs[j] == nil
	switch word {
	case "log", "end":
		session, is := x.sim.world.at(sessionsOfA).field("h1").(string)
		if done := is && (word == "log" || strings.HasPrefix(session, "- ")); done {
			most = 1
		} else {
			acknowledged = false // there was no session to end
		}
	case "issue":
		mark, _ := x.sim.world.at("user/uid:A").field(token.FieldTokens).(string)
		if x.sim.world.at(tokensOfA).field("h9") != nil || strings.Contains(mark, "h9 ") {
			most = 1
		}
	case "tag": // if two verbs add the same tag, only one changes something
		if x.sim.world.at("user/uid:A/tags").field("red") != nil {
			most = 1
		}
		acknowledged = acknowledged && len(x.scenario.actors[1-i]) == 1 && strings.HasPrefix(x.scenario.actors[1-i][0].name, "update")
	default:
		most = int(m.commits >> (4 * (i*maxVerbs + j)) & 15)
		if m.fault < refused || acknowledged { // otherwise it may have been refused halfway
			least = most
		}
		return least, most
	}
	if acknowledged {
		least = 1
	}
	return least, most
}

// onlyTags reports whether the actors only add the tag red to A.
func (x *explorer) onlyTags() bool {
	return !slices.ContainsFunc(slices.Concat(x.scenario.actors...), func(v verb) bool { return v.name != "tag A red" })
}

func countTagLines(lines []string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, " tags ") {
			n++
		}
	}
	return n
}

// checkFeed returns what the feed lacks after all actors have ended or died, or "". It must have
// every line up to the last one of an actor that has not died, and all lines if an actor published
// them last.
func (x *explorer) checkFeed(m state) string {
	if !x.scenario.history {
		return ""
	}
	lines, want := x.sim.linesOfA(), 0
	if n := countTagLines(lines); n != 1 && x.onlyTags() && m.deaths == 0 {
		return fmt.Sprintf("history: %d lines of a tag that was added once: %q", n, lines)
	}
	for n, line := range lines {
		for i, r := range m.actors {
			if !r.dead && strings.Contains(line, fmt.Sprintf(" %d.", i)) || x.published(r, i) {
				want = n + 1
			}
		}
	}
	if fed := x.sim.feedOfA(); len(fed) < want {
		return fmt.Sprintf("feed: %q, while the history is %q", fed, lines)
	}
	return ""
}

// checkExpires returns what is wrong if the history of an entry that was deleted stays for more
// than a day, or "".
func checkExpires(m state, s *simulation) string {
	c := s.world.at(historyOfA)
	if m.deaths > 0 || m.fault >= refused || m.actors[0].at.timedOut || s.recordOf("user/uid:A").Live() || c == nil {
		return ""
	}
	if c.ends == 0 || c.ends > s.world.now+24*time.Hour.Milliseconds() {
		return "history: it stays although the entry was deleted"
	}
	return ""
}

// checkForgotten returns what is wrong if a new entry A has the history of an old one, or "". The
// program that deleted the old entry writes no history.
func checkForgotten(s *simulation) string {
	if s.world.at("user/uid:A").field("email") == "x" && len(s.linesOfA()) > 0 {
		return fmt.Sprintf("history: the new entry has that of the old one: %q", s.linesOfA())
	}
	return ""
}

// historyMutants lack safeguards that keep each line from being lost, repeated or out of order, or
// shown for another entry.
var historyMutants = []mutant{
	{
		name: "a delete leaves the history", in: []string{"forget: delete"}, finds: "history: the new entry",
		tamper: func(_ *actor, args []string) ([]string, any) {
			if args[0] == "unlink" && args[1] == historyOfA {
				return nil, int64(1)
			}
			return args, nil
		},
	},
	{
		name: "a history that no commit wrote does not expire", in: []string{"history: update, delete"}, finds: "history: it stays", kinds: []fault{tryAgain},
		tamper: func(_ *actor, args []string) ([]string, any) {
			if args[0] == "expire" && args[1] == historyOfA {
				return nil, int64(1)
			}
			return args, nil
		},
	},
	{
		name: "a note that cannot go beside the entry is lost", in: []string{"history"}, finds: "history", kinds: []fault{tryAgain},
		rewrite: replace("  return waiting_with(waiting)\nend\n\n-- marked", "  return nil\nend\n\n-- marked"),
	},
	{
		name: "a tombstone keeps no note", in: []string{"history: delete"}, finds: "history", kinds: []fault{tryAgain},
		rewrite: replace("strip(KEYS[1], (done or stays_noted) and about ~= '', ", "strip(KEYS[1], false, "),
	},
	{
		name: "a repeated command is not recognized", in: []string{"history: tag | tag"}, finds: "history",
		rewrite: replace("if at then return {'changed'", "if false then return {'changed'"),
	},
	{
		name: "lines that the history refuses are lost", in: []string{"history: delete, create", "history: update, update"}, finds: "history", kinds: refusals,
		rewrite: replace("if refused and not feed then", "if false then"),
	},
	{
		name: "a repeated session start has no line", in: []string{"history: log in, end"}, finds: "history", kinds: refusals,
		rewrite: replace("local refused = marked() and note_begun()", "local refused"),
	},
	{
		name: "a repeated issue after a change is refused", in: []string{"history: create, issue"}, finds: "history", kinds: refusals,
		rewrite: replace("local now = clock(ARGV[9])\n", "local now = clock(ARGV[9])\nif string.sub(head[2] or '', 1, 12) ~= ARGV[2] then return {'conflict'} end\n"),
	},
	{
		name: "a line is written before its change", in: []string{"history: update | update"}, finds: "history", kinds: refusals, answer: noPermission,
		rewrite: replace("refused = write('HSET', '~rev', remember, unpack(canonical))", "note_change()\n  refused = write('HSET', '~rev', remember, unpack(canonical))"),
	},
	{
		name: "a line is marked as fed too early", in: []string{"history: update, update"}, finds: "feed", kinds: refusals, answer: noPermission,
		rewrite: replace("save(KEYS[1], added, kept) -- the lines were not added", ""),
	},
	{
		name: "lines older than an hour are skipped", in: []string{"history: updates | hours"}, finds: "feed",
		rewrite: replace("and (ms_of(line) < from - life or in_stream(line)) then break", "then break"),
	},
	{
		name: "lines older than an hour are not looked up", in: []string{"history: updates | hours"}, finds: "feed",
		rewrite: replace("or in_stream(line)) then break", ") then break"),
	},
	{
		name: "waiting lines are skipped", in: []string{"history: create, log in"}, finds: "history",
		rewrite: replace("append_lines(all, waiting or '', time)\n  append_lines(all, lines, time)\n  if #all", "append_lines(all, lines, time)\n  if #all"),
	},
	{
		name: "waiting lines come after new ones", in: []string{"history: create"}, finds: "feed",
		rewrite: replace("append_lines(all, waiting or '', time)\n  append_lines(all, lines, time)\n  if #all", "append_lines(all, lines, time)\n  append_lines(all, waiting or '', time)\n  if #all"),
	},
	{
		name: "a repeated note is not recognized", in: []string{"history: create, tag"}, finds: "history",
		tamper: func(_ *actor, args []string) ([]string, any) {
			if args[1] == onekey.NoteScript.SHA { // without the mark
				args = slices.Clone(args)
				line := len(args) - 2
				args[line] = strings.Join(strings.Fields(args[line])[:5], " ")
			}
			return args, nil
		},
	},
	{
		name: "every line goes into the feed each time", in: []string{"history"}, finds: "feed",
		rewrite: replace("if string.find(' ' .. added, ' ' .. name_of(line) .. ' ', 1, true) then break end", ""),
	},
	{
		name: "a line goes into the feed without earlier ones", in: []string{"history"}, finds: "feed",
		rewrite: replace("while first > 1 do", "while first > #all do"),
	},
}
