package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// rounds returns one round for each rate: a second with as many operations. One of the operations
// takes five milliseconds, and the others take one. Each operation takes 20 µs of the server's
// processor time, and n operations take n MiB.
func rounds(rates ...int) (all []round) {
	for _, n := range rates {
		r := round{seconds: 1, server: time.Duration(n) * 20 * time.Microsecond, memory: int64(n) << 20}
		for range n {
			r.latencies = append(r.latencies, time.Millisecond)
		}
		r.latencies[n/2] = 5 * time.Millisecond
		all = append(all, r)
	}
	return all
}

// TestSummarize checks that ratios compare neighbouring turns. In the third pair the whole machine
// is ten times slower, which must not change the ratio.
func TestSummarize(t *testing.T) {
	f := summarize(rounds(300, 310, 30, 290), rounds(100, 100, 10, 100))
	if f.Ratio != 3 || f.Low < 2.9 || f.High > 3.1 || f.Pairs != 4 {
		t.Errorf("got the ratio %v (%v to %v) of %d pairs, want 3 (2.9 to 3.1 at most) of 4", f.Ratio, f.Low, f.High, f.Pairs)
	}
	if f.Ours.Operations != 930 || f.Ours.Rate != 295 || f.Ours.P50 != 1 || f.Ours.P99 != 1 || f.Ours.Max != 5 {
		t.Errorf("got %+v, want 930 operations, 295 a second, 1 ms for p50 and p99, and 5 ms at most", f.Ours)
	}
	if f.Ours.CPU < 19.9 || f.Ours.CPU > 20.1 || f.Ours.Memory != 310 {
		t.Errorf("got %v µs and %v MiB, want 20 and 310", f.Ours.CPU, f.Ours.Memory)
	}
}

// TestCheckTime checks that passwordHash is a hash of the password. If it were not, checkTime would
// return 0.
func TestCheckTime(t *testing.T) {
	if got := checkTime(); got <= 0 {
		t.Errorf("got %v ms, want more than 0", got)
	}
}

// TestSizeOf checks that sizeOf also counts files in subdirectories.
func TestSizeOf(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b/c"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("text"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := sizeOf(dir); err != nil || got != 8 {
		t.Errorf("got %d, %v; want 8", got, err)
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{0: "0.00", 0.066: "0.07", 9.994: "9.99", 12.34: "12.3", 12345.6: "12346"} {
		if got := number(x); got != want {
			t.Errorf("number(%v) = %s, want %s", x, got, want)
		}
	}
}

func someReport() report {
	f := summarize(rounds(30, 30), rounds(10, 10))
	return report{
		Peer: "pocketbase", Machine: "a machine", Versions: "versions", Took: "1s",
		Loadings: []loading{{Service: "pocketbase", Accounts: 10, Seconds: 1}, {Service: "file", Accounts: 10, Words: "not loaded: full"}},
		Rows: []row{
			{Name: "redis/get/10/1", Service: "redis", Job: "get", Accounts: 10, Callers: 1, Figures: &f},
			{Name: "file/get/10/1", Service: "file", Job: "get", Accounts: 10, Callers: 1, Words: "not loaded: a | b"},
		},
	}
}

// TestMarkdown checks that each line of a table has as many columns as its head.
func TestMarkdown(t *testing.T) {
	var text strings.Builder
	someReport().markdown(&text)
	columns, tables := 0, 0
	for line := range strings.Lines(text.String()) {
		switch n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); {
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = n
			tables++
		case n != columns:
			t.Errorf("%d columns, want %d: %s", n, columns, line)
		}
	}
	if tables != 4 || !strings.Contains(text.String(), "| get | 1 | 30.0 | 10.0 | 3.00 (3.00–3.00) |") {
		t.Errorf("got %d tables, want 4 and a row with the figures of get, in\n%s", tables, text.String())
	}
}

func TestWrite(t *testing.T) {
	base := filepath.Join(t.TempDir(), "results")
	if err := someReport().write(base); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(base + ".json")
	var got report
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil || len(got.Rows) != 2 || got.Rows[0].Figures.Ratio != 3 || got.Rows[1].Figures != nil || got.Rows[1].Words == "" {
		t.Errorf("results.json: got %s, %v; want the report", text, err)
	}
}

func TestRows(t *testing.T) {
	p := plan{callers: []int{1, 16}, only: regexp.MustCompile(`^redis/(get|forward)/`)}
	for peer, want := range map[string]string{
		"pocketbase":  "redis/get/10/1 redis/get/10/16 redis/forward/10/1 redis/forward/10/16",
		"better-auth": "redis/get/10/1 redis/get/10/16", // it has no operation for forward
	} {
		p.peer = peer
		var names []string
		for _, store := range stores {
			for _, x := range p.rows(store, 10) {
				names = append(names, x.Name)
				if x.job.name != x.Job {
					t.Errorf("row %s has the job %s", x.Name, x.job.name)
				}
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: the rows are %s, want %s", peer, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	if got, err := numbers("1,16", 1, 100); err != nil || len(got) != 2 || got[1] != 16 {
		t.Errorf("got %v, %v, want [1 16]", got, err)
	}
	for _, text := range []string{"", "1,", "0", "101", "x", "1 2"} {
		if got, err := numbers(text, 1, 100); err == nil {
			t.Errorf("numbers(%q) = %v, want an error", text, got)
		}
	}
}

// TestChart checks that a chart has a bar for each product, and none for rows with another number
// of callers.
func TestChart(t *testing.T) {
	newReport := func(peer string, theirs int) report {
		f := summarize(rounds(1200, 1200), rounds(theirs, theirs))
		newRow := func(job string, callers int) row {
			return row{Service: chartStore, Accounts: chartAccounts, Callers: callers, Job: job, Figures: &f}
		}
		return report{Peer: peer, Rows: []row{newRow("get", chartCallers), newRow("list", 1)}}
	}
	got := chart([]report{newReport("pocketbase", 300), newReport("better-auth", 20)})
	for _, want := range []string{">read one account<", ">1,200<", ">300<", ">20<", ">PocketBase<", ">Better Auth<"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("the chart has %s %d times, want once", want, strings.Count(got, want))
		}
	}
	if strings.Contains(got, labels["list"]) {
		t.Error("the chart shows rows with other numbers of callers")
	}
	if err := xml.Unmarshal([]byte(got), new(struct{})); err != nil {
		t.Errorf("the chart is not XML: %v", err)
	}
}
