package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// compareCheck compares whole checks with whole bare passes over the same records, in turn.
func (b *bench) compareCheck(ctx context.Context) outcome {
	n := b.size(200_000, 50_000)
	b.server.empty(ctx)
	load(ctx, b.server.admin, 0, n)
	db, _ := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	o := b.comparePasses(n, 4, pass{"check", func(t *timer) {
		t.time(func() {
			for p, err := range check.Run(ctx, db, check.Options{}) {
				must(err)
				must(fmt.Errorf("the check found %v", p))
			}
		})
	}}, pass{"bare pass", func(t *timer) { t.time(func() { barePass(ctx, b.server.admin) }) }})
	o.estimate = o.inverse() // a ratio of times, not of rates
	return o
}

// A pass processes all entries once and times that with a timer.
type pass struct {
	name string
	run  func(*timer)
}

// A timer adds up the elapsed time and the processor time of the functions that its method time
// runs.
type timer struct {
	b                    *bench
	took, client, server time.Duration
}

func (t *timer) time(f func()) {
	begin, client, server := time.Now(), processorTime(os.Getpid()), t.b.serverTime()
	f()
	t.took += time.Since(begin)
	t.client += processorTime(os.Getpid()) - client
	t.server += t.b.serverTime() - server
}

// comparePasses runs two passes over n entries in turn, pairs times each, and compares them.
func (b *bench) comparePasses(n, pairs int, ours, bare pass) outcome {
	results := []result{{Name: ours.name}, {Name: bare.name}}
	grown := 0.0
	for range pairs {
		for i, p := range []pass{ours, bare} {
			t := timer{b: b}
			stop := watchMemory()
			p.run(&t)
			if more := stop(); i == 0 {
				grown = max(grown, more)
			}
			each := float64(n)
			x := block{ops: n, seconds: t.took.Seconds(), client: micros(t.client) / each, server: micros(t.server) / each}
			results[i].blocks = append(results[i].blocks, x)
		}
	}
	results[0].summarize()
	results[1].summarize()
	o := b.judge(results, results[0], results[1])
	o.entries, o.note = n, fmt.Sprintf("%d entries; the process grew by %.0f MiB", n, grown/(1<<20))
	return o
}

// barePass reads the records of all entries and identifiers, and ignores them.
func barePass(ctx context.Context, c *redis.Client) {
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, "*", 1000).Result()
		must(err)
		pipe := c.Pipeline()
		var srks []string
		for _, k := range keys {
			if strings.HasSuffix(k, "/~prk") {
				srks = append(srks, k)
			} else if strings.HasPrefix(k, "user/") {
				pipe.HGetAll(ctx, k)
			}
		}
		if len(srks) > 0 {
			pipe.MGet(ctx, srks...)
		}
		mustGet(pipe.Exec(ctx))
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// compareImport compares whole imports with whole runs of the bare pipeline, in turn, each on an
// empty database.
func (b *bench) compareImport(ctx context.Context) outcome {
	return b.compareImports(ctx, b.size(200_000, 50_000), b.size(8, 4))
}

// compareImportOfMillion compares the processor time of importing a million lines with that of the
// bare pipeline, so that costs that grow with the input show.
func (b *bench) compareImportOfMillion(ctx context.Context) outcome {
	o := b.compareImports(ctx, 1_000_000, 3)
	o.estimate = *o.cpu
	return o
}

func (b *bench) compareImports(ctx context.Context, n, pairs int) outcome {
	dir := mustGet(os.MkdirTemp("", "bench"))
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "users.jsonl")
	writeLines(path, n)
	return b.comparePasses(n, pairs,
		pass{"import", func(t *timer) { b.importAll(ctx, t, path, n) }},
		pass{"pipeline", func(t *timer) { b.barePipelines(ctx, t, n) }})
}

// writeLines writes the lines that an export of n users would write.
func writeLines(path string, n int) {
	f := mustGet(os.Create(path))
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"type":"user","facets":{"added":"2026-11-20T08:02:40.512Z","city":"Berlin","email":%q,"job":"cook","lang":"de","name":%q,"uid":%q},"password":%q}`+"\n",
			email(i), name(i), uid(i), hash)
	}
	must(errors.Join(w.Flush(), f.Close()))
}

func (b *bench) importAll(ctx context.Context, t *timer, path string, n int) {
	b.server.empty(ctx)
	db, _ := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	in := mustGet(os.Open(path))
	defer in.Close()
	var report transfer.Report
	t.time(func() {
		report = mustGet(transfer.Import(ctx, db, in, transfer.ImportOptions{Rejects: io.Discard}))
	})
	if report.Created != int64(n) {
		must(fmt.Errorf("%d of %d entries were created", report.Created, n))
	}
}

// barePipelines times only the pipelines, without preparing what they send.
func (b *bench) barePipelines(ctx context.Context, t *timer, n int) {
	b.server.empty(ctx)
	c := b.server.client(1)
	defer c.Close()
	for first := 0; first < n; first += 1000 {
		pipe := c.Pipeline()
		for i := first; i < min(first+1000, n); i++ {
			put(ctx, pipe, i, fields(i))
		}
		t.time(func() { mustGet(pipe.Exec(ctx)) })
	}
}

// watchMemory watches how much memory the process has from the system. The function that it returns
// stops watching and returns the largest growth in bytes.
func watchMemory() func() float64 {
	before, peak := memoryInUse(), 0.0
	var ended atomic.Bool
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for ; !ended.Load(); time.Sleep(10 * time.Millisecond) {
			peak = max(peak, memoryInUse()-before)
		}
	})
	return func() float64 {
		ended.Store(true)
		watcher.Wait()
		return peak
	}
}

func memoryInUse() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64() - s[1].Value.Uint64())
}
