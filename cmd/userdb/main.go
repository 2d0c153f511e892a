// Command userdb keeps accounts in Redis or, where no store is named, in a file: entries that are
// found by any identifier they own. See userdb --help.
package main

import (
	"bufio"
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

const (
	defaultTimeout = 30 * time.Second
	// grace is how long an interrupted command may take to end by itself. Nothing is left half done
	// when it does not: changes are all or nothing in the store.
	grace = 500 * time.Millisecond
)

// run does what a command line says and returns the exit code.
func run(args []string, std stdio) int {
	inv, err := parse(args)
	if err != nil {
		return report(std.err, inv.JSON, err)
	}
	logging.Disable()              // what the client has to say stands in its errors
	signal.Ignore(syscall.SIGPIPE) // so that a closed output is an error, which ends the run quietly
	out := &output{w: bufio.NewWriterSize(std.out, 64<<10), json: inv.JSON, eager: isTerminal(std.out)}
	if inv.Help {
		err = firstOf(printHelp(out, inv.node), out.flush())
	} else {
		err = execute(inv, std, out)
	}
	return report(std.err, inv.JSON, err)
}

// execute runs the command until it is done or somebody interrupts it.
func execute(inv invocation, std stdio, out *output) error {
	ctx, stop := interruptible()
	defer stop()
	s := &session{globals: inv.globals, guarded: inv.guarded, out: out, std: std}
	done := make(chan error, 1)
	go func() {
		err := s.work(ctx, inv.command)
		done <- firstOf(err, out.flush())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(patience(inv.command)):
		if std.term != nil {
			std.term.restore()
		}
		return context.Cause(ctx)
	}
}

// tidiness is how long a command may take that notes how far it came.
const tidiness = 10 * time.Second

func patience(c command) time.Duration {
	if _, tidy := c.(interface{ tidy() }); tidy {
		return tidiness
	}
	return grace
}

// interruptible ends with the first signal; the second one kills.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			signal.Stop(signals)
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
