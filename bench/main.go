// Command bench measures the library beside the bare client and beside peers, in one run: on a shared
// machine only ratios of what ran at the same time mean anything.
//
//	go run . -quick            under 90 s; one JSON line a row, a row passes at 0.9 of its target
//	go run . -out results      everything; a table in Markdown and JSON in results.md and results.json
//	go run . -charts DIR       charts, besides
//	go run . -only 'get|login' rows whose names match
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"time"
)

// quickSlack is how much of its target a row must reach in the quick run.
const quickSlack = 0.9

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "fewer rows, smaller sizes, JSON lines only")
	only := flag.String("only", "", "rows whose names match this regular expression")
	out := flag.String("out", "", "write OUT.md and OUT.json")
	charts := flag.String("charts", "", "draw charts into this folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *quick, regexp.MustCompile(*only), *out, *charts); err != nil {
		log.Fatal("bench: ", err)
	}
}

// failed is what must panics with, and run recovers from.
type failed struct{ err error }

// must ends the run where err is one. It belongs into the goroutine of run, so that what was started is stopped.
func must(err error) {
	if err != nil {
		panic(failed{err})
	}
}

// got is v, or the end of the run.
func got[T any](v T, err error) T {
	must(err)
	return v
}

func run(ctx context.Context, quick bool, only *regexp.Regexp, out, charts string) (err error) {
	at := "starting"
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failed:
			err = fmt.Errorf("%s: %w", at, f.err)
		default:
			panic(f)
		}
	}()
	var h host
	defer h.stop()
	s := startServer(&h)
	s.reset(ctx)
	b := &bench{server: s, quick: quick, rounds: 7, per: 150 * time.Millisecond}
	if quick {
		b.rounds, b.per = 7, 60*time.Millisecond
	}
	rep := newReport(ctx, s)
	for _, r := range rows {
		if quick && !r.quick || !only.MatchString(r.name) {
			continue
		}
		at = r.name
		b.measure(ctx, r, func(r row, o outcome) {
			if quick {
				fmt.Printf("{\"name\":%q,\"ratio\":%.3f,\"target\":%g,\"most\":%t,\"ok\":%t}\n", r.name, o.ratio, r.target, r.most, r.ok(o, quickSlack))
			} else {
				rep.add(r, o)
			}
		})
	}
	if out != "" {
		rep.write(out)
	}
	if charts != "" {
		at = "drawing"
		short := *b
		short.rounds = 7
		for _, f := range charted {
			f(&short, ctx).draw(charts)
		}
	}
	return nil
}
