package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long anything may take to start.
const patience = 20 * time.Second

// A Server is one throwaway Redis server on a port of the loopback interface
// and on a unix socket. Unless options say otherwise it keeps nothing on disk.
type Server struct {
	t      testing.TB
	config config
	path   string
	dir    string
	port   int
	db     int
	shared bool
	args   []string
	proc   *process // nil: not running
}

// An Option changes how a server is started.
type Option func(*config)

type config struct {
	lines []string
	bus   bool     // cluster bus port too
	tls   bool     // no connections without, but through the unix socket
	args  []string // after the configuration file

	failsOver bool // of a cluster, and of Sentinels
}

// Config adds lines in the form of redis.conf.
func Config(lines ...string) Option {
	return func(c *config) { c.lines = append(c.lines, lines...) }
}

// AppendOnly keeps the data through Kill and Restart in an append-only file;
// fsync is "always" or "everysec".
func AppendOnly(fsync string) Option {
	return Config("appendonly yes", "appendfsync "+fsync)
}

// TLS has a server take connections with TLS alone, from clients that have a certificate by the CA, too. The
// methods that connect to it by its address do not.
func TLS(cert, key, ca string) Option {
	return func(c *config) {
		c.tls = true
		c.lines = append(c.lines, "tls-cert-file "+cert, "tls-key-file "+key, "tls-ca-cert-file "+ca, "tls-auth-clients yes", "tls-cluster yes")
	}
}

// AloneInCluster makes a server one that TakeAllSlots makes a cluster of one.
func AloneInCluster(c *config) {
	c.bus = true
	c.lines = append(c.lines, "cluster-enabled yes", "cluster-config-file nodes.conf")
}

// TakeAllSlots returns when the server serves all slots.
func (s *Server) TakeAllSlots() {
	s.t.Helper()
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.socket()})
	defer c.Close()
	s.must(c.ClusterAddSlotsRange(ctx, 0, clusterSlots-1).Err())
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		info, err := c.ClusterInfo(ctx).Result()
		s.must(err)
		if strings.Contains(info, "cluster_state:ok") {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("no cluster: %s", info)
		}
	}
}

// Start starts a server for t.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	s, err := newServer(t, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.discard)
	return s
}

// newServer starts a server, on another port when somebody else was faster to
// take the one it had found free.
func newServer(t testing.TB, c config) (*Server, error) {
	t.Helper()
	const attempts = 5
	path := program(t)
	for i := 1; ; i++ {
		s, err := tryServer(t, path, c)
		if err == nil || i == attempts {
			return s, err
		}
	}
}

func tryServer(t testing.TB, path string, c config) (*Server, error) {
	// Not t.TempDir: a unix socket's path has to be short.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		return nil, err
	}
	s := &Server{t: t, config: c, path: path, dir: dir}
	if s.port, err = freePort(c.bus); err == nil {
		err = s.configure()
	}
	if err == nil {
		err = s.start()
	}
	if err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// configure writes the configuration file, once: Sentinels rewrite it.
func (s *Server) configure() error {
	port := "port " + strconv.Itoa(s.port)
	if s.config.tls {
		port = "port 0\ntls-" + port
	}
	lines := append([]string{
		port,
		"bind 127.0.0.1",
		"dir " + s.dir,
		"unixsocket " + s.socket(),
		"unixsocketperm 700",
	}, s.config.lines...)
	if len(s.config.args) == 0 { // a Sentinel has no data
		lines = append([]string{`save ""`, "appendonly no"}, lines...)
	}
	file := filepath.Join(s.dir, "redis.conf")
	s.args = append([]string{file}, s.config.args...)
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func (s *Server) socket() string { return filepath.Join(s.dir, "s") }

func (s *Server) start() (err error) {
	if s.proc, err = launch(s.path, s.dir, s.args...); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		err := ping(s.socket())
		if err == nil {
			return nil
		}
		select {
		case <-s.proc.ended:
		default:
			if time.Now().Before(deadline) {
				continue
			}
		}
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return errors.Join(fmt.Errorf("starting %s on port %d: %w; its log:\n%s", s.path, s.port, err, log), s.end(os.Kill))
	}
}

// ping fails until the server at a unix socket has loaded its data. The client
// would write a line to the log at every attempt.
func ping(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || answer != "+PONG\r\n" {
		return errors.Join(fmt.Errorf("answered PING with %q", answer), err)
	}
	return nil
}

func (s *Server) end(sig os.Signal) error {
	if s.proc == nil {
		return nil
	}
	if s.shared {
		return errors.New("a shared server is not for one test to end")
	}
	s.proc.signal(sig)
	s.proc = nil
	return nil
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server at once, as kill -9 does. What it wrote stays for
// Restart.
func (s *Server) Kill() { s.t.Helper(); s.must(s.end(os.Kill)) }

// Stop ends the server in order.
func (s *Server) Stop() { s.t.Helper(); s.must(s.end(syscall.SIGTERM)) }

// Restart starts the server again, on the same port and with the data it wrote,
// after killing it if it runs.
func (s *Server) Restart() {
	s.t.Helper()
	s.must(s.end(os.Kill))
	s.must(s.start())
}

func (s *Server) discard() {
	s.end(os.Kill) // not shared, so it does not fail
	os.RemoveAll(s.dir)
}

// Addr returns the server's HOST:PORT.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the server's redis: URL.
func (s *Server) URL() string { return fmt.Sprintf("redis://%s/%d", s.Addr(), s.db) }

// SocketURL returns the server's unix: URL.
func (s *Server) SocketURL() string { return fmt.Sprintf("unix://%s?db=%d", s.socket(), s.db) }

// Client returns a new client, closed with the test. It may be called from any
// goroutine.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), DB: s.db, DialerRetries: 1})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// databases is how many tests of one process can share a server.
const databases = 10_000

var sharing struct {
	sync.Mutex
	server *Server
	used   int
}

// Shared returns a server that is shared by all tests of the process, with an
// empty database of its own for t: faster than Start for tests that neither
// kill nor configure it. FLUSHALL and scripts reach the other tests.
func Shared(t testing.TB) *Server {
	t.Helper()
	program(t)
	sharing.Lock()
	defer sharing.Unlock()
	if sharing.server == nil {
		s, err := newServer(t, config{lines: []string{"databases " + strconv.Itoa(databases)}})
		if err != nil {
			t.Fatal(err)
		}
		sharing.server = s
	}
	if sharing.used == databases {
		t.Fatalf("more than %d tests share a server", databases)
	}
	s := *sharing.server
	s.t, s.db, s.shared = t, sharing.used, true
	sharing.used++
	c := s.Client()
	t.Cleanup(func() { c.FlushDB(context.Background()) })
	return &s
}
