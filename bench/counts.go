package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// count compares counting the entries that have a value of an indexed field with SCARD on a set of
// the same size.
func (b *bench) count(ctx context.Context) outcome {
	s := userSchema()
	s.Types["user"].Fields["job"] = schema.Field{Role: schema.RoleIndexed}
	b.server.admin.FlushAll(ctx) // the stored schema has no index
	return b.compareWithBare(ctx, 1, userdb.Options{Schema: s}, func(users *userdb.Type, c *redis.Client) (ours, bare variant) {
		for i := range 1000 {
			mustGet(users.Create(ctx, newUser(i)))
			must(c.SAdd(ctx, "cooks", prk(i)).Err())
		}
		q := userdb.Query{Where: schema.Texts("job", "cook")}
		if total := mustGet(users.Count(ctx, q)); total.Entries != 1000 {
			must(fmt.Errorf("counted %d entries, want 1000", total.Entries))
		}
		ours = variant{name: "userdb", op: func(ctx context.Context, w, i int) error {
			_, err := users.Count(ctx, q)
			return err
		}}
		return ours, variant{name: "SCARD", op: func(ctx context.Context, w, i int) error { return c.SCard(ctx, "cooks").Err() }}
	})
}

// firstLookup compares the first lookup in a store that was just opened with the hundredth.
func (b *bench) firstLookup(ctx context.Context) outcome {
	var first, later, ratios []float64
	for n := range b.size(60, 20) {
		db, users := b.server.open(ctx, userdb.Options{})
		var took [100]float64
		for i := range took {
			begin := time.Now()
			mustGet(users.Find(ctx, hints.Any(email(pick(100*n+i)))))
			took[i] = micros(time.Since(begin))
		}
		first, later, ratios = append(first, took[0]), append(later, took[99]), append(ratios, took[0]/took[99])
		must(db.Close())
	}
	return outcome{estimate: estimateMedian(ratios), note: fmt.Sprintf("%.0f µs, then %.0f", median(first), median(later))}
}

// cold compares the processor time of a first build of the command with that of building only the
// packages of the standard library that it uses.
func (b *bench) cold(ctx context.Context) outcome {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{if .Standard}}{{.ImportPath}}{{end}}", "./cmd/userdb")
	list.Dir = ".."
	standard := strings.Fields(string(mustGet(list.Output())))
	cache := mustGet(os.MkdirTemp("", "bench"))
	defer os.RemoveAll(cache)
	part := buildTime(ctx, cache, standard...)
	all := part + buildTime(ctx, cache, "./cmd/userdb")
	return outcome{estimate: about(all/part, 0.05), note: fmt.Sprintf("%.0f s, of which the standard library takes %.0f", all, part)}
}

// buildTime builds packages and returns the processor seconds it took.
func buildTime(ctx context.Context, cache string, packages ...string) float64 {
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-o", os.DevNull}, packages...)...)
	build.Dir, build.Env = "..", append(os.Environ(), "GOCACHE="+cache, "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		must(fmt.Errorf("%w: %s", err, out))
	}
	used := build.ProcessState.SysUsage().(*syscall.Rusage)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
