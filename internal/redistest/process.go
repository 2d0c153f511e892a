package redistest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// program returns the path of the server to run. If there is none, it skips or fails the test.
func program(t testing.TB) string {
	t.Helper()
	names := []string{"redis-server", "valkey-server"}
	if name := os.Getenv("USERDB_REDIS_SERVER"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing := "no " + strings.Join(names, " or ") + " found; make test installs one"
	if os.Getenv("USERDB_REQUIRE_REDIS") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// keeper is a shell script. It runs the server program given by its arguments in the background,
// prints its process id, and ends when the program does. If its own input ends first, the test
// process has died. Then it removes the server's directory and kills the server, in this order
// because the kill also ends keeper.
const keeper = `
exec 3<&0
"$@" 3<&- >"$REDISTEST_DIR/log" 2>&1 &
server=$!
echo $server
{ read -r line <&3; rm -rf "$REDISTEST_DIR"; kill -9 $server; } >/dev/null 2>&1 &
wait $server
kill $!
`

// A process is a running server program.
type process struct {
	pid   int
	input io.Closer
	ended chan struct{} // closed when the program has ended
}

// launch starts the program with args; its output goes to dir/log.
func launch(path, dir string, args ...string) (*process, error) {
	cmd := exec.Command("sh", append([]string{"-c", keeper, "sh", path}, args...)...)
	cmd.Env = append(os.Environ(), "REDISTEST_DIR="+dir)
	ownGroup(cmd)
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	pid, perr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || perr != nil {
		input.Close()
		return nil, fmt.Errorf("starting %s: got process id %q: %w", path, line, cmd.Wait())
	}
	p := &process{pid: pid, input: input, ended: make(chan struct{})}
	go func() {
		cmd.Wait() // the exit status does not matter
		close(p.ended)
	}()
	return p, nil
}

// signal sends sig and waits until the program has ended.
func (p *process) signal(sig os.Signal) {
	select {
	case <-p.ended: // the id may belong to another program by now
	default:
		if found, err := os.FindProcess(p.pid); err == nil {
			found.Signal(sig) // fails if the program has just ended
		}
		<-p.ended
	}
	p.input.Close()
}
