package main

import (
	"bytes"
	"fmt"
)

// An expectation describes the answer that one request must get: its status, and how often it
// contains certain texts. An answer that differs fails the row.
type expectation struct {
	status int
	texts  []byte // one after the other
	parts  []part
}

// A part is one of the texts.
type part struct {
	end    int // its end in texts
	times  int
	inHead bool
}

// begin empties the expectation.
func (e *expectation) begin(status int) {
	e.status, e.texts, e.parts = status, e.texts[:0], e.parts[:0]
}

// body expects the text appended to texts since the last part, that many times in the body.
func (e *expectation) body(times int) {
	e.parts = append(e.parts, part{end: len(e.texts), times: times})
}

// head expects the text appended to texts since the last part once in the head.
func (e *expectation) head() {
	e.parts = append(e.parts, part{end: len(e.texts), times: 1, inHead: true})
}

// judge returns nil if the answer is as expected. The error quotes only the bodies of refusals,
// because other bodies hold secrets.
func (e *expectation) judge(a answer) error {
	if a.status != e.status {
		body := a.body[:min(len(a.body), 200)]
		if a.status < 400 {
			body = nil
		}
		return fmt.Errorf("status %d, want %d: %s", a.status, e.status, body)
	}
	from := 0
	for _, p := range e.parts {
		text, in := e.texts[from:p.end], a.body
		if p.inHead {
			in = a.head
		}
		if n := bytes.Count(in, text); n != p.times {
			return fmt.Errorf("status %d with %q %d times, want %d", a.status, text, n, p.times)
		}
		from = p.end
	}
	return nil
}
