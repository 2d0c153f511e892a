package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sessions is the number of visitors who are signed in before any row is measured.
const sessions = 100

// loadLimit is the time limit for each step that prepares a service: loading the accounts, creating
// a key, starting the sessions.
const loadLimit = 2 * time.Minute

// userSchema is the schema of our accounts. It has the fields and indexes of PocketBase's
// collection.
const userSchema = `{"types": {"user": {"primary": "uid", "fold": "casefold",
	"fields": {"email": {"role": "secondary", "kind": "email"}, "name": {}, "city": {"role": "indexed"}, "note": {}},
	"password": {"cost": 10, "min": 8}}}}
`

// A service is a running product with accounts in it.
type service struct {
	name      string // redis, redis-always, file, or that of a peer
	addr      string
	processes []*process
	pids      []int
	key       string
	sessions  []session
	loading   time.Duration // how long loading the accounts took
	starting  time.Duration // how long the product took to start with the accounts
	disk      int64         // bytes of its folder with the accounts
}

func (s *service) add(p *process) {
	s.processes = append(s.processes, p)
	s.pids = append(s.pids, p.cmd.Process.Pid)
}

func (s *service) stop() {
	for i := range s.processes { // in reverse order
		s.processes[len(s.processes)-1-i].stop()
	}
	s.processes = nil
}

// emptyLogs keeps the logs of requests from filling the disk.
func (s *service) emptyLogs() {
	for _, p := range s.processes {
		_ = os.Truncate(p.log, 0)
	}
}

// tools holds the paths of the programs that are measured.
type tools struct {
	dir           string   // of all files of the run
	userdb, redis string   // userdb is built from the checkout unless -userdb names another one
	peer          []string // the peer's program and its first arguments
	peerLog       bool
}

// build builds the programs from the checkout that contains this folder. It builds userdb only if
// its path is "".
func build(ctx context.Context, dir, userdb, peer string) (t tools, err error) {
	t = tools{dir: dir, userdb: userdb}
	var all [][]string
	switch peer {
	case "pocketbase":
		t.peer = []string{filepath.Join(dir, peer)}
		all = append(all, []string{"-o", t.peer[0], "./" + peer})
	case "better-auth":
		if t.peer, err = betterAuthProgram(); err != nil {
			return t, err
		}
	}
	if userdb == "" {
		t.userdb = filepath.Join(dir, "userdb")
		all = append(all, []string{"-C", "../..", "-o", t.userdb, "./cmd/userdb"})
	}
	if _, err := os.Stat("../../cmd/userdb"); err != nil {
		return t, errors.New("start it in the folder bench/peers")
	}
	if t.redis, err = exec.LookPath("redis-server"); err != nil {
		return t, fmt.Errorf("%w: make redis installs it", err)
	}
	for _, args := range all {
		cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build"}, args)...)
		cmd.Stderr, cmd.SysProcAttr = os.Stderr, childAttributes()
		if err := cmd.Run(); err != nil {
			return t, fmt.Errorf("building %s: %w", args[len(args)-1], err)
		}
	}
	return t, os.WriteFile(t.schema(), []byte(userSchema), 0o600)
}

// betterAuthProgram returns the program that runs Better Auth, with the Node that npm installed.
func betterAuthProgram() (argv []string, err error) {
	dir, err := filepath.Abs("better-auth")
	if err != nil {
		return nil, err
	}
	node := filepath.Join(dir, "node_modules", ".bin", "node")
	if _, err := os.Stat(node); err != nil {
		return nil, errors.New("Better Auth is not installed: run npm ci in the folder better-auth")
	}
	return []string{node, filepath.Join(dir, "main.mjs")}, nil
}

func (t tools) schema() string { return filepath.Join(t.dir, "schema.json") }

