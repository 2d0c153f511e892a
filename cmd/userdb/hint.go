package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/jsonline"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

type hintCmd struct {
	Hints []string `arg:"" name:"HINT" optional:"" help:"Hints, in any form."`
	As    string   `placeholder:"entry|user" enum:"entry,user," default:"" help:"Take only what resolve_entry_hint or resolve_user_entry_hint of the original takes."`
	Batch bool     `help:"Read hints from standard input, one JSON value a line; answer each with one line."`
}

func (*hintCmd) Help() string {
	return `A hint points at an entry. These are the forms:

  17c07627d35e                       a UID
  user/uid:17c07627d35e              a record key, of an entry or of an identifier
  email=alice@example.com            a field and its value
  *=Alice                            a value, in whatever secondary field
  ["user","name","Alice"]            also [TYPE,UID], [FIELD,VALUE], ["*",VALUE]
  {"name":"Alice","job":"author"}    an entry or a part of one

The answer is ["prk" or "srk",KEY,TYPE,FIELD,VALUE], or for * ["any",[SRK…],TYPE,"*",VALUE,PATTERN].
No store is asked: whether there is such an entry, get says. The schema is that of --schema, else the
built-in one.

Examples:
  userdb hint email=Alice@Example.com
  userdb hint '*=Alice' 17c07627d35e
  userdb hint --as user '["name","Alice"]'
  userdb hint --batch < hints.jsonl`
}

// patient: nobody is waited for but standard input.
func (*hintCmd) patient() {}

func (c *hintCmd) Run(ctx context.Context, s *session) error {
	sc, err := s.schemaAlone()
	if err != nil {
		return err
	}
	if c.Batch {
		if len(c.Hints) > 0 {
			return usagef("--batch reads hints from standard input: leave the others out")
		}
		return s.batch(ctx, func(raw json.RawMessage) (any, error) {
			return c.resolveJSON(sc, s.Type, raw)
		})
	}
	if len(c.Hints) == 0 {
		return usagef("a HINT is missing; see 'userdb hint --help'")
	}
	return eachText(s, c.Hints, func(text string) (any, error) { return c.resolve(sc, s.Type, text) })
}

func (c *hintCmd) resolve(sc schema.Schema, meant, text string) (any, error) {
	if c.As == "" {
		h, err := hints.Parse(text)
		if err != nil {
			return nil, err
		}
		return resolve(h, sc, meant)
	}
	raw := []byte(text)
	if !bytes.HasPrefix(raw, []byte("[")) && !bytes.HasPrefix(raw, []byte("{")) {
		var err error
		if raw, err = json.Marshal(text); err != nil {
			return nil, err
		}
	}
	return c.resolveJSON(sc, meant, raw)
}

func (c *hintCmd) resolveJSON(sc schema.Schema, meant string, raw json.RawMessage) (any, error) {
	switch c.As {
	case "entry":
		return hints.AsEntry(sc, raw)
	case "user":
		return hints.AsUser(sc, meant, raw)
	}
	h, err := hints.ParseJSON(raw)
	if err != nil {
		return nil, err
	}
	return resolve(h, sc, meant)
}

type keyCmd struct {
	Split    keySplitCmd    `cmd:"" help:"Type, field and value of a key."`
	Analyze  keyAnalyzeCmd  `cmd:"" help:"Kind, key, type, field and value of a key."`
	Escape   keyEscapeCmd   `cmd:"" help:"Write a text as it stands in a key."`
	Unescape keyUnescapeCmd `cmd:"" help:"Read a text as it stands in a key."`
}

func (*keyCmd) Help() string {
	return `No store is asked.

Examples:
  userdb key analyze user/name:Alice/~prk
  userdb key escape 'http://example.com/'`
}

// keyArgs are those of every key command.
type keyArgs struct {
	Texts []string `arg:"" name:"TEXT" optional:"" help:"Texts; behind -- they may begin with a dash."`
	Batch bool     `help:"Read texts from standard input, one JSON value a line; answer each with one line."`
}

