package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Servers have ports from firstPort to lastPort. These are below the ports that systems use for
// outgoing connections, and low enough for the port of a cluster's bus, which is busOffset above.
const (
	firstPort = 12_000
	lastPort  = 21_999
	busOffset = 10_000
)

// Ports are given out in blocks of blockSize. A process reserves a block by listening on its first
// port until the process ends. Otherwise a server of another test process could get the port of a
// server that a test has killed and is about to restart.
const blockSize = 100

var reservedPorts struct {
	sync.Mutex
	blocks []net.Listener // never closed
	next   int            // the next port of the last block; it is never used twice
	end    int            // the end of the last block
}

// freePort returns a port that nobody listens on. With bus, nobody listens on its cluster bus port
// either.
func freePort(bus bool) (int, error) {
	r := &reservedPorts
	r.Lock()
	defer r.Unlock()
	const attempts = 1000
	for range attempts {
		if r.next == r.end {
			first := firstPort + blockSize*rand.IntN((lastPort-firstPort+1)/blockSize)
			if l, err := listen(first); err == nil {
				r.blocks = append(r.blocks, l)
				r.next, r.end = first+1, first+blockSize
			}
			continue
		}
		port := r.next
		r.next++
		if isFree(port) && (!bus || isFree(port+busOffset)) {
			return port, nil
		}
	}
	return 0, errors.New("no free port")
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

func isFree(port int) bool {
	l, err := listen(port)
	if err != nil {
		return false
	}
	return l.Close() == nil
}
