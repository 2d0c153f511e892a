package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A variant is one way to do what a row measures.
type variant struct {
	name    string
	op      func(ctx context.Context, worker, i int) error // i is another one for every operation of a run
	prepare func(n int)                                    // makes ready what n operations need, before a round; nil: nothing
}

// mostPerSecond is more than any operation that wants preparing is done in a second.
const mostPerSecond = 200_000

// A round is what one variant did in one short stretch of time.
type round struct {
	ops       int
	seconds   float64
	latencies []time.Duration
	mallocs   float64 // per operation
	serverCPU float64 // microseconds per operation
	ownCPU    float64 // of this process, microseconds per operation
}

func (r round) rate() float64 { return float64(r.ops) / r.seconds }

// A result sums the rounds of one variant up.
type result struct {
	Name      string  `json:"name"`
	Rate      float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Allocs    float64 `json:"allocs"`
	ServerCPU float64 `json:"redis_cpu_us"`
	OwnCPU    float64 `json:"own_cpu_us"`
	rounds    []round
}

// interleave runs the variants in turn, in short rounds, so that what else the machine does falls on
// all of them alike. The order changes with every round.
func (b *bench) interleave(ctx context.Context, workers int, vs ...variant) []result {
	rounds := b.rounds
	if workers == 1 { // whether processors sleep between requests, and whether client and server share one, is luck for several rounds
		rounds *= 2
	}
	results := make([]result, len(vs))
	for n := range rounds + 1 {
		for j := range vs {
			i := (j + n) % len(vs)
			r := b.round(ctx, workers, vs[i])
			if n > 0 { // the first one warms up
				results[i].rounds = append(results[i].rounds, r)
			}
		}
	}
	for i := range results {
		results[i].sum(vs[i].name)
	}
	return results
}

// lasting is b with rounds that last so long at least.
func (b *bench) lasting(per time.Duration) *bench {
	slow := *b
	slow.per = max(b.per, per)
	return &slow
}

func (b *bench) round(ctx context.Context, workers int, v variant) round {
	var before, after runtime.MemStats
	if v.prepare != nil {
		v.prepare(int(mostPerSecond * b.per.Seconds()))
		runtime.GC() // not in the round
	}
	cpu, own := b.server.cpu(ctx), ownCPU()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	latencies := make([][]time.Duration, workers)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { latencies[w], errs[w] = work(ctx, w, begin.Add(b.per), v) })
	}
	wg.Wait()
	r := round{seconds: time.Since(begin).Seconds(), latencies: slices.Concat(latencies...)}
	own = ownCPU() - own
	runtime.ReadMemStats(&after)
	r.ops = len(r.latencies)
	r.mallocs = float64(after.Mallocs-before.Mallocs) / float64(max(r.ops, 1))
	r.serverCPU = (b.server.cpu(ctx) - cpu) * 1e6 / float64(max(r.ops, 1))
	r.ownCPU = own * 1e6 / float64(max(r.ops, 1))
	must(errors.Join(errs...))
	return r
}

// operations counts all operations of the run.
var operations atomic.Int64

func work(ctx context.Context, w int, end time.Time, v variant) (ls []time.Duration, err error) {
	for begin := time.Now(); err == nil && begin.Before(end); {
		err = v.op(ctx, w, int(operations.Add(1)))
		now := time.Now()
		ls, begin = append(ls, now.Sub(begin)), now
	}
	return ls, err
}

func (r *result) sum(name string) {
	r.Name = name
	var rates, allocs, cpu, own []float64
	var ls []time.Duration
	for _, x := range r.rounds {
		rates, allocs, cpu = append(rates, x.rate()), append(allocs, x.mallocs), append(cpu, x.serverCPU)
		own = append(own, x.ownCPU)
		ls = append(ls, x.latencies...)
	}
	r.Rate, r.Allocs, r.ServerCPU, r.OwnCPU = median(rates), median(allocs), median(cpu), median(own)
	slices.Sort(ls)
	if len(ls) > 0 {
		r.P50, r.P99 = micros(ls[len(ls)/2]), micros(ls[len(ls)*99/100])
	}
}

// ownCPU is how many seconds this process has computed.
func ownCPU() float64 {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// ratio is the median of ours over theirs, round by round.
func ratio(ours, theirs result) float64 {
	var rs []float64
	for i := range ours.rounds {
		rs = append(rs, ours.rounds[i].rate()/theirs.rounds[i].rate())
	}
	return median(rs)
}
