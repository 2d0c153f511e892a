package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A meter shows on a terminal, in one line that is written over, how far a long command is. Elsewhere
// it shows nothing.
type meter struct {
	w     io.Writer // nil: nobody looks
	what  string
	now   func() time.Time
	last  time.Time
	shown bool
}

// meterEvery keeps the terminal from being written to without end.
const meterEvery = 100 * time.Millisecond

func (s *session) meter(what string) *meter {
	m := &meter{what: what, now: time.Now}
	if isTerminal(s.std.err) && !s.JSON {
		m.w = s.std.err
	}
	return m
}

const meterWidth = 30

// show shows how much is done of about how much.
func (m *meter) show(done, about int64) {
	now := m.now()
	if m.w == nil || now.Sub(m.last) < meterEvery {
		return
	}
	m.last, m.shown = now, true
	part := 1.0
	if about > 0 {
		part = min(1, float64(done)/float64(about))
	}
	full := int(part * meterWidth)
	fmt.Fprintf(m.w, "\r%s [%s%s] %3.0f %%", m.what, strings.Repeat("#", full), strings.Repeat(".", meterWidth-full), 100*part)
}

// clear takes the line away, for what is printed next.
func (m *meter) clear() {
	if m.shown {
		fmt.Fprint(m.w, "\r\x1b[K")
		m.shown = false
	}
}
