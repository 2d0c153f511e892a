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

// checking compares whole checks with whole bare passes, in turn, over the same records.
func (b *bench) checking(ctx context.Context) outcome {
	defer b.server.reset(ctx)
	n := b.size(200_000, 50_000)
	b.server.empty(ctx)
	load(ctx, b.server.admin, 0, n)
	db, _ := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	o := b.inTurn(ctx, n, 3, pass{"check", func() time.Duration {
		begin := time.Now()
		for p, err := range check.Run(ctx, db, check.Options{}) {
			must(err)
			must(fmt.Errorf("the check found %v", p))
		}
		return time.Since(begin)
	}}, pass{"bare pass", func() time.Duration {
		begin := time.Now()
		barePass(ctx, b.server.admin)
		return time.Since(begin)
	}})
	o.ratio = 1 / o.ratio
	return o
}

// A pass takes all entries once, and returns how long that took.
type pass struct {
	name string
	run  func() time.Duration
}

// inTurn compares two passes over n entries, in turn.
func (b *bench) inTurn(ctx context.Context, n, rounds int, ours, bare pass) outcome {
	results := []result{{}, {}}
	grown := 0.0
	for range rounds {
		for i, p := range []pass{ours, bare} {
			watch, cpu := watchMemory(), b.server.cpu(ctx)
			took := p.run()
			if more := watch(); i == 0 {
				grown = max(grown, more)
			}
			r := round{ops: n, seconds: took.Seconds(), serverCPU: (b.server.cpu(ctx) - cpu) * 1e6 / float64(n)}
			results[i].rounds = append(results[i].rounds, r)
		}
	}
	results[0].sum(ours.name)
	results[1].sum(bare.name)
	note := fmt.Sprintf("%d entries; the process grew by %.0f MiB", n, grown/(1<<20))
	return outcome{ratio: ratio(results[0], results[1]), note: note, variants: results}
}

// barePass reads all records and looks at none.
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
		got(pipe.Exec(ctx))
		if cursor = next; cursor == 0 {
			return
		}
	}
}

// importing compares whole imports with whole runs of the bare pipeline, in turn, each on an empty database.
func (b *bench) importing(ctx context.Context) outcome {
	defer b.server.reset(ctx)
	n, rounds := b.size(200_000, 50_000), b.size(3, 5)
	dir := got(os.MkdirTemp("", "bench"))
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "users.jsonl")
	writeLines(path, n)
	return b.inTurn(ctx, n, rounds,
		pass{"import", func() time.Duration { return b.importAll(ctx, path, n) }},
		pass{"pipeline", func() time.Duration { return b.barePipelines(ctx, n) }})
}

// writeLines writes what an export of n users would.
func writeLines(path string, n int) {
	f := got(os.Create(path))
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"type":"user","facets":{"added":"2026-11-20T08:02:40.512Z","city":"Berlin","email":%q,"job":"cook","lang":"de","name":%q,"uid":%q},"password":%q}`+"\n",
			email(i), name(i), uid(i), hash)
	}
	must(errors.Join(w.Flush(), f.Close()))
}

func (b *bench) importAll(ctx context.Context, path string, n int) time.Duration {
	b.server.empty(ctx)
	db, _ := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	in := got(os.Open(path))
	defer in.Close()
	begin := time.Now()
	report := got(transfer.Import(ctx, db, in, transfer.ImportOptions{Rejects: io.Discard}))
	took := time.Since(begin)
	if report.Created != int64(n) {
		must(fmt.Errorf("%d of %d entries were created", report.Created, n))
	}
	return took
}

// barePipelines counts the time of the pipelines alone, not that of making up what they send.
func (b *bench) barePipelines(ctx context.Context, n int) (took time.Duration) {
	b.server.empty(ctx)
	c := b.server.client(1)
	defer c.Close()
	for first := 0; first < n; first += 1000 {
		pipe := c.Pipeline()
		for i := first; i < min(first+1000, n); i++ {
			put(ctx, pipe, i, fields(i))
		}
		begin := time.Now()
		got(pipe.Exec(ctx))
		took += time.Since(begin)
	}
	return took
}

// watchMemory watches how much memory the process has of the system. What it returns ends that, and tells
// by how much it grew at most.
func watchMemory() func() float64 {
	before, most := memoryInUse(), 0.0
	var ended atomic.Bool
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for ; !ended.Load(); time.Sleep(10 * time.Millisecond) {
			most = max(most, memoryInUse()-before)
		}
	})
	return func() float64 {
		ended.Store(true)
		watcher.Wait()
		return most
	}
}

func memoryInUse() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64() - s[1].Value.Uint64())
}
