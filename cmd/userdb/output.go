package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// An output prints lines for people or, with --json, one JSON value on each line.
type output struct {
	w    *bufio.Writer // after an error, all later writes fail
	json bool
	live bool // flush each line, because a person is watching
	// wrote reports whether anything was written.
	wrote bool
}

// errorOutput returns an output for standard error, which flushes each line.
func errorOutput(w io.Writer, json bool) *output {
	return &output{w: bufio.NewWriter(w), json: json, live: true}
}

// Write implements [io.Writer], for commands that print text of their own.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if o.wrote = true; err == nil && o.live {
		err = o.w.Flush()
	}
	return n, outputError(err)
}

func (o *output) flush() error { return outputError(o.w.Flush()) }

// print prints v as JSON, or text for people.
func (o *output) print(v any, text string) error {
	if o.json {
		return o.printJSON(v)
	}
	_, err := io.WriteString(o, text+"\n")
	return err
}

// printJSON prints v as JSON.
func (o *output) printJSON(v any) error {
	line, err := strictjson.Marshal(v)
	if err == nil {
		_, err = o.Write(line)
	}
	return err
}

// exposed reports whether w is a file that other users of this machine may read.
func exposed(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || runtime.GOOS == "windows" { // file modes mean nothing there
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0
}

// checkOutput returns an error if standard output is closed. Commands call it before they make a
// secret, which nobody could read and which would be valid nevertheless.
func (s *session) checkOutput() error {
	if f, isFile := s.std.out.(*os.File); isFile && discards(f) {
		return usagef("standard output is closed, so the secret would be lost; nothing was made")
	}
	return nil
}

// warnExposed warns if standard output is a file that other users may read. Commands call it before
// they print a secret. They print it even if the warning cannot be written, because nothing can
// print it again.
func (s *session) warnExposed() {
	if exposed(s.std.out) {
		const text = "others may read the file that the secret is written to; 'umask 077' hides new files from them"
		s.warn(text)
	}
}

// warn prints a warning on standard error. If that fails, there is nowhere else to print it.
func (s *session) warn(text string) {
	_ = errorOutput(s.std.err, s.JSON).print(map[string]string{"warning": text}, "userdb: warning: "+text)
}

// errOutput marks errors of writing the output.
var errOutput = errors.New("writing the output")

func outputError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errOutput, err)
}

// brokenPipe reports whether the reader of the output went away, as head does. That is not a
// failure.
func brokenPipe(err error) bool { return errors.Is(err, errOutput) && errors.Is(err, syscall.EPIPE) }

// disabledField is true in an entry that may not log in.
const disabledField = "~disabled"

// printResult prints the result of a command as output.print does, or returns err.
func (s *session) printResult(v any, text string, err error) error {
	if err != nil {
		return err
	}
	return s.out.print(v, text)
}

// printRecorded prints the result of an operator's action, and records its event even if printing
// fails. If only recording fails, the error says that the action was done nevertheless.
func (s *session) printRecorded(ctx context.Context, v any, text, done string, kind userdb.EventKind, about string) error {
	err := s.out.print(v, text)
	return cmp.Or(err, s.recordEvent(ctx, done, kind, about))
}

// recordEvent records an event. If it cannot, its error begins with the text in done, which says
// what was done nevertheless.
func (s *session) recordEvent(ctx context.Context, done string, kind userdb.EventKind, about string) error {
	if err := admin.RecordEvent(ctx, s.db, kind, about); err != nil {
		return fmt.Errorf("%s, but %w: %w", done, errUnrecorded, err)
	}
	return nil
}

// printEntry prints e, or returns err.
func (s *session) printEntry(e userdb.Entry, err error) error {
	if err != nil {
		return err
	}
	return s.printFacets(e.Flat())
}

// printFacets prints the facets of an entry as a flat object, or in lines for people.
func (s *session) printFacets(all schema.Facets) error { return s.out.print(all, formatEntry(all)) }

// noteSilence tells a person at a terminal why a command prints nothing else. No output at all
// could look like a mistake.
func (s *session) noteSilence(what string) {
	if s.std.width > 0 && !s.JSON {
		fmt.Fprintln(s.std.err, "userdb: "+what)
	}
}

// note prints a note for a person, unless the output is JSON.
func (s *session) note(format string, args ...any) {
	if !s.JSON {
		fmt.Fprintln(s.std.err, "userdb: note: "+fmt.Sprintf(format, args...))
	}
}

// printNumber prints n, or returns err.
func (s *session) printNumber(n any, err error) error { return s.printResult(n, fmt.Sprint(n), err) }

