// Command bench measures the library beside the bare client and beside peers, in one run: on a shared
// machine only ratios of what ran at the same time mean anything.
//
//	go run . -quick            under 45 s; one JSON line a row, a row passes at 0.9 of its target
//	go run . -out results      everything; a table in Markdown and JSON in results.md and results.json
//	go run . -only 'get|login' rows whose names match
package main

import (
	"context"
	"encoding/json"
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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *quick, regexp.MustCompile(*only), *out); err != nil {
		log.Fatal("bench: ", err)
	}
}

func run(ctx context.Context, quick bool, only *regexp.Regexp, out string) error {
	s, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	s.reset(ctx)
	b := &bench{server: s, quick: quick, rounds: 15, per: 200 * time.Millisecond}
	if quick {
		b.rounds, b.per = 7, 60*time.Millisecond
	}
	rep := newReport(ctx, s)
	for _, r := range rows {
		if quick && !r.quick || !only.MatchString(r.name) {
			continue
		}
		o, err := b.measure(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		rep.add(r, o)
		if quick {
			printLine(r, o)
		} else {
			rep.printRow(os.Stdout, r, o)
		}
	}
	if out == "" {
		return nil
	}
	return rep.write(ctx, out)
}

// printLine prints a row of the quick run.
func printLine(r row, o outcome) {
	line, err := json.Marshal(struct {
		Name   string  `json:"name"`
		Ratio  float64 `json:"ratio"`
		Target float64 `json:"target"`
		OK     bool    `json:"ok"`
	}{r.name, float64(int(o.ratio*1000+0.5)) / 1000, r.target, r.ok(o, quickSlack)})
	if err == nil {
		fmt.Println(string(line))
	}
}
