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

// commands lists the commands that a server may be made to refuse. Commands that run late in
// scripts are listed twice, so that they are chosen twice as often.
var commands = []string{
	"hdel", "hdel", "expire", "expire", "unlink", "pexpire", "persist", "srem", "hset", "set", "sadd", "xadd", "rename",
}

// forbid makes a master refuse a command for a while, as if an operator had removed the permission.
func (r *run) forbid(i int, command string, duration time.Duration) {
	node := r.raw[r.master(i)]
	r.must(node.Do(r.ctx, "ACL", "SETUSER", "default", "-"+command).Err())
	time.Sleep(duration)
	r.must(node.Do(r.ctx, "ACL", "SETUSER", "default", "+"+command).Err())
}

// fill makes a master refuse writes for a while because it has no memory left.
func (r *run) fill(i int, duration time.Duration) {
	node := r.raw[r.master(i)]
	r.must(node.ConfigSet(r.ctx, "maxmemory", "1").Err())
	time.Sleep(duration)
	r.must(node.ConfigSet(r.ctx, "maxmemory", "0").Err())
}

// fillDisk makes the disk of a master look full after its file has grown by space bytes. It does
// not need root: a resource limit stops further writes. The write that does not fit ends the
// process. Then fillDisk cuts the file after its last complete command or transaction, and starts
// the master again with it.
func (r *run) fillDisk(i, space int, duration time.Duration) {
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
	r.must(unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size) + uint64(space), Max: unix.RLIM_INFINITY}, nil))
	time.Sleep(duration)
	if unix.Kill(pid, 0) == nil {
		// An error is ignored: the process may die at this moment.
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
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
	r.waitReady()
}

// completeLength returns the length of an append-only file up to the end of its last complete
// command or transaction. Redis 7.0 itself cuts off only an incomplete command. It keeps the rest
// of an incomplete transaction and ignores it at its next start, but carries it out at the start
// after that, together with the commands that follow. So half of a script would take effect long
// after the script was refused.
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

// commandAt returns the name and the length of the command at the beginning of text. The length is
// 0 if the command is not complete.
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

// TestCompleteLength checks that completeLength returns the length of a file up to the end of its
// last complete command or transaction.
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

// refusalText describes a step that makes a server refuse commands.
func (s step) refusalText() string {
	switch s.kind {
	case "forbid":
		return fmt.Sprintf("forbid master %d %s for %v", s.shard, s.command, s.duration)
	case "fill":
		return fmt.Sprintf("fill the memory of master %d for %v", s.shard, s.duration)
	}
	return fmt.Sprintf("fill the disk of master %d after %d more bytes, for %v", s.shard, 64*s.n, s.duration)
}
