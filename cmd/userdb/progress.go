package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A progress is one line on a terminal that is written over again and again. Elsewhere it is silent.
type progress struct {
	w     io.Writer // nil: nobody watches
	what  string    // goes on, for bar
	now   func() time.Time
	begin time.Time
	last  time.Time
	shown bool
}

const (
	progressEvery = 200 * time.Millisecond
	barWidth      = 30
)

// progress is that of what, which goes on.
func (s *session) progress(what string, visible bool) *progress {
	p := &progress{what: what, now: time.Now, begin: time.Now()}
	if visible && isTerminal(s.std.err) {
		p.w = s.std.err
	}
	return p
}

// show replaces the line.
func (p *progress) show(format string, args ...any) {
	if p.w == nil || p.now().Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = p.now(), true
	fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
}

// bar shows how much is done of about how much.
func (p *progress) bar(done, about int64) {
	part := 1.0
	if about > 0 {
		part = min(1, float64(done)/float64(about))
	}
	full := int(part * barWidth)
	p.show("%s [%s%s] %3.0f %%", p.what, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*part)
}

// clear takes the line away, for what is printed next.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
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
