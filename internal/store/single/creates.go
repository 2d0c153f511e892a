package single

import (
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// How much one script creates: every other client waits for it.
const (
	createsMost  = 64
	createsWords = 6000 // keys and arguments
)

// groups lays plain creates out for scripts that make many entries. No two of them may need one key.
func groups(all []*creation) (gs []*createGroup) {
	g := newCreateGroup(len(all))
	for i, c := range all {
		if !g.fits(c.c) {
			gs = append(gs, g)
			g = newCreateGroup(len(all) - i)
		}
		g.add(c)
	}
	if len(g.of) > 0 {
		gs = append(gs, g)
	}
	return gs
}

// plain says whether a change creates no huge entry, and nothing else.
func plain(c *store.Change) bool {
	return c.Create && len(c.Drop)+len(c.Release)+len(c.Unindex)+len(c.Unrank)+len(c.Unset) == 0 && c.Version == (store.Version{}) &&
		words(c) <= createsWords
}

func words(c *store.Change) int {
	n := 8 + 2*len(c.Set) + 2*len(c.Claim) + len(c.Aside) + len(c.Index) + 3*len(c.Rank)
	for _, m := range c.Add {
		n += 4 + len(m.Values) + 2*len(m.Index)
	}
	return n
}

// A createGroup is what one script creates, all of one type: see creates.lua.
type createGroup struct {
	expected     int // how many it will most likely have
	of           []*creation
	size         int
	shapes       []*shape
	joins, ranks places
}

func newCreateGroup(n int) *createGroup {
	n = min(n, createsMost)
	return &createGroup{expected: n, of: make([]*creation, 0, n)}
}

// A shape is what entries have in common that lie in a row: their fields, and how many records.
type shape struct {
	fields                []string
	claims, asides, fills int
	entries               int
	keys                  keyTexts
	args                  []string
}

// keyTexts are keys, in one text.
type keyTexts struct {
	text []byte
	ends []int
}

func (k *keyTexts) add(keys ...recordkey.Key) {
	for i := range keys {
		k.text, _ = keys[i].AppendText(k.text) // a change has no zero key
		k.ends = append(k.ends, len(k.text))
	}
}

func (k *keyTexts) all() []string {
	all, text, from := make([]string, len(k.ends)), string(k.text), 0
	for i, end := range k.ends {
		all[i], from = text[from:end], end
	}
	return all
}

func (g *createGroup) fits(c *store.Change) bool {
	if len(g.of) == 0 {
		return true
	}
	schema := &g.of[0].c.Schema
	return len(g.of) < createsMost && g.size+words(c) <= createsWords &&
		schema.Key == c.Schema.Key && schema.Fingerprint == c.Schema.Fingerprint
}

func (g *createGroup) add(one *creation) {
	c := one.c
	g.of, g.size = append(g.of, one), g.size+words(c)
	s := g.shape(c)
	s.entries++
	s.args = append(s.args, one.token)
	s.keys.add(c.Key)
	s.keys.add(c.Claim...)
	s.keys.add(c.Aside...)
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

// join has the entry join index sets.
func (g *createGroup) join(c *store.Change, indexes []recordkey.Key) {
	for _, k := range indexes {
		g.joins.add(k, c.Key.In(recordkey.Namespace{}).String())
	}
}

// givenField says whether the script itself knows the field's value of a new entry.
func givenField(field string) bool { return field == store.FieldType || field == store.FieldPRK }

// shape is the one that an entry has, most likely that of the one before, with its values put in.
func (g *createGroup) shape(c *store.Change) *shape {
	for _, s := range slices.Backward(g.shapes) {
		if s.claims == len(c.Claim) && s.asides == len(c.Aside) && s.fills == len(c.Add) && s.values(c.Set) {
			return s
		}
	}
	s := &shape{claims: len(c.Claim), asides: len(c.Aside), fills: len(c.Add), fields: make([]string, 0, len(c.Set))}
	if len(g.shapes) == 0 { // most likely it is the only one
		n := g.expected * (1 + s.claims + s.asides + s.fills)
		s.keys = keyTexts{make([]byte, 0, 40*n), make([]int, 0, n)}
		s.args = make([]string, 0, g.expected*len(c.Set))
	}
	for _, f := range c.Set {
		if !givenField(f.Field) {
			s.fields, s.args = append(s.fields, f.Field), append(s.args, f.Wire)
		}
	}
	g.shapes = append(g.shapes, s)
	return s
}

// values puts in the values of an entry, in the order of the shape's fields, if it has just those.
func (s *shape) values(set []store.Facet) bool {
	from, n := len(s.args), 0
	s.args = slices.Grow(s.args, len(s.fields))[:from+len(s.fields)]
	for _, f := range set {
		if givenField(f.Field) {
			continue
		}
		i := slices.Index(s.fields, f.Field)
		if i < 0 {
			n = -1
			break
		}
		s.args[from+i] = f.Wire
		n++
	}
	if n != len(s.fields) {
		s.args = s.args[:from]
		return false
	}
	return true
}

// command is the call of the script.
func (g *createGroup) command() []any {
	absent := 0
	for _, s := range g.shapes {
		absent += len(s.keys.ends)
	}
	keys := 1 + absent + len(g.joins.keys) + len(g.ranks.keys)
	first := g.of[0].c
	head := []string{
		first.Schema.Key.String(), first.Schema.Fingerprint, first.Key.Type(), strconv.Itoa(len(first.Key.Namespace().String())),
		strconv.Itoa(len(g.shapes)), strconv.Itoa(absent), strconv.Itoa(len(g.joins.keys)), strconv.Itoa(len(g.ranks.keys)),
	}
	all := append(make([]any, 0, 3+g.size+len(head)), "evalsha", createsScript.SHA, keys)
	all = redisx.AppendWords(all, head[:1])
	for _, s := range g.shapes {
		all = redisx.AppendWords(all, s.keys.all())
	}
	all = redisx.AppendWords(redisx.AppendWords(all, g.joins.keys), g.ranks.keys)
	all = redisx.AppendWords(all, head[1:])
	for _, s := range g.shapes {
		all = append(all, s.entries, s.claims, s.asides, s.fills, len(s.fields))
		all = redisx.AppendWords(redisx.AppendWords(all, s.fields), s.args)
	}
	for _, p := range []places{g.joins, g.ranks} {
		for _, members := range p.members {
			all = redisx.AppendWords(append(all, len(members)), members)
		}
	}
	return all
}

// places are members of sets, by set.
type places struct {
	at      map[recordkey.Key]int
	keys    []string
	members [][]string
}

func (p *places) add(key recordkey.Key, members ...string) {
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
