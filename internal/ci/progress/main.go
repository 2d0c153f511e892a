// Command progress runs a command of the Makefile and prints a line at least every 20 seconds, so that nobody has to guess
// whether it still works:
//
//	progress go vet ./...
//	progress go test ./...
//
// Of go test it prints a line for each package, the tests that run meanwhile, and everything that a failed test printed; with
// -v, what the others print as well. The output of other commands is passed on as it comes.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"
)

const every = 10 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: progress COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	signal.Ignore(os.Interrupt) // the command gets it, too, and ends
	os.Exit(run(os.Args[1:], os.Stdout, every))
}

// run runs a command and returns its exit code.
func run(args []string, out io.Writer, every time.Duration) int {
	r := &report{out: out, begin: time.Now(), running: map[test]time.Time{}, printed: map[test][]string{}}
	r.tests = len(args) > 2 && args[0] == "go" && args[1] == "test"
	if r.tests {
		r.verbose = slices.Contains(args, "-v")
		args = slices.Insert(slices.Clone(args), 2, "-json")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = os.Stdin
	from, to := io.Pipe()
	cmd.Stdout, cmd.Stderr = to, to
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(out, err)
		return 127
	}
	stop := make(chan bool)
	go r.tick(every, stop)
	read := make(chan bool)
	go func() {
		defer close(read)
		for lines := bufio.NewReader(from); ; {
			line, err := lines.ReadString('\n')
			r.line(line)
			if err != nil {
				return
			}
		}
	}()
	err := cmd.Wait()
	to.Close()
	<-read
	close(stop)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1) // -1: a signal
	} else if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	return 0
}

// A test is a test of a package; without a name it is the package.
type test struct{ pkg, name string }

// A report knows what runs.
type report struct {
	mu      sync.Mutex
	out     io.Writer
	begin   time.Time
	tests   bool // it runs go test
	verbose bool
	spoke   bool // since the last tick
	running map[test]time.Time
	printed map[test][]string // by tests that still run
	ended   int               // packages
}

// An event is one of those that go doc test2json describes.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// line takes one line of the command's output, an event if it comes from tests.
func (r *report) line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if !r.tests || !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
		r.print(line)
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.print(e.Output)
	case "start", "run", "cont":
		r.running[t] = time.Now()
	case "pause":
		delete(r.running, t)
	case "output":
		switch {
		case strings.HasPrefix(e.Output, "=== "): // a test began, or goes on
		case r.verbose && t.name != "":
			r.print(e.Output)
		default:
			r.printed[t] = append(r.printed[t], e.Output)
		}
	case "pass", "skip", "fail":
		r.end(t, e)
	}
}

// end prints what a failed test printed, and a line for each package.
func (r *report) end(t test, e event) {
	switch {
	case t.name != "" && e.Action == "fail" && len(r.printed[t]) > 0:
		r.print(t.pkg + "\n" + strings.Join(r.printed[t], ""))
	case t.name == "" && e.Action == "fail":
		for _, open := range slices.SortedFunc(maps.Keys(r.printed), compare) {
			if open.pkg == t.pkg { // the package ended before its test did
				r.print(strings.Join(r.printed[open], ""))
			}
		}
		maps.DeleteFunc(r.printed, func(open test, _ []string) bool { return open.pkg == t.pkg })
		maps.DeleteFunc(r.running, func(open test, _ time.Time) bool { return open.pkg == t.pkg })
		r.ended++
	case t.name == "":
		if lines := r.printed[t]; len(lines) > 0 {
			r.print(lines[len(lines)-1]) // "ok", or "?" where there are no tests
		}
		r.ended++
	}
	delete(r.running, t)
	delete(r.printed, t)
}

func compare(a, b test) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) }

func (r *report) print(text string) {
	if text != "" {
		fmt.Fprint(r.out, text)
		r.spoke = true
	}
}

// tick prints what runs, whenever nothing else was printed for a while.
func (r *report) tick(every time.Duration, stop chan bool) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(every):
		}
		r.mu.Lock()
		if !r.spoke {
			fmt.Fprintf(r.out, "%4.0f s: %s\n", time.Since(r.begin).Seconds(), r.now())
		}
		r.spoke = false
		r.mu.Unlock()
	}
}

// now are the tests that run, without those that only wait for their subtests.
func (r *report) now() string {
	var names []string
	for t, since := range r.running {
		waits := t.name == ""
		for other := range r.running {
			waits = waits || other.pkg == t.pkg && strings.HasPrefix(other.name, t.name+"/")
		}
		if !waits {
			names = append(names, fmt.Sprintf("%s (%.0f s)", t.name, time.Since(since).Seconds()))
		}
	}
	if !r.tests {
		return "at work"
	}
	slices.Sort(names)
	const most = 4
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return fmt.Sprintf("%d packages done, %s%s", r.ended, cmp.Or(strings.Join(names, ", "), "compiling"), more)
}
