package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func open(t testing.TB, path string) *Store {
	t.Helper()
	return openDisk(t, path, osDisk{})
}

func openDisk(t testing.TB, path string, d disk) *Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for the lock of another process
	defer cancel()
	s, err := openOn(ctx, d, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "new", "userdb.jsonl") }

// onDisk reads the records of the file as another process would, in the form that dump returns.
func onDisk(t testing.TB, path string) map[string]string {
	t.Helper()
	s := &Store{disk: osDisk{}, path: path}
	d := newData()
	if err := s.readFile(d); err != nil {
		t.Fatal(err)
	}
	if s.log != nil {
		s.log.file.Close()
	}
	return dump(d.root)
}

// dump returns all records, each as text that shows its type, its value and when it expires.
func dump(r root) map[string]string {
	all := map[string]string{}
	r.keys.Scan(func(key string, o *object) bool {
		var value any
		switch v := o.value.(type) {
		case string:
			value = v
		case *hash:
			var pairs [][2]string
			v.ascend("", func(field, value string) bool {
				pairs = append(pairs, [2]string{field, value})
				return true
			})
			value = pairs
		case *set:
			value = v.keys()
		case *zset:
			value = v.byRank()
		case *list:
			value = v.items
		case *stream:
			var entries []string
			v.ascend("", func(id string, fields []string) bool {
				entries = append(entries, fmt.Sprintf("%v %q", parseStreamKey(id), fields))
				return true
			})
			value = fmt.Sprint(entries, v.last)
		}
		all[key] = fmt.Sprintf("%T %q %d", o.value, value, o.until)
		return true
	})
	return all
}

// do runs commands, each a line of words, and fails t on any error.
func do(t testing.TB, c redis.Cmdable, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if err := pipe(t.Context(), c, command); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
}

// pipe runs commands in one pipeline and returns the first error.
func pipe(ctx context.Context, c redis.Cmdable, commands ...string) error {
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, command := range commands {
			var args []any
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			p.Do(ctx, args...)
		}
		return nil
	})
	return err
}

func TestEveryTypeSurvives(t *testing.T) {
	path := file(t)
	s := open(t, path)
	do(t, s.Client(), "SET s v", "HSET h f v", "RPUSH l b a b", "SADD set b a", "ZADD z 1.5 m -inf n", "SET gone 1", "DEL gone", "PEXPIREAT h 4000000000123")
	want := dump(s.engine.data.root)
	if len(want) != 5 || !strings.HasSuffix(want["h"], " 4000000000123") {
		t.Fatalf("in memory: got %v; want 5 records, and h with its expiry time", want)
	}
	if got := onDisk(t, path); !reflect.DeepEqual(got, want) {
		t.Fatalf("before Close: got %+v, want %+v", got, want)
	}
	closeStore(t, s)
	s = open(t, path)
	do(t, s.Client(), "SET another 1", "DEL another")
	if got := onDisk(t, path); !reflect.DeepEqual(got, want) {
		t.Errorf("after Open: got %+v, want %+v", got, want)
	}
}

// TestScripts checks that scripts read and write like commands, even if they were loaded before.
func TestScripts(t *testing.T) {
	path := file(t)
	s := open(t, path)
	script := redis.NewScript(`redis.call('SET', KEYS[1], ARGV[1]) return redis.call('TIME')[1]`)
	if err := script.Run(t.Context(), s.Client(), []string{"k"}, "v").Err(); err != nil {
		t.Fatal(err)
	}
	if err := script.EvalSha(t.Context(), s.Client(), []string{"k2"}, "v").Err(); err != nil {
		t.Fatal(err)
	}
	if got := onDisk(t, path); len(got) != 2 {
		t.Errorf("on disk: got %+v, want two records", got)
	}
}

