//go:build unix

// Package deploy_test tests the files of deploy: the image is built and answers, the Redis of the
// compose file gives the service the rights it needs, and nginx lets signed-in visitors through.
// Some tests need a program such as buildah. Only 'make deploy', which installs what it can, runs
// them; they are skipped if their program is missing.
package deploy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coffeenode/userdb/internal/redistest"
)

// requireProgram skips a test unless 'make deploy' runs it and the program is installed.
func requireProgram(t *testing.T, program string) {
	t.Helper()
	if os.Getenv("USERDB_DEPLOY") == "" {
		t.Skip("only 'make deploy' runs this test")
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

// output runs a program that must succeed, and returns its output.
func output(t *testing.T, environment []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var program string // the command, built once

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "userdb-deploy-*")
	if err == nil {
		program = filepath.Join(dir, "userdb")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", program, "../cmd/userdb").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir) // only a temporary directory
	os.Exit(code)
}

// startServing starts a command that serves HTTP and returns its address. The command and all
// processes that it started end with the test.
func startServing(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	text, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
	})
	var stderr strings.Builder
	for lines := bufio.NewScanner(text); lines.Scan(); {
		if address, found := strings.CutPrefix(lines.Text(), "listening on "); found {
			go func() { _, _ = io.Copy(io.Discard, text) }()
			return address
		}
		stderr.WriteString(lines.Text() + "\n")
	}
	t.Fatalf("%s does not listen: %s", cmd.Path, stderr.String())
	return ""
}

