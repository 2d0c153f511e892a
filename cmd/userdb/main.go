// Command userdb keeps accounts in Redis or, where no store is named, in a file: entries that are
// found by any identifier they own. See userdb --help.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	os.Exit(run(os.Args[1:], standard()))
}

// stdio is what a run reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	term     terminal // nil: standard input is no terminal
}

func standard() stdio {
	return stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, term: findTerminal()}
}

// run does what a command line says and returns the exit code.
func run(args []string, std stdio) int {
	logging.Disable()              // what the client has to say stands in its errors
	signal.Ignore(syscall.SIGPIPE) // so that a closed output is an error, which ends the run quietly
	s := newSession(std)
	err := s.parse(args)
	if err == nil {
		err = s.execute()
	}
	return report(std.err, s.JSON, err)
}

const (
	// grace is how long an interrupted command may take to end by itself. Nothing is left half done
	// when it does not: changes are all or nothing in the store.
	grace = 500 * time.Millisecond
	// saveGrace is grace for a command that saves how far it came.
	saveGrace = 10 * time.Second
)

// execute runs the command until it is done or somebody interrupts it.
func (s *session) execute() error {
	if s.do == nil {
		return firstOf(s.out.text(s.help.String()), s.out.flush())
	}
	ctx, stop := interruptible()
	defer stop()
	patience := grace
	if s.is(saving) {
		patience = saveGrace
	}
	end, cancel := context.WithCancelCause(context.Background())
	context.AfterFunc(ctx, func() {
		time.AfterFunc(patience, func() { cancel(context.Cause(ctx)) })
	})
	_, err := unlessDone(end, func() (struct{}, error) {
		err := s.do(ctx)
		return struct{}{}, firstOf(err, s.out.flush())
	})
	if end.Err() != nil && s.std.term != nil {
		s.std.term.restore()
	}
	return err
}

// interruptible ends with the first signal; the second one kills.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(signals, func() {
		stop()
		cancel(errInterrupted)
	})
	return ctx, stop
}

// firstOf is the first error that is not nil.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
