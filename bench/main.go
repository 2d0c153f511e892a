// Command bench measures the library against the bare client and against peers in one run: on a
// shared machine, only ratios of what ran at the same time mean anything. It runs on Linux.
//
//	go run . -quick                    at most two minutes; one line of JSON for each row
//	go run . -out results              everything; results.md and results.json
//	go run . -charts DIR               also draws charts
//	go run . -only 'get|login'         rows whose names match, even those that run only if named
//	go run . -sizes                    a table of costs in small and large stores; some minutes
//	go run . -profile get-1            profiles of a row, for go tool pprof
//	go run . -baseline baseline.json   also lists rows that are worse than in an earlier report
//
// README.md explains the rows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"slices"
)

type options struct {
	quick, sizes                  bool
	only                          *regexp.Regexp
	out, charts, profile, earlier string
}

func main() {
	log.SetFlags(0)
	var o options
	flag.BoolVar(&o.quick, "quick", false, "fewer rows, smaller sizes, JSON lines only")
	only := flag.String("only", "", "rows whose names match this regular expression")
	flag.StringVar(&o.out, "out", "", "write OUT.md and OUT.json")
	flag.StringVar(&o.charts, "charts", "", "draw charts into this folder")
	flag.BoolVar(&o.sizes, "sizes", false, "only compare the costs of jobs in small and large stores")
	flag.StringVar(&o.profile, "profile", "", "write profiles of this row into the current folder")
	flag.StringVar(&o.earlier, "baseline", "", "list the rows that are worse than in this report")
	handler := flag.String("serve", "", "serve this handler until standard input ends; the HTTP rows use it")
	url := flag.String("store", "", "URL of the Redis that the handler of -serve uses")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		log.Fatal("bench: -only: ", err)
	}
	if *handler != "" {
		err = try("serving", func(*string) { serveHTTP(ctx, *handler, *url, o.profile) })
	} else {
		err = try("starting", func(at *string) { run(ctx, o, at) })
	}
	if err != nil {
		log.Fatal("bench: ", err)
	}
}

// A failure carries an error from the panic in must to the recover in try.
type failure struct{ err error }

// must ends the run if err is not nil. Call it only on the goroutine of try, so that everything
// that was started is stopped.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// mustGet returns v, or ends the run if err is not nil.
func mustGet[T any](v T, err error) T {
	must(err)
	return v
}

// try runs f and returns the error that ended it. The error begins with at, which f changes to the
// name of each step that it begins.
func try(at string, f func(at *string)) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%s: %w", at, r.err)
		default:
			panic(r)
		}
	}()
	f(&at)
	return nil
}

var errNoRow = errors.New("no row matches the flags")

// run measures the rows that o selects. It writes the name of each row to *at before it measures
// the row, so that an error can name it.
func run(ctx context.Context, o options, at *string) {
	b := newBench(o.quick)
	if o.sizes {
		b.compareSizes(ctx, os.Stdout)
		return
	}
	b.profile = o.profile
	rep := newReport(ctx)
	var jobs []*job
	for _, r := range rows {
		if o.quick && !r.quick || r.named && o.only.String() == "" || !o.only.MatchString(r.name) {
			continue
		}
		for _, j := range b.jobs(r) {
			if o.profile == j.name {
				j.sittings = 1
			}
			if o.profile == "" || o.profile == j.name {
				jobs = append(jobs, j)
			}
		}
	}
	// A sitting measures a row once. All rows have their first sitting before any has its second,
	// so that a disturbance of some seconds affects few sittings of any one row.
	for sitting := 0; ; sitting++ {
		due := slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return sitting >= j.sittings })
		if len(due) == 0 {
			break
		}
		if !o.quick {
			log.Printf("sitting %d: %d rows", sitting+1, len(due))
		}
		for _, j := range due {
			*at = j.name
			j.sit(ctx)
		}
	}
	for _, j := range jobs {
		j.report(func(r row, done outcome) {
			if added := rep.add(r, done); o.quick {
				fmt.Println(added.line())
			} else {
				fmt.Print(added.text())
			}
		})
	}
	if len(rep.Rows) == 0 {
		must(errNoRow)
	}
	if o.out != "" {
		rep.write(o.out)
	}
	if o.charts != "" {
		*at = "drawing"
		for _, f := range charted {
			b.onNewServer(ctx, func(b *bench) outcome {
				f(b, ctx).draw(o.charts)
				return outcome{}
			})
		}
	}
	if o.earlier != "" {
		*at = "comparing"
		for _, line := range rep.worse(readReport(o.earlier)) {
			log.Print("worse than the baseline: ", line)
		}
	}
}
