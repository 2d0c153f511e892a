package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	quads    = 5 // the most times that a row goes through the turns ours, peer, peer, ours
	minQuads = 2 // the minimum, even if operations take longer than a turn
	// maxWarmUpCallers is the largest number of callers that warm a side up. With 128 callers, one
	// sign-in would take seconds.
	maxWarmUpCallers = 16
)

// settings controls how rows are measured.
type settings struct {
	seconds float64       // how long each side of a row is measured
	limit   time.Duration // how long a row may take
}

func (s settings) turn() time.Duration {
	return time.Duration(s.seconds / (2 * quads) * float64(time.Second))
}

// A round holds what one side did in one turn.
type round struct {
	seconds     float64
	latencies   []time.Duration
	server, own time.Duration // processor time of the service and of this load generator
	memory      int64
}

func (r round) rate() float64 { return float64(len(r.latencies)) / r.seconds }

// A caller is one connection that runs one operation after another.
type caller struct {
	number    int
	conn      *conn
	random    *rand.Rand
	request   request
	expected  expectation
	latencies []time.Duration
}

// A side is a service that does a job for callers.
type side struct {
	service   *service
	operation operation
	accounts  int
	callers   []*caller
	rounds    []round

	operations int     // of all rounds, including the warm-up
	seconds    float64 // of all rounds, including the warm-up
}

