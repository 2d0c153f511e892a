package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/jsonline"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// output is standard output: lines for people or one JSON value a line.
type output struct {
	w    *bufio.Writer
	json bool
	live bool // a person watches: every line goes out at once
	err  error
}

// Write is for commands that print a text of their own making.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	return n, o.wrote(err)
}

// say prints a value: as JSON, or the text for people.
func (o *output) say(v any, text string) error {
	if o.json {
		return o.line(v)
	}
	_, err := io.WriteString(o, text+"\n")
	return err
}

// line prints a value as JSON.
func (o *output) line(v any) error {
	line, err := jsonline.Marshal(v)
	if err == nil {
		_, err = o.Write(line)
	}
	return err
}

// text prints what has line ends of its own.
func (o *output) text(text string) error {
	if o.json {
		return o.line(text)
	}
	_, err := io.WriteString(o, text)
	return err
}

// wrote remembers the first failure, and sends on what somebody waits for.
func (o *output) wrote(err error) error {
	if err == nil && o.live {
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

// enough reports whether the reader of the output went away, as head does: that is no failure.
func enough(err error) bool {
	var out *outputError
	return errors.As(err, &out) && errors.Is(out.cause, syscall.EPIPE)
}

// disabledField is true in the JSON of an entry that may not log in.
const disabledField = "~disabled"

// flat is an entry as one JSON object; hash is "" unless it was asked for.
func flat(e userdb.Entry, hash string) schema.Facets {
	all := schema.Facets{"~isa": schema.Text(e.Type()), "~prk": schema.Text(e.Key().String())}
	for name := range e.Fields() {
		all[name], _ = e.Get(name)
	}
	if e.Disabled() {
		all[disabledField] = schema.Bool(true)
	}
	if e.Rev() != "" {
		all["~rev"] = schema.Text(e.Rev())
	}
	if hash != "" {
		all[passwordField] = schema.Text(hash)
	}
	return all
}

// entry prints an entry that a verb was given, or passes its error on.
func (s *session) entry(e userdb.Entry, err error) error {
	if err != nil {
		return err
	}
	all := flat(e, "")
	return s.out.say(all, block(e.Key().String(), all))
}

// headline is a PRK, and the word for an entry that may not log in. No facet can look like that.
func headline(prk string, all schema.Facets) string {
	if _, disabled := all[disabledField]; disabled {
		return shown(prk) + "  disabled"
	}
	return shown(prk)
}

// number prints a number that a verb was given, or passes its error on.
func (s *session) number(n any, err error) error {
	if err != nil {
		return err
	}
	return s.out.say(n, fmt.Sprint(n))
}

// block is an entry for people: its PRK, and below it the facets, sorted.
func block(prk string, all schema.Facets) string {
	var b strings.Builder
	b.WriteString(headline(prk, all) + "\n")
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name != "~isa" && name != "~prk" && name != disabledField {
			fmt.Fprintf(columns, "  %s\t%s\n", shown(name), shown(all[name].Wire()))
		}
	}
	columns.Flush() // a strings.Builder takes everything
	return strings.TrimSuffix(b.String(), "\n")
}

// entryLine prints an entry of a listing: for people PRK and facets on one line.
func (s *session) entryLine(e userdb.Entry) error {
	all := flat(e, "")
	if s.JSON {
		return s.out.line(all)
	}
	words := []string{headline(e.Key().String(), all)}
	for name := range e.Fields() {
		words = append(words, pair(name, all[name].Wire()))
	}
	return s.out.say(nil, strings.Join(words, "  "))
}

// pair is FIELD=VALUE, in quotes where the value could be taken for more than one.
func pair(name, value string) string {
	quoted := shown(value)
	if strings.Contains(value, "  ") && quoted == value {
		quoted = `"` + value + `"`
	}
	return shown(name) + "=" + quoted
}

// shown is a text for people. What could be misread (the empty text, spaces at its ends) or could
// drive a terminal (control characters, marks that turn the direction of writing) stands in quotes,
// escaped; and so does what looks like that.
func shown(text string) string {
	if text == "" || text[0] == '"' || strings.TrimSpace(text) != text || !printable(text) {
		return strconv.Quote(text)
	}
	return text
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

// oneLine makes a message fit for one line of a terminal.
func oneLine(text string) string {
	if printable(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// count is a number of things.
func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		thing = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// warnings prints what the store warns of on standard error, for people.
type warnings struct{ w io.Writer }

// Enabled implements [slog.Handler]: events are not for people.
func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h warnings) Handle(_ context.Context, r slog.Record) error {
	_, err := fmt.Fprintln(h.w, "userdb: warning: "+oneLine(r.Message))
	return err
}

// WithAttrs implements [slog.Handler].
func (h warnings) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements [slog.Handler].
func (h warnings) WithGroup(string) slog.Handler { return h }
