package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// maxReply limits the announced size of one value, so that a test cannot use up all memory.
const maxReply = 1 << 30

// readValue reads one value of the Redis protocol, a request or a reply, and returns its bytes. An
// attribute is part of the reply that follows it.
func readValue(in *bufio.Reader) ([]byte, error) {
	return appendValue(nil, in)
}

func appendValue(out []byte, in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	out = append(out, line...)
	bytes, values, err := parseSize(line)
	if err != nil {
		return nil, err
	}
	if bytes > 0 {
		start := len(out)
		out = append(out, make([]byte, bytes)...)
		if _, err := io.ReadFull(in, out[start:]); err != nil {
			return nil, err
		}
	}
	for ; values > 0; values-- {
		if out, err = appendValue(out, in); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// parseSize parses the first line of a value, and returns how many more bytes, or how many more
// values, belong to the value.
func parseSize(line []byte) (bytes, values int, err error) {
	var n int
	switch line[0] {
	case '$', '!', '=', '*', '~', '>', '%', '|':
		if n, err = strconv.Atoi(string(line[1:max(1, len(line)-2)])); err != nil || n > maxReply {
			return 0, 0, fmt.Errorf("bad size in %q", line)
		}
	}
	if n < 0 { // null
		return 0, 0, nil
	}
	switch line[0] {
	case '$', '!', '=':
		return n + 2, 0, nil
	case '*', '~', '>':
		return 0, n, nil
	case '%':
		return 0, 2 * n, nil
	case '|':
		return 0, 2*n + 1, nil
	}
	return 0, 0, nil
}

// isPush reports whether value is a push message, which a server sends without being asked.
func isPush(value []byte) bool { return value[0] == '>' }
