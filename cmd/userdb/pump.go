package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// maxLines limits how many lines wait in a pump.
const maxLines = 4096

// A pump writes the lines of a log to an output that may block, such as a full pipe. Lines wait in
// memory, and those that do not fit are lost, so that no request waits for its line. Any number of
// goroutines may write.
type pump struct {
	out   io.Writer
	lines chan []byte
	lost  atomic.Int64
	stop  chan struct{}
	ended chan struct{}
}

func newPump(out io.Writer) *pump {
	p := &pump{out: out, lines: make(chan []byte, maxLines), stop: make(chan struct{}), ended: make(chan struct{})}
	go p.run()
	return p
}

// Write implements [io.Writer]. It never fails.
func (p *pump) Write(line []byte) (int, error) {
	select {
	case p.lines <- append([]byte(nil), line...):
	default:
		p.lost.Add(1)
	}
	return len(line), nil
}

// end waits until the waiting lines are written, but no longer than grace. Lines that are written
// to the pump later are lost.
func (p *pump) end() {
	close(p.stop)
	select {
	case <-p.ended:
	case <-time.After(grace):
	}
}

func (p *pump) run() {
	defer close(p.ended)
	for {
		select {
		case line := <-p.lines:
			p.writeLine(line)
			continue
		default:
		}
		select {
		case line := <-p.lines:
			p.writeLine(line)
		case <-p.stop:
			return
		}
	}
}

// writeLine writes a line. If lines were lost, it first writes how many.
func (p *pump) writeLine(line []byte) {
	if n := p.lost.Swap(0); n > 0 {
		fmt.Fprintf(p.out, `{"time":%q,"level":"WARN","msg":"log lines were dropped","lost":%d}`+"\n", time.Now().Format(time.RFC3339Nano), n)
	}
	_, _ = p.out.Write(line) // if it fails, there is nowhere to report it
}
