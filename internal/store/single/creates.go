package single

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/arg"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var createsScript = redisx.NewScript(redisx.IsVerdict, source("creates"))

// Limits on one script that creates entries, since all other clients wait for it.
const (
	maxGroup      = 64   // entries
	maxGroupWords = 6000 // keys and arguments
)

// A creation is a change that creates an entry in the same script as others.
type creation struct {
	c      *store.Change
	rev    string
	result outcome
	// err is set if the change is invalid, or if the server refused the script in the middle. In
	// the second case the entry may exist, without its line in the feed.
	err error
}

// onlyCreates reports whether c only creates an entry that is small enough to share a script and
// can hold its own history line.
func onlyCreates(c *store.Change) bool {
	switch {
	case !c.Create, c.Expected != store.Version{}, c.Tokens.Spend != "":
		return false
	case len(c.Drop)+len(c.Release)+len(c.Unindex)+len(c.Unrank)+len(c.Unset) > 0:
		return false
	}
	return noteFits(c) && countWords(c) <= maxGroupWords
}

// countWords returns the approximate number of keys and arguments of creates.lua that a create
// takes.
func countWords(c *store.Change) int {
	n := 8 + 2*len(c.Set) + 2*len(c.Claim) + len(c.Elsewhere) + len(c.Schema.Tertiary) + len(c.Index) + 3*len(c.Rank)
	for _, m := range c.Add {
		n += 4 + len(m.Values) + 2*len(m.Index)
	}
	return n
}

// createWithOthers makes an entry in a script shared with other callers, which costs the server
// less than half as much as a script for each entry. It fails only if the change is invalid, the
// context ends, or the server refuses the script in the middle.
func (e *Engine) createWithOthers(ctx context.Context, c *store.Change, rev string) (outcome, error) {
	one := &struct {
		creation
		change store.Change // a copy, since the script may still run after the caller has returned
	}{change: *c}
	one.c, one.rev = &one.change, rev
	err := e.creates.Do(ctx, &one.creation)
	switch {
	case errors.Is(err, redisx.ErrAbandoned):
		return outcome{}, fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	case err != nil:
		return outcome{}, redisx.Fail(err)
	}
	return one.result, one.err
}

// maxConcurrent limits how many changes with their own scripts run at once.
const maxConcurrent = 16

// ApplyAll implements [store.Engine]. It puts many creates into each script, sends all scripts in
// one pipeline, and then makes each of the other changes by itself, until one gets no answer.
func (e *Engine) ApplyAll(ctx context.Context, cs []store.Change) []error {
	errs, all, quick := make([]error, len(cs)), make([]creation, len(cs)), make([]*creation, 0, len(cs))
	needs := make(store.KeySet, 4*len(cs))
	for i := range cs {
		all[i] = creation{c: &cs[i], rev: store.NewRev(), err: cs[i].CheckFields()}
		// A change that needs a key of an earlier one must come after it.
		if all[i].err == nil && needs.Add(&cs[i]) && onlyCreates(&cs[i]) {
			quick = append(quick, &all[i])
		}
	}
	e.createAll(ctx, quick)
	var rest []store.Change
	var indexes []int
	for i := range all {
		switch {
		case all[i].err != nil:
			errs[i] = fmt.Errorf("changing %s: %w", cs[i].Key, all[i].err)
		case !all[i].result.made:
			rest, indexes = append(rest, cs[i]), append(indexes, i)
		}
	}
	var outage redisx.Outage
	store.ApplyEach(rest, maxConcurrent, func(j int) {
		i, unsure := indexes[j], all[indexes[j]].result.unsure
		errs[i] = outage.Do(unsure, func() error { return e.applyAny(ctx, cs[i], all[i].rev, unsure) })
	})
	for i := range cs {
		if errs[i] == nil {
			e.AfterNote(ctx, cs[i].Key, cs[i].Note)
		}
		errs[i] = e.awaitReplicas(ctx, &cs[i], all[i].rev, errs[i])
	}
	return errs
}

// withoutConflicts removes creations that need a key that an earlier one needs.
func withoutConflicts(all []*creation) []*creation {
	needs := make(store.KeySet, 4*len(all))
	return slices.DeleteFunc(all, func(c *creation) bool { return !needs.Add(c.c) })
}

