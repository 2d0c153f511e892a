package serve_test

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A footprint is what a service takes between two rounds.
type footprint struct {
	heap, goroutines, files int64
	records                 map[string]int64 // how many of a kind
	bytes                   map[string]int64 // that they take
}

func (p footprint) String() string {
	return fmt.Sprintf("heap %d KiB, %d goroutines, %d files, %d records of %d KiB", p.heap>>10, p.goroutines, p.files, sum(p.records), sum(p.bytes)>>10)
}

func sum(of map[string]int64) (all int64) {
	for _, n := range of {
		all += n
	}
	return all
}

// measure waits until what the round has begun is over: connections that were left, and listeners that hear of it.
func (f *flat) measure() footprint {
	f.t.Helper()
	f.waitFor("all listeners to hear of all", func() bool {
		return !slices.ContainsFunc(f.steady, func(one *follower) bool { return one.created.Load() < int64(f.made) })
	})
	f.web.CloseIdleConnections()
	p := footprint{records: map[string]int64{}, bytes: map[string]int64{}}
	least := int64(1 << 30)
	for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		if n := int64(runtime.NumGoroutine()); n < least {
			least, begun = n, time.Now()
		}
	}
	p.goroutines = least
	var mem runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one has finalized
	runtime.ReadMemStats(&mem)
	p.heap = int64(mem.HeapAlloc)
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.files = int64(len(open))
	}
	for keys := f.Raw.Scan(f.Ctx, 0, "", 1000).Iterator(); keys.Next(f.Ctx); {
		kind := familyOf(keys.Val())
		if strings.Contains(kind, "~/feed/") {
			continue
		}
		p.records[kind]++
		p.bytes[kind] += f.Raw.MemoryUsage(f.Ctx, keys.Val(), 0).Val()
	}
	return p
}

// familyOf is what a record is: its key without what callers and chance chose.
func familyOf(key string) string { return chosen.ReplaceAllString(key, "") }

var chosen = regexp.MustCompile(`:[^/}]*|[0-9a-f]{12,}`)

func (f *flat) waitFor(what string, is func() bool) {
	f.t.Helper()
	for begin := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			f.t.Fatalf("%s: it does not come", what)
		}
	}
}

// typical is the median of each measure.
func typical(all []footprint) footprint {
	median := func(of func(footprint) int64) int64 {
		var numbers []int64
		for _, p := range all {
			numbers = append(numbers, of(p))
		}
		slices.Sort(numbers)
		if len(numbers) == 0 {
			return 0
		}
		return numbers[len(numbers)/2]
	}
	p := footprint{
		heap: median(func(p footprint) int64 { return p.heap }), goroutines: median(func(p footprint) int64 { return p.goroutines }),
		files: median(func(p footprint) int64 { return p.files }), records: map[string]int64{}, bytes: map[string]int64{},
	}
	for _, one := range all {
		for kind := range one.records {
			p.records[kind] = median(func(p footprint) int64 { return p.records[kind] })
			p.bytes[kind] = median(func(p footprint) int64 { return p.bytes[kind] })
		}
	}
	return p
}

// compare fails where there is more than before: what comes and goes in a round is allowed, and a tenth.
func (p footprint) compare(t *testing.T, before footprint) {
	t.Helper()
	flat := func(what string, now, before, slack int64) {
		if now > before+before/10+slack {
			t.Errorf("%s grew from %d to %d", what, before, now)
		}
	}
	flat("the heap", p.heap, before.heap, 1<<20)
	flat("the number of goroutines", p.goroutines, before.goroutines, 4)
	flat("the number of open files", p.files, before.files, 4)
	for kind, n := range p.records {
		flat("the number of records "+kind, n, before.records[kind], 4)
		flat("the bytes of records "+kind, p.bytes[kind], before.bytes[kind], 4<<10)
	}
}
