package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

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

// maxSecret is how long a password may be on its way in, or what else is one line of standard input, in bytes. What is kept is shorter still.
const maxSecret = 4 << 10

// passwordFlags are those of a command that needs a password.
type passwordFlags struct {
	PasswordStdin bool `help:"Read the password as one line from standard input."`
	typed         string
	isNew         bool
}

// askNew asks for a new password, twice. Before that, try may say that there is no point.
func (p *passwordFlags) askNew(ctx context.Context, s *session, try func(context.Context) error) error {
	p.isNew = true
	if p.PasswordStdin {
		return nil
	}
	if err := s.needTerminal(); err != nil {
		return err
	}
	if err := s.timed(ctx, try); err != nil {
		return err
	}
	first, err := s.std.term.ask(ctx, "New password: ")
	if err != nil {
		return err
	}
	again, err := s.std.term.ask(ctx, "The same again: ")
	if err != nil {
		return err
	}
	if first != again {
		return usagef("the two passwords differ: nothing was changed")
	}
	p.typed = first
	return nil
}

// askOnce asks for a password that somebody has.
func (p *passwordFlags) askOnce(ctx context.Context, s *session) error {
	if p.PasswordStdin {
		return nil
	}
	err := s.needTerminal()
	if err == nil {
		p.typed, err = s.std.term.ask(ctx, "Password: ")
	}
	return err
}

func (s *session) needTerminal() error {
	if s.std.term != nil {
		return nil
	}
	return usagef("no password: standard input is no terminal to ask at; pipe the password in as one line, with --password-stdin")
}

// password is what was typed, or the line on standard input.
func (p *passwordFlags) password(ctx context.Context, s *session) (string, error) {
	pw := p.typed
	if p.PasswordStdin {
		var err error
		if pw, err = secretLine(ctx, s.std.in, "password"); err != nil {
			return "", err
		}
	}
	switch {
	case pw == "" && p.isNew:
		return "", usagef("the password is empty")
	case len(pw) > maxSecret:
		return "", usagef("the password is over %d bytes", maxSecret)
	}
	return pw, nil
}

// secretLine reads one line without its end, be that \n or \r\n. All else in it counts, spaces too. what says
// in an error what is in it.
func secretLine(ctx context.Context, r io.Reader, what string) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := wholeLine(r)
		read <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case got := <-read:
		if errors.Is(got.err, io.EOF) && got.line == "" {
			return "", usagef("no %s on standard input", what)
		}
		if got.err != nil && !errors.Is(got.err, io.EOF) {
			return "", usagef("reading the %s: %v", what, got.err)
		}
		line, whole := strings.CutSuffix(got.line, "\n")
		if whole {
			line = strings.TrimSuffix(line, "\r")
		}
		if len(line) > maxSecret { // what is left of it would be the next line
			return "", usagef("the %s is over %d bytes", what, maxSecret)
		}
		return line, nil
	}
}

// wholeLine reads up to the end of a line and no further: another line may be meant for something else.
func wholeLine(r io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxSecret+2; {
		if _, err := io.ReadFull(r, one); err != nil {
			return string(line), err
		}
		if line = append(line, one[0]); one[0] == '\n' {
			break
		}
	}
	return string(line), nil
}