// TestWritesOnlyChanges checks that only changes cause writes, however they are sent.
func TestWritesOnlyChanges(t *testing.T) {
	s, syncs := openCounting(t, file(t))
	do(t, s.Client(), "SET first v")
	tests := []struct {
		name     string
		commands []string
		writes   int
	}{
		{"set", []string{"SET k v"}, 1},
		{"pipeline", []string{"SET a 1", "SET b 2", "GET a"}, 1},
		{"transaction", []string{"MULTI", "SET c 1", "INCR c", "EXEC"}, 1},
		{"script", []string{"EVAL return(redis.call('INCR',KEYS[1])) 1 c"}, 1},
		{"script in a transaction", []string{"MULTI", "EVAL return(redis.call('INCR',KEYS[1])) 1 c", "EXEC"}, 1},
		{"reads", []string{"GET k", "EXISTS k", "SCAN 0", "TTL k", "DBSIZE", "PING", "TIME"}, 0},
		{"reading script", []string{"EVAL return(redis.call('GET',KEYS[1])) 1 k"}, 0},
		{"reading transaction", []string{"MULTI", "GET k", "EXEC"}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := syncs.Load()
			if err := pipe(t.Context(), s.Client(), test.commands...); err != nil {
				t.Fatal(err)
			}
			if got := int(syncs.Load() - before); got != test.writes {
				t.Errorf("%d writes, want %d", got, test.writes)
			}
		})
	}
}

// TestTransactionAfterWrite checks that a transaction that is queued before a write and runs after
// it is in the next write.
func TestTransactionAfterWrite(t *testing.T) {
	path := file(t)
	s := open(t, path)
	conn := s.Client().Conn()
	defer conn.Close()
	for _, command := range []string{"MULTI", "SET k v"} {
		if err := pipe(t.Context(), conn, command); err != nil {
			t.Fatal(err)
		}
	}
	do(t, s.Client(), "SET other 1")
	if err := pipe(t.Context(), conn, "EXEC"); err != nil {
		t.Fatal(err)
	}
	if got := onDisk(t, path); len(got) != 2 {
		t.Errorf("on disk: got %+v, want two records", got)
	}
}

func TestExpiry(t *testing.T) {
	path := file(t)
	s := open(t, path)
	do(t, s.Client(), "SET short v PX 40", "SET long v EX 1000", "SET ever v")
	closeStore(t, s)
	s = open(t, path)
	for s.Client().Exists(t.Context(), "short").Val() == 1 {
		time.Sleep(time.Millisecond) // time passes in the store, so this ends
	}
	do(t, s.Client(), "SET another v")
	got := onDisk(t, path)
	if len(got) != 3 || !strings.HasSuffix(got["ever"], " 0") || strings.HasSuffix(got["long"], " 0") {
		t.Errorf("got %v, want long, which expires, ever and another", got)
	}
}

// TestLongPipeline checks a pipeline with 20 MB of commands and 20 MB of answers. A client sends
// all of a pipeline before it reads an answer, so the connection must buffer all commands.
func TestLongPipeline(t *testing.T) {
	s := open(t, "")
	big := strings.Repeat("x", 2000)
	cmds, err := s.Client().Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 10_000 {
			p.Set(t.Context(), fmt.Sprint(i), big, 0)
			p.Get(t.Context(), fmt.Sprint(i))
		}
		return nil
	})
	if err != nil || len(cmds) != 20_000 {
		t.Fatalf("got %d answers, error %v; want 20000 and no error", len(cmds), err)
	}
	for i := 1; i < len(cmds); i += 2 {
		if got := cmds[i].(*redis.StringCmd).Val(); got != big {
			t.Fatalf("answer %d: got %d bytes, want %d", i, len(got), len(big))
		}
	}
}

