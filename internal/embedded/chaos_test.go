package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const servingEnv = "USERDB_EMBEDDED_TEST_SERVE"

// serveForChaos opens and serves the store at path until standard input ends. Each line there sets
// the state of the disk: "good", "full" or "slow".
func serveForChaos(path string) error {
	compactSlack = 64 << 10 // so that the file is rewritten all the time
	var state atomic.Value
	state.Store("good")
	d := &testDisk{before: func(step string) error {
		switch {
		case state.Load() == "full" && (step == "write" || step == "create") && rand.IntN(3) > 0:
			return syscall.ENOSPC
		case state.Load() == "full" && step == "sync" && rand.IntN(5) == 0:
			return syscall.EIO
		case state.Load() == "slow" && step == "sync":
			time.Sleep(rand.N(200 * time.Millisecond))
		}
		return nil
	}}
	s, err := openOn(context.Background(), d, path)
	if err != nil {
		return err
	}
	stop, err := s.Serve()
	if err != nil {
		return err
	}
	fmt.Println("serving")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		state.Store(lines.Text())
	}
	state.Store("good")
	return errors.Join(stop(), s.Close())
}

// A counter is a record that one client increments and all clients read. Its fields bound the
// values that may be read.
type counter struct {
	mu sync.Mutex
	// least is the largest value that was acknowledged or read. No later read may return less.
	least int64
	// most is the largest value that can have been written. No read may return more.
	most int64
	// last is the largest value that was sent, even if it was refused. A backup may have it.
	last int64
}

// chaos holds the state of a run.
type chaos struct {
	t        *testing.T
	path     string
	counters []counter
	changes  atomic.Int64 // acknowledged
	refused  atomic.Int64 // because of the disk
	reads    atomic.Int64
	backups  atomic.Int64
}

// TestChaos serves a store from a process that is killed and whose disk is full or slow at times,
// while clients change and read it through the socket, compact it and copy its file. It begins with
// a file of JSON lines. No acknowledged change is lost, no refused one is seen, no reader sees what
// is undone later, and every copy is whole.
//
//	make chaos KIND=file MINUTES=30
func TestChaos(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the socket needs Unix")
	}
	t.Parallel()
	length := 3 * time.Second
	if minutes, err := strconv.ParseFloat(os.Getenv("USERDB_CHAOS_MINUTES"), 64); err == nil {
		length = time.Duration(minutes * float64(time.Minute))
	}
	c := &chaos{t: t, path: filepath.Join(t.TempDir(), "f"), counters: make([]counter, 8)}
	var old []record
	for i := range 200 {
		old = append(old, record{Key: fmt.Sprintf("old/%03d", i), String: text("v")})
	}
	if err := os.WriteFile(c.path, encoded(t, old), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), length+3*time.Minute)
	defer stop()
	var clients sync.WaitGroup
	clients.Go(func() { c.copyFiles(ctx) })
	for i := range c.counters {
		clients.Go(func() { c.client(ctx, i) })
	}
	some := func() bool {
		return c.changes.Load() > 0 && c.refused.Load() > 0 && c.reads.Load() > 0 && c.backups.Load() > 0
	}
	kills := 0
	// On a busy machine a process needs longer to start, and the disk may happen not to be full.
	for begin := time.Now(); ctx.Err() == nil && (time.Since(begin) < length || !some()); kills++ {
		serveForAWhile(ctx, t, c.path, "good", "full", "slow")
	}
	stop()
	clients.Wait()
	s := open(t, c.path)
	for i := range c.counters {
		n, err := s.Client().HGet(t.Context(), c.key(i), "n").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Error(err)
		}
		c.judge(i, n, c.counters[i].least, "at the end")
	}
	if got := s.Client().Keys(t.Context(), "old/*").Val(); len(got) != len(old) {
		t.Errorf("%d of %d records of the file of JSON lines are left", len(got), len(old))
	}
	t.Logf("%d kills, %d changes, %d refused, %d reads, %d copies", kills, c.changes.Load(), c.refused.Load(), c.reads.Load(), c.backups.Load())
	if !some() {
		t.Error("too little happened; want at least one change, one refused change, one read and one copy")
	}
}

func (c *chaos) key(i int) string { return fmt.Sprint("counter/", i) }

