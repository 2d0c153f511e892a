package connect

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// errReply is the error for a reply that no Redis server sends.
var errReply = errors.New("the server sent an invalid reply")

// errSpeaksTLS is the error for a TLS alert in place of a reply.
var errSpeaksTLS = errors.New("the port speaks TLS")

// Limits of a reply. A client allocates memory for a reply as soon as its length is announced, and
// a program does not survive running out of memory.
const (
	maxBytes = 512 << 20 // the length in bytes of a bulk string, as in Redis
	maxItems = 1 << 24   // the number of items still expected, in all open arrays together
	maxDepth = 32        // the depth of nested arrays
	maxLine  = 1 << 20   // the length in bytes of a line, such as an error or a number
)

// A framing parses a stream of replies just far enough to know the lengths that they announce.
type framing struct {
	skip  int    // bytes of a bulk string still to come
	line  []byte // the beginning of a line that is not yet complete
	lists []int  // the items still to come of each open array, the outermost first
	items int    // the sum of lists
	err   error
}

// parse parses the next bytes. After an error, every later call returns the same error.
func (f *framing) parse(b []byte) error {
	for f.err == nil {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		if n = f.parseShort(b); n > 0 {
			b = b[n:]
			continue
		}
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if len(f.line) > 0 || !ended {
			f.line = append(f.line, line...)
			line = f.line
		}
		switch {
		case len(line) > 1 && line[0] == 0x15 && line[1] == 3:
			f.err = errSpeaksTLS
		case len(line) > maxLine:
			f.err = fmt.Errorf("%w: a line of over %d bytes", errReply, maxLine)
		case !ended:
			return nil
		default:
			f.err = f.parseHeader(bytes.TrimSuffix(line, []byte("\r")))
			f.line, b = f.line[:0], rest
		}
	}
	return f.err
}

// parseShort parses the header of a bulk string of less than 10,000 bytes, which most headers are,
// and returns the header's length, or 0 if b does not begin with one. It makes parsing entries
// three times as fast.
func (f *framing) parseShort(b []byte) int {
	if len(f.line) > 0 || len(b) == 0 || b[0] != '$' {
		return 0
	}
	size := 0
	for i := 1; i < min(6, len(b)-1); i++ {
		switch c := b[i]; {
		case '0' <= c && c <= '9':
			size = 10*size + int(c-'0')
		case c == '\r' && b[i+1] == '\n' && i > 1:
			f.skip = size + 2
			f.endItem()
			return i + 2
		default:
			return 0
		}
	}
	return 0
}

// parseHeader parses the first line of a reply, which may be the whole reply.
func (f *framing) parseHeader(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: an empty line", errReply)
	}
	n, limit, text := 0, 0, false
	switch line[0] {
	case '$', '=', '!':
		limit, text = maxBytes, true
	case '*', '~', '>', '%', '|':
		limit = maxItems
	}
	if limit > 0 {
		var err error
		// The number is -1 for nil.
		if n, err = strconv.Atoi(string(line[1:])); err != nil || n < -1 || n > limit {
			return fmt.Errorf("%w: %.40q", errReply, line)
		}
	}
	switch {
	case text && n >= 0:
		f.skip, n = n+2, 0
	case line[0] == '%':
		n *= 2
	case line[0] == '|':
		n = 2*max(n, 0) + 1 // the attribute and the reply that it belongs to
	}
	if n > 0 {
		f.lists, f.items = append(f.lists, n), f.items+n
		if len(f.lists) > maxDepth || f.items > maxItems {
			return fmt.Errorf("%w: %d nested lists with %d items to come", errReply, len(f.lists), f.items)
		}
		return nil
	}
	f.endItem()
	return nil
}

// endItem counts one item as complete, and every array whose last item it was.
func (f *framing) endItem() {
	for last := len(f.lists) - 1; last >= 0; last-- {
		f.items--
		if f.lists[last]--; f.lists[last] > 0 {
			break
		}
		f.lists = f.lists[:last]
	}
}

