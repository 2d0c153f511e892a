package embedded

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// Other processes of this user use an open store through a socket next to its file: a process that
// finds the file locked sends its commands to the one that holds the lock.

const socketSuffix = ".sock"

// maxBatch limits how many commands of one connection are answered, and written to the file,
// together.
const maxBatch = 256

// closeGrace limits how long a client may take to read the last answers after its connection was
// closed for reading.
const closeGrace = 2 * time.Second

// Serve lets other processes of this user use the store through a socket next to the file, until
// stop is called. Open dials that socket if the file is locked. Serve returns ErrServed if this
// store is itself a client of a process that serves the file. For a store in memory, it does
// nothing.
func (s *Store) Serve() (stop func() error, err error) {
	if s.remote {
		return nil, ErrServed
	}
	if s.path == "" {
		return func() error { return nil }, nil
	}
	l, err := s.listen()
	if err != nil {
		return nil, fmt.Errorf("creating the socket of the embedded store: %w", err)
	}
	var conns sync.WaitGroup
	open := &connections{all: map[net.Conn]bool{}}
	conns.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			if open.add(c) {
				conns.Go(func() {
					defer open.remove(c)
					s.serve(c)
				})
			}
		}
	})
	return func() error {
		err := errors.Join(l.Close(), ignoreMissing(os.Remove(s.path+socketSuffix)))
		open.close()
		conns.Wait()
		return err
	}, nil
}

// listen creates a socket that only this user can use. It does so in a new private directory, and
// then moves the socket to its place, where it replaces one that a killed process may have left.
func (s *Store) listen() (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(s.path), ".sock")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	temp := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, s.path+socketSuffix)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// connections holds the open connections of a socket.
type connections struct {
	mu     sync.Mutex
	all    map[net.Conn]bool
	closed bool
}

func (o *connections) add(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		c.Close()
		return false
	}
	o.all[c] = true
	return true
}

func (o *connections) remove(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, c)
	c.Close()
}

// close ends all connections, and makes add refuse new ones. Commands that were already received
// are still answered, if the client reads the answers within closeGrace.
func (o *connections) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for c := range o.all {
		_ = c.SetWriteDeadline(time.Now().Add(closeGrace)) // fails if the connection has ended
		if half, ok := c.(interface{ CloseRead() error }); !ok || half.CloseRead() != nil {
			c.Close()
		}
	}
}

// serve answers the commands of one connection until it ends.
func (s *Store) serve(c net.Conn) {
	in, out := bufio.NewReader(c), bufio.NewWriter(c)
	local := s.engine.newConn()
	local.remote = true
	for {
		var batch [][]string
		compact := false
		for more := true; more; more = !compact && in.Buffered() > 0 && len(batch) < maxBatch {
			command, err := readCommand(in)
			if err != nil {
				return
			}
			if compact = strings.EqualFold(command[0], compactCommand); !compact {
				batch = append(batch, command)
			}
		}
		if err := s.answer(local, batch); err != nil {
			local.out.Reset()
			for range batch {
				fmt.Fprintf(&local.out, "-%s\r\n", toWire(err))
			}
		}
		if compact {
			s.answerCompact(local)
		}
		if _, err := local.out.WriteTo(out); err != nil || out.Flush() != nil {
			return
		}
	}
}

// answer runs commands. It runs them again, up to maxReads times in all, if they wrote nothing and
// read changes that were then undone. It returns when the changes that they made or read are in the
// file.
func (s *Store) answer(c *conn, batch [][]string) error {
	for reads := 1; ; reads++ {
		c.call = &call{}
		queue, multi := c.queue, c.multi
		var err error
		for _, command := range batch {
			if err = c.run(command); err != nil {
				break
			}
		}
		err = cmp.Or(c.call.undone, err, s.engine.wait(context.Background(), c.call))
		if !errors.Is(err, ErrUnsaved) || c.call.wrote || reads == maxReads {
			return err
		}
		c.out.Reset()
		c.queue, c.multi = queue, multi
	}
}

// compactCommand asks the process that has the file to compact it.
const compactCommand = "COMPACT"

func (s *Store) answerCompact(c *conn) {
	result, err := s.Compact(context.Background())
	if err != nil {
		c.answers.reply(errorReply(toWire(err)))
	} else {
		c.answers.reply(textsReply{strconv.FormatInt(result.Before, 10), strconv.FormatInt(result.After, 10), result.Removed})
	}
	_ = c.answers.Flush() // cannot fail: it writes into memory
}

func compactRemote(ctx context.Context, c *redis.Client) (result CompactResult, err error) {
	texts, err := c.Do(ctx, compactCommand).StringSlice()
	if err != nil {
		return result, err
	}
	if len(texts) != 3 {
		return result, errProtocol
	}
	before, err1 := strconv.ParseInt(texts[0], 10, 64)
	after, err2 := strconv.ParseInt(texts[1], 10, 64)
	return CompactResult{before, after, texts[2]}, errors.Join(err1, err2)
}

// wireErrors holds the code words by which errors of the store are sent over a socket.
var wireErrors = []struct {
	word string
	all  []error // errors that the word stands for; the first one identifies it
}{
	{"USERDBFULL", []error{ErrFull, ErrUnsaved}},
	{"USERDBUNSAVED", []error{ErrUnsaved}},
	{"USERDBPARTLY", []error{ErrPartlySaved}},
	{"USERDBCLOSED", []error{ErrClosed}},
}

func toWire(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	for _, w := range wireErrors {
		if errors.Is(err, w.all[0]) {
			return w.word + " " + text
		}
	}
	return "ERR " + text
}

// A wireError is an error of the store that another process returned.
type wireError struct {
	text string
	all  []error
}

func (e *wireError) Error() string { return e.text }

// Unwrap returns the errors of this package that the error matches.
func (e *wireError) Unwrap() []error { return e.all }

// dialServed returns a client of the process that serves the file at path, or nil if no process
// does.
func dialServed(ctx context.Context, path string) *redis.Client {
	path += socketSuffix
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket || privatefile.CheckOwner(info) != nil {
		return nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil
	}
	c.Close()
	o := clientOptions(func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) })
	o.ContextTimeoutEnabled, o.PoolSize = true, 10
	client := redis.NewClient(o)
	client.AddHook(remoteErrors{})
	return client
}

// A remoteErrors hook turns the errors that another process sent into errors of this package.
type remoteErrors struct{}

func (remoteErrors) DialHook(next redis.DialHook) redis.DialHook { return next }

func (remoteErrors) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if wire := fromWire(err); wire != nil {
			cmd.SetErr(wire)
			return wire
		}
		return err
	}
}

func (remoteErrors) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if wire := fromWire(cmd.Err()); wire != nil {
				cmd.SetErr(wire)
				err = wire
			}
		}
		return err
	}
}

func fromWire(err error) error {
	if err == nil {
		return nil
	}
	for _, w := range wireErrors {
		if text, ok := strings.CutPrefix(err.Error(), w.word+" "); ok {
			return &wireError{text, w.all}
		}
	}
	return nil
}
