package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken below those that systems give to outgoing connections, and so
// that a cluster's bus port, 10,000 above, exists.
const (
	firstPort = 12_000
	lastPort  = 21_999
	busOffset = 10_000
)

var taken struct {
	sync.Mutex
	ports map[int]bool // by this process, for ever
}

// freePort returns a port that nobody listens on, nor, with bus, on that of its
// cluster bus.
func freePort(bus bool) (int, error) {
	taken.Lock()
	defer taken.Unlock()
	const attempts = 1000
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if taken.ports[port] || !isFree(port) || bus && !isFree(port+busOffset) {
			continue
		}
		if taken.ports == nil {
			taken.ports = map[int]bool{}
		}
		taken.ports[port] = true
		return port, nil
	}
	return 0, errors.New("no free port")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
