package main

import (
	"context"
	"encoding/json"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/jsonline"
	"github.com/coffeenode/userdb/recordkey"
)

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
