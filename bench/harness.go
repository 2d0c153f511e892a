package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A variant is one way to do the operation that a row measures.
type variant struct {
	name string
	// op runs the operation once. No two operations of a run get the same i.
	op func(ctx context.Context, worker, i int) error
	// prepare, if not nil, prepares the next n operations. It runs before each block, and its time
	// is not counted. op returns errPrepared when it has used up what was prepared.
	prepare func(n int)
}

// errPrepared ends a block early.
var errPrepared = errors.New("all operations that were prepared are done")

// A block holds the figures of one variant in one short period of time.
type block struct {
	ops            int
	seconds        float64
	client, server float64 // processor time in microseconds per operation
}

// rate returns operations per second.
func (x block) rate() float64 { return float64(x.ops) / x.seconds }

// processor returns the processor time of client and server.
func (x block) processor() float64 { return x.client + x.server }

// A result holds the blocks of one variant and the figures computed from them.
type result struct {
	Name      string  `json:"name"`
	Rate      float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	ClientCPU float64 `json:"client_cpu_us"`
	ServerCPU float64 `json:"server_cpu_us"`
	Allocs    float64 `json:"allocs"`
	Commands  float64 `json:"commands"`    // including those within scripts
	Trips     float64 `json:"round_trips"` // reads of a socket by the server; callers may share one

	blocks    []block
	latencies []time.Duration // of all blocks, in order
	prepared  int             // the number of operations to prepare for a block
}

// shortest is the minimum length of a block, unless a row sets another one. With manyCallers or
// more a block is four times as long, because not all callers are at work when a block begins and
// ends.
const (
	shortest    = 5 * time.Millisecond
	manyCallers = 64
)

// gcPercent makes garbage collections rare while variants take turns. A collection takes as long as
// some blocks, and would count against whichever variant is running.
const gcPercent = 400

// warmUp returns how many blocks of each variant run first without being counted.
func (b *bench) warmUp() int { return max(1, min(12, b.pairs/5)) }

// interleave runs the variants in turn, in blocks, in the order A B, B A, A B, …, so that whatever
// else the machine does affects all of them alike.
func (b *bench) interleave(ctx context.Context, workers int, vs ...variant) []result {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	if workers >= manyCallers && b.blockTime == shortest {
		b = b.withBlocks(b.pairs*2/5, 4*b.blockTime)
	}
	if !b.allCores {
		defer pin(b.pids)()
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	runtime.GC()
	results := make([]result, len(vs))
	for i, v := range vs {
		results[i] = result{Name: v.name, prepared: 4 * workers}
	}
	turns := func(n int) {
		order := make([]int, len(vs))
		for i := range order {
			order[i] = i
		}
		for range n {
			for _, i := range order {
				b.run(ctx, workers, vs[i], &results[i])
			}
			slices.Reverse(order)
		}
	}
	turns(b.warmUp())
	for i := range results {
		b.countWork(ctx, workers, vs[i], &results[i])
	}
	if b.profile != "" {
		for i := range results {
			b.writeProfiles(ctx, workers, vs[i], &results[i])
		}
	}
	for i := range results {
		results[i].blocks, results[i].latencies = nil, nil
	}
	turns(b.pairs)
	for i := range results {
		results[i].summarize()
	}
	return results
}

// run runs one block of v and adds it to r.
func (b *bench) run(ctx context.Context, workers int, v variant, r *result) {
	if v.prepare != nil {
		v.prepare(r.prepared)
	}
	latencies := make([][]time.Duration, workers)
	errs := make([]error, workers)
	server, client := b.serverTime(), processorTime(os.Getpid())
	begin := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { latencies[w], errs[w] = work(ctx, w, begin.Add(b.blockTime), v) })
	}
	wg.Wait()
	x := block{seconds: time.Since(begin).Seconds()}
	client, server = processorTime(os.Getpid())-client, b.serverTime()-server
	must(errors.Join(errs...))
	for _, ls := range latencies {
		x.ops += len(ls)
		r.latencies = append(r.latencies, ls...)
	}
	x.client, x.server = micros(client)/float64(x.ops), micros(server)/float64(x.ops)
	r.blocks = append(r.blocks, x)
	r.prepared = max(r.prepared, 2*x.ops)
}