// patient: nobody is waited for but standard input.
func (*keyArgs) patient() {}

// answerAll prints what f makes of each text.
func (a *keyArgs) answerAll(ctx context.Context, s *session, f func(string) (any, error)) error {
	switch {
	case a.Batch && len(a.Texts) > 0:
		return usagef("--batch reads texts from standard input: leave the others out")
	case a.Batch:
		return s.batch(ctx, func(raw json.RawMessage) (any, error) {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil || raw[0] != '"' {
				return nil, &lineError{"the line is no JSON text"}
			}
			return f(text)
		})
	case len(a.Texts) == 0:
		return usagef("a TEXT is missing; see 'userdb key --help'")
	}
	return eachText(s, a.Texts, f)
}

// eachText prints what f makes of each text, if it takes all of them.
func eachText(s *session, texts []string, f func(string) (any, error)) error {
	results := make([]any, len(texts))
	for i, text := range texts {
		var err error
		if results[i], err = f(text); err != nil {
			return err
		}
	}
	for _, r := range results {
		if err := s.answer(r); err != nil {
			return err
		}
	}
	return nil
}

// answer prints a list as JSON for people, too, and a crumb as it is.
func (s *session) answer(r any) error {
	if text, ok := r.(crumb); ok {
		return s.out.say(text, shown(string(text)))
	}
	line, err := jsonline.Marshal(r)
	if err == nil {
		_, err = s.out.Write(line)
	}
	return err
}

// A crumb is a text on its way into a key or out of one.
type crumb string

// onlyFlag narrows the keys that are taken.
type onlyFlag struct {
	Only string `placeholder:"prk|srk" enum:"prk,srk," default:"" help:"Take keys of entries (prk) or of identifiers (srk) alone."`
}

func (o onlyFlag) kind() recordkey.Kind {
	return map[string]recordkey.Kind{"prk": recordkey.KindPRK, "srk": recordkey.KindSRK}[o.Only]
}

type keySplitCmd struct {
	keyArgs
	onlyFlag
}

func (*keySplitCmd) Help() string {
	return `Examples:
  userdb key split user/uid:17c07627d35e
  userdb key split --only srk user/name:Alice+_Liddell/~prk`
}

func (c *keySplitCmd) Run(ctx context.Context, s *session) error {
	return c.answerAll(ctx, s, func(text string) (any, error) {
		return hints.Split(text, c.kind())
	})
}

type keyAnalyzeCmd struct {
	keyArgs
	onlyFlag
}

func (*keyAnalyzeCmd) Help() string {
	return `Examples:
  userdb key analyze user/uid:17c07627d35e user/name:Alice/~prk
  userdb key analyze --only prk --batch < keys.jsonl`
}

func (c *keyAnalyzeCmd) Run(ctx context.Context, s *session) error {
	return c.answerAll(ctx, s, func(text string) (any, error) {
		return hints.Analyze(text, c.kind())
	})
}

type keyEscapeCmd struct{ keyArgs }

func (*keyEscapeCmd) Help() string {
	return `Examples:
  userdb key escape 'Just A. User'
  userdb key escape -- -x http://example.com/`
}

func (c *keyEscapeCmd) Run(ctx context.Context, s *session) error {
	return c.answerAll(ctx, s, func(text string) (any, error) {
		return crumb(recordkey.Escape(text)), nil
	})
}

type keyUnescapeCmd struct{ keyArgs }

func (*keyUnescapeCmd) Help() string {
	return `What is no escape stands for itself.

Examples:
  userdb key unescape Just+_A.+_User --json`
}

func (c *keyUnescapeCmd) Run(ctx context.Context, s *session) error {
	return c.answerAll(ctx, s, func(text string) (any, error) {
		return crumb(recordkey.UnescapeLoose(text)), nil
	})
}

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
