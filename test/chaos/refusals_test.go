//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// commands are those that a server may be told to refuse, as often as they stand here. The first
// ones come late in scripts.
var commands = []string{
	"hdel", "hdel", "expire", "expire", "unlink", "pexpire", "persist", "srem", "hset", "set", "sadd", "xadd", "rename",
}

// forbid has a master refuse a command for a while, as one does whose operator takes a right away.
func (r *run) forbid(i int, command string, hold time.Duration) {
	node := r.raw[r.master(i)]
	r.must(node.Do(r.ctx, "ACL", "SETUSER", "default", "-"+command).Err())
	time.Sleep(hold)
	r.must(node.Do(r.ctx, "ACL", "SETUSER", "default", "+"+command).Err())
}

// fill has a master be out of memory for a while.
func (r *run) fill(i int, hold time.Duration) {
	node := r.raw[r.master(i)]
	r.must(node.ConfigSet(r.ctx, "maxmemory", "1").Err())
	time.Sleep(hold)
	r.must(node.ConfigSet(r.ctx, "maxmemory", "0").Err())
}

// fillDisk has the disk of a master be full after some bytes more, which no right of the machine is needed for: the system
// lets its process write no further into a file. The write that does not fit ends the process. It comes back with
// what the file has, up to the last complete transaction.
func (r *run) fillDisk(i, left int, hold time.Duration) {
	master := r.master(i)
	node := r.raw[master]
	pid := r.pidOf(node)
	dir, err := node.ConfigGet(r.ctx, "dir").Result()
	r.must(err)
	pattern, size := filepath.Join(dir["dir"], "appendonlydir", "*.incr.aof"), int64(0)
	files, err := filepath.Glob(pattern)
	r.must(err)
	for _, file := range files {
		info, err := os.Stat(file)
		r.must(err)
		size = max(size, info.Size())
	}
	r.must(unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size) + uint64(left), Max: unix.RLIM_INFINITY}, nil))
	time.Sleep(hold)
	if unix.Kill(pid, 0) == nil {
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil) // it may die just now
	}
	if _, err := node.Ping(r.ctx).Result(); err != nil && !strings.Contains(err.Error(), "NOPERM") {
		r.log("the disk of master %d was full: %v", i, err)
	}
	master.Kill()
	files, err = filepath.Glob(pattern)
	r.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		r.must(err)
		r.must(os.Truncate(file, int64(completeLength(text))))
	}
	master.Restart()
	r.settle()
}

// completeLength returns the length of the part of an append-only file that ends with its last
// complete transaction. Redis 7.0 itself cuts off no more than an incomplete command: what it
// leaves of a transaction it carries out at the next but one start, with the commands that follow.
// So half a script is there then, long after it was refused.
func completeLength(text []byte) (complete int) {
	open := false
	for at := 0; ; {
		command, n := commandAt(text[at:])
		if n == 0 {
			return complete
		}
		at += n
		switch strings.ToUpper(command) {
		case "MULTI":
			open = true
		case "EXEC":
			open = false
		}
		if !open {
			complete = at
		}
	}
}

// commandAt returns the name of the command at the beginning of a text, and its length, 0 if it is
// not complete.
func commandAt(text []byte) (name string, length int) {
	number := func(mark string) (n int, ok bool) {
		line, _, found := bytes.Cut(text[length:], []byte("\r\n"))
		digits, marked := strings.CutPrefix(string(line), mark)
		n, err := strconv.Atoi(digits)
		length += len(line) + 2
		return n, found && marked && err == nil
	}
	words, ok := number("*")
	for i := 0; ok && i < words; i++ {
		var n int
		if n, ok = number("$"); !ok || length+n+2 > len(text) {
			return "", 0
		}
		if i == 0 {
			name = string(text[length : length+n])
		}
		length += n + 2
	}
	if !ok {
		return "", 0
	}
	return name, length
}

// TestCompleteLength cuts append-only files where Redis has to.
func TestCompleteLength(t *testing.T) {
	const set, multi, exec = "*2\r\n$3\r\nSET\r\n$1\r\na\r\n", "*1\r\n$5\r\nMULTI\r\n", "*1\r\n$4\r\nEXEC\r\n"
	for _, tt := range []struct{ whole, rest string }{
		{"", ""},
		{set + multi + set + exec, ""},
		{set, multi + set + exec[:5]},
		{set, multi + set},
		{set + multi + set + exec + set, set[:len(set)-1]},
		{multi + exec, "*"},
	} {
		if got := completeLength([]byte(tt.whole + tt.rest)); got != len(tt.whole) {
			t.Errorf("%q: got %d, want %d", tt.whole+tt.rest, got, len(tt.whole))
		}
	}
}

// whatRefuses says what a step is that has a server refuse.
func (s step) whatRefuses() string {
	switch s.kind {
	case "forbid":
		return fmt.Sprintf("forbid master %d %s for %v", s.shard, s.command, s.hold)
	case "fill":
		return fmt.Sprintf("fill the memory of master %d for %v", s.shard, s.hold)
	}
	return fmt.Sprintf("fill the disk of master %d, but for %d bytes, for %v", s.shard, 64*s.n, s.hold)
}
