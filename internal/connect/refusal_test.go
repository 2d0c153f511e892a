package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// listen returns the address of a server that calls serve with each connection.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// The garbage collector would close a connection without references.
			t.Cleanup(func() { conn.Close() })
			serve(conn)
		}
	}()
	return l.Addr().String()
}

// TestHandshakeWithoutTLS checks the error for a port that does not speak TLS, whether it waits, as
// Redis does, or answers.
func TestHandshakeWithoutTLS(t *testing.T) {
	dial := tlsDialer(redis.NewDialer(&redis.Options{DialTimeout: time.Minute}), &tls.Config{ServerName: "localhost"}, 100*time.Millisecond)
	for name, serve := range map[string]func(net.Conn){
		"waits":   func(net.Conn) {},
		"answers": func(c net.Conn) { c.Write([]byte("-ERR unknown command\r\n")) },
	} {
		if _, err := dial(context.Background(), "tcp", listen(t, serve)); !errors.Is(err, errHandshake) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server that %s: got %v, want errHandshake", name, err)
		}
	}
}

// TestRefusedConnection checks that the reason that a server gives before it closes a connection is
// in the error of the next write, whether it was read before or not.
func TestRefusedConnection(t *testing.T) {
	addr := listen(t, func(c net.Conn) {
		c.Write([]byte("-ERR max number of clients reached\r\n"))
		c.Close()
	})
	for _, read := range []bool{false, true} {
		conn, err := newDialer(time.Minute, nil)(context.Background(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if read {
			_, _ = conn.Read(make([]byte, 100))
		}
		for until := time.Now().Add(time.Minute); err == nil && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			_, err = conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		}
		if err == nil || !strings.Contains(err.Error(), ": ERR max number of clients reached") {
			t.Errorf("read before: %v: got %v, want an error with what the server said", read, err)
		}
	}
}

// TestPortSpeaksTLS checks the error for a TLS alert in place of a reply.
func TestPortSpeaksTLS(t *testing.T) {
	if err := new(framing).parse([]byte{0x15, 3, 1, 0, 2, 2, 70}); !errors.Is(err, errSpeaksTLS) {
		t.Errorf("got %v, want errSpeaksTLS", err)
	}
}

// TestRefusedClient checks that a client reports why a server has refused its connection.
func TestRefusedClient(t *testing.T) {
	addr := listen(t, func(c net.Conn) {
		c.Write([]byte("-ERR max number of clients reached\r\n"))
		c.Close()
	})
	client := redis.NewClient(&redis.Options{Addr: addr, Dialer: newDialer(time.Minute, nil), MaxRetries: 1})
	defer client.Close()
	if err := client.Ping(context.Background()).Err(); err == nil || !strings.Contains(err.Error(), "ERR max number of clients reached") {
		t.Errorf("got %v, want an error with what the server said", err)
	}
}

// TestRefusalHidesArguments checks that an error does not repeat the password of a command that the
// server does not know.
func TestRefusalHidesArguments(t *testing.T) {
	b := &boundedConn{Conn: &replyThenEOF{reply: "-ERR unknown command 'HELLO', with args beginning with: '3' 'auth' 'user' 'hunter2'\r\n"}}
	_, err := b.Read(make([]byte, 200))
	if err == nil || !strings.HasSuffix(err.Error(), "ERR unknown command 'HELLO'") {
		t.Errorf("got %v, want an error that names the command and not its arguments", err)
	}
}

// A replyThenEOF is a connection that ends with its only reply.
type replyThenEOF struct {
	net.Conn
	reply string
}

func (c *replyThenEOF) Read(p []byte) (int, error) { return copy(p, c.reply), io.EOF }
