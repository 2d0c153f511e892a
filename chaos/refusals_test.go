//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// commands are those that a server may be told to refuse, as often as they stand here. The first ones come late in scripts.
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
// what the file has.
func (r *run) fillDisk(i, left int, hold time.Duration) {
	master := r.master(i)
	node := r.raw[master]
	pid := r.pidOf(node)
	dir, err := node.ConfigGet(r.ctx, "dir").Result()
	r.must(err)
	files, err := filepath.Glob(filepath.Join(dir["dir"], "appendonlydir", "*.incr.aof"))
	r.must(err)
	size := int64(0)
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
	master.Restart()
	r.settle()
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