// send sends a request with an API key and returns the status, the body and the headers of the
// response.
func send(t *testing.T, method, url, key, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
		if pair[0] == "Host" {
			request.Host = pair[1]
		}
	}
	// The certificate is the test's own.
	anyCertificate := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec
	defer anyCertificate.CloseIdleConnections()
	client := http.Client{Transport: anyCertificate, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	reply, err := client.Do(request)
	must(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	must(t, err)
	return reply.StatusCode, string(text), reply.Header
}

// TestSystemdUnit checks userdb@.service with systemd-analyze.
func TestSystemdUnit(t *testing.T) {
	requireProgram(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "userdb@.service")
	write(t, unit, strings.ReplaceAll(read(t, "userdb@.service"), "/usr/local/bin/userdb", program))
	if out := output(t, nil, "systemd-analyze", "verify", unit); strings.Contains(out, unit) {
		t.Errorf("systemd-analyze complains: %s", out)
	}
}

// TestProxyFlags checks that the unit and the image start the service so that it trusts only the
// proxy in front of it. It also checks that nginx uses the ports of the units, sets the headers
// that the sites and browsers need, and does not open the console to everybody.
func TestProxyFlags(t *testing.T) {
	if !strings.HasSuffix(unitCommand(t), " --listen 127.0.0.1:%i --behind-proxy --proxy 127.0.0.1 --session-cookie __Host-session $USERDB_FLAGS") {
		t.Errorf("the unit starts %s, without the flags for the proxy", unitCommand(t))
	}
	if file := read(t, "Containerfile"); !strings.Contains(file, `"--behind-proxy", "--proxy", "gateway", "--session-cookie", "__Host-session"]`) {
		t.Errorf("the Containerfile lacks the flags for the proxy: %s", file)
	}
	page, nginx := read(t, "../docs/deploy.md"), read(t, "nginx.conf")
	for _, port := range []string{"8470", "8471"} {
		if !strings.Contains(page, "userdb@"+port) || strings.Count(nginx, "server 127.0.0.1:"+port+";") != 2 {
			t.Errorf("port %s is missing in docs/deploy.md or nginx.conf", port)
		}
	}
	for location := range strings.SplitSeq(nginx[strings.Index(nginx, "server_name app."):], "location ") {
		if strings.Contains(location, "proxy_pass") && !strings.Contains(location, "proxy_set_header X-Forwarded-For $remote_addr;") {
			t.Errorf("nginx forwards a visitor's own X-Forwarded-For: %s", location)
		}
		if strings.Contains(location, "proxy_pass http://127.0.0.1:3000;") && !strings.Contains(location, "proxy_set_header Host $http_host;") {
			t.Errorf("nginx does not pass on the Host with which the site compares Origin: %s", location)
		}
	}
	for server := range strings.SplitSeq(nginx[strings.Index(nginx, "\nserver {")+1:], "\nserver {") {
		if !strings.Contains(server, "add_header Strict-Transport-Security ") {
			t.Errorf("a server of nginx sends no Strict-Transport-Security: %s", server)
		}
		if strings.Contains(server, "proxy_pass http://userdb-console;") && !strings.Contains(server, "\tdeny all;") {
			t.Errorf("nginx opens the console to everybody: %s", server)
		}
	}
}

// unitCommand returns the command that the unit starts.
func unitCommand(t *testing.T) string {
	t.Helper()
	_, command, _ := strings.Cut(read(t, "userdb@.service"), "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	return command
}

// A compose holds the parts of the compose file that are tested.
type compose struct {
	Name     string
	Services map[string]struct {
		Image, Build    string
		Command, Ports  []string
		Volumes         []string
		ReadOnly        bool     `yaml:"read_only"`
		CapDrop         []string `yaml:"cap_drop"`
		SecurityOpt     []string `yaml:"security_opt"`
		EnvFile         string   `yaml:"env_file"`
		StopGracePeriod string   `yaml:"stop_grace_period"`
		Environment     any
		Logging         struct{ Options map[string]string }
	}
	Volumes map[string]any
}

// TestCompose checks that the compose file is as docs/deploy.md describes it.
func TestCompose(t *testing.T) {
	var file compose
	must(t, yaml.Unmarshal([]byte(read(t, "compose.yaml")), &file))
	if file.Name != "userdb" {
		t.Errorf("the project is %q; without a name of its own, it is the one of all folders called deploy", file.Name)
	}
	redis, userdb := file.Services["redis"], file.Services["userdb"]
	if !slices.Equal(redis.Command, []string{"redis-server", "/etc/userdb/redis.conf"}) || len(redis.Ports) > 0 {
		t.Errorf("Redis has the command %q and the ports %q; want redis-server with the shipped settings, and no ports", redis.Command, redis.Ports)
	}
	for _, volume := range []string{"redis:/data", "./redis.conf:/etc/userdb/redis.conf:ro", "./redis.acl:/etc/userdb/redis.acl:ro"} {
		if !slices.Contains(redis.Volumes, volume) {
			t.Errorf("Redis has no volume %s", volume)
		}
	}
	if _, has := file.Volumes["redis"]; !has {
		t.Error("the volume redis is not declared")
	}
	if len(userdb.Ports) != 1 || !strings.HasPrefix(userdb.Ports[0], "127.0.0.1:") {
		t.Errorf("the service has the ports %q, want one, at 127.0.0.1", userdb.Ports)
	}
	if !userdb.ReadOnly || !slices.Equal(userdb.CapDrop, []string{"ALL"}) || len(userdb.SecurityOpt) != 1 {
		t.Errorf("the service has more rights than it needs: %+v", userdb)
	}
	for name, service := range file.Services {
		if o := service.Logging.Options; o["max-size"] == "" || o["max-file"] == "" {
			t.Errorf("the log of %s may fill the disk", name)
		}
	}
	if userdb.EnvFile != "userdb.env" || redis.EnvFile != "backup.env" || userdb.Environment != nil || redis.Environment != nil {
		t.Error("a secret is outside userdb.env and backup.env")
	}
	if d, err := time.ParseDuration(userdb.StopGracePeriod); err != nil || d < 25*time.Second {
		t.Errorf("the service is given %v to end, want at least 25 seconds; error %v", d, err)
	}
}

// TestRights runs the service on a Redis with the settings and the user of the compose file.
func TestRights(t *testing.T) {
	dir := makeSecrets(t)
	if err := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "secrets.sh")).Run(); err == nil {
		t.Error("secrets.sh overwrites a password that is in use")
	}
	for name, want := range map[string]os.FileMode{"userdb.env": 0o600, "backup.env": 0o600, "redis.acl": 0o644, "redis.conf": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if must(t, err); info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, want %v", name, info.Mode().Perm(), want)
		}
	}
	acl := strings.Split(strings.TrimSpace(read(t, filepath.Join(dir, "redis.acl"))), "\n")
	if acl[0] != "user default off ~* &* +@all" || len(acl) != 3 {
		t.Fatalf("redis.acl is %q, want a line that turns the default user off, and two more", acl)
	}
	_, rights, _ := strings.Cut(acl[1], " ~* ")
	if page := read(t, "../docs/redis-acl.md"); !strings.Contains(page, "operator on >PASSWORD ~* "+rights+"\n") {
		t.Errorf("docs/redis-acl.md gives operators other rights than %s", rights)
	}
	settings := []string{acl[1]}
	for line := range strings.Lines(read(t, "redis.conf")) {
		if line = strings.TrimSpace(line); line != "" && !regexp.MustCompile(`^(#|aclfile |dir )`).MatchString(line) {
			settings = append(settings, line)
		}
	}
	server := redistest.Start(t, redistest.Config(settings...))
	for name, want := range map[string]string{"appendonly": "yes", "maxmemory-policy": "noeviction"} {
		if got := server.Client().ConfigGet(t.Context(), name).Val()[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	address := strings.TrimPrefix(server.URL(), "redis://")
	store := strings.TrimSpace(strings.Replace(read(t, filepath.Join(dir, "userdb.env")), "redis:6379/0", address, 1))
	cmd := exec.CommandContext(t.Context(), program, "serve", "--scim", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), store)
	exercise(t, startServing(t, cmd), createKey(t, store, "admin"))
	output(t, []string{store}, program, "check")
	if out := output(t, []string{store}, program, "status", "--json"); strings.Contains(out, "evicts") {
		t.Errorf("the status warns that Redis evicts keys: %s", out)
	}
}