func TestNothingListens(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	sockets := func() (n int) {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if target, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasPrefix(target, "socket:") {
				n++
			}
		}
		return n
	}
	before := sockets()
	do(t, open(t, file(t)).Client(), "SET k v")
	if after := sockets(); after != before {
		t.Errorf("got %d sockets, want %d as before", after, before)
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no modes")
	}
	path := file(t)
	s := open(t, path)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file before the first change: got %v, want fs.ErrNotExist", err)
	}
	do(t, s.Client(), "SET k v")
	for name, want := range map[string]fs.FileMode{path: 0o600, path + ".lock": 0o600, filepath.Dir(path): 0o700 | fs.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: got %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// TestManyWriters checks that changes of many writers are all saved, and that those which wait for
// the disk share a write.
func TestManyWriters(t *testing.T) {
	const writers = 64
	path := file(t)
	var s *Store
	var syncs atomic.Int64
	allWait := func() bool {
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		return len(s.engine.pending) == writers
	}
	s = openDisk(t, path, &testDisk{before: func(step string) error {
		if step == "sync" && syncs.Add(1) == 1 {
			for !allWait() {
				runtime.Gosched()
			}
		}
		return nil
	}})
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for j := range 5 {
				if err := s.Client().Set(t.Context(), fmt.Sprintf("%d-%d", i, j), "v", 0).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := len(onDisk(t, path)); got != 320 {
		t.Errorf("%d records on disk, want 320", got)
	}
	if got := syncs.Load(); got > 320-writers/2 {
		t.Errorf("%d writes for 320 changes, of which %d waited for one of them", got, writers-1)
	}
}

func TestClose(t *testing.T) {
	for _, path := range []string{"", file(t)} {
		s := open(t, path)
		do(t, s.Client(), "SET k v")
		for range 2 {
			closeStore(t, s)
		}
		if err := s.Client().Get(t.Context(), "k").Err(); err == nil {
			t.Error("a command after Close: no error")
		}
	}
}

// TestCloseWhileWriting closes a store under load, and checks that every change that was answered
// is in the file.
func TestCloseWhileWriting(t *testing.T) {
	path := file(t)
	s := open(t, path)
	var all sync.WaitGroup
	var done sync.Map
	for i := range 8 {
		all.Go(func() {
			for j := 0; ; j++ {
				key := fmt.Sprintf("%d-%d", i, j)
				if s.Client().Set(context.Background(), key, "v", 0).Err() != nil {
					return
				}
				done.Store(key, true)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	closeStore(t, s)
	all.Wait()
	got := onDisk(t, path)
	done.Range(func(key, _ any) bool {
		if got[key.(string)] == "" {
			t.Errorf("the answered change %v is not in the file", key)
		}
		return true
	})
}

func TestCancelled(t *testing.T) {
	s := open(t, file(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := s.Client().Set(ctx, "k", "v", 0).Err(); !errors.Is(err, context.Canceled) || err.Error() != "context canceled: enough" {
		t.Errorf("got %v, want context canceled: enough", err)
	}
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "userdb")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	for range 2 {
		s, err := Open(ctx, filepath.Join(dir, "userdb.jsonl"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.Client().Incr(ctx, "opened").Val())
		s.Close()
	}
	// Output:
	// 1
	// 2
}

// TestCloseWaitsForCommands checks that Close waits for a running command, and that no command runs
// after Close.
func TestCloseWaitsForCommands(t *testing.T) {
	s := open(t, "")
	conn, err := s.engine.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	s.engine.mu.Lock() // like a running command
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
		t.Error("Close does not wait")
	case <-time.After(20 * time.Millisecond):
	}
	s.engine.mu.Unlock()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, ErrClosed) {
		t.Errorf("a command after Close: got %v, want ErrClosed", err)
	}
}

func TestExists(t *testing.T) {
	path := file(t)
	if Exists(path) {
		t.Error("a store exists before it was created")
	}
	if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory after Exists: got %v, want fs.ErrNotExist", err)
	}
	s := open(t, path)
	if !Exists(path) {
		t.Error("an open store without records does not exist")
	}
	do(t, s.Client(), "set k v")
	closeStore(t, s)
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if !Exists(path) {
		t.Error("a copy of a store does not exist")
	}
}
