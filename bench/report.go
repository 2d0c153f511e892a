package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A report describes a run: where and when it ran, and its rows.
type report struct {
	Date    string      `json:"date"`
	Machine string      `json:"machine"`
	Go      string      `json:"go"`
	Redis   string      `json:"redis"`
	Client  string      `json:"client"`
	Load    string      `json:"load_before_and_after"`
	Rows    []reportRow `json:"rows"`
}

type reportRow struct {
	Name string `json:"name"`
	What string `json:"what"`
	estimate
	Target   float64  `json:"target,omitempty"`
	Most     bool     `json:"target_is_upper_bound,omitempty"` // the ratio must not exceed Target
	Verdict  verdict  `json:"verdict"`
	Note     string   `json:"note,omitempty"`
	Seconds  float64  `json:"seconds,omitempty"` // how long all sittings took
	Entries  int      `json:"entries,omitempty"` // set by comparePasses
	Variants []result `json:"variants,omitempty"`
}

// A verdict is the result of comparing a ratio with its target.
type verdict string

const (
	noTarget  verdict = "-"
	ok        verdict = "ok"
	missed    verdict = "missed"
	undecided verdict = "undecided"
)

// judge compares e with a target that it must reach, or must not exceed if atMost is true. If only
// part of the interval meets the target, the verdict is undecided.
func (e estimate) judge(target float64, atMost bool) verdict {
	worst, best := e.Low, e.High
	if atMost {
		worst, best, target = -e.High, -e.Low, -target
	}
	switch {
	case target == 0:
		return noTarget
	case worst >= target:
		return ok
	case best < target:
		return missed
	}
	return undecided
}

func newReport(ctx context.Context) *report {
	var tb fakeTB
	defer tb.stop()
	s := startServer(&tb)
	_, version, _ := strings.Cut(mustGet(s.admin.Info(ctx, "server").Result()), "redis_version:")
	version, _, _ = strings.Cut(version, "\r")
	return &report{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), processor()),
		Go: runtime.Version(), Redis: version, Client: "go-redis " + redis.Version(), Load: loadAverage(),
	}
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if _, line, ok := strings.Cut(string(text), "model name\t: "); ok {
		name, _, _ := strings.Cut(line, "\n")
		return name
	}
	return runtime.GOARCH
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// add adds a row and returns it.
func (rep *report) add(r row, o outcome) reportRow {
	one := reportRow{
		Name: r.name, What: r.what, estimate: o.estimate, Target: r.target, Most: r.atMost, Verdict: o.judge(r.target, r.atMost),
		Note: o.note, Seconds: o.took.Seconds(), Entries: o.entries, Variants: o.variants,
	}
	rep.Rows = append(rep.Rows, one)
	return one
}

// line returns the row as one line of JSON, for programs.
func (r reportRow) line() string {
	return fmt.Sprintf(`{"name":%q,"ratio":%.3f,"low":%.3f,"high":%.3f,"target":%g,"most":%t,"ok":%t}`,
		r.Name, r.Ratio, r.Low, r.High, r.Target, r.Most, r.Verdict != missed)
}

// text returns the row and its variants as lines of text, for people.
func (r reportRow) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %6.3f  %6.3f to %6.3f  %-7s %-9s  %s\n", r.Name, r.Ratio, r.Low, r.High, r.targetText(), r.Verdict, r.Note)
	for _, v := range r.Variants {
		fmt.Fprintf(&b, "    %-16s %9.0f/s  p50 %8.1f µs  p99 %8.1f µs  processor: client %6.1f µs, server %6.1f µs  %5.1f allocations  %4.1f commands  %5.2f round trips\n",
			v.Name, v.Rate, v.P50, v.P99, v.ClientCPU, v.ServerCPU, v.Allocs, v.Commands, v.Trips)
	}
	return b.String()
}

// targetText returns the target as the tables show it.
func (r reportRow) targetText() string {
	switch {
	case r.Target == 0:
		return ""
	case r.Most:
		return fmt.Sprintf("≤ %.2f", r.Target)
	}
	return fmt.Sprintf("≥ %.2f", r.Target)
}

// write writes the report to out.json and out.md.
func (rep *report) write(out string) {
	rep.Load += " | " + loadAverage()
	data := mustGet(json.MarshalIndent(rep, "", " "))
	must(os.WriteFile(out+".json", append(data, '\n'), 0o644))
	must(os.WriteFile(out+".md", []byte(rep.markdown()), 0o644))
}

// columns lists the columns of the table that show figures of the variants.
var columns = []struct {
	title, format string
	of            func(result) float64
}{
	{"p50 µs", "%.0f", func(v result) float64 { return v.P50 }},
	{"p99 µs", "%.0f", func(v result) float64 { return v.P99 }},
	{"client µs", "%.1f", func(v result) float64 { return v.ClientCPU }},
	{"server µs", "%.1f", func(v result) float64 { return v.ServerCPU }},
	{"allocations", "%.0f", func(v result) float64 { return v.Allocs }},
	{"commands", "%.1f", func(v result) float64 { return v.Commands }},
	{"round trips", "%.2f", func(v result) float64 { return v.Trips }},
}

func (rep *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured\n\n%s · %s · %s · Redis %s ·\n%s · load %s\n\n", rep.Date, rep.Machine, rep.Go, rep.Redis, rep.Client, rep.Load)
	b.WriteString("From p50 on, a column shows figures of one operation: that of userdb, and then that of what it is\ncompared with (in the rows peer-*, that of rueidis and then that of AutoPipeline). A cell is empty\nif nothing was measured. Client and server are processor time. [README.md](README.md) explains\nratio, bounds and verdict.\n\n")
	b.WriteString("| row | what | ratio | bounds | target | verdict |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n" + strings.Repeat("|---", 6+len(columns)) + "|\n")
	for _, r := range rep.Rows {
		fmt.Fprintf(&b, "| `%s` | %s | %.3f | %.3f–%.3f | %s | %s |", r.Name, strings.TrimSpace(r.What+". "+r.Note), r.Ratio, r.Low, r.High, r.targetText(), r.Verdict)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", r.cell(c.format, c.of))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// cell returns a figure of all variants, or "" if it was not measured.
func (r reportRow) cell(format string, of func(result) float64) string {
	measured := func(v result) bool { return of(v) != 0 }
	if !slices.ContainsFunc(r.Variants, measured) {
		return ""
	}
	var parts []string
	for _, v := range r.Variants {
		parts = append(parts, fmt.Sprintf(format, of(v)))
	}
	return strings.Join(parts, " / ")
}