// makeSecrets runs secrets.sh in a folder of its own, as a user whose new files nobody else can
// read, and returns the folder.
func makeSecrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"secrets.sh", "redis.conf"} {
		write(t, filepath.Join(dir, name), read(t, name))
	}
	output(t, nil, "sh", "-c", "umask 077 && sh "+filepath.Join(dir, "secrets.sh"))
	return dir
}

// TestSecrets runs secrets.sh without room for a whole file, after a run that was interrupted, and
// with a guessable password in userdb.env.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"secrets.sh", "redis.conf"} {
		write(t, filepath.Join(dir, name), read(t, name))
	}
	files := func() (names []string) {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	run := func(before string) error {
		return exec.CommandContext(t.Context(), "sh", "-c", before+"; sh "+filepath.Join(dir, "secrets.sh")).Run()
	}
	// Files may have 512 bytes, so redis.acl does not fit, as on a disk that is nearly full.
	if err := run("trap '' XFSZ; ulimit -f 1"); err == nil || len(files()) != 2 {
		t.Errorf("without room for redis.acl: error %v, and the files are %q; want an error and no new file", err, files())
	}
	must(t, run(":"))
	want := []string{"backup.env", "redis.acl", "redis.conf", "secrets.sh", "userdb.env"}
	if got := files(); !slices.Equal(got, want) {
		t.Fatalf("the files are %q, want %q", got, want)
	}

	// redis.acl is the last file that gets its name.
	passwords, rights := read(t, filepath.Join(dir, "userdb.env")), read(t, filepath.Join(dir, "redis.acl"))
	must(t, os.Remove(filepath.Join(dir, "redis.acl")))
	must(t, run(":"))
	if again := read(t, filepath.Join(dir, "userdb.env")); again != passwords || read(t, filepath.Join(dir, "redis.acl")) != rights {
		t.Error("a run after one that was interrupted makes other passwords")
	}
	must(t, os.Remove(filepath.Join(dir, "redis.acl")))
	write(t, filepath.Join(dir, "userdb.env"), "USERDB_STORE=redis://userdb:guessable@redis:6379/0\n")
	if err := run(":"); err == nil || len(files()) != len(want)-1 {
		t.Errorf("a guessable password goes into redis.acl: error %v, files %q", err, files())
	}
}