// serveForAWhile runs a process that has the file, on a disk that changes between the given states,
// and then kills or stops it.
func serveForAWhile(ctx context.Context, t *testing.T, path string, disk ...string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), servingEnv+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != "serving" {
		t.Errorf("the process that has the file said %q, want serving", lines.Text())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() {
			t.Errorf("the process that has the file said %q, want nothing more", lines.Text())
		}
	}()
	for range 1 + rand.IntN(4) {
		fmt.Fprintln(in, disk[rand.IntN(len(disk))])
		select {
		case <-time.After(rand.N(400 * time.Millisecond)):
		case <-ctx.Done():
		}
	}
	if rand.IntN(4) > 0 {
		_ = cmd.Process.Kill()
	}
	in.Close()
	<-ended
	_ = cmd.Wait() // the kill is an error
}

// client increments one counter and reads all until ctx ends.
func (c *chaos) client(ctx context.Context, own int) {
	var s *Store
	defer func() {
		if s != nil {
			s.Close()
		}
	}()
	for ctx.Err() == nil {
		if s == nil {
			s = c.connect(ctx)
			continue
		}
		var err error
		switch n := rand.IntN(1000); {
		case n == 0:
			if _, failed := s.Compact(ctx); failed != nil {
				err = ErrUnsaved // it was not compacted, or the process was killed
			}
		case n%2 == 0:
			err = c.increment(ctx, s, own)
		default:
			err = c.read(ctx, s, rand.IntN(len(c.counters)))
		}
		if err != nil && !errors.Is(err, ErrUnsaved) {
			s.Close() // the process was killed
			s = nil
		}
	}
}

// connect returns a client of the process that has the file, or nil if there is none at the moment.
func (c *chaos) connect(ctx context.Context) *Store {
	// Open would take the file if nobody has it.
	client := dialServed(ctx, c.path)
	if client == nil {
		time.Sleep(5 * time.Millisecond)
		return nil
	}
	return &Store{client: client, remote: true, close: client.Close}
}

func (c *chaos) increment(ctx context.Context, s *Store, i int) error {
	k := &c.counters[i]
	k.mu.Lock()
	next := k.most + 1
	k.most, k.last = next, max(k.last, next)
	k.mu.Unlock()
	err := s.Client().HSet(ctx, c.key(i), "n", next, "text", strings.Repeat("x", rand.IntN(2000))).Err()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil:
		c.changes.Add(1)
		k.least = max(k.least, next)
	case errors.Is(err, ErrUnsaved):
		c.refused.Add(1)
		if k.least >= next {
			c.t.Errorf("%s: %d was read, although writing it was refused", c.key(i), next)
		}
		k.most = max(k.least, next-1)
	}
	return err
}

func (c *chaos) read(ctx context.Context, s *Store, i int) error {
	k := &c.counters[i]
	k.mu.Lock()
	least := k.least
	k.mu.Unlock()
	n, err := s.Client().HGet(ctx, c.key(i), "n").Int64()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	if err == nil {
		c.reads.Add(1)
		c.judge(i, n, least, "while it ran")
	}
	return err
}

// copyFiles copies the file again and again, and checks the copies.
func (c *chaos) copyFiles(ctx context.Context) {
	to := filepath.Join(c.t.TempDir(), "copy")
	for ctx.Err() == nil {
		var least [8]int64
		for i := range c.counters {
			c.counters[i].mu.Lock()
			least[i] = c.counters[i].least
			c.counters[i].mu.Unlock()
		}
		if _, err := Backup(c.path, to); err != nil {
			c.t.Error("copying: ", err)
			return
		}
		for i, n := range c.counts(to) {
			c.counters[i].mu.Lock()
			if n < least[i] || n > c.counters[i].last {
				c.t.Errorf("%s is %d in a copy, want %d to %d", c.key(i), n, least[i], c.counters[i].last)
			}
			c.counters[i].mu.Unlock()
		}
		if err := os.Remove(to); err != nil {
			c.t.Error(err)
		}
		c.backups.Add(1)
		time.Sleep(20 * time.Millisecond)
	}
}

// counts returns the counters in a copy of the file.
func (c *chaos) counts(path string) (all [8]int64) {
	s, d := &Store{disk: osDisk{}, path: path}, newData()
	if err := s.readFile(d); err != nil {
		c.t.Error(err)
		return all
	}
	if s.log != nil {
		s.log.file.Close()
	}
	for i := range all {
		if text, ok := getField(d, []string{c.key(i), "n"}).(string); ok {
			all[i], _ = strconv.ParseInt(text, 10, 64)
		}
	}
	return all
}

// judge checks a value that was read. least is the counter's least when the read began.
func (c *chaos) judge(i int, n, least int64, when string) {
	k := &c.counters[i]
	k.mu.Lock()
	defer k.mu.Unlock()
	if n < least || n > k.most {
		c.t.Errorf("%s was read as %d %s, want %d to %d", c.key(i), n, when, least, k.most)
	}
	k.least = max(k.least, n)
}
