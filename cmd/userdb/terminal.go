package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// A terminal prints a prompt and reads the line that a person types, without echo. It returns early
// if ctx ends.
type terminal func(ctx context.Context, prompt string) (string, error)

// findTerminal returns the terminal of standard input, or nil if standard input is not a terminal.
func findTerminal() terminal {
	fd := int(os.Stdin.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil
	}
	return func(ctx context.Context, prompt string) (string, error) {
		defer ignoreStopSignals()()
		to := os.Stderr
		if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			// /dev/tty shows the prompt even if both outputs go elsewhere.
			defer tty.Close()
			to = tty
		}
		fmt.Fprint(to, prompt)
		defer fmt.Fprintln(to)
		line, err := callWithContext(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
		switch {
		case ctx.Err() != nil:
			term.Restore(fd, state) // turn the echo on again, if possible
		case errors.Is(err, io.EOF):
			return "", usagef("no password was entered")
		}
		return string(line), err
	}
}

// isTerminal reports whether w is a terminal, which a person watches.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth returns how many characters fit on a line of a terminal, or 0 if f is not one.
func terminalWidth(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// callWithContext calls do, which cannot be interrupted. If ctx ends first, it returns the cause
// and leaves do running in its goroutine.
func callWithContext[T any](ctx context.Context, do func() (T, error)) (T, error) {
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

// contextReader returns a reader that reads from r and fails when ctx ends, even while the writer
// of a pipe is silent.
func contextReader(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	return out
}

// standardInput names standard input in errors.
const standardInput = "standard input"

// stalledError returns the error for an input that did not arrive before ctx ended.
func stalledError(ctx context.Context, what string) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
		return cause
	}
	return fmt.Errorf("%w: %s", errStalled, printable(what))
}

// openWithContext opens a file. It returns early if ctx ends, even if the file is a pipe without a
// writer.
func openWithContext(ctx context.Context, path string) (*os.File, error) {
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

// maxSecret limits a password, or another line of standard input, in bytes. The store's own limit
// for passwords is lower.
const maxSecret = 4 << 10

// A secret is a value that a command reads from a prompt or from a line of standard input.
type secret struct {
	what   string // its name in errors
	prompt string
	to     *string
}

// newPassword is the prompt for a secret that is entered twice and must not be empty.
const newPassword = "New password: "

func (s *session) withStdin(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&s.fromStdin, "password-stdin", false, "read the password as one line from standard input")
	return c
}

// ask reads secrets from standard input, or asks a person for them. Then it calls do with the time
// limit of the command. Unless --password-stdin is given, it first calls check, which returns an
// error if the command would fail whatever the password is.
func (s *session) ask(ctx context.Context, check, do func(context.Context) error, secrets ...secret) error {
	if !s.fromStdin {
		if err := s.timed(ctx, check); err != nil {
			return err
		}
		if s.std.term == nil {
			return usagef("no password: standard input is not a terminal; pipe the password in as one line with --password-stdin")
		}
		for _, secret := range secrets {
			if err := secret.readFrom(ctx, s.std.term); err != nil {
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
			case secret.prompt == newPassword && !typeable(*secret.to):
				return usagef("the password contains a byte order mark or a NUL, or is not UTF-8: nobody could type it; save its file as UTF-8 without a mark")
			}
		}
		return do(ctx)
	})
}

// typeable reports whether a person can type a secret: it is UTF-8 without a byte order mark and
// without NUL, which a file in UTF-16 has.
func typeable(secret string) bool {
	return utf8.ValidString(secret) && !strings.ContainsAny(secret, "\ufeff\x00")
}

// readFrom asks a person for the secret.
func (s secret) readFrom(ctx context.Context, ask terminal) (err error) {
	if *s.to, err = ask(ctx, s.prompt); err != nil || s.prompt != newPassword {
		return err
	}
	again, err := ask(ctx, "Repeat the password: ")
	if err == nil && again != *s.to {
		err = usagef("the two passwords differ: nothing was changed")
	}
	return err
}

// secretLine reads one line without its end, \n or \r\n. Everything else, spaces included, is part
// of the secret. what names the secret in errors.
func secretLine(ctx context.Context, r io.Reader, what string) (string, error) {
	text, err := callWithContext(ctx, func() (string, error) { return readLine(r, maxSecret+2) })
	switch {
	case err != nil && ctx.Err() != nil:
		return "", stalledError(ctx, standardInput)
	case err == io.EOF && text == "":
		return "", usagef("no %s on standard input", what)
	case err != nil && err != io.EOF:
		return "", usagef("reading the %s: %v", what, err)
	}
	line, ended := strings.CutSuffix(text, "\n")
	if ended {
		line = strings.TrimSuffix(line, "\r")
	}
	if len(line) > maxSecret { // otherwise the rest would be read as the next line
		return "", usagef("the %s is over %d bytes", what, maxSecret)
	}
	return line, nil
}

// readLine reads to the end of a line, or up to limit bytes. It reads no further, because the next
// line may be meant for something else.
func readLine(r io.Reader, limit int) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < limit && b[0] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(r, b); err != nil {
			return string(line), err
		}
	}
	return string(line), nil
}

// A progress is a line on a terminal that is overwritten again and again. If there is no terminal,
// it prints nothing.
type progress struct {
	w           io.Writer // nil if standard error is not a terminal
	what        string    // the work that bar shows
	begin, last time.Time
	shown       bool
}

const (
	progressEvery = 200 * time.Millisecond
	barWidth      = 30
)

// progress returns a progress of the work called what. It prints something if visible is set and
// standard error is a terminal.
func (s *session) progress(what string, visible bool) *progress {
	p := &progress{what: what, begin: time.Now()}
	if visible && isTerminal(s.std.err) {
		p.w = s.std.err
	}
	return p
}

// show replaces the line, at most once every progressEvery.
func (p *progress) show(format string, args ...any) {
	if p.w != nil && time.Since(p.last) >= progressEvery {
		p.last, p.shown = time.Now(), true
		fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
	}
}

// bar shows how much of the work is done, as a bar and in percent. about is an estimate of the
// number of items.
func (p *progress) bar(done, about int64) {
	part := 1.0
	if done < about {
		part = float64(done) / float64(about)
	}
	full := int(part * barWidth)
	p.show("%s [%s%s] %3.0f %%", p.what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part)
}

// clear removes the line, so that something else can be printed.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// rate returns the average number of items done per second, as text.
func (p *progress) rate(done int64) string {
	return fmt.Sprintf("%.0f/s", float64(done)/max(time.Since(p.begin), time.Microsecond).Seconds())
}

// remaining returns the time left at the rate so far, as text, or "" if it is not known.
func (p *progress) remaining(done, all int64) string {
	if done <= 0 || all <= done {
		return ""
	}
	rest := time.Duration(float64(time.Since(p.begin)) * float64(all-done) / float64(done))
	return ", " + rest.Round(time.Second).String() + " left"
}