// A shippedRedis is a Redis with the files as shipped, in a folder of its own.
type shippedRedis struct {
	dir, socket string
	store       []string // the environment of the command
}

func newShippedRedis(t *testing.T) shippedRedis {
	t.Helper()
	dir := makeSecrets(t)
	socket := filepath.Join(dir, "s")
	conf := strings.NewReplacer("/etc/userdb/redis.acl", filepath.Join(dir, "redis.acl"), "dir /data", "dir "+dir).Replace(read(t, "redis.conf"))
	write(t, filepath.Join(dir, "redis.conf"), conf+"port 0\nunixsocket "+socket+"\n")
	env := read(t, filepath.Join(dir, "userdb.env"))
	_, password, _ := strings.Cut(env, "//userdb:")
	password, _, _ = strings.Cut(password, "@")
	return shippedRedis{dir, socket, []string{"USERDB_STORE=unix://userdb:" + password + "@" + socket}}
}

// start starts the server and waits until it has loaded its file.
func (r shippedRedis) start(t *testing.T) (stop func(os.Signal)) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "redis-server", filepath.Join(r.dir, "redis.conf"))
	must(t, cmd.Start())
	for end := time.Now().Add(30 * time.Second); !answers(t, r.store); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Redis does not answer")
		}
	}
	return func(s os.Signal) {
		must(t, cmd.Process.Signal(s))
		_ = cmd.Wait() // ended by the signal
	}
}

// TestRestart starts a Redis with the files as shipped, creates an account with the userdb command
// and restarts the Redis. The account must still be there, and nobody may log in to Redis without a
// password.
func TestRestart(t *testing.T) {
	r := newShippedRedis(t)
	stop := r.start(t)
	output(t, r.store, program, "create", "user", "uid=u1", "name=Ann", "--no-password")
	stop(syscall.SIGTERM)
	defer r.start(t)(syscall.SIGTERM)
	if out := output(t, r.store, program, "get", "u1"); !strings.Contains(out, "Ann") {
		t.Errorf("after a restart the account is %q, want it to have the name Ann", out)
	}
	if out := output(t, nil, "redis-cli", "-s", r.socket, "dbsize"); !strings.Contains(out, "NOAUTH") {
		t.Errorf("without a password the server answers %q, want NOAUTH", out)
	}
}

// TestTruncatedFile checks that Redis refuses to start from a file that lost its end in a crash,
// and starts after the command that docs/deploy.md names.
func TestTruncatedFile(t *testing.T) {
	r := newShippedRedis(t)
	stop := r.start(t)
	output(t, r.store, program, "create", "user", "uid=u1", "name=Ann", "--no-password")
	time.Sleep(1500 * time.Millisecond) // appendfsync everysec
	stop(syscall.SIGKILL)
	logs, err := filepath.Glob(filepath.Join(r.dir, "appendonlydir", "*.incr.aof"))
	if must(t, err); len(logs) != 1 {
		t.Fatalf("the append-only files are %q, want one", logs)
	}
	write(t, logs[0], read(t, logs[0])+"*3\r\n$3\r\nSET\r\n$9\r\nhalf")
	must(t, os.Remove(r.socket))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	refused := exec.CommandContext(ctx, "redis-server", filepath.Join(r.dir, "redis.conf"))
	if out, err := refused.CombinedOutput(); err == nil || ctx.Err() != nil || !strings.Contains(string(out), "Unexpected end of file") {
		t.Fatalf("Redis starts from a file that lacks its end: %v, %s", err, out)
	}
	if page := read(t, "../docs/deploy.md"); !strings.Contains(page, "redis-check-aof --fix /data/appendonlydir/*.manifest") {
		t.Error("docs/deploy.md does not say how to repair the file")
	}
	manifests, err := filepath.Glob(filepath.Join(r.dir, "appendonlydir", "*.manifest"))
	if must(t, err); len(manifests) != 1 {
		t.Fatalf("the manifests are %q, want one", manifests)
	}
	fix := exec.CommandContext(t.Context(), "redis-check-aof", "--fix", manifests[0])
	fix.Stdin = strings.NewReader("y\n")
	if out, err := fix.CombinedOutput(); err != nil {
		t.Fatalf("redis-check-aof: %v\n%s", err, out)
	}
	defer r.start(t)(syscall.SIGTERM)
	if out := output(t, r.store, program, "get", "u1"); !strings.Contains(out, "Ann") {
		t.Errorf("after the repair the account is %q, want it to have the name Ann", out)
	}
}