// newSide connects the callers. A request that is not answered by the deadline fails.
func newSide(s *service, v operation, accounts, callers int, deadline time.Time) (*side, error) {
	d := &side{service: s, operation: v, accounts: accounts}
	for i := range callers {
		c, err := dial(s.addr)
		if err == nil {
			d.callers = append(d.callers, &caller{number: i, conn: c, random: rand.New(rand.NewPCG(uint64(i), 7))})
			err = c.SetDeadline(deadline)
		}
		if err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

func (d *side) close() {
	for _, c := range d.callers {
		_ = c.conn.Close()
	}
}

// fresh is a counter. Each operation gets the next number. Creates and updates write it, so that
// each writes something new.
var fresh atomic.Int64

// work runs one operation after another until end.
func (d *side) work(c *caller, end time.Time) error {
	c.latencies = c.latencies[:0]
	for at := time.Now(); at.Before(end); {
		d.operation.ask(&c.request, &c.expected, call{
			n: d.accounts, account: c.random.IntN(d.accounts), session: d.service.sessions[c.random.IntN(sessions)],
			fresh: int(fresh.Add(1)), caller: c.number, key: d.service.key,
		})
		a, err := c.conn.ask(c.request.encode(d.service.addr))
		if err == nil {
			err = c.expected.check(a)
		}
		if err != nil {
			return err
		}
		now := time.Now()
		c.latencies = append(c.latencies, now.Sub(at))
		at = now
	}
	return nil
}

// round lets callers work for the given time. It ends when the last operation that they began is
// answered.
func (d *side) round(callers []*caller, length time.Duration) (r round, err error) {
	server, err := cpuOf(d.service.pids)
	if err != nil {
		return r, fmt.Errorf("%s: %w", d.service.name, err)
	}
	own, begin := ownCPU(), time.Now()
	errs := make([]error, len(callers))
	var all sync.WaitGroup
	for i, c := range callers {
		all.Go(func() { errs[i] = d.work(c, begin.Add(length)) })
	}
	all.Wait()
	r.seconds, r.own = time.Since(begin).Seconds(), ownCPU()-own
	after, err := cpuOf(d.service.pids)
	r.server = after - server
	for _, e := range errs { // the first one is enough
		if err == nil {
			err = e
		}
	}
	if err == nil {
		r.memory, err = memoryOf(d.service.pids)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", d.service.name, err)
	}
	for _, c := range callers {
		r.latencies = append(r.latencies, c.latencies...)
	}
	d.operations, d.seconds = d.operations+len(r.latencies), d.seconds+r.seconds
	return r, nil
}

// compare measures a row: both sides warm up and then take turns.
func compare(ctx context.Context, o settings, ours, peer *service, j job, accounts, callers int) (f figures, err error) {
	begin := time.Now()
	defer ours.emptyLogs()
	defer peer.emptyLogs()
	var sides [2]*side
	for i, s := range []*service{ours, peer} {
		if sides[i], err = newSide(s, []operation{j.ours, j.theirs[peer.name]}[i], accounts, callers, begin.Add(o.limit)); err != nil {
			return f, err
		}
		defer sides[i].close()
		defer context.AfterFunc(ctx, sides[i].close)()
	}
	for _, d := range sides {
		if _, err := d.round(d.callers[:min(maxWarmUpCallers, callers)], o.turn()); err != nil {
			return f, o.explain(err, sides)
		}
	}
	runtime.GC() // not in a turn
	for begin, n := time.Now(), 0; n < quads && (n < minQuads || time.Since(begin).Seconds() < 2*o.seconds); n++ {
		for _, i := range []int{0, 1, 1, 0} {
			r, err := sides[i].round(sides[i].callers, o.turn())
			if err != nil {
				return f, o.explain(err, sides)
			}
			sides[i].rounds = append(sides[i].rounds, r)
		}
	}
	return summarize(sides[0].rounds, sides[1].rounds), nil
}

var errSlow = errors.New("slower than the limit for a row")

// explain returns an error that says how much each side did, if err means that the row reached its
// time limit. The error names both sides, because the side that was asked last is not necessarily
// the slow one. Other errors are returned unchanged.
func (o settings) explain(err error, sides [2]*side) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	var did []string
	for _, d := range sides {
		did = append(did, fmt.Sprintf("%s did %d operations in %.1f s", d.service.name, d.operations, d.seconds))
	}
	return fmt.Errorf("%w, which is %v: %s", errSlow, o.limit, strings.Join(did, ", "))
}

// figures holds what was measured in one row.
type figures struct {
	Ours  sideFigures `json:"ours"`
	Peer  sideFigures `json:"peer"`
	Ratio float64     `json:"ratio"` // of the rates: the median over pairs of turns
	Low   float64     `json:"low"`   // the 95 % interval of the ratio
	High  float64     `json:"high"`
	Pairs int         `json:"pairs"`
}

// sideFigures holds what was measured on one side of a row.
type sideFigures struct {
	Operations int     `json:"operations"`
	Rate       float64 `json:"per_second"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	CPU        float64 `json:"server_cpu_us"`   // for one operation, all processes of the service
	Memory     float64 `json:"memory_mib"`      // of all processes, the largest after a turn
	Generator  float64 `json:"generator_share"` // the load generator's share of all processors
}

// summarize computes figures from rounds. Rounds with the same index are a pair: they follow each
// other.
func summarize(ours, peer []round) figures {
	f := figures{Ours: summarizeSide(ours), Peer: summarizeSide(peer), Pairs: len(ours)}
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i].rate()/peer[i].rate())
	}
	f.Ratio = median(ratios)
	f.Low, f.High = bootstrap(ratios)
	return f
}

func summarizeSide(rounds []round) (f sideFigures) {
	var rates []float64
	var latencies []time.Duration
	var server, own time.Duration
	var seconds float64
	for _, r := range rounds {
		rates, latencies = append(rates, r.rate()), append(latencies, r.latencies...)
		server, own, seconds = server+r.server, own+r.own, seconds+r.seconds
		f.Memory = max(f.Memory, float64(r.memory)/(1<<20))
	}
	slices.Sort(latencies)
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	f.Operations, f.Rate = len(latencies), median(rates)
	f.P50, f.P99 = milliseconds(quantile(latencies, 0.5)), milliseconds(quantile(latencies, 0.99))
	f.Max = milliseconds(quantile(latencies, 1))
	f.CPU = server.Seconds() * 1e6 / float64(max(len(latencies), 1))
	f.Generator = own.Seconds() / (seconds * float64(runtime.NumCPU()))
	return f
}
