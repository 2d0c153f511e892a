package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/coffeenode/userdb/internal/jsonline"
)

// output is standard output: lines for people or one JSON value a line.
type output struct {
	w     *bufio.Writer
	json  bool
	eager bool // somebody looks: every line goes out at once
	err   error
}

// Write is for commands that print a text of their own making.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	return n, o.wrote(err)
}

// say prints a value: as JSON, or the text for people.
func (o *output) say(v any, text string) error {
	if !o.json {
		_, err := io.WriteString(o, text+"\n")
		return err
	}
	line, err := jsonline.Marshal(v)
	if err != nil {
		return err
	}
	_, err = o.Write(line)
	return err
}

// wrote remembers the first failure, and sends on what somebody waits for.
func (o *output) wrote(err error) error {
	if err == nil && o.eager {
		err = o.w.Flush()
	}
	if err != nil && o.err == nil {
		o.err = &outputError{err}
	}
	return o.err
}

func (o *output) flush() error { return o.wrote(o.w.Flush()) }

// An outputError is a failure of standard output itself.
type outputError struct{ cause error }

func (e *outputError) Error() string { return "writing the output: " + e.cause.Error() }
func (e *outputError) Unwrap() error { return e.cause }

// enough says whether the reader of the output went away, as head does: that is no failure.
func enough(err error) bool {
	var out *outputError
	return errors.As(err, &out) && errors.Is(out.cause, syscall.EPIPE)
}

// report prints the one line about an error and returns the exit code.
func report(w io.Writer, asJSON bool, err error) int {
	if err == nil || enough(err) {
		return 0
	}
	v := judge(err)
	if !asJSON {
		fmt.Fprintln(w, "userdb: "+oneLine(message(err)))
		return v.exit
	}
	type failure struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Field   string `json:"field,omitempty"`
	}
	line, jerr := jsonline.Marshal(map[string]failure{"error": {v.code, message(err), field(err)}})
	if jerr != nil {
		return v.exit
	}
	w.Write(line) // there is nobody left to tell
	return v.exit
}