// TestBackup backs up and restores a Redis with the files as shipped, by the commands of
// docs/deploy.md. A file that is not whole is refused before the accounts are replaced.
func TestBackup(t *testing.T) {
	r := newShippedRedis(t)
	here := strings.NewReplacer("/data", r.dir, "redis-cli ", "redis-cli -s "+r.socket+" ")
	var scripts []string // of the page: one that writes a snapshot, and one that restores it
	for _, script := range regexp.MustCompile(`(?s)exec -T redis sh -c \\\n *'(.*?)'|run --rm -T redis sh -c \\\n *'(.*?)'`).FindAllStringSubmatch(read(t, "../docs/deploy.md"), -1) {
		scripts = append(scripts, here.Replace(script[1]+script[2]))
	}
	if len(scripts) != 2 {
		t.Fatalf("docs/deploy.md has the scripts %q, want one for the backup and one for restoring it", scripts)
	}
	stop := r.start(t)
	output(t, r.store, program, "create", "user", "uid=u1", "name=Ann", "--no-password")
	backup := exec.CommandContext(t.Context(), "sh", "-c", scripts[0])
	backup.Env = append(os.Environ(), strings.TrimSpace(read(t, filepath.Join(r.dir, "backup.env"))))
	snapshot, err := backup.Output()
	must(t, err)
	output(t, r.store, program, "create", "user", "uid=u2", "name=Ben", "--no-password")
	stop(syscall.SIGTERM)

	restore := func(file string) error {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", scripts[1])
		cmd.Stdin = strings.NewReader(file)
		return cmd.Run()
	}
	if restore(string(snapshot[:len(snapshot)/2])) == nil || restore("") == nil {
		t.Error("half a snapshot, or none, can be restored")
	}
	stop = r.start(t)
	output(t, r.store, program, "get", "u2")
	stop(syscall.SIGTERM)

	must(t, restore(string(snapshot)))
	stop = r.start(t)
	if out := output(t, r.store, program, "count"); strings.TrimSpace(out) != "1" {
		t.Errorf("the restored store has %s accounts, want 1", out)
	}
	output(t, r.store, program, "create", "user", "uid=u3", "name=Cem", "--no-password")
	stop(syscall.SIGTERM)
	defer r.start(t)(syscall.SIGTERM)
	output(t, r.store, program, "get", "u1", "u3")
	output(t, r.store, program, "check")
}

// createKey creates an API key with a scope and returns its secret.
func createKey(t *testing.T, store, scope string) string {
	t.Helper()
	out := output(t, []string{store}, program, "apikey", "create", scope, "--scope", scope, "--json")
	var created struct{ Secret string }
	must(t, json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &created))
	return created.Secret
}

