package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// completeAnswers lists complete answers, with their status and body.
var completeAnswers = []struct {
	name, text string
	status     int
	body       string
}{
	{"a Content-Length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello", 200, "hello"},
	{"a header name in lower case", "HTTP/1.1 404 Not Found\r\ncontent-length:2\r\n\r\nno", 404, "no"},
	{"no body", "HTTP/1.1 204 No Content\r\nUserdb-Uid: u1\r\n\r\n", 204, ""},
	{"a chunked body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nA\r\nlo, world!\r\n0\r\n\r\n", 200, "hello, world!"},
	{"an empty body", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 201, ""},
}

func TestParse(t *testing.T) {
	for _, x := range completeAnswers {
		c := &conn{}
		a, size, err := c.parse([]byte(x.text))
		if err != nil || size != len(x.text) || a.status != x.status || string(a.body) != x.body {
			t.Errorf("%s: got status %d, body %q, %d bytes, %v; want status %d, body %q, %d bytes", x.name, a.status, a.body, size, err, x.status, x.body, len(x.text))
		}
		for n := range x.text {
			if _, size, err := c.parse([]byte(x.text[:n])); err != nil || size != 0 {
				t.Errorf("%s: parsing the first %d bytes returned size %d, %v; want 0, nil", x.name, n, size, err)
			}
		}
		if _, size, err := c.parse([]byte(x.text + "HTTP")); err != nil || size != len(x.text) {
			t.Errorf("%s followed by another answer: got size %d, %v; want %d", x.name, size, err, len(x.text))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, x := range []struct {
		name, text string
		want       error
	}{
		{"another protocol", "SSH-2.0-x\r\n\r\n", errMalformed},
		{"an old version of HTTP", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", errMalformed},
		{"a status that is not a number", "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n", errMalformed},
		{"no length", "HTTP/1.1 200 OK\r\n\r\n", errNoLength},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", errMalformed},
		{"a huge length", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", errMalformed},
		{"a line that is not a header", "HTTP/1.1 200 OK\r\nhello\r\n\r\n", errMalformed},
		{"Connection: close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", errCloses},
		{"a chunk without a size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", errMalformed},
		{"a chunk longer than its size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n", errMalformed},
	} {
		if a, size, err := new(conn).parse([]byte(x.text)); !errors.Is(err, x.want) || size != 0 {
			t.Errorf("%s: got status %d, %d bytes, %v; want 0 bytes, %v", x.name, a.status, size, err, x.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, x := range completeAnswers {
		f.Add([]byte(x.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, size, err := new(conn).parse(text)
		if size < 0 || size > len(text) || err != nil && size != 0 {
			t.Fatalf("parse returned size %d of %d bytes, %v", size, len(text), err)
		}
		if size > 0 && len(a.body) > size {
			t.Fatalf("parse returned a body of %d bytes from an answer of %d bytes", len(a.body), size)
		}
	})
}

// serveText returns a connection to a server that answers one request with pieces of text and then
// closes it.
func serveText(t *testing.T, pieces ...string) *conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	go func() {
		defer server.Close()
		_, _ = server.Read(make([]byte, 1024))
		for _, p := range pieces {
			_, _ = io.WriteString(server, p)
		}
	}()
	return &conn{Conn: client, read: make([]byte, 16)}
}

func TestAsk(t *testing.T) {
	long := strings.Repeat("x", 1000) // longer than the buffer
	c := serveText(t, "HTTP/1.1 200 OK\r\nContent-Le", "ngth: 1000\r\n\r\n", long[:400], long[400:])
	if a, err := c.ask([]byte("GET")); err != nil || a.status != 200 || string(a.body) != long {
		t.Errorf("got status %d, %d bytes, %v; want 200, 1000 bytes", a.status, len(a.body), err)
	}
	if _, err := serveText(t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").ask([]byte("GET")); !errors.Is(err, io.EOF) {
		t.Errorf("half an answer: got %v, want %v", err, io.EOF)
	}
	if _, err := serveText(t, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc").ask([]byte("GET")); !errors.Is(err, errTrailing) {
		t.Errorf("more than an answer: got %v, want %v", err, errTrailing)
	}
}

func TestEncode(t *testing.T) {
	var r request
	for range 2 { // the second request must not contain anything of the first
		r.begin("POST")
		r.path = append(r.path, "/v1/session"...)
		r.header = append(r.header, "Authorization: x\r\n"...)
		r.body = append(r.body, "{}"...)
		want := "POST /v1/session HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAuthorization: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
		if got := r.encode("127.0.0.1:1"); string(got) != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	r.begin("GET")
	if got := r.encode("h"); !bytes.HasSuffix(got, []byte("Host: h\r\n\r\n")) {
		t.Errorf("got %q, want a GET without a body", got)
	}
}