// A boundedConn returns an error for a reply that announces more data than the limits above.
// Without it, go-redis would allocate that much memory at once, and the process would die. The
// caller gets an error that says that the store is unavailable.
type boundedConn struct {
	net.Conn
	replies framing
	read    bool   // something was read
	refusal string // the error, if nothing but an error has been read yet
}

// Write implements net.Conn. A server that refuses a connection says why and closes it. If a write
// fails after that, the error includes the reason.
func (b *boundedConn) Write(p []byte) (int, error) {
	n, err := b.Conn.Write(p)
	if err != nil && !b.read && b.Conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)) == nil {
		_, _ = b.Read(make([]byte, 256))
	}
	return n, b.explain(err)
}

// Read implements net.Conn. After a bad reply it reads nothing more.
func (b *boundedConn) Read(p []byte) (int, error) {
	if b.replies.err == nil {
		n, err := b.Conn.Read(p)
		if n > 0 {
			b.refusal = ""
			if text, refused := bytes.CutPrefix(p[:n], []byte("-")); refused && !b.read {
				text, _, _ = bytes.Cut(text, []byte("\r\n"))
				text, _, _ = bytes.Cut(text, []byte(", with args")) // those of AUTH are secret
				b.refusal = string(text)
			}
			b.read = true
		}
		if b.replies.parse(p[:n]) == nil {
			return n, b.explain(err)
		}
	}
	return 0, b.replies.err
}

// explain adds to an error of the connection the reason for which the server refused it, if known.
func (b *boundedConn) explain(err error) error {
	if err == nil || b.refusal == "" {
		return err
	}
	// go-redis replaces an error with the one that it wraps, but not an error that wraps two, so
	// this error wraps two.
	return fmt.Errorf("%w: %w", err, errors.New(b.refusal))
}

// NetConn returns the underlying connection, which go-redis needs.
func (b *boundedConn) NetConn() net.Conn { return b.Conn }

// A boundHook wraps each connection that a client dials in a boundedConn.
type boundHook struct{}

func (boundHook) DialHook(dial redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, sentinelError(err)
		}
		b := &boundedConn{Conn: conn}
		// go-redis uses a syscall.Conn to check that the connection is open.
		if socket, is := conn.(syscall.Conn); is {
			return struct {
				*boundedConn
				syscall.Conn
			}{b, socket}, nil
		}
		return b, nil
	}
}

func (boundHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (boundHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// newDialer returns the dialer for the clients that Open makes. It is used in place of a hook,
// because a hook would not see the connections to Sentinels. If timeout is 0, the default of
// go-redis applies.
func newDialer(timeout time.Duration, t *tls.Config) redis.DialHook {
	dial := redis.NewDialer(&redis.Options{DialTimeout: cmp.Or(timeout, 5*time.Second)})
	if t != nil {
		dial = tlsDialer(dial, t, handshakeTimeout)
	}
	return boundHook{}.DialHook(dial)
}

// handshakeTimeout is how long a server may take for the TLS handshake. A port that does not speak
// TLS, such as the plain port of Redis, may never answer.
const handshakeTimeout = 3 * time.Second

// errHandshake is the error for a server that answers a TLS handshake with something else, or not
// in time.
var errHandshake = errors.New("no TLS answer to a TLS handshake")

// tlsDialer returns a dialer that makes the handshake itself, so that its failure has an error of
// its own.
func tlsDialer(dial redis.DialHook, t *tls.Config, limit time.Duration) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, t)
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			if _, plain := errors.AsType[tls.RecordHeaderError](err); plain || errors.Is(err, context.DeadlineExceeded) {
				// The caller must not mistake the time limit of the handshake for its own.
				err = fmt.Errorf("%w (%v)", errHandshake, err)
			}
			return nil, err
		}
		return secure, nil
	}
}

// hooked holds the clients that already have the hook, since Use may get the same client twice.
var hooked sync.Map

// limitReplies makes the client wrap each connection that it dials from now on in a boundedConn.
func limitReplies(c *redis.Client) {
	key := weak.Make(c)
	if _, known := hooked.LoadOrStore(key, true); known {
		return
	}
	runtime.AddCleanup(c, func(key weak.Pointer[redis.Client]) { hooked.Delete(key) }, key)
	c.AddHook(boundHook{})
}
