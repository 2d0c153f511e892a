package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"
)

const (
	profileTime = 5 * time.Second // how long a variant runs for its profiles
	profileRate = 4 << 10         // bytes between samples of allocations
)

// writeProfiles runs v and writes profiles of this process to ROW.VARIANT.cpu.pprof and
// ROW.VARIANT.allocs.pprof, for go tool pprof.
func (b *bench) writeProfiles(ctx context.Context, workers int, v variant, r *result) {
	name := fmt.Sprintf("%s.%s", b.profile, strings.Map(func(c rune) rune {
		if strings.ContainsRune(" /,", c) {
			return '_'
		}
		return c
	}, v.name))
	for _, kind := range []string{"cpu", "allocs"} {
		f := mustGet(os.Create(name + "." + kind + ".pprof"))
		rate := runtime.MemProfileRate
		if kind == "cpu" {
			must(pprof.StartCPUProfile(f))
		} else {
			runtime.MemProfileRate = profileRate
		}
		for end := time.Now().Add(profileTime); time.Now().Before(end); {
			b.run(ctx, workers, v, r)
		}
		pprof.StopCPUProfile()
		if kind == "allocs" {
			runtime.GC() // the profile shows what was known at the last collection
			must(pprof.Lookup("allocs").WriteTo(f, 0))
			runtime.MemProfileRate = rate
		}
		must(f.Close())
		fmt.Println(f.Name())
	}
}

// profileProcess begins profiles of this process. The function that it returns writes them to
// NAME.cpu.pprof and NAME.allocs.pprof.
func profileProcess(name string) (stop func()) {
	cpu := mustGet(os.Create(name + ".cpu.pprof"))
	must(pprof.StartCPUProfile(cpu))
	return func() {
		pprof.StopCPUProfile()
		must(cpu.Close())
		allocs := mustGet(os.Create(name + ".allocs.pprof"))
		runtime.GC() // the profile shows what was known at the last collection
		must(pprof.Lookup("allocs").WriteTo(allocs, 0))
		must(allocs.Close())
	}
}
