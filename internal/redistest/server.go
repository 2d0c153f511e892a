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

// patience limits how long anything may take to start, also on a very busy machine.
const patience = time.Minute

// A Server is one temporary Redis server on a loopback port and on a Unix socket. Without options
// it stores nothing on disk.
type Server struct {
	t      testing.TB
	config config
	path   string
	dir    string
	port   int
	db     int
	shared bool
	args   []string
	proc   *process // nil if not running
}

// An Option changes how a server is started.
type Option func(*config)

type config struct {
	lines []string
	bus   bool     // also reserve a port for the cluster bus
	tls   bool     // only TLS connections, except on the Unix socket
	args  []string // arguments that follow the configuration file

	failsOver bool // see FailsOver
}

// Config adds lines in the format of redis.conf.
func Config(lines ...string) Option {
	return func(c *config) { c.lines = append(c.lines, lines...) }
}

// AppendOnly makes a server keep its data in an append-only file, so that Restart finds it after
// Kill. fsync is "always" or "everysec".
func AppendOnly(fsync string) Option {
	return Config("appendonly yes", "appendfsync "+fsync)
}

// TLS makes a server accept only TLS connections, from clients with a certificate signed by the CA.
// The methods of Server that connect to its address do not work then.
func TLS(cert, key, ca string) Option {
	return func(c *config) {
		c.tls = true
		c.lines = append(c.lines, "tls-cert-file "+cert, "tls-key-file "+key, "tls-ca-cert-file "+ca, "tls-auth-clients yes", "tls-cluster yes")
	}
}

// SingleNodeCluster makes a server start in cluster mode. TakeAllSlots turns it into a cluster of
// one server.
func SingleNodeCluster(c *config) {
	c.bus = true
	c.lines = append(c.lines, "cluster-enabled yes", "cluster-config-file nodes.conf")
}

// TakeAllSlots gives all slots to the server, and returns when it serves them.
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

// newServer starts a server. It tries up to five times, because another program may take the free
// port first.
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
	// t.TempDir is not suitable, because the path of a Unix socket must be short.
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

// configure writes the configuration file. It must do so only once, because Sentinels rewrite it.
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

// ping fails until the server at a Unix socket has loaded its data. It does not use the client,
// which would log every attempt.
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
		return errors.New("a test cannot end a shared server")
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

// Kill ends the server at once, like kill -9. The files that the server wrote stay for Restart.
func (s *Server) Kill() { s.t.Helper(); s.must(s.end(os.Kill)) }

// Stop shuts the server down.
func (s *Server) Stop() { s.t.Helper(); s.must(s.end(syscall.SIGTERM)) }

// Restart starts the server again, on the same port and with the data it wrote. It kills the server
// first if it is running.
func (s *Server) Restart() {
	s.t.Helper()
	s.must(s.end(os.Kill))
	s.must(s.start())
}

func (s *Server) discard() {
	s.end(os.Kill) // does not fail, because the server is not shared
	os.RemoveAll(s.dir)
}

// Addr returns the server's HOST:PORT.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the server's redis: URL.
func (s *Server) URL() string { return fmt.Sprintf("redis://%s/%d", s.Addr(), s.db) }

// SocketURL returns the server's unix: URL.
func (s *Server) SocketURL() string { return fmt.Sprintf("unix://%s?db=%d", s.socket(), s.db) }

// Client returns a new client that is closed with the test. It may be called on any goroutine.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), DB: s.db, DialerRetries: 1})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// databases limits how many tests of one process can share a server.
const databases = 10_000

var sharing struct {
	sync.Mutex
	server *Server
	used   int
}

// Shared returns a server that all tests of the process share, with an empty database for t. It is
// faster than Start, for tests that neither kill nor configure the server. FLUSHALL and script
// commands affect other tests.
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