// createAll makes the entries with one script for each group, and stores the outcome of each
// creation. It makes no entry of a group if one of the keys that must be absent exists, or if the
// stored schema is another one. No two creations may need the same key.
func (e *Engine) createAll(ctx context.Context, all []*creation) {
	gs := groupCreations(all)
	for _, script := range [...][2]string{{"evalsha", createsScript.SHA}, {"eval", createsScript.Source}} {
		pipe, cmds := e.client.Pipeline(), make([]redisx.NoRetryCmd, len(gs))
		for i, g := range gs {
			cmds[i] = redisx.NewNoRetryCmd(ctx, e.createsCall(g, script[0], script[1]))
			_ = pipe.Process(ctx, cmds[i])
		}
		if sent, err := pipe.Exec(ctx); redisx.Unanswered(sent, err) {
			for i := range cmds {
				cmds[i].SetErr(err)
			}
		}
		var missing []*group
		for i, g := range gs {
			g.record(cmds[i].Cmd, e.mayHaveRun)
			if redisx.NoScript(cmds[i].Err()) {
				missing = append(missing, g)
			}
		}
		if gs = missing; len(gs) == 0 {
			return
		}
	}
}

// record stores the outcome of the script in each creation.
func (g *group) record(cmd *redis.Cmd, mayHaveRun func(error) bool) {
	reply, err := cmd.Slice()
	what := redisx.Text(reply, 0)
	if err == nil && what != "ok" && what != "other" {
		err = redisx.UnknownWord(what)
	}
	for _, c := range g.creations {
		c.result = outcome{made: err == nil && what == "ok", unsure: err != nil && mayHaveRun(err)}
		if c.result.unsure && redisx.IsServerReply(err) {
			c.err = &redisx.UnknownError{Cause: err}
		}
	}
}

// groupCreations divides creations among scripts that make many entries each. No two creations may
// need the same key.
func groupCreations(all []*creation) (gs []*group) {
	var g *group
	for i, c := range all {
		if g == nil || !g.fits(c.c) {
			g = &group{creations: make([]*creation, 0, min(len(all)-i, maxGroup))}
			gs = append(gs, g)
		}
		g.add(c)
	}
	return gs
}

// A group holds the creations that one script makes, all of one type; see creates.lua.
type group struct {
	creations    []*creation // allocated for as many as it will probably hold
	size         int
	shapes       []*shape
	joins, ranks memberLists
}

// A shape describes entries that have the same fields and the same numbers of records.
type shape struct {
	fields                []string
	claims, absent, fills int // the numbers of keys of each kind that each entry has
	entries               int
	keys                  keyList
	args                  []string
}

// keyList holds keys as one text, and the position at which each of them ends.
type keyList struct {
	text []byte
	ends []int
}

func (k *keyList) add(keys ...recordkey.Key) {
	for i := range keys {
		k.text, _ = keys[i].AppendText(k.text) // fails only for the zero key
		k.ends = append(k.ends, len(k.text))
	}
}

func (k *keyList) strings() []string {
	all, text, from := make([]string, len(k.ends)), string(k.text), 0
	for i, end := range k.ends {
		all[i], from = text[from:end], end
	}
	return all
}

func (g *group) fits(c *store.Change) bool {
	schema := &g.creations[0].c.Schema
	return len(g.creations) < maxGroup && g.size+countWords(c) <= maxGroupWords &&
		schema.Key == c.Schema.Key && schema.Fingerprint == c.Schema.Fingerprint && len(c.Note.Lines) == len(g.creations[0].c.Note.Lines)
}

func (g *group) add(one *creation) {
	c := one.c
	g.creations, g.size = append(g.creations, one), g.size+countWords(c)
	set := c.Set
	if len(c.Note.Lines) > 0 {
		set = append(slices.Clip(set), store.Facet{Field: history.FieldNote, Wire: c.Note.Lines[0]})
	}
	absent := absentKeys(c)
	s := g.shapeFor(c, set, len(absent))
	s.entries++
	s.args = append(s.args, one.rev)
	s.keys.add(c.Key)
	s.keys.add(c.Claim...)
	s.keys.add(absent...)
	for i := range c.Add {
		m := &c.Add[i]
		s.keys.add(m.Key)
		s.args = appendList(append(s.args, m.Command()), m.Values)
		g.join(c, m.Index)
	}
	g.join(c, c.Index)
	for _, r := range c.Rank {
		g.ranks.add(r.Key, "0", r.Member)
	}
}

// absentKeys returns the keys that must be absent for creates.lua to make an entry, although it
// does not write them: the SRKs of its values under other fields, and the tertiary records that it
// does not fill.
func absentKeys(c *store.Change) []recordkey.Key {
	keys := c.Elsewhere
	for _, d := range c.Schema.Containers(c.Key) {
		if !slices.ContainsFunc(c.Add, func(m store.Members) bool { return m.Key == d.Key }) {
			keys = append(slices.Clip(keys), d.Key)
		}
	}
	return keys
}

