package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A progress is one line on a terminal that is written over again and again. Elsewhere it is silent.
type progress struct {
	w     io.Writer // nil: nobody looks
	now   func() time.Time
	begin time.Time
	last  time.Time
	width int
}

// progressEvery is how often the line changes.
const progressEvery = 200 * time.Millisecond

func newProgress(w io.Writer, now func() time.Time) *progress {
	p := &progress{now: now, begin: now()}
	if isTerminal(w) {
		p.w = w
	}
	return p
}

// show replaces the line.
func (p *progress) show(text string) {
	if p.w == nil || p.now().Sub(p.last) < progressEvery {
		return
	}
	p.last = p.now()
	fmt.Fprintf(p.w, "\r%-*s", p.width, text)
	p.width = len(text)
}

// end removes the line.
func (p *progress) end() {
	if p.w != nil && p.width > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

// rate is how many a second were done since the beginning.
func (p *progress) rate(done int64) string {
	seconds := p.now().Sub(p.begin).Seconds()
	if seconds <= 0 {
		return "0/s"
	}
	return fmt.Sprintf("%.0f/s", float64(done)/seconds)
}

// left is how long the rest takes, if it goes on as it did.
func (p *progress) left(done, all int64) string {
	if done <= 0 || all <= done {
		return ""
	}
	spent := p.now().Sub(p.begin)
	rest := time.Duration(float64(spent) * float64(all-done) / float64(done))
	return ", " + rest.Round(time.Second).String() + " left"
}

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
