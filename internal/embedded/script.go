package embedded

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// An interpreter runs Lua scripts, one at a time. All scripts share one Lua state, as in Redis, and
// each is compiled once.
type interpreter struct {
	data    *data
	state   *lua.LState
	scripts map[string]*lua.LFunction // by SHA-1
}

// The registry must hold the arguments of the longest call: unpack of a few thousand words.
const registrySize, registryMax = 16 << 10, 4 << 20

func newInterpreter(d *data) *interpreter {
	s := &interpreter{data: d, scripts: map[string]*lua.LFunction{}, state: lua.NewState(lua.Options{
		SkipOpenLibs: true, RegistrySize: registrySize, RegistryMaxSize: registryMax, RegistryGrowStep: registrySize,
	})}
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		s.state.Push(s.state.NewFunction(open))
		s.state.Push(lua.LString(name))
		s.state.Call(1, 0)
	}
	for _, name := range []string{"dofile", "loadfile", "print", "require", "module", "collectgarbage"} {
		s.state.SetGlobal(name, lua.LNil)
	}
	redis := s.state.NewTable()
	for name, f := range map[string]lua.LGFunction{
		"call":         func(l *lua.LState) int { return s.call(l, true) },
		"pcall":        func(l *lua.LState) int { return s.call(l, false) },
		"error_reply":  func(l *lua.LState) int { return pushReply(l, "err", withCode(l.CheckString(1))) },
		"status_reply": func(l *lua.LState) int { return pushReply(l, "ok", l.CheckString(1)) },
		"sha1hex": func(l *lua.LState) int {
			l.Push(lua.LString(scriptSHA(l.CheckString(1))))
			return 1
		},
	} {
		redis.RawSetString(name, s.state.NewFunction(f))
	}
	s.state.SetGlobal("redis", redis)
	locked := s.state.NewTable()
	locked.RawSetString("__newindex", s.state.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to create global variable '%s'", l.CheckString(2))
		return 0
	}))
	s.globals().Metatable = locked
	return s
}

func (s *interpreter) globals() *lua.LTable { return s.state.Get(lua.GlobalsIndex).(*lua.LTable) }

func scriptSHA(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// withCode puts a code word before an error that has none, as Redis does.
func withCode(text string) string {
	text = strings.TrimPrefix(text, "-")
	if !strings.Contains(text, " ") {
		return "ERR " + text
	}
	return text
}

func pushReply(l *lua.LState, field, text string) int {
	t := l.NewTable()
	t.RawSetString(field, lua.LString(text))
	l.Push(t)
	return 1
}

// load compiles a script and returns its SHA-1.
func (s *interpreter) load(source string) (sha string, failed any) {
	sha = scriptSHA(source)
	if _, known := s.scripts[sha]; known {
		return sha, nil
	}
	f, err := s.state.LoadString(source)
	if err != nil {
		return "", errorReply("ERR Error compiling script: " + err.Error())
	}
	s.scripts[sha] = f
	return sha, nil
}

// eval implements EVAL and EVALSHA. args are the script or its SHA-1, the number of keys, the keys,
// and further arguments.
func (s *interpreter) eval(bySHA bool, args []string) any {
	n, err := strconv.Atoi(args[1])
	switch {
	case err != nil:
		return notInteger
	case n < 0:
		return errorReply("ERR Number of keys can't be negative")
	case n > len(args)-2:
		return errorReply("ERR Number of keys can't be greater than number of args")
	}
	sha := strings.ToLower(args[0])
	if !bySHA {
		var failed any
		if sha, failed = s.load(args[0]); failed != nil {
			return failed
		}
	}
	f := s.scripts[sha]
	if f == nil {
		return noScript
	}
	l := s.state
	s.globals().RawSetString("KEYS", textTable(l, args[2:2+n]))
	s.globals().RawSetString("ARGV", textTable(l, args[2+n:]))
	defer l.SetTop(0)
	l.Push(f)
	if err := l.PCall(0, 1, nil); err != nil {
		return scriptError(err)
	}
	return fromLua(l.Get(-1))
}

// scriptError returns the reply for a script that failed. redis.call raises a table with the reply
// of its command.
func scriptError(err error) any {
	failed, ok := err.(*lua.ApiError)
	if !ok {
		return errorReply("ERR " + err.Error())
	}
	if table, ok := failed.Object.(*lua.LTable); ok {
		if text, ok := table.RawGetString("err").(lua.LString); ok {
			return errorReply(text)
		}
	}
	return errorReply("ERR " + failed.Object.String())
}

func textTable(l *lua.LState, texts []string) *lua.LTable {
	t := l.CreateTable(len(texts), 0)
	for i, text := range texts {
		t.RawSetInt(i+1, lua.LString(text))
	}
	return t
}

// call implements redis.call, which raises an error reply, and redis.pcall, which returns it.
func (s *interpreter) call(l *lua.LState, raise bool) int {
	words := make([]string, l.GetTop())
	for i := range words {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			words[i] = string(v)
		case lua.LNumber:
			words[i] = formatNumber(float64(v))
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	if len(words) == 0 {
		l.RaiseError("Please specify at least one argument for this redis.call() call")
	}
	reply := s.run(words)
	if failed, ok := reply.(errorReply); ok && raise {
		t := l.NewTable()
		t.RawSetString("err", lua.LString(failed))
		l.Error(t, 0)
	}
	l.Push(toLua(l, reply))
	return 1
}

// run executes a command of a script. A panic ends the process, since Lua would turn it into an
// error.
func (s *interpreter) run(words []string) any {
	defer endProcess()
	return s.data.run(words)
}

// formatNumber formats a number as Redis does for the argument of a command.
func formatNumber(n float64) string {
	if n == math.Trunc(n) && math.Abs(n) < 1<<63 {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatFloat(n, 'g', 17, 64)
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case string:
		return lua.LString(r)
	case int64:
		return lua.LNumber(r)
	case float64:
		return lua.LString(formatScore(r))
	case errorReply:
		t := l.NewTable()
		t.RawSetString("err", lua.LString(r))
		return t
	case statusReply:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(r))
		return t
	case mapReply:
		return textTable(l, r)
	case setReply:
		return textTable(l, r)
	case textsReply:
		return textTable(l, r)
	case scoresReply:
		return textTable(l, r.flat())
	case arrayReply:
		t := l.CreateTable(len(r), 0)
		for i, item := range r {
			t.RawSetInt(i+1, toLua(l, item))
		}
		return t
	}
	return lua.LFalse
}

func fromLua(value lua.LValue) any {
	switch v := value.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return int64(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return errorReply(text)
		}
		if text, ok := v.RawGetString("ok").(lua.LString); ok {
			return statusReply(text)
		}
		all := arrayReply{}
		for i := 1; ; i++ {
			item := v.RawGetInt(i)
			if item == lua.LNil {
				return all
			}
			all = append(all, fromLua(item))
		}
	}
	return nil
}

// script implements SCRIPT.
func (s *interpreter) script(args []string) any {
	switch sub := strings.ToUpper(args[0]); {
	case sub == "LOAD" && len(args) == 2:
		sha, failed := s.load(args[1])
		if failed != nil {
			return failed
		}
		return sha
	case sub == "EXISTS":
		known := arrayReply{}
		for _, sha := range args[1:] {
			known = append(known, count(s.scripts[strings.ToLower(sha)] != nil))
		}
		return known
	case sub == "FLUSH":
		clear(s.scripts)
		return okReply
	}
	return errorReply(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%s'", args[0]))
}
