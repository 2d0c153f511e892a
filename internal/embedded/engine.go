package embedded

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// An engine is miniredis without a listener, and knows when a record changes.
type engine struct {
	mini    *miniredis.Miniredis
	srv     *server.Server
	version atomic.Uint64 // of the records: grows before every change of one
	clock   clock

	mu    sync.Mutex
	open  map[net.Conn]bool
	conns sync.WaitGroup
}

func newEngine() (*engine, error) {
	e := &engine{mini: miniredis.NewMiniRedis(), open: map[net.Conn]bool{}}
	// The first connection starts miniredis without a listener. Its own
	// connections are not used: they stop reading while an answer waits to be
	// read, and so would hang on a long pipeline.
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

// dial returns a new connection to the engine.
func (e *engine) dial() (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		return nil, ErrClosed
	}
	client, conn := net.Pipe()
	e.open[conn] = true
	e.conns.Add(1)
	go e.serve(conn)
	return client, nil
}

func (e *engine) close() {
	e.mu.Lock()
	for conn := range e.open {
		conn.Close()
	}
	e.open = nil
	e.mu.Unlock()
	e.conns.Wait()
	e.mini.Close()
}

func (e *engine) serve(conn net.Conn) {
	defer e.conns.Done()
	out := newOutbox(conn)
	defer out.close()
	in := bufio.NewReader(conn)
	s := session{engine: e, peer: server.NewPeer(bufio.NewWriter(out))}
	for !s.peer.Closed() {
		command, err := readCommand(in)
		if err != nil {
			break
		}
		s.run(command)
		s.peer.Flush()
	}
	e.mu.Lock()
	delete(e.open, conn)
	e.mu.Unlock()
}

// readCommand reads what clients send: an array of bulk strings.
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

// A session is one connection's state.
type session struct {
	engine *engine
	peer   *server.Peer
	queued bool // a change waits for EXEC
}

func (s *session) run(command []string) {
	e := s.engine
	e.tick()
	// Miniredis calls its hook when a command is queued, not when EXEC runs it.
	switch name := strings.ToUpper(command[0]); {
	case name == "MULTI":
		s.queued = false
	case name == "EXEC" && s.queued:
		e.version.Add(1)
	case e.changes(name):
		s.queued = true
	}
	e.srv.Dispatch(s.peer, command)
}

// before runs before every command, also those that scripts call.
func (e *engine) before(_ *server.Peer, name string, _ ...string) bool {
	if e.changes(name) {
		e.version.Add(1)
	}
	return false
}

// keepers are the commands that miniredis does not call read-only, and that
// change no record; of the records that a script changes, each call counts.
var keepers = strings.Fields("AUTH CLIENT CLUSTER COMMAND DISCARD ECHO EVAL EVALSHA EXEC HELLO INFO MEMORY MULTI OBJECT PING" +
	" PUBLISH PUBSUB QUIT SCRIPT SELECT TIME UNWATCH WAIT WATCH")

func (e *engine) changes(name string) bool {
	return e.srv.IsRegisteredCommand(name) && !e.srv.IsReadOnlyCommand(name) && !slices.Contains(keepers, name)
}

// mayChange is changes for a whole command of a client, scripts included.
func (e *engine) mayChange(name string) bool {
	name = strings.ToUpper(name)
	return e.changes(name) || name == "EVAL" || name == "EVALSHA" || name == "EXEC"
}

// snapshot copies all records, sorted by key, and says which version they are.
// No command may change one meanwhile.
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
		records = append(records, r)
	}
	return records, e.version.Load(), nil
}

// restore replaces all records, and returns the version that they are. No
// command may run meanwhile.
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

// A clock holds when the time of the store moves on. Its holder moves it.
type clock struct {
	sync.Mutex
	next time.Time
}

// tick moves time on, but not at every command: miniredis sorts all keys
// whenever time has passed, which takes 16 ms for 50,000 of them. So time
// stands still for twenty times as long as its last step took.
func (e *engine) tick() {
	if !e.clock.TryLock() {
		return
	}
	defer e.clock.Unlock()
	start := time.Now()
	if start.Before(e.clock.next) {
		return
	}
	e.setTime()
	end := time.Now()
	e.clock.next = end.Add(max(time.Millisecond, 20*end.Sub(start)))
}

// setTime tells miniredis the time, in whole milliseconds, so that a time to
// live is the same after a save and a load, and expires what is due.
func (e *engine) setTime() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	e.mini.SetTime(now)
	e.mini.DB(0)
	return now
}

// An outbox writes to a connection without ever making the writer wait. A
// client sends a whole pipeline before it reads the first answer; a server that
// waited until its answers are read would never read the rest of the pipeline.
type outbox struct {
	conn   net.Conn
	mu     sync.Mutex
	ready  sync.Cond
	buf    []byte
	closed bool
}

func newOutbox(conn net.Conn) *outbox {
	o := &outbox{conn: conn}
	o.ready.L = &o.mu
	go o.pump()
	return o
}

// Write takes all of b. It fails once the connection does.
func (o *outbox) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, net.ErrClosed
	}
	o.buf = append(o.buf, b...)
	o.ready.Signal()
	return len(b), nil
}

// close ends the connection after what was written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.ready.Signal()
}

func (o *outbox) pump() {
	defer o.conn.Close()
	for {
		b := o.take()
		if len(b) == 0 {
			return
		}
		if _, err := o.conn.Write(b); err != nil {
			o.close()
			return
		}
	}
}

// take waits for something to write; nothing means the end.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) == 0 && !o.closed {
		o.ready.Wait()
	}
	b := o.buf
	o.buf = nil
	return b
}
