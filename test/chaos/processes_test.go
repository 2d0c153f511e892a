//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// runEnv is an environment variable by which checkLeftovers recognizes the processes of a run, both
// clients and servers. Its value is the log folder.
const runEnv = "USERDB_CHAOS_RUN"

// A process is the parent's view of a client or service.
type process struct {
	config
	cmd    *exec.Cmd
	input  io.WriteCloser
	idle   chan struct{} // gets a value when a client waits for an epoch, or a service is ready
	exited chan struct{}

	mu   sync.Mutex
	cuts int
	late []string // violations: calls of its burst (late_test.go) that returned too late
}

// starter returns a channel of jobs that one operating system thread carries out. A process with
// Pdeathsig is killed when the thread that started it ends. This thread ends only with the parent,
// however the parent dies.
var starter = sync.OnceValue(func() chan func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// startProcess starts a client or a service.
func startProcess(o config, logs string) (*process, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p := &process{config: o, idle: make(chan struct{}, 1), exited: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestClient$", "-test.timeout=0")
	p.cmd.Env = append(os.Environ(), clientEnv+"="+string(text))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	errors, err := os.OpenFile(filepath.Join(logs, "client-"+o.name()+".log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer errors.Close()
	p.cmd.Stderr = errors
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	starter() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	go p.readOutput(output)
	return p, nil
}

// readOutput reads the messages of the process until the process has ended.
func (p *process) readOutput(output io.Reader) {
	sc := bufio.NewScanner(output)
	for sc.Scan() {
		switch words := strings.Fields(sc.Text()); {
		case len(words) == 1 && words[0] == "waits":
			select {
			case p.idle <- struct{}{}:
			default:
			}
		case len(words) == 2 && words[0] == "cuts":
			p.mu.Lock()
			fmt.Sscan(words[1], &p.cuts)
			p.mu.Unlock()
		case len(words) == 2 && words[0] == "late":
			p.mu.Lock()
			p.late = append(p.late, fmt.Sprintf("a call of the burst in client %s returned %s ms after its context ended", p.name(), words[1]))
			p.mu.Unlock()
		}
	}
	p.cmd.Wait() // an error is normal: the nemesis kills most processes
	close(p.exited)
}

// cutCount returns the number of connections that the process has cut, from its last report.
func (p *process) cutCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// takeViolations returns the violations reported since the last call.
func (p *process) takeViolations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := p.late
	p.late = nil
	return late
}

// send sends the process one line. A dead process ignores it.
func (p *process) send(format string, args ...any) { fmt.Fprintf(p.input, format+"\n", args...) }

// pause makes a client finish its call and wait. It returns an error if the client does not do so
// within limit.
func (p *process) pause(limit time.Duration) error {
	select {
	case <-p.idle: // left from an earlier pause
	default:
	}
	p.send("epoch 0")
	select {
	case <-p.idle:
		return nil
	case <-p.exited:
		return fmt.Errorf("client %s exited; see its log", p.name())
	case <-time.After(limit):
		return fmt.Errorf("client %s did not pause within %v", p.name(), limit)
	}
}

func (p *process) signal(sig syscall.Signal) { p.cmd.Process.Signal(sig) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
	p.input.Close()
}

// checkLeftovers fails the test if a process of the run does not exit within ten seconds.
func checkLeftovers(t *testing.T, run string) {
	mark := []byte(runEnv + "=" + run + "\x00")
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var running []string
		environs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range environs {
			text, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(text, mark) {
				continue
			}
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			running = append(running, filepath.Base(filepath.Dir(path))+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
		if len(running) == 0 {
			return
		}
		if time.Since(begin) > 10*time.Second {
			t.Errorf("processes are still running:\n%s", strings.Join(running, "\n"))
			return
		}
	}
}
