package connect

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errReply is what a connection reads where a reply cannot be one.
var errReply = errors.New("the server announces a reply that cannot be one")

// What a reply may announce: a client makes room for it before it comes, and a program cannot survive that there is none.
const (
	mostBytes = 512 << 20 // of a text: Redis has no longer ones
	mostItems = 1 << 24   // that are still to come, of all lists
	mostDepth = 32        // of lists in lists
	mostLine  = 1 << 20   // bytes of a line: an error, a number
)

// A framing follows the replies on a connection, as far as to know what they announce.
type framing struct {
	skip  int    // bytes of a text that are still to come
	line  []byte // the beginning of a line that was cut
	lists []list // those that are open
	items int    // that are still to come, of all of them
	bad   error
}

// A list is what is still to come of one; an attribute belongs to the reply behind it, and is no item.
type list struct {
	left      int
	attribute bool
}

// take reads on. What it says of one reply it says of all behind it.
func (f *framing) take(b []byte) error {
	for len(b) > 0 && f.bad == nil {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			f.line = append(f.line, b...)
			if len(f.line) > mostLine {
				f.bad = fmt.Errorf("%w: a line of over %d bytes", errReply, mostLine)
			}
			break
		}
		line := b[:end]
		if len(f.line) > 0 {
			f.line = append(f.line, line...)
			line = f.line
		}
		f.bad = f.header(bytes.TrimSuffix(line, []byte("\r")))
		f.line, b = f.line[:0], b[end+1:]
	}
	return f.bad
}

// header takes a line that begins a reply, or is one.
func (f *framing) header(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: an empty line", errReply)
	}
	switch line[0] {
	case '$', '=', '!':
		n, err := announced(line, mostBytes)
		if err != nil {
			return err
		}
		if n >= 0 {
			f.skip = n + 2
		}
	case '*', '~', '>', '%', '|':
		n, err := announced(line, mostItems)
		if err != nil {
			return err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		if n > 0 {
			return f.open(list{n, line[0] == '|'})
		}
		if line[0] == '|' {
			return nil
		}
	}
	f.close()
	return nil
}

// announced is the number behind the first byte; -1 is nil.
func announced(line []byte, most int) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("%w: %.40q", errReply, line)
	}
	return n, nil
}

func (f *framing) open(l list) error {
	f.lists, f.items = append(f.lists, l), f.items+l.left
	if len(f.lists) > mostDepth || f.items > mostItems {
		return fmt.Errorf("%w: %d lists in one another with %d items to come", errReply, len(f.lists), f.items)
	}
	return nil
}

// close ends an item, and every list of which it is the last.
func (f *framing) close() {
	for i := len(f.lists) - 1; i >= 0; i-- {
		l := &f.lists[i]
		l.left--
		f.items--
		if l.left > 0 {
			return
		}
		attribute := l.attribute
		f.lists = f.lists[:i]
		if attribute {
			return
		}
	}
}
