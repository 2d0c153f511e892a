package single_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

const batch = 1000

// BenchmarkApplyAll makes entries with two secondary fields, a thousand at a time. Compare it with
// BenchmarkBare, which writes the same hash and two strings and checks nothing.
func BenchmarkApplyAll(b *testing.B) {
	client := redistest.Shared(b).Client()
	e := single.New(client, single.Options{})
	c, err := change.Compile(schema.User(), recordkey.Namespace{})
	if err != nil {
		b.Fatal(err)
	}
	typ, err := c.Type("user")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := e.Apply(b.Context(), creation(b, typ, -1)); err != nil {
		b.Fatal(err)
	}
	n, cpu := 0, serverCPU(b, client)
	for b.Loop() {
		cs := make([]store.Change, batch)
		for i := range cs {
			cs[i] = creation(b, typ, n)
			n++
		}
		errs := e.ApplyAll(b.Context(), cs)
		for _, err := range errs {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric((serverCPU(b, client)-cpu)/float64(batch*b.N), "redis-µs/entry")
}

// serverCPU returns the processor time that the server has used, in microseconds.
func serverCPU(b *testing.B, c *redis.Client) (sum float64) {
	text, err := c.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, _ := strconv.ParseFloat(value, 64)
			sum += seconds * 1e6
		}
	}
	return sum
}

func creation(b *testing.B, typ *change.Type, n int) store.Change {
	c, err := typ.Create(change.Draft{UID: fmt.Sprintf("%012x", n), Facets: map[string]string{
		"name": fmt.Sprintf("user%d", n), "email": fmt.Sprintf("user%d@example.com", n), "added": "2026-11-20T08:02:40.512Z",
		"password": "$2a$10$drXOR3Lt8YRqTwTszLnNZ.Ybnwmur4ZeomIe/d4o5wJbDRCHyKIhi",
	}})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func BenchmarkBare(b *testing.B) {
	client := redistest.Shared(b).Client()
	n, cpu := 0, serverCPU(b, client)
	for b.Loop() {
		if err := writeBare(b.Context(), client, n); err != nil {
			b.Fatal(err)
		}
		n += batch
	}
	b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric((serverCPU(b, client)-cpu)/float64(batch*b.N), "redis-µs/entry")
}

func writeBare(ctx context.Context, client *redis.Client, first int) error {
	pipe := client.Pipeline()
	for n := first; n < first+batch; n++ {
		uid := fmt.Sprintf("%012x", n)
		prk := "user/uid:" + uid
		name, email := fmt.Sprintf("user%d", n), fmt.Sprintf("user%d@example.com", n)
		pipe.HSet(ctx, prk, "~isa", "user", "~prk", prk, "~rev", "abcdefghijkl", "uid", uid, "name", name, "email", email,
			"added", "2026-11-20T08:02:40.512Z", "password", "$2a$10$drXOR3Lt8YRqTwTszLnNZ.Ybnwmur4ZeomIe/d4o5wJbDRCHyKIhi")
		pipe.Set(ctx, "user/name:"+name+"/~prk", prk, 0)
		pipe.Set(ctx, "user/email:"+email+"/~prk", prk, 0)
	}
	_, err := pipe.Exec(ctx)
	return err
}
