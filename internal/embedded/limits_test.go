package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
)

// TestLimitsAsRedis compares the replies to commands at the limits of numbers and IDs with those of
// a real server.
func TestLimitsAsRedis(t *testing.T) {
	real, ours := redistest.Start(t).Client(), open(t, "").Client()
	for _, line := range []string{
		"SET n 9223372036854775806", "INCR n", "INCR n", "GET n",
		"XADD s 4-7 a b", "XADD s 4-* a b", "XADD s 5-* a b", "XADD s 4-* a b", "XADD s 5-1-* a b", "XADD s -* a b", "XADD zero 0-* a b", "XRANGE s - (5-0", "XRANGE s - (4-7", "XRANGE s (4-7 +", "XREVRANGE s (5-0 -",
		"XRANGE s (4-18446744073709551615 +", "XRANGE s (18446744073709551615-18446744073709551615 +", "XRANGE s - (0-0",
		"XRANGE s - + COUNT -1", "XRANGE s - + COUNT 0", "XREVRANGE s + - COUNT -5",
		"RPUSH l a b a", "LREM l -9223372036854775807 a", "LRANGE l 0 -1", "EVAL x=1 0",
	} {
		var words []any
		for word := range strings.FieldsSeq(line) {
			words = append(words, word)
		}
		got, want := showReply("", ours.Do(t.Context(), words...)), showReply("", real.Do(t.Context(), words...))
		if strings.Contains(line, "COUNT") && strings.Contains(want, "nil") {
			want = "[]" // Redis then replies nil, which clients read as an empty list
		}
		if got != want {
			t.Errorf("%s: got %s, want %s as from Redis", line, got, want)
		}
	}
	if got, err := ours.Do(t.Context(), "LREM", "l", "-9223372036854775808", "b").Int(); got != 1 || err != nil {
		t.Errorf("LREM with the lowest count: got %d, %v; want 1", got, err)
	}
}

// TestSocketPackets sends what our own clients never send: COMPACT together with other commands,
// and a command whose name refers to a call inside the serving process.
func TestSocketPackets(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "f"))
	do(t, s.Client(), "SET k v")
	stop, err := s.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := net.Dial("unix", s.path+socketSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	lines := func(n int) (lines []string) {
		for range n {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines
	}
	send := func(text string) {
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	ping, compact := "*1\r\n$4\r\nPING\r\n", "*1\r\n$7\r\nCOMPACT\r\n"
	send(ping + compact + ping + compact)
	if got := lines(16); got[0] != "+PONG" || got[1] != "*3" || got[8] != "+PONG" || got[9] != "*3" {
		t.Errorf("got %q, want all four answered in turn", got)
	}
	// A client of the socket cannot refer to a call inside this process.
	call := &call{}
	s.engine.calls.Store("x", call)
	name := tagMark + "x\x00SET"
	send(fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$1\r\na\r\n$1\r\nv\r\n", len(name), name))
	if got := lines(1); !strings.HasPrefix(got[0], "-ERR unknown command") || call.span != nil {
		t.Errorf("got %q, want an error for an unknown command", got)
	}
}

// TestCloseRemovesTornWrite checks that a refused change is removed from the file when the store is
// closed, if it could not be removed before.
func TestCloseRemovesTornWrite(t *testing.T) {
	failing := false
	s := openDisk(t, file(t), &testDisk{before: func(step string) error {
		if failing && (step == "sync" || step == "truncate") {
			return syscall.EIO
		}
		return nil
	}})
	do(t, s.Client(), "SET old v")
	before, err1 := os.Stat(s.path)
	failing = true
	if err := s.Client().Set(t.Context(), "new", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Fatalf("got %v, want ErrUnsaved", err)
	}
	failing = false
	closeStore(t, s)
	if after, err := os.Stat(s.path); errors.Join(err1, err) != nil || after.Size() != before.Size() {
		t.Errorf("errors %v and %v; want none, and the size of the file as before", err1, err)
	}
}

// TestSourceIsNotCreated checks that no directory is created for a file that is only read.
func TestSourceIsNotCreated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "no", "f")
	_, err1 := Backup(path, filepath.Join(dir, "b"))
	_, err2 := Salvage(path, filepath.Join(dir, "s"))
	_, err := os.Stat(filepath.Dir(path))
	for _, err := range []error{err1, err2, err} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want fs.ErrNotExist", err)
		}
	}
}