// serverTime returns the processor time of all server processes.
func (b *bench) serverTime() (sum time.Duration) {
	for _, pid := range b.pids {
		sum += processorTime(pid)
	}
	return sum
}

// countWork runs blocks of v and counts what does not depend on time: allocations, commands, and
// round trips.
func (b *bench) countWork(ctx context.Context, workers int, v variant, r *result) {
	var before, after runtime.MemStats
	r.blocks = nil
	commands, trips := b.traffic(ctx)
	runtime.ReadMemStats(&before)
	for range b.warmUp() {
		b.run(ctx, workers, v, r)
	}
	runtime.ReadMemStats(&after)
	commandsAfter, tripsAfter := b.traffic(ctx)
	ops := 0
	for _, x := range r.blocks {
		ops += x.ops
	}
	r.Allocs = float64(after.Mallocs-before.Mallocs) / float64(ops)
	own := float64(len(b.nodes)) // the commands that traffic itself sends
	r.Commands, r.Trips = (commandsAfter-commands-own)/float64(ops), (tripsAfter-trips-own)/float64(ops)
}

// traffic returns how many commands all nodes have run and how often they have read a socket.
func (b *bench) traffic(ctx context.Context) (commands, trips float64) {
	for _, c := range b.nodes {
		stats := info(ctx, c, "stats")
		commands += stats["total_commands_processed"]
		trips += stats["total_reads_processed"]
	}
	return commands, trips
}

// operations counts all operations of the run.
var operations atomic.Int64

// work repeats v's operation until end, at least once, and returns how long each operation took.
func work(ctx context.Context, w int, end time.Time, v variant) (ls []time.Duration, err error) {
	ls = make([]time.Duration, 0, 256)
	for begin := time.Now(); ; {
		if err = v.op(ctx, w, int(operations.Add(1))); errors.Is(err, errPrepared) {
			return ls, nil
		} else if err != nil {
			return nil, err
		}
		now := time.Now()
		ls, begin = append(ls, now.Sub(begin)), now
		if !now.Before(end) {
			return ls, nil
		}
	}
}

// summarize computes the figures of r from its blocks and latencies.
func (r *result) summarize() {
	middle := func(f func(block) float64) float64 {
		var xs []float64
		for _, x := range r.blocks {
			xs = append(xs, f(x))
		}
		return median(xs)
	}
	r.Rate = middle(block.rate)
	r.ClientCPU = middle(func(x block) float64 { return x.client })
	r.ServerCPU = middle(func(x block) float64 { return x.server })
	r.P50, r.P99 = percentile(r.latencies, 50), percentile(r.latencies, 99)
}

// figures returns pointers to all figures of r.
func (r *result) figures() []*float64 {
	return []*float64{&r.Rate, &r.P50, &r.P99, &r.ClientCPU, &r.ServerCPU, &r.Allocs, &r.Commands, &r.Trips}
}

// add adds the figures of another result to those of r.
func (r *result) add(other result) {
	for i, x := range other.figures() {
		*r.figures()[i] += *x
	}
}

// scale multiplies the figures of r by factor.
func (r *result) scale(factor float64) {
	for _, x := range r.figures() {
		*x *= factor
	}
}

// percentile returns the latency that p percent of the operations do not exceed, in microseconds.
func percentile(ls []time.Duration, p float64) float64 {
	if len(ls) == 0 {
		return 0
	}
	ls = slices.Sorted(slices.Values(ls))
	return micros(ls[min(int(float64(len(ls))*p/100), len(ls)-1)])
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// compareBlocks estimates the ratio of f(ours) to f(theirs) from the ratios of the pairs of blocks.
func compareBlocks(ours, theirs result, f func(block) float64) estimate {
	var xs []float64
	for i := range ours.blocks {
		xs = append(xs, f(ours.blocks[i])/f(theirs.blocks[i]))
	}
	return estimateMedian(xs)
}

// tails is the number of parts into which the latencies of a result are divided, to find out how
// much their 99th percentile varies.
const tails = 20

// compareTails estimates the ratio of the 99th percentile of ours to that of theirs.
func compareTails(ours, theirs result) estimate {
	var xs []float64
	for i := range tails {
		part := func(ls []time.Duration) float64 { return percentile(ls[len(ls)*i/tails:len(ls)*(i+1)/tails], 99) }
		xs = append(xs, part(ours.latencies)/part(theirs.latencies))
	}
	return estimateMedian(xs)
}
