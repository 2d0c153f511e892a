package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/coffeenode/userdb/internal/store/onekey"
)

// A world simulates a Redis server in memory and runs the engine's own scripts. It is as exact as
// the engine's commands require, and fast enough for a search through all of its states.
type world struct {
	cells   map[string]*cell
	now     int64 // milliseconds
	scripts map[string]*lua.LFunction
	vm      *lua.LState
	refuse  int        // which write of a script to refuse, from 1; -1-i: all by writeCommands[i]
	writes  int        // writes of the running script so far
	refused bool       // a write was refused
	answer  replyError // the reply to a refused write
}

// The replies of a server to a script's command, during a migration and without the permission.
// raisedAt follows them if the script does not handle the error.
const (
	nonLocal     = replyError("ERR Script attempted to access a non local key in a cluster node")
	noPermission = replyError("NOPERM this user has no permissions to run that command")
	raisedAt     = replyError(" script: 0, on @user_script:1.")
)

// A cell is one record: a string, a hash, a set, a sorted set without scores, or a stream.
type cell struct {
	kind byte // s: string, h: hash, S: set, z: sorted set, x: stream
	text string
	hash map[string]string // fields; members of a set; times of the lines of a stream
	ends int64             // in milliseconds; 0: never
}

// A replyError is an error reply of a server.
type replyError string

func (w replyError) Error() string { return string(w) }

// RedisError marks the error as a reply, for the client.
func (replyError) RedisError() {}

const wrongType = replyError("WRONGTYPE Operation against a key holding the wrong kind of value")

// simulatedScripts lists the scripts that actors run.
var simulatedScripts = append(slices.Clone(allScripts), onekey.ReplaceSchemaScript, onekey.PreserveScript, onekey.RestoreHeldScript, onekey.MoveHoldScript)

// newWorld returns a world that runs what rewrite returns for each script.
func newWorld(rewrite func(source string) string) *world {
	w := &world{vm: lua.NewState(), answer: nonLocal, scripts: map[string]*lua.LFunction{}}
	r := w.vm.NewTable()
	r.RawSetString("call", w.vm.NewFunction(func(l *lua.LState) int { return w.fromScript(l, true) }))
	r.RawSetString("pcall", w.vm.NewFunction(func(l *lua.LState) int { return w.fromScript(l, false) }))
	r.RawSetString("error_reply", w.vm.NewFunction(func(l *lua.LState) int {
		t := l.NewTable()
		t.RawSetString("err", l.Get(1))
		l.Push(t)
		return 1
	}))
	w.vm.SetGlobal("redis", r)
	for _, s := range simulatedScripts {
		w.scripts[s.SHA] = compile(w.vm, rewrite(s.Source))
	}
	return w
}

// compiled holds each script that compile has compiled, by its source. Searches share them, because
// compiling all scripts takes longer than many searches.
var compiled sync.Map

// compile compiles the source of a script. It panics if that fails.
func compile(vm *lua.LState, source string) *lua.LFunction {
	if proto, ok := compiled.Load(source); ok {
		return vm.NewFunctionFromProto(proto.(*lua.FunctionProto))
	}
	chunk, err := parse.Parse(strings.NewReader(source), "script")
	if err != nil {
		panic(err)
	}
	proto, err := lua.Compile(chunk, "script")
	if err != nil {
		panic(err)
	}
	compiled.Store(source, proto)
	return vm.NewFunctionFromProto(proto)
}

// startTime is when scenarios begin, in milliseconds.
const startTime = 1_000_000

// reset replaces all records with copies of start.
func (w *world) reset(start map[string]*cell) {
	w.now = startTime
	w.cells = make(map[string]*cell, len(start)+8)
	for k, c := range start {
		n := *c
		n.hash = maps.Clone(c.hash)
		w.cells[k] = &n
	}
}

