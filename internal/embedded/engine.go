package embedded

import (
	"bufio"
	"bytes"
	"context"
	"encoding"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// An engine holds the records in memory and executes commands, one at a time.
type engine struct {
	now   func() time.Time
	calls sync.Map // *call by tag

	mu      sync.Mutex // guards the fields below
	data    *data
	scripts *interpreter
	call    *call // of the command that runs now
	closed  bool
	saving
}

// A call is a single request of a caller: a command, a pipeline or a transaction.
type call struct {
	lazy   bool  // its changes need not be durable when it is answered
	span   *span // its own, or that of its bulk; nil before the first command
	wrote  bool
	batch  *batch // the last batch with its changes, or with changes that it read
	undone error  // set if changes were undone after its span began
}

type clockKey struct{}

// WithClock returns a context with which Open opens a store that uses now as its clock, for tests.
func WithClock(ctx context.Context, now func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, now)
}

func newEngine(ctx context.Context) *engine {
	e := &engine{data: newData(), now: time.Now}
	if now, given := ctx.Value(clockKey{}).(func() time.Time); given {
		e.now = now
	}
	e.data.now = e.now().UnixMilli() // also while a file is read
	e.scripts = newInterpreter(e.data)
	e.data.read, e.data.changed = e.noteRead, e.noteChange
	e.saving.init()
	return e
}

// do executes the commands of a call, without other commands in between.
func (e *engine) do(c *call, commands ...[]string) ([]any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if c.span == nil {
		c.span = new(span)
	}
	if c.undone = e.proceed(c.span); c.undone != nil {
		return nil, c.undone
	}
	defer endProcess()
	e.call = c
	e.data.now = e.now().UnixMilli()
	replies := make([]any, len(commands))
	for i, words := range commands {
		replies[i] = e.run(words)
	}
	if c.wrote {
		e.sweep()
	}
	e.call = nil
	return replies, nil
}

// endProcess ends the process if a command panics, because the command may have made only some of
// its changes. The file does not change. endProcess must be deferred.
func endProcess() {
	if p := recover(); p != nil {
		go panic(p)
		select {}
	}
}

// sweep removes some of the expired and excess records. Nobody waits for the removal.
func (e *engine) sweep() {
	e.call = &call{lazy: true}
	e.data.sweep()
	e.call = nil
}

// removeExpired removes all expired records in steps. Other commands may run between the steps.
func (e *engine) removeExpired() {
	step := func() (more bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.closed {
			return false
		}
		e.data.now = e.now().UnixMilli()
		e.sweep()
		return e.data.anyExpired()
	}
	for step() {
	}
}

func (e *engine) run(words []string) any {
	switch name, n := strings.ToUpper(words[0]), len(words); {
	case name == "EVAL" && n > 2:
		return e.scripts.eval(false, words[1:])
	case name == "EVALSHA" && n > 2:
		return e.scripts.eval(true, words[1:])
	case name == "SCRIPT" && n > 1:
		return e.scripts.script(words[1:])
	}
	return e.data.run(words)
}

// close refuses further commands.
func (e *engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
}

// A conn is a connection to the engine. A client writes a whole pipeline before it reads the first
// answer, so each command runs when its answer is read, on the client's goroutine.
type conn struct {
	net.Conn // one end of a pipe, for addresses and deadlines
	engine   *engine
	in, out  bytes.Buffer
	commands *bufio.Reader // reads from in
	answers  writer        // writes to out
	call     *call         // of the last command
	queue    [][]string    // commands after MULTI
	multi    bool
	remote   bool // serves another process, whose commands name no calls
}

func (e *engine) dial(context.Context, string, string) (net.Conn, error) { return e.newConn(), nil }

func (e *engine) newConn() *conn {
	c := &conn{engine: e, call: &call{}}
	c.Conn, _ = net.Pipe()
	c.commands, c.answers = bufio.NewReader(&c.in), writer{Writer: bufio.NewWriter(&c.out)}
	return c
}

// Write accepts all of b. It also frees the buffers if an earlier pipeline made them large.
func (c *conn) Write(b []byte) (int, error) {
	if c.in.Len() == 0 && c.out.Len() == 0 && c.in.Cap()+c.out.Cap() > maxChunk {
		c.in, c.out = bytes.Buffer{}, bytes.Buffer{}
	}
	return c.in.Write(b)
}

// Read runs the next command if no answer is left to be read.
func (c *conn) Read(b []byte) (int, error) {
	for c.out.Len() == 0 {
		command, err := readCommand(c.commands)
		if err == nil {
			err = c.run(command)
		}
		if err != nil {
			return 0, err
		}
	}
	return c.out.Read(b)
}

// run executes a command and writes the answer.
func (c *conn) run(words []string) error {
	if text, ok := strings.CutPrefix(words[0], tagMark); ok && !c.remote {
		name, command, _ := strings.Cut(text, "\x00")
		words[0], c.call = command, &call{lazy: true} // in case nobody waits anymore
		if named, found := c.engine.calls.Load(name); found {
			c.call = named.(*call)
		}
	}
	reply, err := c.answer(words)
	if err != nil {
		return err
	}
	c.answers.reply(reply)
	return c.answers.Flush()
}

func (c *conn) answer(words []string) (any, error) {
	switch name := strings.ToUpper(words[0]); {
	case name == "HELLO":
		c.answers.resp3 = len(words) > 1 && words[1] == "3"
		return mapReply{"server", "redis", "proto", strconv.Itoa(2 + int(count(c.answers.resp3)))}, nil
	case name == "MULTI":
		c.multi, c.queue = true, nil
		return okReply, nil
	case name == "DISCARD" && c.multi:
		c.multi, c.queue = false, nil
		return okReply, nil
	case name == "EXEC" && c.multi:
		replies, err := c.engine.do(c.call, c.queue...)
		c.multi, c.queue = false, nil
		return arrayReply(replies), err
	case c.multi:
		c.queue = append(c.queue, words)
		return statusReply("QUEUED"), nil
	}
	replies, err := c.engine.do(c.call, words)
	if err != nil {
		return nil, err
	}
	return replies[0], nil
}

// tagMark begins the name of a command that also names its call.
const tagMark = "\x00call "

// A tag holds the name of a command and the name of its call. String returns only the name of the
// command, so that hooks of the client see nothing else.
type tag struct{ call, name string }

var _ encoding.BinaryMarshaler = tag{}

// MarshalBinary returns both names, as they are sent to the engine.
func (t tag) MarshalBinary() ([]byte, error) { return []byte(tagMark + t.call + "\x00" + t.name), nil }

func (t tag) String() string { return t.name }

// tagAll tags commands until restore is called.
func tagAll(cmds []redis.Cmder, call string) (restore func()) {
	names := make([]any, len(cmds))
	for i, cmd := range cmds {
		names[i] = cmd.Args()[0]
		cmd.Args()[0] = tag{call, cmd.Name()}
	}
	return func() {
		for i, cmd := range slices.Backward(cmds) {
			cmd.Args()[0] = names[i]
		}
	}
}
