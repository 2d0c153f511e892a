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
