package embedded

import (
	"net"
	"sync"
)

// An outbox writes to a connection without ever making the writer wait. A
// client sends a whole pipeline before it reads the first answer; a server that
// waited until its answers are read would never read the rest of the pipeline.
type outbox struct {
	conn   net.Conn
	mu     sync.Mutex
	ready  sync.Cond
	buf    []byte
	closed bool
}

func newOutbox(conn net.Conn) *outbox {
	o := &outbox{conn: conn}
	o.ready.L = &o.mu
	go o.pump()
	return o
}

// Write takes all of b. It fails once the connection does.
func (o *outbox) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, net.ErrClosed
	}
	o.buf = append(o.buf, b...)
	o.ready.Signal()
	return len(b), nil
}

// close ends the connection after what was written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.ready.Signal()
}

func (o *outbox) pump() {
	defer o.conn.Close()
	for {
		b := o.take()
		if len(b) == 0 {
			return
		}
		if _, err := o.conn.Write(b); err != nil {
			o.close()
			return
		}
	}
}

// take waits for something to write; nothing means the end.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) == 0 && !o.closed {
		o.ready.Wait()
	}
	b := o.buf
	o.buf = nil
	return b
}