// run runs a program to its end and returns its output. The error is the last line of its standard
// error.
func (t tools) run(ctx context.Context, env []string, argv ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = t.dir, env, childAttributes()
	text, err := cmd.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("not done within %v", loadLimit)
	}
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		// The temporary directory is left out, because it differs each time.
		return "", errors.New(strings.ReplaceAll(lastLine(exit.Stderr), t.dir+"/", ""))
	}
	return strings.TrimSpace(string(text)), err
}

// makeDir creates the directory of a service, beside the file of its accounts and named after both.
func (t tools) makeDir(name, accounts string) (dir string, err error) {
	dir = strings.TrimSuffix(accounts, filepath.Ext(accounts)) + "-" + name
	return dir, os.Mkdir(dir, 0o700)
}

// environment returns the environment of this process with USERDB_STORE set to store, and without
// other variables that begin with USERDB_.
func environment(store string) []string {
	env := []string{"USERDB_STORE=" + store}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "USERDB_") {
			env = append(env, v)
		}
	}
	return env
}

// start starts userdb on a store. The service is named after the store.
func (t tools) start(ctx context.Context, store, accounts string) (*service, error) {
	switch store {
	case "file":
		return t.startFile(ctx, accounts)
	case "redis-always":
		return t.startRedis(ctx, store, "always", accounts)
	}
	return t.startRedis(ctx, store, "everysec", accounts)
}

// startRedis starts userdb on a Redis of its own with an append-only file, which is never
// rewritten, so that no rewrite falls into a measurement. name is that of the service, and fsync
// the value of appendfsync.
func (t tools) startRedis(ctx context.Context, name, fsync, accounts string) (s *service, err error) {
	s = &service{name: name}
	dir, err := t.makeDir(s.name, accounts)
	if err != nil {
		return s, err
	}
	socket := filepath.Join(dir, "redis.sock")
	p, err := start(dir, "redis", os.Environ(), t.redis, "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700",
		"--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0")
	if err != nil {
		return s, err
	}
	s.add(p)
	if err := p.waitUntil(ctx, func() bool { return pings(socket) }); err != nil {
		return s, err
	}
	return s, t.startUserdb(ctx, s, dir, "unix://"+socket, accounts)
}

// pings reports whether a Redis answers on a socket.
func pings(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, "PING\r\n")
	line, _ := bufio.NewReader(c).ReadString('\n')
	return line == "+PONG\r\n"
}

// startFile starts userdb on its embedded file.
func (t tools) startFile(ctx context.Context, accounts string) (s *service, err error) {
	s = &service{name: "file"}
	dir, err := t.makeDir(s.name, accounts)
	if err != nil {
		return s, err
	}
	return s, t.startUserdb(ctx, s, dir, "file:"+filepath.Join(dir, "userdb.store"), accounts)
}

// A loadError says why a service did not accept the accounts.
type loadError struct{ error }

func (t tools) startUserdb(ctx context.Context, s *service, dir, store, accounts string) error {
	env := environment(store)
	begin := time.Now()
	if _, err := t.run(ctx, env, t.userdb, "import", "--schema", t.schema(), accounts); err != nil {
		return loadError{err}
	}
	s.loading = time.Since(begin)
	var err error
	if s.key, err = t.run(ctx, env, t.userdb, "apikey", "create", "bench", "--scope", "read", "write", "login"); err != nil {
		return fmt.Errorf("creating a key: %w", err)
	}
	if err := s.serve(ctx, dir, s.name+"-userdb", env, t.userdb, "serve", "--listen", "127.0.0.1:0"); err != nil {
		return err
	}
	return s.begin(ctx, func(r *request, e *expectation, i int) {
		userdb.begin(r, e, "POST", "types/user/entries/", s.key, 201)
		r.path = append(appendUID(r.path, i), "/sessions"...)
		r.body = append(r.body, "{}"...)
	}, func(a answer) (string, error) {
		var got struct{ Session struct{ Secret string } }
		err := json.Unmarshal(a.body, &got)
		return got.Session.Secret, err
	})
}

