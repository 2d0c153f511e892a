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

// errReply is what a connection reads where a reply cannot be one.
var errReply = errors.New("the server announces a reply that cannot be one")

// What a reply may announce. A client allocates room for it before it comes, and a program does not survive a lack
// of memory.
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
	lists []int  // of those that are open, how many items are still to come
	items int    // their sum
	bad   error
}

// take reads on. After an error it returns that error for ever.
func (f *framing) take(b []byte) error {
	for f.bad == nil {
		n := min(f.skip, len(b))
		f.skip -= n
		b = b[n:]
		if n = f.short(b); n > 0 {
			b = b[n:]
			continue
		}
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if len(f.line) > 0 || !ended {
			f.line = append(f.line, line...)
			line = f.line
		}
		switch {
		case len(line) > mostLine:
			f.bad = fmt.Errorf("%w: a line of over %d bytes", errReply, mostLine)
		case !ended:
			return nil
		default:
			f.bad = f.header(bytes.TrimSuffix(line, []byte("\r")))
			f.line, b = f.line[:0], rest
		}
	}
	return f.bad
}

// short takes the header of a text of some thousand bytes at most, as most lines are, and returns its length; 0 where b does not
// begin with one. With it, entries are followed in a third of the time.
func (f *framing) short(b []byte) int {
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

// header takes a line that begins a reply, or is one.
func (f *framing) header(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: an empty line", errReply)
	}
	n, most, text := 0, 0, false
	switch line[0] {
	case '$', '=', '!':
		most, text = mostBytes, true
	case '*', '~', '>', '%', '|':
		most = mostItems
	}
	if most > 0 {
		var err error
		if n, err = strconv.Atoi(string(line[1:])); err != nil || n < -1 || n > most { // -1 is nil
			return fmt.Errorf("%w: %.40q", errReply, line)
		}
	}
	switch {
	case text && n >= 0:
		f.skip, n = n+2, 0
	case line[0] == '%':
		n *= 2
	case line[0] == '|':
		n = 2*max(n, 0) + 1 // an attribute, and the reply that it belongs to
	}
	if n > 0 {
		f.lists, f.items = append(f.lists, n), f.items+n
		if len(f.lists) > mostDepth || f.items > mostItems {
			return fmt.Errorf("%w: %d lists in one another with %d items to come", errReply, len(f.lists), f.items)
		}
		return nil
	}
	f.endItem()
	return nil
}

// endItem ends an item, and every list of which it is the last.
func (f *framing) endItem() {
	for last := len(f.lists) - 1; last >= 0; last-- {
		f.items--
		if f.lists[last]--; f.lists[last] > 0 {
			break
		}
		f.lists = f.lists[:last]
	}
}

// A bounded connection reads no reply that announces what no server has: go-redis makes room for it at once, and
// then the process ends. Its caller is told that the store is unavailable.
type bounded struct {
	net.Conn
	replies framing
}

// Read implements net.Conn. After a reply that cannot be one it reads nothing any more.
func (b *bounded) Read(p []byte) (int, error) {
	if b.replies.bad == nil {
		n, err := b.Conn.Read(p)
		if b.replies.take(p[:n]) == nil {
			return n, err
		}
	}
	return 0, b.replies.bad
}

// NetConn is the connection inside, as go-redis asks for it.
func (b *bounded) NetConn() net.Conn { return b.Conn }

// A boundHook makes a client's connections bounded ones.
type boundHook struct{}

func (boundHook) DialHook(dial redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, noMaster(err)
		}
		b := &bounded{Conn: conn}
		if socket, is := conn.(syscall.Conn); is { // go-redis looks at it, to know whether it is still open
			return struct {
				*bounded
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

// newDialer is for the clients that Open makes: a hook sees no connection to a Sentinel. Where a URL names no timeout,
// it is go-redis' own.
func newDialer(timeout time.Duration, t *tls.Config) redis.DialHook {
	return boundHook{}.DialHook(redis.NewDialer(&redis.Options{DialTimeout: cmp.Or(timeout, 5*time.Second), TLSConfig: t}))
}

// hooked are the clients that have the hook: Use may be given one more than once.
var hooked sync.Map

// boundClient bounds the connections that a client makes from now on.
func boundClient(c *redis.Client) {
	key := weak.Make(c)
	if _, known := hooked.LoadOrStore(key, true); known {
		return
	}
	runtime.AddCleanup(c, func(key weak.Pointer[redis.Client]) { hooked.Delete(key) }, key)
	c.AddHook(boundHook{})
}