// eval runs a script.
func (w *world) eval(sha string, keys, args []string) any {
	w.vm.SetGlobal("KEYS", list(w.vm, keys))
	w.vm.SetGlobal("ARGV", list(w.vm, args))
	w.vm.Push(w.scripts[sha])
	w.writes, w.refused = 0, false
	if err := w.vm.PCall(0, 1, nil); err != nil {
		if w.refused {
			return w.answer + raisedAt
		}
		panic(err)
	}
	reply := fromLua(w.vm.Get(-1))
	w.vm.Pop(1)
	return reply
}

// list returns texts as a Lua table.
func list(vm *lua.LState, items []string) *lua.LTable {
	t := vm.CreateTable(len(items), 0)
	for _, s := range items {
		t.Append(lua.LString(s))
	}
	return t
}

// fromScript runs a command that a script sends with redis.call, which raises errors, or with
// redis.pcall.
func (w *world) fromScript(l *lua.LState, raise bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		args[i] = lua.LVAsString(l.Get(i + 1))
	}
	switch reply := w.doInScript(args).(type) {
	case nil:
		l.Push(lua.LFalse)
	case string:
		l.Push(lua.LString(reply))
	case int64:
		l.Push(lua.LNumber(reply))
	case replyError:
		if raise {
			l.RaiseError("%s", string(reply))
		}
		t := l.NewTable()
		t.RawSetString("err", lua.LString(reply))
		l.Push(t)
	case []any:
		l.Push(tableOf(l, reply))
	}
	return 1
}

// tableOf returns a list as a Lua table.
func tableOf(l *lua.LState, items []any) *lua.LTable {
	t := l.CreateTable(len(items), 0)
	for i, item := range items {
		switch item := item.(type) {
		case string:
			t.RawSetInt(i+1, lua.LString(item))
		case int64:
			t.RawSetInt(i+1, lua.LNumber(item))
		case []any:
			t.RawSetInt(i+1, tableOf(l, item))
		default:
			t.RawSetInt(i+1, lua.LFalse)
		}
	}
	return t
}

// doInScript runs a command of a script, unless w.refuse says to refuse it.
func (w *world) doInScript(args []string) any {
	if name := strings.ToLower(args[0]); slices.Contains(writeCommands, name) {
		if w.writes++; w.writes == w.refuse || w.forbids(name) {
			w.refused = true
			return w.answer
		}
	}
	return w.do(args)
}

// forbids reports whether the permission for a command is missing.
func (w *world) forbids(name string) bool { return w.refuse < 0 && writeCommands[-w.refuse-1] == name }

// writeCommands lists the commands of scripts that a server may refuse although it serves reads.
var writeCommands = []string{"set", "hset", "hdel", "hincrby", "unlink", "expire", "persist", "sadd", "rpush", "sunionstore", "rename", "srem", "xadd", "pexpire"}

// fromLua returns a value of a script as a reply of the server.
func fromLua(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return int64(v)
	case *lua.LTable:
		if err := v.RawGetString("err"); err != lua.LNil {
			return replyError(lua.LVAsString(err))
		}
		out := make([]any, v.Len())
		for i := range out {
			out[i] = fromLua(v.RawGetInt(i + 1))
		}
		return out
	}
	return nil
}

// do runs one command.
func (w *world) do(args []string) any {
	name := strings.ToLower(args[0])
	if name == "evalsha" || name == "eval" {
		n, _ := strconv.Atoi(args[2])
		return w.eval(args[1], args[3:3+n], args[3+n:])
	}
	if name == "time" {
		return []any{strconv.FormatInt(w.now/1000, 10), "0"}
	}
	key, rest := args[1], args[2:]
	c := w.at(key)
	kind := kinds[name]
	if c != nil && kind != 0 && c.kind != kind {
		return wrongType
	}
	f, known := commands[name]
	if !known {
		panic("the world does not know " + name)
	}
	return f(w, key, c, rest)
}

// at returns the record at a key, or nil if there is none or it has expired.
func (w *world) at(key string) *cell {
	c := w.cells[key]
	if c != nil && c.ends != 0 && c.ends <= w.now {
		delete(w.cells, key)
		return nil
	}
	return c
}

