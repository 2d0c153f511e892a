package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A row holds the figures of one service beside a peer.
type row struct {
	Name     string   `json:"row"` // SERVICE/JOB/ACCOUNTS/CALLERS
	Service  string   `json:"service"`
	Job      string   `json:"job"`
	Accounts int      `json:"accounts"`
	Callers  int      `json:"callers"`
	Figures  *figures `json:"figures,omitempty"`
	Words    string   `json:"words,omitempty"` // why there are no figures
	failed   bool     // there are no figures for a reason other than a limit of the store
	job      job
}

// A loading describes how the accounts were loaded into a service.
type loading struct {
	Service  string  `json:"service"`
	Accounts int     `json:"accounts"`
	Seconds  float64 `json:"seconds,omitempty"`
	Start    float64 `json:"start_seconds,omitempty"` // until the loaded product is ready
	Disk     float64 `json:"disk_mib,omitempty"`
	Words    string  `json:"words,omitempty"`
}

func (s *service) loaded(accounts int) loading {
	return loading{Service: s.name, Accounts: accounts, Seconds: s.loading.Seconds(), Start: s.starting.Seconds(), Disk: float64(s.disk) / (1 << 20)}
}

// A report holds everything that a run measured.
type report struct {
	Peer     string    `json:"peer"`
	Machine  string    `json:"machine"`
	Versions string    `json:"versions"`
	When     time.Time `json:"when"`
	Load     string    `json:"load"` // load averages of the machine at the beginning and at the end
	Seconds  float64   `json:"seconds_a_side"`
	Bcrypt   float64   `json:"bcrypt_ms"` // processor time of one check of a password
	PeerLog  bool      `json:"peer_log"`  // PocketBase kept its log of requests
	Took     string    `json:"took"`
	Loadings []loading `json:"loadings"`
	Rows     []row     `json:"rows"`
}

// columns lists the columns of the tables, for rows with figures.
var columns = []struct {
	name string
	text func(f *figures) string
}{
	{"ours/s", func(f *figures) string { return number(f.Ours.Rate) }},
	{"peer/s", func(f *figures) string { return number(f.Peer.Rate) }},
	{"ratio (95 %)", func(f *figures) string { return fmt.Sprintf("%.2f (%.2f–%.2f)", f.Ratio, f.Low, f.High) }},
	{"p50 ms", func(f *figures) string { return number(f.Ours.P50) + " / " + number(f.Peer.P50) }},
	{"p99 ms", func(f *figures) string { return number(f.Ours.P99) + " / " + number(f.Peer.P99) }},
	{"max ms", func(f *figures) string { return number(f.Ours.Max) + " / " + number(f.Peer.Max) }},
	{"server µs/op", func(f *figures) string { return number(f.Ours.CPU) + " / " + number(f.Peer.CPU) }},
	{"MiB", func(f *figures) string { return number(f.Ours.Memory) + " / " + number(f.Peer.Memory) }},
	{"generator", func(f *figures) string {
		return fmt.Sprintf("%.0f / %.0f %%", 100*f.Ours.Generator, 100*f.Peer.Generator)
	}},
}

