package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coffeenode/userdb/internal/jsonline"
)

// maxLine is how long a line of a batch may be, in bytes.
const maxLine = 1 << 20

// answer is what a batch prints for a line: a result or an error.
type answer struct {
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

// batch answers every line of standard input, in order, at once.
func (s *session) batch(ctx context.Context, one func(json.RawMessage) (any, error)) error {
	in := bufio.NewReaderSize(s.std.in, maxLine)
	for ctx.Err() == nil {
		line, err := readLine(in)
		if err == io.EOF {
			return nil
		}
		if err != nil && !errors.As(err, new(*lineError)) {
			return err
		}
		out, err := jsonline.Marshal(answerTo(line, err, one))
		if err == nil {
			_, err = s.out.Write(out)
		}
		if err == nil {
			err = s.out.flush()
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func answerTo(line json.RawMessage, err error, one func(json.RawMessage) (any, error)) answer {
	var a answer
	if err == nil {
		a.Result, err = one(line)
	}
	if err != nil {
		return answer{Error: wrong(err)}
	}
	return a
}

// A lineError is a line of a batch that is no input at all.
type lineError struct{ reason string }

func (e *lineError) Error() string { return e.reason }

// readLine reads one line of JSON. A line that is too long is read to its end, and refused.
func readLine(in *bufio.Reader) (json.RawMessage, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return nil, &lineError{fmt.Sprintf("the line is over %d bytes", maxLine)}
	}
	line = bytes.TrimSpace(line)
	switch {
	case err == io.EOF && len(line) == 0:
		return nil, io.EOF
	case err != nil && err != io.EOF:
		return nil, fmt.Errorf("reading standard input: %w", err)
	case !json.Valid(line):
		return nil, &lineError{"the line is no JSON value"}
	}
	return bytes.Clone(line), nil
}