// kinds holds the kind of record that a command requires, for commands that require one.
var kinds = map[string]byte{
	"get": 's', "hget": 'h', "hmget": 'h', "hset": 'h', "hdel": 'h', "hgetall": 'h', "hkeys": 'h', "hexists": 'h', "hincrby": 'h',
	"sadd": 'S', "srem": 'S', "smembers": 'S', "sismember": 'S', "smismember": 'S', "scard": 'S', "sscan": 'S', "zadd": 'z', "zrem": 'z',
}

// A command does what a Redis command does to the record c at key, which is nil if there is none,
// and returns the reply. args are the arguments after the key.
type command func(w *world, key string, c *cell, args []string) any

var commands map[string]command // by name in lower case

func init() {
	commands = map[string]command{
		"get": func(_ *world, _ string, c *cell, _ []string) any {
			if c == nil {
				return nil
			}
			return c.text
		},
		"set": func(w *world, key string, _ *cell, args []string) any {
			c := &cell{kind: 's', text: args[0]}
			if len(args) == 3 { // PX
				ms, _ := strconv.ParseInt(args[2], 10, 64)
				c.ends = w.now + ms
			}
			w.cells[key] = c
			return "OK"
		},
		"xadd": func(w *world, key string, c *cell, args []string) any {
			n := &cell{kind: 'x', text: args[len(args)-1], hash: map[string]string{}}
			if c != nil {
				n.text, n.hash = c.text+"\n"+n.text, maps.Clone(c.hash)
			}
			for range strings.SplitSeq(args[len(args)-1], "\n") { // when each line was added
				n.hash[strconv.Itoa(len(n.hash))] = strconv.FormatInt(w.now, 10)
			}
			w.cells[key] = n
			return fmt.Sprintf("%d-%d", w.now, len(n.hash))
		},
		"xlen": func(_ *world, _ string, c *cell, _ []string) any { return int64(len(c.names())) },
		"xrange": func(_ *world, _ string, c *cell, args []string) any {
			found := []any{}
			if c == nil {
				return found
			}
			low, _ := strconv.ParseInt(args[0], 10, 64) // 0 for "-"
			high, err := strconv.ParseInt(args[1], 10, 64)
			for i, line := range strings.Split(c.text, "\n") {
				if at, _ := strconv.ParseInt(c.hash[strconv.Itoa(i)], 10, 64); at >= low && (err != nil || at <= high) {
					found = append(found, []any{fmt.Sprintf("%d-%d", at, i), []any{"e", line}})
				}
			}
			return found
		},
		"xtrim":  func(*world, string, *cell, []string) any { return int64(0) },
		"memory": func(*world, string, *cell, []string) any { return int64(0) },
		"exists": func(_ *world, _ string, c *cell, _ []string) any { return number(c != nil) },
		"unlink": func(w *world, key string, c *cell, more []string) any {
			for _, k := range more {
				delete(w.cells, k)
			}
			return w.remove(key, c)
		},
		"del":   func(w *world, key string, c *cell, _ []string) any { return w.remove(key, c) },
		"hget":  func(_ *world, _ string, c *cell, args []string) any { return c.field(args[0]) },
		"hmget": func(_ *world, _ string, c *cell, args []string) any { return each(args, c.field) },
		"hset":  hset,
		"hdel":  removeFields,
		"hgetall": func(_ *world, _ string, c *cell, _ []string) any {
			return each(c.names(), func(f string) any { return f }, c.field)
		},
		"hkeys": func(_ *world, _ string, c *cell, _ []string) any {
			return each(c.names(), func(f string) any { return f })
		},
		"hexists": func(_ *world, _ string, c *cell, args []string) any { return number(c.field(args[0]) != nil) },
		"hincrby": func(w *world, key string, c *cell, args []string) any {
			was, _ := c.field(args[0]).(string)
			n, _ := strconv.ParseInt(cmp.Or(was, "0"), 10, 64)
			by, _ := strconv.ParseInt(args[1], 10, 64)
			hset(w, key, c, []string{args[0], strconv.FormatInt(n+by, 10)})
			return n + by
		},
		"expire": func(w *world, _ string, c *cell, args []string) any {
			if c != nil {
				seconds, _ := strconv.ParseInt(args[0], 10, 64)
				c.ends = w.now + seconds*1000
			}
			return number(c != nil)
		},
		"pexpire": func(w *world, _ string, c *cell, args []string) any {
			if c != nil {
				ms, _ := strconv.ParseInt(args[0], 10, 64)
				c.ends = w.now + ms
			}
			return number(c != nil)
		},
		"persist": func(_ *world, _ string, c *cell, _ []string) any {
			if c != nil {
				c.ends = 0
			}
			return int64(1)
		},
		"pttl": func(w *world, _ string, c *cell, _ []string) any {
			switch {
			case c == nil:
				return int64(-2)
			case c.ends == 0:
				return int64(-1)
			}
			return c.ends - w.now
		},
		"sadd": addMembers('S'),
		"zadd": func(w *world, key string, c *cell, args []string) any { return addMembers('z')(w, key, c, args[1:]) },
		"srem": removeFields,
		"zrem": removeFields,
		"smembers": func(_ *world, _ string, c *cell, _ []string) any {
			return each(c.names(), func(f string) any { return f })
		},
		"sscan":     sscan,
		"scard":     func(_ *world, _ string, c *cell, _ []string) any { return int64(len(c.names())) },
		"sismember": func(_ *world, _ string, c *cell, args []string) any { return number(c.field(args[0]) != nil) },
		"smismember": func(_ *world, _ string, c *cell, args []string) any {
			return each(args, func(m string) any { return number(c.field(m) != nil) })
		},
		"rename": func(w *world, key string, c *cell, args []string) any {
			if c == nil {
				return replyError("ERR no such key")
			}
			delete(w.cells, key)
			w.cells[args[0]] = c
			return "OK"
		},
		"sunionstore": func(w *world, key string, _ *cell, args []string) any {
			var all []string
			for _, k := range args {
				all = append(all, w.at(k).names()...)
			}
			delete(w.cells, key)
			return addMembers('S')(w, key, nil, all)
		},
	}
}