// number formats a figure with up to two decimals, fewer if it is large.
func number(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// widths holds the widths of the columns on a terminal.
var widths = []int{9, 9, 19, 15, 15, 15, 17, 13, 11}

const nameWidth = 31

// printHead prints the names of the columns.
func printHead(w io.Writer) {
	fmt.Fprintf(w, "%-*s", nameWidth, "row")
	for i, c := range columns {
		fmt.Fprintf(w, "  %*s", widths[i], c.name)
	}
	fmt.Fprintln(w)
}

// print prints a row of the table.
func (r row) print(w io.Writer) {
	fmt.Fprintf(w, "%-*s", nameWidth, r.Name)
	if r.Figures == nil {
		fmt.Fprintf(w, "  %s\n", r.Words)
		return
	}
	for i, c := range columns {
		fmt.Fprintf(w, "  %*s", widths[i], c.text(r.Figures))
	}
	fmt.Fprintln(w)
}

// explanation is the text above the tables. The name of the peer takes the place of %s.
const explanation = `"Ours" is ` + "`userdb serve`" + `, and "peer" is %s. The ratio compares operations a second, ours
to the peer's: the median over pairs of turns, with the 95 %% interval of that median. If a column
has two figures, the first is ours. "server µs/op" is the processor time that all processes of a
side, including Redis, use for one operation; "MiB" is their memory; "generator" is the load
generator's share of the machine's processors. README.md explains how this is measured, and which
figures cannot be compared.
`

// logs returns a sentence about the logs of requests that were kept.
func (r report) logs() string {
	switch {
	case r.Peer == "better-auth":
		return "Better Auth keeps no log of requests; userdb wrote a line for each."
	case r.PeerLog:
		return "PocketBase kept its log of requests in SQLite, as it does by default."
	}
	return "PocketBase kept no log of requests, which is not its default; userdb wrote a line for each."
}

// markdown writes the report for people.
func (r report) markdown(w io.Writer) {
	peer := peers[r.Peer]
	fmt.Fprintf(w, "# userdb and %s\n\nWritten by `make bench-peers` on %s, in %s.\n%s; load averages %s.\n%s.\n\n"+explanation,
		peer, r.When.UTC().Format("2006-01-02 15:04 UTC"), r.Took, r.Machine, r.Load, r.Versions, peer)
	fmt.Fprintf(w, "\nEach sign-in spends %s ms of processor time in bcrypt.\n\n%s\n", number(r.Bcrypt), r.logs())
	for i, x := range r.Rows {
		if i == 0 || x.Service != r.Rows[i-1].Service || x.Accounts != r.Rows[i-1].Accounts {
			fmt.Fprintf(w, "\n## On %s, %d accounts\n\n| job | callers |", title(x.Service), x.Accounts)
			for _, c := range columns {
				fmt.Fprintf(w, " %s |", c.name)
			}
			fmt.Fprintf(w, "\n|---|--:|%s\n", strings.Repeat("--:|", len(columns)))
		}
		fmt.Fprintf(w, "| %s | %d |", x.Job, x.Callers)
		for _, c := range columns {
			if x.Figures != nil {
				fmt.Fprintf(w, " %s |", c.text(x.Figures))
			}
		}
		if x.Figures == nil {
			fmt.Fprintf(w, " %s %s", strings.ReplaceAll(x.Words, "|", `\|`), strings.Repeat("|", len(columns)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\n## Requests\n\n| job | what | ours | %s |\n|---|---|---|---|\n", peer)
	for _, j := range jobs {
		if v, can := j.theirs[r.Peer]; can {
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", j.name, j.what, j.ours.how, v.how)
		}
	}
	fmt.Fprint(w, "\n## Loading\n\n| accounts | into | seconds | MiB on disk | seconds to start |\n|--:|---|---|--:|--:|\n")
	for _, l := range r.Loadings {
		if l.Words != "" {
			fmt.Fprintf(w, "| %d | %s | %s | | |\n", l.Accounts, l.Service, l.Words)
			continue
		}
		fmt.Fprintf(w, "| %d | %s | %s | %s | %s |\n", l.Accounts, l.Service, number(l.Seconds), number(l.Disk), number(l.Start))
	}
}

func title(service string) string {
	switch service {
	case "redis":
		return "Redis"
	case "redis-always":
		return "Redis with appendfsync always"
	}
	return "the file"
}

// write writes the report to BASE.md and BASE.json.
func (r report) write(base string) error {
	var text strings.Builder
	r.markdown(&text)
	if err := os.WriteFile(base+".md", []byte(text.String()), 0o644); err != nil {
		return err
	}
	object, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(base+".json", append(object, '\n'), 0o644)
}

// load returns the load averages of the machine over 1, 5 and 15 minutes.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	words := strings.Fields(string(text))
	return strings.Join(words[:min(len(words), 3)], " ")
}

// machine describes the processors.
func machine() string {
	model := "unknown"
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d processors, %s, %s/%s", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH)
}

// versions returns the versions of the programs that are measured.
func (t tools) versions() string {
	all := []string{runtime.Version()}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		all = append(all, "userdb "+strings.TrimSpace(string(out)))
	}
	if v, err := t.run(context.Background(), os.Environ(), slices.Concat(t.peer, []string{"version"})...); err == nil {
		all = append(all, v) // only the program of Better Auth has this command
	}
	if info, err := buildinfo.ReadFile(t.peer[0]); err == nil { // PocketBase
		for _, d := range info.Deps {
			if d.Path == "github.com/pocketbase/pocketbase" || d.Path == "modernc.org/sqlite" {
				all = append(all, path.Base(d.Path)+" "+d.Version)
			}
		}
	}
	if out, err := exec.Command(t.redis, "--version").Output(); err == nil {
		for _, word := range strings.Fields(string(out)) {
			if v, is := strings.CutPrefix(word, "v="); is {
				all = append(all, "Redis "+v)
			}
		}
	}
	return strings.Join(all, ", ")
}
