package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/metrics"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// importing compares whole imports with whole runs of the bare pipeline, in turn, each on an empty database.
func (b *bench) importing(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	n, rounds := b.size(1_000_000, 50_000), b.size(3, 5)
	path := filepath.Join(b.server.dir, "users.jsonl")
	if err := writeLines(path, n); err != nil {
		return outcome{}, err
	}
	results := []result{{}, {}}
	grown := 0.0
	for range rounds {
		ours, more, err := b.importRound(ctx, path, n)
		if err != nil {
			return outcome{}, err
		}
		bare, err := b.bareRound(ctx, n)
		if err != nil {
			return outcome{}, err
		}
		grown = max(grown, more)
		results[0].rounds, results[1].rounds = append(results[0].rounds, ours), append(results[1].rounds, bare)
	}
	results[0].sum("import")
	results[1].sum("pipeline")
	note := fmt.Sprintf("%d entries; the process grew by %.0f MiB", n, grown/(1<<20))
	return outcome{ratio: ratio(results[0], results[1]), note: note, variants: results}, nil
}

// writeLines writes what an export of n users would.
func writeLines(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"type":"user","facets":{"added":"2026-11-20T08:02:40.512Z","city":"Berlin","email":%q,"job":"cook","lang":"de","name":%q,"uid":%q},"password":%q}`+"\n",
			email(i), name(i), uid(i), hash)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

func (b *bench) importRound(ctx context.Context, path string, n int) (r round, grown float64, err error) {
	b.server.empty(ctx)
	db, err := userdb.Open(ctx, b.server.url(), userdb.Options{})
	if err != nil {
		return r, 0, err
	}
	defer db.Close()
	in, err := os.Open(path)
	if err != nil {
		return r, 0, err
	}
	defer in.Close()
	watch := watchMemory()
	cpu, begin := b.server.cpu(ctx), time.Now()
	report, err := transfer.Import(ctx, db, in, transfer.ImportOptions{Rejects: io.Discard})
	if err == nil && report.Created != int64(n) {
		err = fmt.Errorf("%d of %d entries were created", report.Created, n)
	}
	return b.rounded(ctx, n, time.Since(begin), cpu), watch(), err
}

func (b *bench) rounded(ctx context.Context, n int, took time.Duration, cpu float64) round {
	return round{ops: n, seconds: took.Seconds(), serverCPU: (b.server.cpu(ctx) - cpu) * 1e6 / float64(n)}
}

// bareRound counts the time of the pipelines alone, not that of making up what they send.
func (b *bench) bareRound(ctx context.Context, n int) (round, error) {
	b.server.empty(ctx)
	c := b.server.client(1)
	defer c.Close()
	cpu, took := b.server.cpu(ctx), time.Duration(0)
	for first := 0; first < n; first += 1000 {
		users := make([]bareUser, min(1000, n-first))
		for i := range users {
			users[i] = bareUser{fields(first + i), prk(first + i), srkMail(first + i), srkName(first + i)}
		}
		begin := time.Now()
		if err := pipeline(ctx, c, users); err != nil {
			return round{}, err
		}
		took += time.Since(begin)
	}
	return b.rounded(ctx, n, took, cpu), nil
}

type bareUser struct {
	fields          []any
	prk, mail, name string
}

func pipeline(ctx context.Context, c *redis.Client, users []bareUser) error {
	pipe := c.Pipeline()
	for _, u := range users {
		pipe.HSet(ctx, u.prk, u.fields...)
		pipe.Set(ctx, u.mail, u.prk, 0)
		pipe.Set(ctx, u.name, u.prk, 0)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// watchMemory watches how much memory the process has of the system. What it returns ends that, and says
// by how much it grew at most.
func watchMemory() func() float64 {
	before, most := memoryInUse(), 0.0
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			most = max(most, memoryInUse()-before)
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() float64 {
		close(end)
		<-ended
		return most
	}
}

func memoryInUse() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64() - s[1].Value.Uint64())
}
