package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
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
	text, _ := s.admin.Info(ctx, "server").Result()
	version := ""
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			version = v
		}
	}
	return &report{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), processor()),
		Go: runtime.Version(), Redis: version, Client: moduleVersion("github.com/redis/go-redis/v9"), Load: loadAverage(),
	}
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return path + " " + m.Version
		}
	}
	return path
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:min(3, len(strings.Fields(string(text))))], " ")
}

func (rep *report) add(r row, o outcome) {
	rep.Rows = append(rep.Rows, reportRow{
		Name: r.name, What: r.what, Ratio: o.ratio, Target: r.target, Most: r.most, OK: r.ok(o, 1), Note: o.note, Variants: o.variants,
	})
}

func (rep *report) printRow(w io.Writer, r row, o outcome) {
	sign, mark := "≥", "ok"
	if r.most {
		sign = "≤"
	}
	if !r.ok(o, 1) {
		mark = "MISSED"
	}
	fmt.Fprintf(w, "%-24s %6.2f  %s%.2f  %-6s  %s\n", r.name, o.ratio, sign, r.target, mark, o.note)
	for _, v := range o.variants {
		fmt.Fprintf(w, "    %-16s %9.0f/s  p50 %8.1f µs  p99 %8.1f µs  %6.1f allocations  %6.1f µs of Redis %6.1f own\n", v.Name, v.Rate, v.P50, v.P99, v.Allocs, v.ServerCPU, v.OwnCPU)
	}
}

func (rep *report) write(_ context.Context, out string) error {
	rep.Load += " | " + loadAverage()
	data, err := json.MarshalIndent(rep, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out+".json", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(out+".md", []byte(rep.markdown()), 0o644)
}

func (rep *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured\n\n%s · %s · %s · Redis %s · %s · load %s\n\n", rep.Date, rep.Machine, rep.Go, rep.Redis, rep.Client, rep.Load)
	b.WriteString("| row | what | ratio | target | | p50 µs, ours / bare | p99 µs | allocations | CPU µs of Redis | of the process |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rep.Rows {
		sign, mark := "≥", "ok"
		if r.Most {
			sign = "≤"
		}
		if !r.OK {
			mark = "missed"
		}
		pair := func(f func(result) float64, format string) string {
			var parts []string
			for _, v := range r.Variants {
				parts = append(parts, fmt.Sprintf(format, f(v)))
			}
			return strings.Join(parts, " / ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %.2f | %s%.2f | %s | %s | %s | %s | %s | %s |\n", r.Name, strings.TrimSpace(r.What+". "+r.Note), r.Ratio, sign, r.Target, mark,
			pair(func(v result) float64 { return v.P50 }, "%.0f"), pair(func(v result) float64 { return v.P99 }, "%.0f"),
			pair(func(v result) float64 { return v.Allocs }, "%.0f"), pair(func(v result) float64 { return v.ServerCPU }, "%.1f"),
			pair(func(v result) float64 { return v.OwnCPU }, "%.1f"))
	}
	return b.String()
}
