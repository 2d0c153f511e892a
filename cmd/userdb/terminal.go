package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// A terminal is where a person types.
type terminal interface {
	// ask writes a prompt and reads a line without echo, until ctx ends.
	ask(ctx context.Context, prompt string) (string, error)
	// restore brings the echo back where a question was left.
	restore()
}

// tty is the terminal at standard input.
type tty struct {
	fd    int
	state *term.State
}

// findTerminal is nil where standard input is no terminal.
func findTerminal() terminal {
	fd := int(os.Stdin.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil
	}
	return &tty{fd, state}
}

func (t *tty) restore() { term.Restore(t.fd, t.state) } // there is nothing else to try

func (t *tty) ask(ctx context.Context, prompt string) (string, error) {
	defer holdStill()()
	to, done := prompter()
	defer done()
	fmt.Fprint(to, prompt)
	defer fmt.Fprintln(to)
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := term.ReadPassword(t.fd)
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		t.restore()
		return "", context.Cause(ctx)
	case got := <-read:
		if errors.Is(got.err, io.EOF) {
			return "", usagef("no password was typed")
		}
		return string(got.line), got.err
	}
}

// prompter is where a question is seen, wherever the outputs go.
func prompter() (io.Writer, func()) {
	f, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return os.Stderr, func() {}
	}
	return f, func() { f.Close() }
}

// isTerminal says whether somebody looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