func (w *world) remove(key string, c *cell) any {
	delete(w.cells, key)
	return number(c != nil)
}

func (c *cell) field(f string) any {
	if c == nil {
		return nil
	}
	if v, ok := c.hash[f]; ok {
		return v
	}
	return nil
}

func (c *cell) names() []string {
	if c == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(c.hash))
}

// each calls all functions with each item in turn, and returns the results as one list.
func each(items []string, fs ...func(string) any) any {
	out := make([]any, 0, len(items)*len(fs))
	for _, s := range items {
		for _, f := range fs {
			out = append(out, f(s))
		}
	}
	return out
}

func number(b bool) any {
	if b {
		return int64(1)
	}
	return int64(0)
}

func hset(w *world, key string, c *cell, args []string) any {
	if c == nil {
		c = &cell{kind: 'h', hash: map[string]string{}}
		w.cells[key] = c
	}
	for i := 0; i+1 < len(args); i += 2 {
		c.hash[args[i]] = args[i+1]
	}
	return int64(len(args) / 2)
}

func addMembers(kind byte) command {
	return func(w *world, key string, c *cell, args []string) any {
		if c == nil && len(args) > 0 {
			c = &cell{kind: kind, hash: map[string]string{}}
			w.cells[key] = c
		}
		n := int64(0)
		for _, m := range args {
			if _, is := c.hash[m]; !is {
				c.hash[m] = ""
				n++
			}
		}
		return n
	}
}

func removeFields(w *world, key string, c *cell, args []string) any {
	if c == nil {
		return int64(0)
	}
	n := int64(0)
	for _, f := range args {
		if _, is := c.hash[f]; is {
			delete(c.hash, f)
			n++
		}
	}
	if len(c.hash) == 0 {
		delete(w.cells, key)
	}
	return n
}

func sortedKeys(cells map[string]*cell) []string { return slices.Sorted(maps.Keys(cells)) }
