package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// A terminal writes a prompt where a person types, and reads a line without echo, until ctx ends.
type terminal func(ctx context.Context, prompt string) (string, error)

// findTerminal is nil where standard input is no terminal.
func findTerminal() terminal {
	fd := int(os.Stdin.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil
	}
	return func(ctx context.Context, prompt string) (string, error) {
		defer holdStill()()
		to := os.Stderr
		if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil { // there it is seen, wherever the outputs go
			defer tty.Close()
			to = tty
		}
		fmt.Fprint(to, prompt)
		defer fmt.Fprintln(to)
		line, err := unlessDone(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
		switch {
		case ctx.Err() != nil:
			term.Restore(fd, state) // the echo; there is nothing else to try
		case errors.Is(err, io.EOF):
			return "", usagef("no password was typed")
		}
		return string(line), err
	}
}

// isTerminal reports whether a person watches w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// widthOf is how many characters a line of a terminal has; 0 for what is none.
func widthOf(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// unlessDone does what nothing can interrupt. When ctx ends, it is left alone.
func unlessDone[T any](ctx context.Context, do func() (T, error)) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = do()
	}()
	select {
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	case <-done:
		return value, err
	}
}

// until reads from r until ctx ends, also where the writer of a pipe is silent.
func until(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	return out
}

// standardInput is its name in errors.
const standardInput = "standard input"

// stalled is the error for an input that was waited for until ctx ended.
func stalled(ctx context.Context, what string) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
		return cause
	}
	return fmt.Errorf("%w: %s", errStalled, shown(what))
}

// openUntil opens a file until ctx ends, also where it is a pipe without a writer.
func openUntil(ctx context.Context, path string) (*os.File, error) {
	type opening struct {
		f   *os.File
		err error
	}
	opened := make(chan opening, 1)
	go func() {
		f, err := os.Open(path)
		opened <- opening{f, err}
	}()
	select {
	case o := <-opened:
		return o.f, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// maxSecret is how long a password may be on its way in, or what else is one line of standard input, in bytes. What
// is kept is shorter still.
const maxSecret = 4 << 10

// A secret is what a command needs to be told: typed at a prompt, or a line of standard input.
type secret struct {
	what   string // in errors
	prompt string
	to     *string
}

// newPassword is the prompt for a secret that is typed twice, and not empty.
const newPassword = "New password: "

func (s *session) withStdin(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&s.fromStdin, "password-stdin", false, "read the password as one line from standard input")
	return c
}

// ask takes secrets from standard input, or has a person type them, and then does what they are for, in the time that
// the command may take. Before a person types, try may find that there is no point.
func (s *session) ask(ctx context.Context, try, do func(context.Context) error, secrets ...secret) error {
	if !s.fromStdin {
		if s.std.term == nil {
			return usagef("no password: standard input is no terminal to ask at; pipe the password in as one line, with --password-stdin")
		}
		if err := s.timed(ctx, try); err != nil {
			return err
		}
		for _, secret := range secrets {
			if err := secret.typed(ctx, s.std.term); err != nil {
				return err
			}
		}
	}
	return s.timed(ctx, func(ctx context.Context) (err error) {
		for _, secret := range secrets {
			if s.fromStdin {
				*secret.to, err = secretLine(ctx, s.std.in, secret.what)
			}
			switch {
			case err != nil:
				return err
			case len(*secret.to) > maxSecret:
				return usagef("the %s is over %d bytes", secret.what, maxSecret)
			case secret.prompt == newPassword && *secret.to == "":
				return usagef("the password is empty")
			}
		}
		return do(ctx)
	})
}

// typed has a person type the secret.
func (s secret) typed(ctx context.Context, ask terminal) (err error) {
	if *s.to, err = ask(ctx, s.prompt); err != nil || s.prompt != newPassword {
		return err
	}
	again, err := ask(ctx, "The same again: ")
	if err == nil && again != *s.to {
		err = usagef("the two passwords differ: nothing was changed")
	}
	return err
}

// secretLine reads one line without its end, be that \n or \r\n. All else in it counts, spaces too. Errors call
// it what.
func secretLine(ctx context.Context, r io.Reader, what string) (string, error) {
	text, err := unlessDone(ctx, func() (string, error) { return readLine(r, maxSecret+2) })
	switch {
	case err != nil && ctx.Err() != nil:
		return "", stalled(ctx, standardInput)
	case err == io.EOF && text == "":
		return "", usagef("no %s on standard input", what)
	case err != nil && err != io.EOF:
		return "", usagef("reading the %s: %v", what, err)
	}
	line, ended := strings.CutSuffix(text, "\n")
	if ended {
		line = strings.TrimSuffix(line, "\r")
	}
	if len(line) > maxSecret { // the rest would be the next line
		return "", usagef("the %s is over %d bytes", what, maxSecret)
	}
	return line, nil
}

// readLine reads up to the end of a line, or most bytes, and no further: another line may be meant for something else.
func readLine(r io.Reader, most int) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < most && one[0] != '\n'; line = append(line, one[0]) {
		if _, err := io.ReadFull(r, one); err != nil {
			return string(line), err
		}
	}
	return string(line), nil
}

// A progress is one line on a terminal that is written over again and again. Elsewhere it is silent.
type progress struct {
	w           io.Writer // nil: standard error is no terminal
	what        string    // goes on, for bar
	begin, last time.Time
	shown       bool
}

const (
	progressEvery = 200 * time.Millisecond
	barWidth      = 30
)

// progress is that of what, which goes on.
func (s *session) progress(what string, visible bool) *progress {
	p := &progress{what: what, begin: time.Now()}
	if visible && isTerminal(s.std.err) {
		p.w = s.std.err
	}
	return p
}

// show replaces the line.
func (p *progress) show(format string, args ...any) {
	if p.w != nil && time.Since(p.last) >= progressEvery {
		p.last, p.shown = time.Now(), true
		fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// bar shows how much is done of about how much.
func (p *progress) bar(done, about int64) {
	part := 1.0
	if done < about {
		part = float64(done) / float64(about)
	}
	full := int(part * barWidth)
	p.show("%s [%s%s] %3.0f %%", p.what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part)
}

// clear takes the line away, for what is printed next.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// rate is how many a second were done since the beginning.
func (p *progress) rate(done int64) string {
	return fmt.Sprintf("%.0f/s", float64(done)/max(time.Since(p.begin), time.Microsecond).Seconds())
}

// left is how long the rest takes, if it goes on as it did.
func (p *progress) left(done, all int64) string {
	if done <= 0 || all <= done {
		return ""
	}
	rest := time.Duration(float64(time.Since(p.begin)) * float64(all-done) / float64(done))
	return ", " + rest.Round(time.Second).String() + " left"
}
