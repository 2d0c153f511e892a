package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startTime = 30 * time.Second // how long a server may take to print its address
	endTime   = 5 * time.Second  // how long a server may take to end after SIGTERM
)

// A process is a server that was started. Its standard error goes to a file.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process has ended
}

// start starts a server. The kernel ends it with this program, however this program ends.
func start(dir, name string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	// With O_APPEND the file may be emptied while the server writes to it.
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr, p.cmd.SysProcAttr = dir, env, out, childAttributes()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.ended)
	}()
	return p, nil
}

// waitUntil calls ready repeatedly until it returns true. It fails if the process ends before that,
// or after startTime.
func (p *process) waitUntil(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for !ready() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, ctx.Err())
		case <-p.ended:
			text, _ := os.ReadFile(p.log)
			return fmt.Errorf("%s has ended: %s", p.name, lastLine(text))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// address waits until the server prints its address, and returns that.
func (p *process) address(ctx context.Context) (addr string, err error) {
	err = p.waitUntil(ctx, func() bool {
		text, _ := os.ReadFile(p.log)
		_, after, said := bytes.Cut(text, []byte("listening on http://"))
		line, _, whole := bytes.Cut(after, []byte("\n"))
		addr = string(line)
		return said && whole
	})
	if err == nil && !strings.HasPrefix(addr, "127.0.0.1:") {
		err = fmt.Errorf("%s listens on %s, want 127.0.0.1", p.name, addr)
	}
	return addr, err
}

// stop ends the server and waits until it has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(endTime):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// ticks is how many times a second the kernel counts processor time in /proc.
const ticks = 100

// cpuOf returns the processor time that processes have used, including that of all threads, even
// ended ones, and of children that they waited for.
func cpuOf(pids []int) (used time.Duration, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		n, err := parseStat(text)
		if err != nil {
			return 0, err
		}
		used += time.Duration(n) * time.Second / ticks
	}
	return used, nil
}

var errStat = errors.New("/proc/PID/stat is not as expected")

// parseStat returns the sum of utime, stime, cutime and cstime in a line of /proc/PID/stat. The
// program's name in it may contain anything.
func parseStat(text []byte) (n int64, err error) {
	const before = 11 // fields between the name and utime
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < before+4 {
		return 0, errStat
	}
	for _, f := range fields[before : before+4] {
		t, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, errStat
		}
		n += t
	}
	return n, nil
}

// memoryOf returns the proportional set size of processes in bytes. A page that several processes
// share is divided among them.
func memoryOf(pids []int) (bytes int64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		n, err := parsePSS(string(text))
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

var errPSS = errors.New("/proc/PID/smaps_rollup is not as expected")

// parsePSS returns the bytes in the line Pss of /proc/PID/smaps_rollup.
func parsePSS(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if after, is := strings.CutPrefix(line, "Pss:"); is {
			number, is := strings.CutSuffix(strings.TrimSpace(after), " kB")
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil || !is {
				return 0, errPSS
			}
			return n << 10, nil
		}
	}
	return 0, errPSS
}

// ownCPU returns the processor time of this program.
func ownCPU() time.Duration {
	used, _ := cpuOf([]int{os.Getpid()}) // cpuOf has worked for other processes before
	return used
}
