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

// A footprint describes the resources that a service uses between two rounds.
type footprint struct {
	heap, goroutines, files int64
	records                 map[string]int64 // number of records by kind
	bytes                   map[string]int64 // memory of the records by kind
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

// measure waits until everything that a round began has ended, such as connections and deliveries
// to followers, and returns the footprint.
func (f *soak) measure() footprint {
	f.t.Helper()
	f.waitFor("all followers to receive all events", func() bool {
		return !slices.ContainsFunc(f.followers, func(one *follower) bool { return one.created.Load() < int64(f.made) })
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
	runtime.GC() // for what the first call finalized
	runtime.ReadMemStats(&mem)
	p.heap = int64(mem.HeapAlloc)
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.files = int64(len(open))
	}
	for keys := f.Raw.Scan(f.Ctx, 0, "", 1000).Iterator(); keys.Next(f.Ctx); {
		kind := recordKind(keys.Val())
		if strings.Contains(kind, "~/feed/") {
			continue
		}
		p.records[kind]++
		p.bytes[kind] += f.Raw.MemoryUsage(f.Ctx, keys.Val(), 0).Val()
	}
	return p
}

// recordKind returns the kind of a record: its key without values and generated identifiers.
func recordKind(key string) string { return variablePart.ReplaceAllString(key, "") }

var variablePart = regexp.MustCompile(`:[^/}]*|[0-9a-f]{12,}`)

func (f *soak) waitFor(what string, condition func() bool) {
	f.t.Helper()
	for begin := time.Now(); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			f.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// medians returns the median of each measure.
func medians(all []footprint) footprint {
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

// compare fails the test if a measure of p exceeds the same measure of before by more than a tenth
// plus some slack. The slack allows for what a round may leave behind for a while.
func (p footprint) compare(t *testing.T, before footprint) {
	t.Helper()
	compare := func(what string, now, before, slack int64) {
		if now > before+before/10+slack {
			t.Errorf("%s grew from %d to %d, want at most %d", what, before, now, before+before/10+slack)
		}
	}
	compare("the heap", p.heap, before.heap, 1<<20)
	compare("the number of goroutines", p.goroutines, before.goroutines, 4)
	compare("the number of open files", p.files, before.files, 4)
	for kind, n := range p.records {
		compare("the number of records "+kind, n, before.records[kind], 4)
		compare("the bytes of records "+kind, p.bytes[kind], before.bytes[kind], 4<<10)
	}
}
