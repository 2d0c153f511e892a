// Command userdb keeps accounts in Redis or, where no store is named, in a file: entries that are
// found by any identifier they own. See userdb --help.
package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
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

// execute runs the command until it is done or interrupted. The first signal ends its context, the second one kills.
func (s *session) execute() error {
	if s.do == nil {
		help := s.help.String()
		return cmp.Or(s.out.say(help, strings.TrimSuffix(help, "\n")), s.out.flush())
	}
	patience := grace
	if s.is(saving) {
		patience = saveGrace
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	end, abandon := context.WithCancelCause(context.Background())
	signals, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(signals, func() {
		stop()
		cancel(errInterrupted)
		time.AfterFunc(patience, func() { abandon(errInterrupted) })
	})
	_, err := unlessDone(end, func() (struct{}, error) {
		err := s.do(ctx)
		return struct{}{}, cmp.Or(err, s.out.flush())
	})
	return err
}