func (t tools) startPeer(ctx context.Context, name, accounts string) (s *service, err error) {
	s = &service{name: name}
	dir, err := t.makeDir(name, accounts)
	if err != nil {
		return s, err
	}
	if name == "better-auth" {
		return s, t.startBetterAuth(ctx, s, dir, accounts)
	}
	return s, t.startPocketBase(ctx, s, dir, accounts)
}

// startPocketBase starts PocketBase. Its key is a superuser's token.
func (t tools) startPocketBase(ctx context.Context, s *service, dir, accounts string) error {
	data, days := filepath.Join(dir, "data"), "0"
	if t.peerLog {
		days = "5"
	}
	if err := t.loadPeer(ctx, s, data, accounts, days); err != nil {
		return err
	}
	if err := t.servePeer(ctx, s, dir, data); err != nil {
		return err
	}
	return s.begin(ctx, func(r *request, e *expectation, i int) { pocketBaseSignIn(r, e, call{account: i}) }, func(a answer) (string, error) {
		var got struct{ Token string }
		err := json.Unmarshal(a.body, &got)
		return got.Token, err
	})
}

// startBetterAuth starts Better Auth. Its key is the cookie of an administrator's session.
func (t tools) startBetterAuth(ctx context.Context, s *service, dir, accounts string) error {
	if err := t.loadPeer(ctx, s, dir, accounts); err != nil {
		return err
	}
	if err := t.servePeer(ctx, s, dir, dir); err != nil {
		return err
	}
	return s.begin(ctx, func(r *request, e *expectation, i int) { betterAuthSignIn(r, e, call{account: i}) }, func(a answer) (string, error) {
		_, cookie, _ := strings.Cut(string(a.head), "set-cookie: ")
		cookie, _, _ = strings.Cut(cookie, ";")
		return cookie, nil
	})
}

// loadPeer loads the accounts into a peer whose data are in the directory data, and sets the
// service's key.
func (t tools) loadPeer(ctx context.Context, s *service, data, accounts string, args ...string) (err error) {
	begin := time.Now()
	if s.key, err = t.run(ctx, os.Environ(), slices.Concat(t.peer, []string{"load", data, accounts}, args)...); err != nil {
		return loadError{err}
	}
	s.loading = time.Since(begin)
	return nil
}

func (t tools) servePeer(ctx context.Context, s *service, dir, data string) error {
	env := append(os.Environ(), "NODE_ENV=production")
	return s.serve(ctx, dir, s.name, env, slices.Concat(t.peer, []string{"serve", data})...)
}

// serve starts the product, whose files are in dir and hold the accounts.
func (s *service) serve(ctx context.Context, dir, name string, env []string, argv ...string) error {
	var err error
	if s.disk, err = sizeOf(dir); err != nil {
		return err
	}
	begin := time.Now()
	p, err := start(dir, name, env, argv...)
	if err != nil {
		return err
	}
	s.add(p)
	s.addr, err = p.address(ctx)
	s.starting = time.Since(begin)
	return err
}

// sizeOf returns the number of bytes of all files below dir.
func sizeOf(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// begin starts the sessions of the first accounts.
func (s *service) begin(ctx context.Context, ask func(r *request, e *expectation, i int), secret func(a answer) (string, error)) error {
	c, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := c.SetDeadline(time.Now().Add(loadLimit)); err != nil {
		return err
	}
	var r request
	var e expectation
	for i := range sessions {
		ask(&r, &e, i)
		a, err := c.ask(r.encode(s.addr))
		if err == nil {
			err = e.check(a)
		}
		var text string
		if err == nil {
			text, err = secret(a)
		}
		if err == nil && text == "" {
			err = errors.New("no secret in the answer")
		}
		if err != nil {
			return fmt.Errorf("%s: starting a session: %w", s.name, err)
		}
		s.sessions = append(s.sessions, session{text, i})
	}
	return nil
}
