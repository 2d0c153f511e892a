//go:build unix

package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestStart(t *testing.T) {
	s := Start(t, Config("maxmemory 77mb", "databases 3"))
	for _, url := range []string{s.URL(), s.SocketURL()} {
		o, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(o)
		defer c.Close()
		for name, want := range map[string]string{"maxmemory": strconv.Itoa(77 << 20), "databases": "3", "save": "", "appendonly": "no"} {
			if got := c.ConfigGet(t.Context(), name).Val()[name]; got != want {
				t.Errorf("%s: %s is %q, want %q", url, name, got, want)
			}
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	for _, test := range []struct {
		name string
		opts []Option
		want int64
	}{
		{"without persistence", nil, 0},
		{"append only", []Option{AppendOnly("always")}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Start(t, test.opts...)
			c := s.Client()
			addr, pid := s.Addr(), s.proc.pid
			if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			s.Kill()
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the process after Kill: got %v, want syscall.ESRCH", err)
			}
			if err := c.Ping(t.Context()).Err(); err == nil {
				t.Error("Ping after Kill: no error")
			}
			s.Restart()
			if s.Addr() != addr {
				t.Errorf("after Restart the server is at %s, want %s", s.Addr(), addr)
			}
			if got := c.Exists(t.Context(), "k").Val(); got != test.want {
				t.Errorf("%d keys after Restart, want %d", got, test.want)
			}
			s.Stop()
			s.Stop() // has already ended
		})
	}
}

func TestEndsWithTheTest(t *testing.T) {
	var s *Server
	t.Run("inner", func(t *testing.T) { s = Start(t) })
	if s == nil {
		t.Skip("no server")
	}
	if s.proc != nil {
		t.Error("the server is still running")
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Errorf("the directory %s was left", s.dir)
	}
}

func TestShared(t *testing.T) {
	var pid int
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := Shared(t)
			if pid != 0 && s.proc.pid != pid {
				t.Error("Shared returned a different server")
			}
			pid = s.proc.pid
			c, other := s.Client(), Shared(t).Client()
			if n := c.DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("%d keys at first, want 0", n)
			}
			if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Error(err)
			}
			if n := other.DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("%d keys are visible to another test, want 0", n)
			}
			if err := s.end(os.Kill); err == nil {
				t.Error("a test could end the shared server")
			}
		})
	}
}

const childEnv = "REDISTEST_CHILD"

// TestChild runs in the process that TestEndsWithTheProcess starts and kills.
func TestChild(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a process of its own")
	}
	for _, s := range []*Server{Start(t), Shared(t)} {
		fmt.Println("server", s.proc.pid, s.dir)
	}
	time.Sleep(time.Minute)
}

// TestEndsWithTheProcess checks that servers end with the test process even if it cannot clean up.
func TestEndsWithTheProcess(t *testing.T) {
	program(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	servers := map[string]int{} // the process ids, by directory
	for lines := bufio.NewScanner(out); len(servers) < 2 && lines.Scan(); {
		var pid int
		var dir string
		if n, _ := fmt.Sscanf(lines.Text(), "server %d %s", &pid, &dir); n == 2 {
			servers[dir] = pid
			if err := syscall.Kill(pid, 0); err != nil {
				t.Fatalf("the process of the server does not run: %v", err)
			}
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := eventually(func() error { return checkGone(servers) }); err != nil {
		t.Error(err)
	}
}

// checkGone returns an error if the directory or the process of a server still exists.
func checkGone(servers map[string]int) error {
	for dir, pid := range servers {
		if _, err := os.Stat(dir); err == nil || syscall.Kill(pid, 0) == nil {
			return fmt.Errorf("%s or process %d was left", dir, pid)
		}
	}
	return nil
}

// A recorder is a testing.TB that records how Skip or Fatal ended the test.
type recorder struct {
	testing.TB
	ending string // "skip: " or "fatal: ", and the message
}

type ended struct{}

func (r *recorder) Helper()           {}
func (r *recorder) Skip(args ...any)  { r.ending = "skip: " + fmt.Sprint(args...); panic(ended{}) }
func (r *recorder) Fatal(args ...any) { r.ending = "fatal: " + fmt.Sprint(args...); panic(ended{}) }
func (r *recorder) run(f func(*recorder)) {
	defer func() {
		if p := recover(); p != nil && p != (ended{}) {
			panic(p)
		}
	}()
	f(r)
}

func TestWithoutServer(t *testing.T) {
	for _, test := range []struct{ server, require, want string }{
		{"no-such-server", "", "skip: no no-such-server found; make test installs one"},
		{"no-such-server", "1", "fatal: no no-such-server found; make test installs one"},
		{"", "1", "fatal: no redis-server or valkey-server found; make test installs one"},
		{"", "0", "skip: no redis-server or valkey-server found; make test installs one"},
	} {
		t.Setenv("PATH", t.TempDir())
		t.Setenv("USERDB_REDIS_SERVER", test.server)
		t.Setenv("USERDB_REQUIRE_REDIS", test.require)
		r := &recorder{TB: t}
		r.run(func(r *recorder) { Start(r) })
		if r.ending != test.want {
			t.Errorf("got %q, want %q", r.ending, test.want)
		}
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	program(t)
	r := &recorder{TB: t}
	r.run(func(r *recorder) { Start(r, Config("no-such-directive yes")) })
	if !strings.HasPrefix(r.ending, "fatal: starting ") || !strings.Contains(r.ending, "no-such-directive") {
		t.Errorf("got %q, want a failure to start that quotes no-such-directive", r.ending)
	}
}

// TestPorts checks that no port is given out twice, and that each comes from a block that no other
// process can reserve.
func TestPorts(t *testing.T) {
	seen := map[int]bool{}
	for range 3 * blockSize / 2 {
		port, err := freePort(true)
		if err != nil || seen[port] || port < firstPort || port > lastPort {
			t.Fatalf("got port %d, %v; want a new one from %d to %d", port, err, firstPort, lastPort)
		}
		if first := port - port%blockSize; isFree(first) {
			t.Fatalf("port %d is in the block of %d, which is not reserved", port, first)
		}
		seen[port] = true
	}
}
