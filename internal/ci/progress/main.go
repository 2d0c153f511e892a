// Command progress runs a command of the Makefile and prints a line at least every 20 seconds. For
// go test without -v, it prints a line for each package, the output of failed tests and, while it
// waits, the names of running tests. It forwards all other output unchanged.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

func main() {
	signal.Ignore(os.Interrupt) // the command also gets the signal, and ends
	os.Exit(run(os.Args[1:], os.Stdout, 10*time.Second))
}

// run runs a command and returns its exit code.
func run(args []string, out io.Writer, every time.Duration) int {
	if strings.HasPrefix(strings.Join(args, " "), "go test ") && !slices.Contains(args, "-v") {
		args = slices.Insert(slices.Clone(args), 2, "-json")
	}
	cmd := exec.Command(args[0], args[1:]...)
	stdout, err := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	if err = cmp.Or(err, cmd.Start()); err != nil {
		fmt.Fprintln(out, err)
		return 127
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(stdout)
		for in.Buffer(nil, 1<<30); in.Scan(); {
			lines <- in.Text() + "\n"
		}
	}()
	r, begin, quiet := report{output: map[string]string{}}, time.Now(), true
	for tick := time.Tick(every); ; {
		select {
		case line, more := <-lines:
			if !more {
				_ = cmd.Wait()
				return cmd.ProcessState.ExitCode() & 255 // 255 if a signal ended it
			}
			n, _ := fmt.Fprint(out, r.line(line))
			quiet = quiet && n == 0
		case <-tick:
			if quiet {
				latest := r.running[max(0, len(r.running)-4):]
				fmt.Fprintf(out, "%4.0f s: running %s\n", time.Since(begin).Seconds(), strings.Join(latest, ", "))
			}
			quiet = true
		}
	}
}

// A report holds the tests that are running, as "PACKAGE TEST", and the output of tests that may
// still fail.
type report struct {
	running []string          // in the order in which they began or continued
	output  map[string]string // by test
}

// line processes one line of the command's output and returns the text to print. The line is text
// or an event of the form that 'go doc test2json' describes.
func (r *report) line(line string) (text string) {
	var e struct{ Action, Package, Test, Output string }
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "build-output" {
		return cmp.Or(e.Output, line)
	}
	name := e.Package + " " + e.Test
	ends := func(test string) bool { return test == name || e.Test == "" && strings.HasPrefix(test, name) }
	switch e.Action {
	case "run", "cont":
		r.running = append(r.running, name)
	case "output":
		if e.Test == "" && e.Output != "PASS\n" {
			return e.Output
		} else if !strings.HasPrefix(e.Output, "=== ") {
			r.output[name] += e.Output
		}
	case "pause", "pass", "skip", "fail":
		r.running = slices.DeleteFunc(r.running, ends)
		for _, test := range slices.Sorted(maps.Keys(r.output)) {
			if e.Action == "fail" && ends(test) {
				text += test + "\n" + r.output[test]
			}
		}
		maps.DeleteFunc(r.output, func(test, _ string) bool { return e.Action != "pause" && ends(test) })
	}
	return text
}
