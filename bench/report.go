package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A report is a full run: what ran where, and what came out.
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
	Name     string   `json:"name"`
	What     string   `json:"what"`
	Ratio    float64  `json:"ratio"`
	Target   float64  `json:"target"`
	Most     bool     `json:"target_is_upper_bound"`
	OK       bool     `json:"ok"`
	Note     string   `json:"note,omitempty"`
	Variants []result `json:"variants,omitempty"`
}

func newReport(ctx context.Context, s *server) *report {
	_, version, _ := strings.Cut(s.admin.Info(ctx, "server").Val(), "redis_version:")
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

// add takes in a row, and prints it.
func (rep *report) add(r row, o outcome) {
	rr := reportRow{
		Name: r.name, What: r.what, Ratio: o.ratio, Target: r.target, Most: r.most, OK: r.ok(o, 1), Note: o.note, Variants: o.variants,
	}
	rep.Rows = append(rep.Rows, rr)
	fmt.Printf("%-24s %6.2f  %-14s  %s\n", rr.Name, rr.Ratio, rr.verdict(" "), rr.Note)
	for _, v := range rr.Variants {
		fmt.Printf("    %-16s %9.0f/s  p50 %8.1f µs  p99 %8.1f µs  %6.1f allocations  %6.1f µs of Redis %6.1f own\n", v.Name, v.Rate, v.P50, v.P99, v.Allocs, v.ServerCPU, v.OwnCPU)
	}
}

// The table's words: for a target that is an upper bound or not, and for one that was reached or not.
var (
	bound = map[bool]string{true: "≤", false: "≥"}
	mark  = map[bool]string{true: "ok", false: "missed"}
)

// verdict is the target, and whether it was reached.
func (rr reportRow) verdict(between string) string {
	if rr.Target == 0 {
		return "told" + between
	}
	return fmt.Sprintf("%s%.2f%s%s", bound[rr.Most], rr.Target, between, mark[rr.OK])
}

func (rep *report) write(out string) {
	rep.Load += " | " + loadAverage()
	data := got(json.MarshalIndent(rep, "", " "))
	must(os.WriteFile(out+".json", append(data, '\n'), 0o644))
	must(os.WriteFile(out+".md", []byte(rep.markdown()), 0o644))
}

// columns are what the table has of every variant.
var columns = []struct {
	format string
	of     func(result) float64
}{
	{"%.0f", func(v result) float64 { return v.P50 }},
	{"%.0f", func(v result) float64 { return v.P99 }},
	{"%.0f", func(v result) float64 { return v.Allocs }},
	{"%.1f", func(v result) float64 { return v.ServerCPU }},
	{"%.1f", func(v result) float64 { return v.OwnCPU }},
}

func (rep *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured\n\n%s · %s · %s · Redis %s · %s · load %s\n\n", rep.Date, rep.Machine, rep.Go, rep.Redis, rep.Client, rep.Load)
	b.WriteString("| row | what | ratio | target | | p50 µs, ours / bare | p99 µs | allocations | CPU µs of Redis | of the process |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rep.Rows {
		fmt.Fprintf(&b, "| `%s` | %s | %.2f | %s |", r.Name, strings.TrimSpace(r.What+". "+r.Note), r.Ratio, r.verdict(" | "))
		for _, column := range columns {
			var parts []string
			for _, v := range r.Variants {
				parts = append(parts, fmt.Sprintf(column.format, column.of(v)))
			}
			fmt.Fprintf(&b, " %s |", strings.Join(parts, " / "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