// join adds the entry of c to index sets.
func (g *group) join(c *store.Change, indexes []recordkey.Key) {
	for _, k := range indexes {
		g.joins.add(k, c.Key.In(recordkey.Namespace{}).String())
	}
}

// setByScript reports whether the script itself sets the field of a new entry.
func setByScript(field string) bool { return field == store.FieldType || field == store.FieldPRK }

// shapeFor returns the shape of an entry, with the entry's values added. It tries the latest shape
// first, since that most likely fits.
func (g *group) shapeFor(c *store.Change, set []store.Facet, absent int) *shape {
	for _, s := range slices.Backward(g.shapes) {
		if s.claims == len(c.Claim) && s.absent == absent && s.fills == len(c.Add) && s.addValues(set) {
			return s
		}
	}
	s := &shape{claims: len(c.Claim), absent: absent, fills: len(c.Add), fields: make([]string, 0, len(set))}
	if len(g.shapes) == 0 { // probably the only one
		n := cap(g.creations) * (1 + s.claims + s.absent + s.fills)
		s.keys = keyList{make([]byte, 0, 40*n), make([]int, 0, n)}
		s.args = make([]string, 0, cap(g.creations)*len(set))
	}
	for _, f := range set {
		if !setByScript(f.Field) {
			s.fields, s.args = append(s.fields, f.Field), append(s.args, f.Wire)
		}
	}
	g.shapes = append(g.shapes, s)
	return s
}

// addValues adds the values of an entry in the order of the shape's fields. It adds nothing and
// reports false if the entry has other fields.
func (s *shape) addValues(set []store.Facet) bool {
	from, left := len(s.args), len(s.fields)
	s.args = append(s.args, s.fields...) // each value will replace its field
	for _, f := range set {
		if setByScript(f.Field) {
			continue
		}
		i := slices.Index(s.fields, f.Field)
		if i < 0 {
			left = -1
			break
		}
		s.args[from+i] = f.Wire
		left--
	}
	if left != 0 {
		s.args = s.args[:from]
	}
	return left == 0
}

// createsCall returns the command that runs creates.lua for a group. how is "eval", with the source
// of the script, or "evalsha", with its SHA.
func (e *Engine) createsCall(g *group, how, script string) []any {
	shapeKeys := 0
	for _, s := range g.shapes {
		shapeKeys += len(s.keys.ends)
	}
	first := g.creations[0].c
	feed, maxEntries := []string(nil), "0"
	if len(first.Note.Lines) > 0 {
		feed, maxEntries = []string{e.FeedKey(first.Key.Namespace(), history.FeedChanges, first.Key)}, e.MaxFeedEntries(history.FeedChanges)
	}
	keys := 1 + shapeKeys + len(g.joins.keys) + len(g.ranks.keys) + len(feed)
	head := []string{
		first.Schema.Key.String(), first.Schema.Fingerprint, first.Key.Type(), strconv.Itoa(len(first.Key.Namespace().String())),
		strconv.Itoa(len(g.shapes)), strconv.Itoa(shapeKeys), strconv.Itoa(len(g.joins.keys)), strconv.Itoa(len(g.ranks.keys)), arg.Time(first.Note.Now), maxEntries,
	}
	all := append(make([]any, 0, 3+g.size+len(head)), how, script, keys)
	all = redisx.AppendWords(all, head[:1])
	for _, s := range g.shapes {
		all = redisx.AppendWords(all, s.keys.strings())
	}
	all = redisx.AppendWords(redisx.AppendWords(all, g.joins.keys), g.ranks.keys)
	all = redisx.AppendWords(all, feed)
	all = redisx.AppendWords(all, head[1:])
	for _, s := range g.shapes {
		all = append(all, s.entries, s.claims, s.absent, s.fills, len(s.fields))
		all = redisx.AppendWords(redisx.AppendWords(all, s.fields), s.args)
	}
	for _, p := range []memberLists{g.joins, g.ranks} {
		for _, members := range p.members {
			all = redisx.AppendWords(append(all, len(members)), members)
		}
	}
	return all
}

// memberLists holds the members to add to each set.
type memberLists struct {
	at      map[recordkey.Key]int // positions in keys and members
	keys    []string
	members [][]string
}

func (p *memberLists) add(key recordkey.Key, members ...string) {
	if p.at == nil {
		p.at = map[recordkey.Key]int{}
	}
	i, is := p.at[key]
	if !is {
		i = len(p.keys)
		p.at[key] = i
		p.keys, p.members = append(p.keys, key.String()), append(p.members, nil)
	}
	p.members[i] = append(p.members[i], members...)
}