// exercise uses most of a service: accounts, sessions, histories, lists, import and export.
func exercise(t *testing.T, address, key string) {
	t.Helper()
	uid := ""
	for _, step := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/readyz", "", 200},
		{"POST", "/v1/types/user/entries", `{"facets":{"email":"alice@hotmail.com"},"tags":["admin"],"password":"correct horse battery"}`, 201},
		{"POST", "/v1/types/user/login", `{"identifier":"alice@hotmail.com","password":"correct horse battery","session":{}}`, 200},
		{"PATCH", "/v1/types/user/entries/UID", `{"facets":{"name":"Alice"}}`, 200},
		{"GET", "/v1/types/user/entries?tag=admin", "", 200},
		{"GET", "/v1/types/user/count", "", 200},
		{"GET", "/v1/types/user/entries/UID/history", "", 200},
		{"POST", "/v1/types/user/import", `{"type":"user","facets":{"email":"bob@example.com"}}`, 200},
		{"GET", "/v1/types/user/export", "", 200},
		{"GET", "/v1/events", "", 200},
		{"GET", "/v1/status", "", 200},
		{"DELETE", "/v1/types/user/entries/UID", "", 204},
	} {
		status, body, header := send(t, step.method, address+strings.ReplaceAll(step.path, "UID", uid), key, step.body)
		if status != step.status || strings.Contains(body, `"refused":1`) {
			t.Errorf("%s %s: got %d %s, want %d", step.method, step.path, status, body, step.status)
		}
		if location := header.Get("Location"); location != "" {
			uid = location[strings.LastIndex(location, "/")+1:]
		}
	}
}

// TestImage builds the image and sends a request to its container.
func TestImage(t *testing.T) {
	requireProgram(t, "buildah")
	// Inside a container, other storage drivers and other isolation may not be allowed.
	storage := []string{"STORAGE_DRIVER=vfs", "BUILDAH_ISOLATION=chroot"}
	output(t, storage, "./image.sh", "buildah")
	container := strings.TrimSpace(output(t, storage, "buildah", "from", "--pull-never", "localhost/userdb:latest"))
	t.Cleanup(func() {
		// The test process ends after this, so an error does not matter.
		_ = exec.Command("buildah", "--storage-driver", "vfs", "rm", container).Run()
	})
	cmd := exec.CommandContext(t.Context(), "buildah", "run", container, "--", "/userdb", "serve", "--store", "memory:", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), storage...)
	address := startServing(t, cmd)
	if status, body, _ := send(t, "GET", address+"/readyz", "", ""); status != http.StatusOK {
		t.Errorf("GET /readyz: got %d %s, want 200", status, body)
	}
	image := output(t, storage, "buildah", "inspect", "--type", "image", "localhost/userdb:latest")
	for _, want := range []string{`"User": "65532:65532"`, `"/userdb"`, `"8470`} {
		if !strings.Contains(image, want) {
			t.Errorf("the image has no %s", want)
		}
	}
}

// TestDist unpacks the release for this machine, and checks that two builds of one commit are
// identical.
func TestDist(t *testing.T) {
	requireProgram(t, "sha256sum")
	system := strings.ReplaceAll(strings.TrimSpace(output(t, nil, "go", "env", "GOOS", "GOARCH")), "\n", "/")
	sums := output(t, nil, "./dist.sh", system)
	if again := output(t, nil, "./dist.sh", system); again != sums {
		t.Errorf("two builds differ; first\n%s\nthen\n%s", sums, again)
	}
	dir, archives := t.TempDir(), 0
	found, err := filepath.Glob("../dist/*.tar.gz")
	must(t, err)
	for _, archive := range found {
		archives++
		output(t, nil, "tar", "-xzf", archive, "-C", dir, "--strip-components=1")
	}
	if archives != 1 {
		t.Fatalf("dist has %d archives, want 1", archives)
	}
	for _, file := range []string{"userdb", "LICENSE", "completion/userdb.bash", "man/userdb.1", "man/userdb-serve.1"} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing from the archive or empty; error %v", file, err)
		}
	}
	commit := strings.TrimSpace(output(t, nil, "git", "rev-parse", "HEAD"))
	if version := output(t, nil, filepath.Join(dir, "userdb"), "version"); !strings.Contains(version, commit) || strings.Contains(version, "(devel)") {
		t.Errorf("the version is %s, want the commit %s", version, commit)
	}
	if strings.Contains(read(t, filepath.Join(dir, "userdb")), "ld-linux") {
		t.Error("the binary is not static")
	}
}

// answers reports whether the command reaches a store.
func answers(t *testing.T, store []string) bool {
	cmd := exec.CommandContext(t.Context(), program, "status")
	cmd.Env = append(os.Environ(), store...)
	return cmd.Run() == nil
}
