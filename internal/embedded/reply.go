package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// A reply to a command is nil, a string, an int64, a float64, or one of these types.
type (
	errorReply  string // begins with a code word
	statusReply string
	arrayReply  []any
	mapReply    []string // key, value, …
	setReply    []string
	textsReply  []string
	scoresReply []pair[float64] // members and scores
)

const (
	okReply     = statusReply("OK")
	wrongType   = errorReply("WRONGTYPE Operation against a key holding the wrong kind of value")
	syntaxError = errorReply("ERR syntax error")
	notInteger  = errorReply("ERR value is not an integer or out of range")
	noScript    = errorReply("NOSCRIPT No matching script. Please use EVAL.")
	noSuchKey   = errorReply("ERR no such key")
)

// A writer writes replies, in version 3 of the protocol if resp3 is set.
type writer struct {
	*bufio.Writer
	resp3 bool
}

func (w *writer) reply(r any) {
	switch r := r.(type) {
	case nil:
		if w.resp3 {
			w.line("_", "")
		} else {
			w.line("$-1", "")
		}
	case string:
		w.bulk(r)
	case int64:
		w.line(":", strconv.FormatInt(r, 10))
	case float64:
		if w.resp3 {
			w.line(",", formatScore(r))
		} else {
			w.bulk(formatScore(r))
		}
	case errorReply:
		w.line("-", strings.Join(strings.FieldsFunc(string(r), func(c rune) bool { return c == '\r' || c == '\n' }), " "))
	case statusReply:
		w.line("+", string(r))
	case arrayReply:
		w.count("*", len(r))
		for _, item := range r {
			w.reply(item)
		}
	case mapReply:
		if w.resp3 {
			w.count("%", len(r)/2)
		} else {
			w.count("*", len(r))
		}
		w.bulks(r)
	case setReply:
		if w.resp3 {
			w.count("~", len(r))
		} else {
			w.count("*", len(r))
		}
		w.bulks(r)
	case textsReply:
		w.count("*", len(r))
		w.bulks(r)
	case scoresReply:
		if !w.resp3 {
			w.reply(r.flat())
			return
		}
		w.count("*", len(r))
		for _, p := range r {
			w.reply(arrayReply{p.key, p.value})
		}
	}
}

// flat returns members and scores alternately, the form that older clients and scripts expect.
func (r scoresReply) flat() textsReply {
	texts := make(textsReply, 0, 2*len(r))
	for _, p := range r {
		texts = append(texts, p.key, formatScore(p.value))
	}
	return texts
}

// line writes one line. The writer keeps the first error, which Flush returns.
func (w *writer) line(kind, text string) {
	_, _ = w.WriteString(kind)
	_, _ = w.WriteString(text)
	_, _ = w.WriteString("\r\n")
}

func (w *writer) count(kind string, n int) { w.line(kind, strconv.Itoa(n)) }

func (w *writer) bulk(text string) {
	w.count("$", len(text))
	w.line("", text)
}

func (w *writer) bulks(texts []string) {
	for _, text := range texts {
		w.bulk(text)
	}
}

var errProtocol = errors.New("embedded: not a command")

// maxWord is the maximum length of a word of a command, in bytes, and maxWords the maximum number
// of words.
const maxWord, maxWords = 512 << 20, 1 << 20

// readCommand reads a command, an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readCount(in, '*', maxWords)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errProtocol
	}
	command := make([]string, 0, min(n, 1024)) // the others may never come
	for range n {
		length, err := readCount(in, '$', maxWord)
		if err != nil {
			return nil, err
		}
		word, err := readWord(in, length)
		if err != nil {
			return nil, err
		}
		command = append(command, word)
	}
	return command, nil
}

// readWord reads a text of the given length and the line end after it.
func readWord(in *bufio.Reader, length int) (string, error) {
	if length > 1<<20 { // allocate memory only as the text arrives
		var text bytes.Buffer
		_, err := io.CopyN(&text, in, int64(length+2))
		return string(text.Bytes()[:min(length, text.Len())]), err
	}
	if length+2 > in.Size() {
		text := make([]byte, length+2)
		_, err := io.ReadFull(in, text)
		return string(text[:length]), err
	}
	text, err := in.Peek(length + 2)
	if err != nil {
		return "", err
	}
	word := string(text[:length])
	_, err = in.Discard(length + 2)
	return word, err
}

func readCount(in *bufio.Reader, kind byte, limit int) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 4 || line[0] != kind || line[len(line)-2] != '\r' {
		return 0, errProtocol
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < 0 || n > limit {
		return 0, errProtocol
	}
	return n, nil
}
