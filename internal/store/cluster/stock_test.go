package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
)

// A stock has a number for every key, record and answer that a search has met, and knows what each command
// does to the records it is sent to: so it runs once in each situation, whatever lies around it.
type stock struct {
	world   *world
	keys    map[string]int
	names   []string
	cells   map[string]uint32
	list    []*cell // by number; 0 is no record
	texts   map[string]uint32
	replies map[string]uint32
	said    []any
	effects map[deed]effect
}

// A deed is a command in a situation.
type deed struct {
	text          uint32
	now           int64
	first, second uint32 // the records at its keys
	refuse        int    // the write of a script that is refused
}

// An effect is what comes of a deed.
type effect struct {
	reply     uint32
	cells     [2]uint32
	now       int64
	committed bool // an entry's version changed
	ok        bool // a commit said so
	refused   bool // a write of the script was
}

func newStock(w *world) *stock {
	return &stock{
		world: w, keys: map[string]int{}, cells: map[string]uint32{}, list: []*cell{nil},
		texts: map[string]uint32{}, replies: map[string]uint32{}, effects: map[deed]effect{},
	}
}

func (st *stock) key(name string) int {
	i, known := st.keys[name]
	if !known {
		i = len(st.names)
		st.keys[name], st.names = i, append(st.names, name)
	}
	return i
}

func (st *stock) cell(c *cell) uint32 {
	if c == nil {
		return 0
	}
	text := c.String()
	n, known := st.cells[text]
	if !known {
		n = uint32(len(st.list))
		st.cells[text], st.list = n, append(st.list, c.clone())
	}
	return n
}

func (st *stock) text(s string) uint32 {
	n, known := st.texts[s]
	if !known {
		n = uint32(len(st.texts))
		st.texts[s] = n
	}
	return n
}

func (st *stock) reply(v any) uint32 {
	text := replyText(v)
	n, known := st.replies[text]
	if !known {
		n = uint32(len(st.said))
		st.replies[text], st.said = n, append(st.said, v)
	}
	return n
}

// replyText tells replies apart.
func replyText(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case wrong:
		return "error " + string(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = replyText(x)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(v)
}

func (st *stock) want(r *request) want {
	w := want{request: r, id: st.text(r.text)}
	if r.cmd != nil {
		w.keys = st.keysOf(r.args)
	}
	return w
}

// keysOf are the keys of a command, at most two.
func (st *stock) keysOf(args []string) []int {
	names := args[1:2]
	if args[0] == "evalsha" {
		n, _ := strconv.Atoi(args[2])
		names = args[3 : 3+n]
	}
	keys := make([]int, len(names))
	for i, name := range names {
		keys[i] = st.key(name)
	}
	return keys
}

// run is what comes of a command.
func (st *stock) run(w want, now int64, cells []uint32, refuse int) effect {
	d := deed{text: w.id, now: now, refuse: refuse}
	for i, k := range w.keys {
		if n := at(cells, k); i == 0 {
			d.first = n
		} else {
			d.second = n
		}
	}
	e, known := st.effects[d]
	if !known {
		e = st.find(w, d)
		st.effects[d] = e
	}
	return e
}

func (st *stock) find(w want, d deed) effect {
	st.world.reset(nil)
	st.world.now = d.now
	numbers := [2]uint32{d.first, d.second}
	for i, k := range w.keys {
		if n := numbers[i]; n != 0 {
			st.world.cells[st.names[k]] = st.list[n].clone()
		}
	}
	e := effect{cells: numbers}
	if w.event != nil {
		w.event(st.world)
	}
	if w.cmd != nil || w.args != nil {
		before := st.rev(w)
		st.world.refuse = d.refuse
		reply := st.world.do(w.args)
		st.world.refuse, e.refused = 0, d.refuse > 0 && st.world.refused
		e.reply = st.reply(reply)
		if w.args[0] == "evalsha" && w.args[1] == commitScript.SHA {
			list, _ := reply.([]any)
			e.ok, e.committed = len(list) > 0 && list[0] == "ok", st.rev(w) != before
		}
	}
	for i, k := range w.keys {
		e.cells[i] = st.cell(st.world.at(st.names[k]))
	}
	e.now = st.world.now
	return e
}

func (st *stock) rev(w want) string {
	rev, _ := st.world.at(st.names[w.keys[0]]).field(store.FieldRev).(string)
	return rev
}

// fill makes the world what some cells are.
func (st *stock) fill(now int64, cells []uint32) {
	st.world.now = now
	st.world.cells = make(map[string]*cell, len(cells))
	for i, n := range cells {
		if n != 0 {
			st.world.cells[st.names[i]] = st.list[n]
		}
	}
}

func at(cells []uint32, key int) uint32 {
	if key < len(cells) {
		return cells[key]
	}
	return 0
}

// put is cells with another record at a key.
func put(cells []uint32, key int, n uint32) []uint32 {
	for len(cells) <= key {
		cells = append(cells, 0)
	}
	cells[key] = n
	return cells
}

func (c *cell) clone() *cell {
	n := *c
	n.hash = maps.Clone(c.hash)
	return &n
}

// String tells records apart.
func (c *cell) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%c %d %q", c.kind, c.ends, c.text)
	for _, f := range slices.Sorted(maps.Keys(c.hash)) {
		fmt.Fprintf(&b, " %q=%q", f, c.hash[f])
	}
	return b.String()
}
