package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// sizes are the numbers of entries in the stores whose costs are compared.
var sizes = []int{population, 1_000_000}

// A cost describes what one job takes in a store.
type cost struct {
	job  string
	took time.Duration // the median of many runs, or the time of each part of a job done once
	cpu  float64       // processor time of both ends, in microseconds
}

// compareSizes measures the same jobs in a store of each size, and writes a table of their costs.
// The schema is the built-in one, with its orders, and two more fields.
func (b *bench) compareSizes(ctx context.Context, w io.Writer) {
	all := make([][]cost, len(sizes))
	for i, n := range sizes {
		b.onNewServer(ctx, func(b *bench) outcome {
			b.server.admin.FlushAll(ctx)
			all[i] = b.costs(ctx, n)
			return outcome{}
		})
	}
	fmt.Fprintf(w, "| | %d entries: time | processor | %d entries: time | processor | processor, ratio |\n|---|---|---|---|---|---|\n", sizes[0], sizes[1])
	for i, small := range all[0] {
		large := all[1][i]
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %.2f |\n", small.job, short(small.took), shortMicros(small.cpu), short(large.took), shortMicros(large.cpu), large.cpu/small.cpu)
	}
}

// short returns a duration with three digits.
func short(d time.Duration) string { return shortMicros(micros(d)) }

func shortMicros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.3g s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.3g ms", us/1e3)
	}
	return fmt.Sprintf("%.3g µs", us)
}

// costs imports n entries and measures jobs in the store.
func (b *bench) costs(ctx context.Context, n int) (all []cost) {
	dir := mustGet(os.MkdirTemp("", "bench"))
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "users.jsonl")
	writeLines(path, n)
	s := schema.User()
	s.Types["user"].Fields["city"], s.Types["user"].Fields["lang"] = schema.Field{}, schema.Field{}
	db, users := b.server.open(ctx, userdb.Options{Schema: s})
	defer db.Close()

	all = append(all, b.whole("import, an entry", n, func() {
		in := mustGet(os.Open(path))
		defer in.Close()
		report := mustGet(transfer.Import(ctx, db, in, transfer.ImportOptions{Rejects: io.Discard}))
		if report.Created != int64(n) {
			must(fmt.Errorf("%d of %d entries were created", report.Created, n))
		}
	}))
	for _, r := range b.withBlocks(40, 20*time.Millisecond).interleave(ctx, 1, sizedVariants(users, n)...) {
		all = append(all, cost{r.Name, time.Duration(r.P50 * 1000), r.ClientCPU + r.ServerCPU})
	}
	return append(all,
		b.whole("check, an entry", n, func() {
			for p, err := range check.Run(ctx, db, check.Options{}) {
				must(err)
				must(fmt.Errorf("the check found %v", p))
			}
		}),
		b.whole("export, an entry", n, func() {
			mustGet(transfer.Export(ctx, db, io.Discard, transfer.ExportOptions{}))
		}))
}

// whole measures a job that is done once and consists of n parts.
func (b *bench) whole(job string, n int, f func()) cost {
	t := timer{b: b}
	t.time(f)
	return cost{job, t.took / time.Duration(n), micros(t.client+t.server) / float64(n)}
}

// sizedVariants returns the jobs that take less than a block.
func sizedVariants(users *userdb.Type, n int) []variant {
	spread := func(i int) int { return i * 31 % n }
	find := func(name string, hint func(i int) hints.Hint) variant {
		return variant{name: name, op: func(ctx context.Context, w, i int) error {
			_, err := users.Find(ctx, hint(spread(i)))
			return err
		}}
	}
	page := func(name string, q userdb.Query) variant {
		q.Limit = 50
		return variant{name: name, op: func(ctx context.Context, w, i int) error {
			p, err := users.Page(ctx, q)
			if err == nil && len(p.Entries) != q.Limit {
				err = fmt.Errorf("a page has %d entries, want %d", len(p.Entries), q.Limit)
			}
			return err
		}}
	}
	count := func(name string, q userdb.Query, want int) variant {
		return variant{name: name, op: func(ctx context.Context, w, i int) error {
			total, err := users.Count(ctx, q)
			if err == nil && total.Entries != int64(want) {
				err = fmt.Errorf("counted %d entries, want %d", total.Entries, want)
			}
			return err
		}}
	}
	middle := schema.Text(email(n / 2))
	// The prefix matches 111 entries, in a small store as in a large one.
	prefix := strings.TrimSuffix(email(n/1000+2), "@example.com")
	return []variant{
		find("find by UID", func(i int) hints.Hint { return hints.UID(uid(i)) }),
		find("find by any identifier", func(i int) hints.Hint { return hints.Any(email(i)) }),
		page("a page of 50, unordered", userdb.Query{}),
		page("the first page of 50", userdb.Query{Order: "email"}),
		page("a page of 50 in the middle", userdb.Query{Order: "email", GTE: &middle}),
		page("a page of 50 after half of the entries", userdb.Query{Order: "email", Skip: int64(n / 2)}),
		page("a page of 50 by the beginning of a field", userdb.Query{Order: "email", Prefix: prefix}),
		count("count all", userdb.Query{}, n),
		count("count one in nine by the beginning of a field", userdb.Query{Order: "email", Prefix: "user1"}, n/9),
	}
}
