package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// maxAnswer limits the bytes of an answer, including its head.
const maxAnswer = 4 << 20

// An answer is the response to one request. Its parts are valid until the next request on the
// connection.
type answer struct {
	status     int
	head, body []byte
}

// A conn is one keep-alive connection. It reads into a buffer that it reuses, and makes no garbage.
type conn struct {
	net.Conn
	read   []byte // the buffer; its length is what can be read without growing it
	joined []byte // the body of a chunked answer
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, read: make([]byte, 64<<10)}, nil
}

// ask sends a request and returns the whole answer. After an error the connection is unusable.
func (c *conn) ask(request []byte) (answer, error) {
	if _, err := c.Write(request); err != nil {
		return answer{}, fmt.Errorf("writing the request: %w", withoutAddresses(err))
	}
	for n := 0; ; {
		if n == len(c.read) {
			if n >= maxAnswer {
				return answer{}, errTooLong
			}
			c.read = append(c.read, make([]byte, n)...)
		}
		more, err := c.Read(c.read[n:])
		if err != nil {
			return answer{}, fmt.Errorf("reading the answer after %d bytes: %w", n, withoutAddresses(err))
		}
		n += more
		a, size, err := c.parse(c.read[:n])
		switch {
		case err != nil:
			return answer{}, err
		case size == n:
			return a, nil
		case size > 0:
			return answer{}, errTrailing
		}
	}
}

// withoutAddresses returns the system's error without the addresses of the connection.
func withoutAddresses(err error) error {
	if op, is := errors.AsType[*net.OpError](err); is {
		return op.Err
	}
	return err
}

var (
	errTooLong   = errors.New("the answer is too long")
	errTrailing  = errors.New("the server sent more than the answer")
	errMalformed = errors.New("the answer is not HTTP/1.1")
	errNoLength  = errors.New("the answer has no length")
	errCloses    = errors.New("the server closes the connection")
)

var (
	headEnd = []byte("\r\n\r\n")
	lineEnd = []byte("\r\n")
)

// parse parses the answer that text begins with, and returns its size in bytes, or 0 if it is not
// complete yet.
func (c *conn) parse(text []byte) (a answer, size int, err error) {
	end := bytes.Index(text, headEnd)
	if end < 0 {
		return a, 0, nil
	}
	a.head = text[:end+len(lineEnd)]
	if len(a.head) < 14 || string(a.head[:9]) != "HTTP/1.1 " || a.head[12] != ' ' {
		return a, 0, errMalformed
	}
	if a.status, err = strconv.Atoi(string(a.head[9:12])); err != nil {
		return a, 0, errMalformed
	}
	length, chunked, err := framing(a.head)
	if err != nil {
		return a, 0, err
	}
	rest := text[end+len(headEnd):]
	switch {
	case a.status == 204 || a.status == 304:
		return a, end + len(headEnd), nil
	case chunked:
		var used int
		if c.joined, used, err = join(c.joined[:0], rest); err != nil || used == 0 {
			return a, 0, err
		}
		a.body = c.joined
		return a, end + len(headEnd) + used, nil
	case length < 0:
		return a, 0, errNoLength
	case len(rest) < length:
		return a, 0, nil
	}
	a.body = rest[:length]
	return a, end + len(headEnd) + length, nil
}

// framing reads from a head how the body after it ends. length is -1 if the head does not give one.
func framing(head []byte) (length int, chunked bool, err error) {
	length = -1
	for {
		_, head, _ = bytes.Cut(head, lineEnd) // the first line is the status
		if len(head) == 0 {
			return length, chunked, nil
		}
		name, value, is := bytes.Cut(head[:bytes.Index(head, lineEnd)], []byte(":"))
		if value = bytes.TrimSpace(value); !is {
			return 0, false, errMalformed
		}
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 || length > maxAnswer {
				return 0, false, errMalformed
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("Connection")) && bytes.EqualFold(value, []byte("close")):
			return 0, false, errCloses
		}
	}
}

// join appends the chunks that text begins with to body. It returns how many bytes of text the
// chunks take, or 0 if some are missing.
func join(body, text []byte) (_ []byte, used int, err error) {
	for {
		line := bytes.Index(text[used:], lineEnd)
		if line < 0 {
			return body, 0, nil
		}
		size, err := strconv.ParseUint(string(text[used:used+line]), 16, 31)
		if err != nil || size > maxAnswer {
			return body, 0, errMalformed
		}
		used += line + len(lineEnd)
		end := used + int(size)
		if len(text) < end+len(lineEnd) {
			return body, 0, nil
		}
		if !bytes.HasPrefix(text[end:], lineEnd) {
			return body, 0, errMalformed
		}
		body, used = append(body, text[used:end]...), end+len(lineEnd)
		if size == 0 {
			return body, used, nil
		}
	}
}

// A request is written to a server from buffers that are reused.
type request struct {
	method             string
	path, header, body []byte
	wire               []byte
}

// begin empties the request.
func (r *request) begin(method string) {
	r.method, r.path, r.header, r.body = method, r.path[:0], r.header[:0], r.body[:0]
}

// encode returns the request as it is sent.
func (r *request) encode(addr string) []byte {
	b := append(r.wire[:0], r.method...)
	b = append(b, ' ')
	b = append(b, r.path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, addr...)
	b = append(b, lineEnd...)
	b = append(b, r.header...)
	if r.method != "GET" {
		b = append(b, "Content-Type: application/json\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(r.body)), 10)
		b = append(b, lineEnd...)
	}
	b = append(b, lineEnd...)
	r.wire = append(b, r.body...)
	return r.wire
}
