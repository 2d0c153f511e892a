package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server of our own, on a unix socket and on TCP.
type server struct {
	cmd    *exec.Cmd
	dir    string
	socket string
	addr   string
	tcp    bool // clients come over TCP
	admin  *redis.Client
}

func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, socket: filepath.Join(dir, "redis.sock"), addr: fmt.Sprintf("127.0.0.1:%d", port)}
	s.cmd = exec.Command("redis-server", "--unixsocket", s.socket, "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", dir, "--logfile", filepath.Join(dir, "log"))
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting redis-server: %w", err)
	}
	s.admin = s.client(1)
	for range 200 {
		if s.admin.Ping(ctx).Err() == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("redis-server does not answer")
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// overTCP is the same server, to which clients come over TCP.
func (s *server) overTCP() *server {
	over := *s
	over.tcp = true
	return &over
}

// url is where the library finds the server.
func (s *server) url() string {
	if s.tcp {
		return "redis://" + s.addr
	}
	return "unix://" + s.socket
}

// client is a bare client.
func (s *server) client(pool int) *redis.Client {
	o := &redis.Options{Network: "unix", Addr: s.socket, PoolSize: pool, ContextTimeoutEnabled: true}
	if s.tcp {
		o.Network, o.Addr = "tcp", s.addr
	}
	return redis.NewClient(o)
}

func (s *server) info(ctx context.Context, section, field string) float64 {
	text, _ := s.admin.Info(ctx, section).Result()
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			f, _ := strconv.ParseFloat(v, 64)
			return f
		}
	}
	return 0
}

// cpu is how many seconds the server has computed.
func (s *server) cpu(ctx context.Context) float64 {
	text, _ := s.admin.Info(ctx, "cpu").Result()
	sum := 0.0
	for line := range strings.Lines(text) {
		for _, field := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), field); ok {
				f, _ := strconv.ParseFloat(v, 64)
				sum += f
			}
		}
	}
	return sum
}
