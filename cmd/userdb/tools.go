package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

func hintCommand(s *session) *cobra.Command {
	var as string
	c := &cobra.Command{
		Use:   "hint [HINT…]",
		Short: "Show what a hint means",
		Long: `A hint points at an entry. It has one of these forms:

  17c07627d35e                     a UID; if no entry has it, all commands but
                                   delete and hint read it as *=17c07627d35e
  user/uid:17c07627d35e            the record key of an entry or an identifier
  email=alice@example.com          a field and its value
  *=Alice                          a value of any identifier that people type
  ["user","name","Alice"]          also [TYPE,UID], [FIELD,VALUE], ["*",VALUE]
  {"name":"Alice","job":"author"}  an entry or a part of one

The answer is ["prk" or "srk",KEY,TYPE,FIELD,VALUE], or for * ["any",[SRK…],TYPE,"*",VALUE,PATTERN].
This needs no store: 'userdb get' finds out whether the entry exists. The schema is that of
--schema, else the built-in one.`,
		Example: `  userdb hint email=Alice@Example.com
  userdb hint '*=Alice' 17c07627d35e
  userdb hint --as user '["name","Alice"]'
  userdb hint --batch < hints.jsonl`,
		RunE: s.run(func(ctx context.Context, texts []string) error {
			sc, err := s.namedSchema(ctx, schema.User())
			if err != nil {
				return err
			}
			resolveParsed := func(h hints.Hint, err error) (any, error) {
				if err != nil {
					return nil, err
				}
				return resolve(h, sc, s.defaultType(sc))
			}
			answerJSON := func(raw json.RawMessage) (any, error) {
				switch as { // AsEntry and AsUser refuse what CoffeeNode UserDB refuses
				case "entry":
					return hints.AsEntry(sc, raw)
				case "user":
					return hints.AsUser(sc, s.defaultType(sc), raw)
				}
				return resolveParsed(hints.ParseJSON(raw))
			}
			return s.printAnswers(ctx, texts, answerJSON, func(text string) (any, error) {
				if as != "" {
					return answerJSON(hintJSON(text))
				}
				return resolveParsed(hints.Parse(text))
			})
		}, unlimited),
	}
	choiceFlag(c, &as, "as", "accept only what resolve_entry_hint (entry) or resolve_user_entry_hint (user) of\n"+
		"CoffeeNode UserDB accept: `WHICH`", "entry", "user")
	return s.withBatch(c)
}

// hintJSON returns a hint from the command line as JSON.
func hintJSON(text string) json.RawMessage {
	if strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") {
		return json.RawMessage(text)
	}
	raw, _ := json.Marshal(text) // a string can always be marshaled
	return raw
}

func recordKeyCommand(s *session) *cobra.Command {
	return group(&cobra.Command{
		Use:   "recordkey",
		Short: "Split, analyze, escape and unescape record keys",
		Long:  `Split and analyze record keys, and escape and unescape text in them. This needs no store.`,
		Example: `  userdb recordkey analyze user/name:Alice/~prk
  userdb recordkey escape 'Just A. User'`,
	},
		splitCommand(s, &cobra.Command{
			Use:   "split [TEXT…]",
			Short: "Split keys into type, field and value",
			Example: `  userdb recordkey split user/uid:17c07627d35e
  userdb recordkey split --only srk user/name:Alice+_Liddell/~prk`,
		}, func(text string, kind recordkey.Kind) (any, error) { return hints.Split(text, kind) }),
		splitCommand(s, &cobra.Command{
			Use:   "analyze [TEXT…]",
			Short: "Split keys into kind, key, type, field and value",
			Example: `  userdb recordkey analyze user/uid:17c07627d35e user/name:Alice/~prk
  userdb recordkey analyze --only prk --batch < keys.jsonl`,
		}, func(text string, kind recordkey.Kind) (any, error) { return hints.Analyze(text, kind) }),
		textCommand(s, &cobra.Command{
			Use:   "escape [TEXT…]",
			Short: "Escape text for use in a key",
			Example: `  userdb recordkey escape 'Just A. User'
  userdb recordkey escape -- -x http://example.com/`,
		}, func(text string) (any, error) { return recordkey.Escape(text), nil }),
		textCommand(s, &cobra.Command{
			Use:     "unescape [TEXT…]",
			Short:   "Unescape text from a key",
			Long:    `Unescape text from a key. Invalid escapes are left as they are.`,
			Example: `  userdb recordkey unescape Just+_A.+_User --json`,
		}, func(text string) (any, error) { return recordkey.UnescapeLoose(text), nil }),
	)
}