// headline returns the PRK of an entry, followed by the word disabled if the entry may not log in.
// No facet is printed in a way that could be mistaken for that word.
func headline(all schema.Facets) string {
	prk := printable(all["~prk"].Wire())
	if _, disabled := all[disabledField]; disabled {
		return prk + "  disabled"
	}
	return prk
}

// formatEntry formats an entry for people: its PRK, and below it the facets, sorted. A field with
// several values has a line for each.
func formatEntry(all schema.Facets) string {
	var b strings.Builder
	b.WriteString(headline(all))
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	several := severalValues(all)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.Contains([]string{"~isa", "~prk", disabledField, valuesField}, name) {
			continue
		}
		texts := several[name]
		if len(texts) == 0 {
			texts = []string{all[name].Wire()}
		}
		for _, text := range texts {
			fmt.Fprintf(columns, "\n  %s\t%s", printable(name), printable(text))
		}
	}
	columns.Flush() // a strings.Builder takes everything
	return b.String()
}

// A listing prints entries one at a time.
type listing interface {
	add(userdb.Entry) error
	end() error
}

// newListing returns a table on a terminal, else one line for each entry. If fields is nil, it
// shows all fields.
func (s *session) newListing(typ string, fields []string) listing {
	if s.std.width > 0 && !s.JSON {
		t := s.db.Schema().Types[typ]
		return &table{out: s.out, width: s.std.width, primary: t.Primary, typ: t, fields: fields, all: fields == nil}
	}
	return entryLines{s.out, fields}
}

// entryLines prints each entry on one line: as JSON, or for people as its PRK and facets.
type entryLines struct {
	out    *output
	fields []string
}

func (l entryLines) add(e userdb.Entry) error {
	all := e.Flat()
	words := []string{headline(all)}
	fields := l.fields
	if fields == nil {
		fields = slices.Collect(e.Fields())
	}
	several := severalValues(all)
	for _, name := range fields {
		v, has := all[name]
		texts := several[name]
		if len(texts) == 0 && has {
			texts = []string{v.Wire()}
		}
		for _, text := range texts {
			words = append(words, formatFacet(name, text))
		}
	}
	return l.out.print(all, strings.Join(words, "  "))
}

func (entryLines) end() error { return nil }

// formatFacet formats a facet as FIELD=VALUE. It quotes a value that contains two spaces, because
// two spaces separate the facets of a line.
func formatFacet(name, value string) string {
	quoted := printable(value)
	if strings.Contains(value, "  ") && quoted == value {
		quoted = `"` + value + `"`
	}
	return printable(name) + "=" + quoted
}

// printable formats a text for people. It quotes and escapes a text that could be misread (an empty
// one, or one with spaces at its ends), that could control a terminal (control characters, marks
// that change the direction of writing), or that looks quoted already. It leaves the joiners in
// emoji, Arabic and Indic words as they are, because these are misspelled without them.
func printable(text string) string {
	if !isPlain(text) || text == "" || text[0] == '"' || strings.TrimSpace(text) != text {
		return strconv.Quote(text)
	}
	return text
}

// isPlain reports whether a terminal shows all of a text as written.
func isPlain(text string) bool {
	var before rune
	for _, r := range text {
		joins := r == zeroWidthJoiner && endsEmoji(before) || (r == zeroWidthJoiner || r == zeroWidthNonJoiner) && unicode.In(before, joinable...)
		if !strconv.IsPrint(r) && !joins {
			return false
		}
		before = r
	}
	return utf8.ValidString(text) && before != zeroWidthJoiner && before != zeroWidthNonJoiner
}

const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
	emojiVariation     = '\ufe0f'
)

// joinable lists scripts in which joiners between letters change how a word looks.
var joinable = []*unicode.RangeTable{
	unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati,
	unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar,
}

// endsEmoji reports whether an emoji may end with r: a picture, a skin tone or a variation.
func endsEmoji(r rune) bool {
	return unicode.In(r, unicode.So, unicode.Sk) && r >= 0x2000 || r == emojiVariation
}

// oneLine escapes unprintable characters in a message, so that it fits one line of a terminal.
func oneLine(text string) string {
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

// plural formats a number of things, such as "2 entries".
func plural[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok && !strings.HasSuffix(stem, "e") {
		thing = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// warnings is a [slog.Handler] that prints warnings of the store for people.
type warnings struct{ w io.Writer }

// Enabled implements [slog.Handler]. Only warnings and errors are for people.
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
