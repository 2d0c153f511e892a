package embedded

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// An engine runs miniredis without a listener and counts the changes of its records.
type engine struct {
	mini    *miniredis.Miniredis
	srv     *server.Server
	now     func() time.Time
	version atomic.Uint64 // of the records; incremented before every change

	// clock is locked while the store's time advances or must not advance.
	clock     sync.Mutex
	nextTick  time.Time // when the time advances next
	testClock bool      // the time is that of a test's clock

	// gate is shared by running commands and locked exclusively by close.
	gate   sync.RWMutex
	closed bool
}

type clockKey struct{}

// WithClock returns a context in which Open opens a store whose records expire by a test's clock.
func WithClock(ctx context.Context, now func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, now)
}

func newEngine(ctx context.Context) (*engine, error) {
	e := &engine{mini: miniredis.NewMiniRedis(), now: time.Now}
	if now, given := ctx.Value(clockKey{}).(func() time.Time); given {
		e.now, e.testClock = now, true
	}
	// The first connection starts miniredis without a listener. It is not used further, because a
	// connection of miniredis stops reading while an answer waits to be read and so would block on
	// a long pipeline.
	conn, err := e.mini.Dial()
	if err != nil {
		return nil, fmt.Errorf("starting the embedded store: %w", err)
	}
	e.srv = e.mini.Server()
	e.srv.SetPreHook(e.before)
	e.mini.ClockTTL(true)
	e.tick()
	return e, conn.Close()
}

// A conn is a connection to the engine. A client writes a whole pipeline before it reads the first
// answer, so each command runs when its answer is read, on the client's goroutine.
type conn struct {
	net.Conn // one end of a pipe, for addresses and deadlines
	engine   *engine
	in, out  bytes.Buffer
	commands *bufio.Reader // reads from in
	peer     *server.Peer  // writes to out
	queued   bool          // a change is queued for EXEC
}

func (e *engine) dial(context.Context, string, string) (net.Conn, error) { return e.newConn(), nil }

func (e *engine) newConn() *conn {
	c := &conn{engine: e}
	c.Conn, _ = net.Pipe()
	c.commands, c.peer = bufio.NewReader(&c.in), server.NewPeer(bufio.NewWriter(&c.out))
	return c
}

// Write accepts all of b. It also frees the buffers that an earlier pipeline needed.
func (c *conn) Write(b []byte) (int, error) {
	if c.in.Len() == 0 && c.out.Len() == 0 {
		c.in, c.out = bytes.Buffer{}, bytes.Buffer{}
	}
	return c.in.Write(b)
}

// Read runs the next command if no answer is left to be read.
func (c *conn) Read(b []byte) (int, error) {
	for c.out.Len() == 0 {
		command, err := readCommand(c.commands)
		if err != nil {
			return 0, err
		}
		if err := c.run(command); err != nil {
			return 0, err
		}
	}
	return c.out.Read(b)
}

// readCommand reads a command, an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	reply, err := server.ParseReply(in)
	if err != nil {
		return nil, err
	}
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return nil, server.ErrProtocol
	}
	command := make([]string, len(list))
	for i := range list {
		if command[i], ok = list[i].(string); !ok {
			return nil, server.ErrProtocol
		}
	}
	return command, nil
}

func (c *conn) run(command []string) error {
	e := c.engine
	e.gate.RLock()
	defer e.gate.RUnlock()
	if e.closed {
		return ErrClosed
	}
	defer func() {
		if p := recover(); p != nil {
			// miniredis would keep its lock forever, so the process ends. The file stays as it was.
			go panic(p)
			select {}
		}
	}()
	e.tick()
	// miniredis calls its hook when a command is queued, not when EXEC runs it.
	switch name := strings.ToUpper(command[0]); {
	case name == "MULTI":
		c.queued = false
	case name == "EXEC" && c.queued:
		e.version.Add(1)
	case e.isWrite(name):
		c.queued = true
	}
	e.srv.Dispatch(c.peer, command)
	c.peer.Flush()
	return nil
}

// close waits for running commands and stops the engine.
func (e *engine) close() {
	e.gate.Lock()
	defer e.gate.Unlock()
	e.closed = true
	e.mini.Close()
}

// before runs before every command, including those that scripts call.
func (e *engine) before(_ *server.Peer, name string, _ ...string) bool {
	if e.isWrite(name) {
		e.version.Add(1)
	}
	return false
}

// nonWriters lists the commands that do not change a record although miniredis does not call them
// read-only. EVAL is one of them: the calls that a script makes count one by one.
var nonWriters = strings.Fields("AUTH CLIENT CLUSTER COMMAND DISCARD ECHO EVAL EVALSHA EXEC HELLO INFO MEMORY MULTI OBJECT PING" +
	" PUBLISH PUBSUB QUIT SCRIPT SELECT TIME UNWATCH WAIT WATCH")

func (e *engine) isWrite(name string) bool {
	return e.srv.IsRegisteredCommand(name) && !e.srv.IsReadOnlyCommand(name) && !slices.Contains(nonWriters, name)
}

// mayWrite reports whether a client's command may change records. Unlike isWrite, it counts
// scripts and EXEC.
func (e *engine) mayWrite(cmd redis.Cmder) bool {
	name := strings.ToUpper(cmd.Name())
	return e.isWrite(name) || name == "EVAL" || name == "EVALSHA" || name == "EXEC"
}

// snapshot returns a copy of all records, sorted by key, with their version. Before that, it
// deletes the expiring records that surplus names. No command may change a record meanwhile.
func (e *engine) snapshot() ([]record, uint64, error) {
	e.clock.Lock()
	defer e.clock.Unlock()
	now := e.setTime()
	db := e.mini.DB(0)
	keys := db.Keys()
	records := make([]record, 0, len(keys))
	for _, key := range keys {
		r, err := readRecord(db, key, now)
		if err != nil {
			return nil, 0, err
		}
		if r.Stream == nil || len(r.Stream) > 0 {
			records = append(records, r)
		}
	}
	deleted := surplus(records)
	for key := range deleted {
		db.Del(key)
	}
	records = slices.DeleteFunc(records, func(r record) bool { return deleted[r.Key] })
	return records, e.version.Load(), nil
}

// restore replaces all records and returns their version. No command may run meanwhile.
func (e *engine) restore(records []record) (uint64, error) {
	e.clock.Lock()
	defer e.clock.Unlock()
	e.mini.FlushAll()
	now := e.setTime()
	db := e.mini.DB(0)
	for _, r := range records {
		if err := r.put(db, now); err != nil {
			return 0, fmt.Errorf("loading %w", err)
		}
	}
	return e.version.Load(), nil
}

// tick advances the store's time, but not at every command: when time has advanced, miniredis sorts
// all keys, which takes 16 ms for 50,000 of them. So the time stays the same for twenty times as
// long as the last step took. A test's clock advances at once.
func (e *engine) tick() {
	if e.testClock {
		e.clock.Lock()
	} else if !e.clock.TryLock() {
		return
	}
	defer e.clock.Unlock()
	start := time.Now()
	if !e.testClock && start.Before(e.nextTick) {
		return
	}
	e.setTime()
	end := time.Now()
	e.nextTick = end.Add(max(time.Millisecond, 20*end.Sub(start)))
}

// setTime sets the time of miniredis, which removes the records that have expired. It uses whole
// milliseconds, so that a time to live survives saving and loading unchanged.
func (e *engine) setTime() time.Time {
	now := e.now().Truncate(time.Millisecond)
	e.mini.SetTime(now)
	e.mini.DB(0)
	return now
}
