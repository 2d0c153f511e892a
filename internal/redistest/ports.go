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

var usedPorts struct {
	sync.Mutex
	ports map[int]bool // the ports that this process has used; it never uses a port twice
}

// freePort returns a port that nobody listens on. With bus, nobody listens on its cluster bus port
// either.
func freePort(bus bool) (int, error) {
	usedPorts.Lock()
	defer usedPorts.Unlock()
	const attempts = 1000
	for range attempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if usedPorts.ports[port] || !isFree(port) || bus && !isFree(port+busOffset) {
			continue
		}
		if usedPorts.ports == nil {
			usedPorts.ports = map[int]bool{}
		}
		usedPorts.ports[port] = true
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
