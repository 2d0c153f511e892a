package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A row is one claim: a ratio and the target that it must reach.
type row struct {
	name   string
	what   string
	quick  bool // also in the quick run
	target float64
	most   bool // the ratio must stay below the target, not above
	tcp    bool // the full run measures it over TCP as well
	run    func(ctx context.Context, b *bench) (outcome, error)
}

// An outcome is what a row measured.
type outcome struct {
	ratio    float64
	note     string
	variants []result
}

// A bench is one run: the server and how long things may take.
type bench struct {
	server *server
	quick  bool
	rounds int
	per    time.Duration
}

// measure runs a row, which passes or not by what comes out on the unix socket.
func (b *bench) measure(ctx context.Context, r row) (outcome, error) {
	o, err := r.run(ctx, b)
	if err != nil || b.quick || !r.tcp {
		return o, err
	}
	over := *b
	over.server = b.server.overTCP()
	t, err := r.run(ctx, &over)
	o.note = strings.TrimSpace(o.note + fmt.Sprintf(" Over TCP %.2f", t.ratio))
	return o, err
}

// compare measures two variants; the ratio is that of the first over the second.
func (b *bench) compare(ctx context.Context, workers int, ours, bare variant) (outcome, error) {
	rs, err := interleave(ctx, b.server, workers, b.rounds, b.per, ours, bare)
	if err != nil {
		return outcome{}, err
	}
	return outcome{ratio: ratio(rs[0], rs[1]), variants: rs}, nil
}

// size is one of two numbers, for the full and for the quick run.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

func rows() []row {
	var all []row
	for _, n := range []int{1, 16, 128} {
		all = append(all, readRows(n)...)
		all = append(all, createRow(n))
	}
	all = append(all, writeRows()...)
	all = append(all, bulkRows()...)
	all = append(all, loginRows()...)
	all = append(all, peerRows()...)
	all = append(all, clusterRows()...)
	return append(all, keysRow())
}

func (r row) ok(o outcome, slack float64) bool {
	if r.most {
		return o.ratio <= r.target/slack
	}
	return o.ratio >= r.target*slack
}

func named(what string, n int) string { return fmt.Sprintf("%s-%d", what, n) }