// splitCommand makes c print the results of f for keys. It declares --only, with which c accepts
// only keys of entries or only keys of identifiers.
func splitCommand(s *session, c *cobra.Command, f func(string, recordkey.Kind) (any, error)) *cobra.Command {
	var only string
	choiceFlag(c, &only, "only", "accept only keys of one `KIND`: of entries (prk) or of identifiers (srk)", "prk", "srk")
	kinds := map[string]recordkey.Kind{"prk": recordkey.KindPRK, "srk": recordkey.KindSRK}
	return textCommand(s, c, func(text string) (any, error) { return f(text, kinds[only]) })
}

// textCommand makes c print the results of f for texts.
func textCommand(s *session, c *cobra.Command, f func(string) (any, error)) *cobra.Command {
	c.RunE = s.run(func(ctx context.Context, texts []string) error {
		return s.printAnswers(ctx, texts, func(raw json.RawMessage) (any, error) {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil || raw[0] != '"' {
				return nil, errors.New("the line is not a JSON string")
			}
			return f(text)
		}, f)
	}, unlimited)
	return s.withBatch(c)
}

func (s *session) withBatch(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&s.batch, "batch", false, "read one JSON value per line from standard input, and answer each with one line")
	return c
}

// printAnswers prints the results of answerText for texts, or returns its first error and prints
// nothing. With --batch it prints the results of answerJSON for the lines of standard input.
func (s *session) printAnswers(ctx context.Context, texts []string,
	answerJSON func(json.RawMessage) (any, error), answerText func(string) (any, error),
) error {
	switch {
	case s.batch && len(texts) > 0:
		return usagef("--batch reads from standard input: give no other arguments")
	case s.batch:
		return s.answerLines(ctx, answerJSON)
	case len(texts) == 0:
		return usagef("no argument is given: give at least one, or --batch")
	}
	results := make([]any, len(texts))
	for i, text := range texts {
		var err error
		if results[i], err = answerText(text); err != nil {
			return err
		}
	}
	return printEach(s.out, results)
}

// maxLine limits a line of a batch, in bytes.
const maxLine = 1 << 20

// answerLines answers each line of standard input in order, before it reads the next one.
func (s *session) answerLines(ctx context.Context, answerJSON func(json.RawMessage) (any, error)) error {
	type answer struct {
		Result any    `json:"result,omitempty"`
		Error  string `json:"error,omitempty"`
	}
	in := bufio.NewReaderSize(contextReader(ctx, s.std.in), maxLine)
	for {
		line, err := in.ReadSlice('\n')
		tooLong := err == bufio.ErrBufferFull
		for err == bufio.ErrBufferFull { // skip the rest of the line
			_, err = in.ReadSlice('\n')
		}
		line = bytes.TrimSpace(line)
		var a answer
		switch {
		case ctx.Err() != nil:
			return stalledError(ctx, standardInput)
		case err != nil && err != io.EOF:
			return fmt.Errorf("reading standard input: %w", err)
		case tooLong:
			a.Error = fmt.Sprintf("the line is over %d bytes", maxLine)
		case err == io.EOF && len(line) == 0:
			return nil
		case !json.Valid(line):
			a.Error = "the line is not a JSON value"
		default:
			if a.Result, err = answerJSON(line); err != nil {
				a = answer{Error: describe(err)}
			}
		}
		if err := cmp.Or(s.out.printJSON(a), s.out.flush()); err != nil {
			return err
		}
	}
}

// buildInfo describes how the program was built.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() buildInfo {
	b := buildInfo{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		settings := map[string]string{}
		for _, setting := range info.Settings {
			settings[setting.Key] = setting.Value
		}
		b.Version, b.Modified = cmp.Or(info.Main.Version, b.Version), settings["vcs.modified"] == "true"
		b.Revision, b.Time = settings["vcs.revision"], settings["vcs.time"]
	}
	return b
}

func versionCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  userdb version
  userdb version --json`,
		RunE: s.run(func(context.Context, []string) error {
			b := readBuild()
			words := []string{"userdb", b.Version}
			if b.Revision != "" {
				words = append(words, b.Revision, b.Time)
			}
			if b.Modified {
				words = append(words, "modified")
			}
			return s.out.print(b, strings.Join(append(words, b.Go, b.Platform), " "))
		}),
	}
}
