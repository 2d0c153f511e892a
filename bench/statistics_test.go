package main

import (
	"math"
	"testing"
	"time"
)

func TestEstimateMedian(t *testing.T) {
	var few, many []float64
	for i := range 1000 {
		x := 1 + math.Mod(float64(i)*0.618034, 1) // spreads evenly from 1 to 2
		if i < 20 {
			few = append(few, x)
		}
		many = append(many, x)
	}
	a, b := estimateMedian(few), estimateMedian(many)
	for _, e := range []estimate{a, b} {
		if !(e.Low <= e.Ratio && e.Ratio <= e.High) {
			t.Errorf("%v: the median is outside its own interval", e)
		}
		if e.Low > 1.5 || e.High < 1.5 {
			t.Errorf("%v does not contain 1.5", e)
		}
	}
	if b.High-b.Low > (a.High-a.Low)/3 {
		t.Errorf("1000 figures give %v, hardly narrower than %v from 20", b, a)
	}
	if again := estimateMedian(few); again != a {
		t.Errorf("the same figures give %v, then %v", a, again)
	}
	if got, want := (estimate{2, 1, 4}).inverse(), (estimate{0.5, 0.25, 1}); got != want {
		t.Errorf("inverse: got %v, want %v", got, want)
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		e      estimate
		target float64
		atMost bool
		want   verdict
	}{
		{estimate{0.9, 0.8, 1.0}, 0, false, noTarget},
		{estimate{0.9, 0.8, 1.0}, 0.8, false, ok},
		{estimate{0.9, 0.8, 1.0}, 0.95, false, undecided},
		{estimate{0.9, 0.8, 1.0}, 0.85, false, undecided},
		{estimate{0.9, 0.8, 1.0}, 1.01, false, missed},
		{estimate{1.2, 1.1, 1.3}, 1.3, true, ok},
		{estimate{1.2, 1.1, 1.3}, 1.15, true, undecided},
		{estimate{1.2, 1.1, 1.3}, 1.09, true, missed},
	} {
		if got := test.e.judge(test.target, test.atMost); got != test.want {
			t.Errorf("%v against the target %v (at most: %v): got %s, want %s", test.e, test.target, test.atMost, got, test.want)
		}
	}
}

func TestWorse(t *testing.T) {
	for _, test := range []struct {
		now, was estimate
		atMost   bool
		want     bool
	}{
		{estimate{0.90, 0.89, 0.91}, estimate{1.00, 0.98, 1.02}, false, true},
		{estimate{1.10, 1.09, 1.11}, estimate{1.00, 0.98, 1.02}, false, false},
		// Two runs of the same code may differ this much.
		{estimate{0.95, 0.93, 0.96}, estimate{1.00, 0.98, 1.02}, false, false},
		{estimate{1.10, 1.09, 1.11}, estimate{1.00, 0.98, 1.02}, true, true},
		{estimate{1.04, 1.03, 1.05}, estimate{1.00, 0.98, 1.02}, true, false},
		{estimate{0.90, 0.89, 0.91}, estimate{1.00, 0.98, 1.02}, true, false},
	} {
		now, was := reportRow{Name: "x", estimate: test.now, Most: test.atMost}, reportRow{Name: "x", estimate: test.was, Most: test.atMost}
		lines := (&report{Rows: []reportRow{now}}).worse(report{Rows: []reportRow{was}})
		if got := len(lines) == 1; got != test.want {
			t.Errorf("%v after %v (at most: %v): got %q, want worse = %v", test.now, test.was, test.atMost, lines, test.want)
		}
	}
	large, small := reportRow{Name: "x", estimate: estimate{1.00, 0.98, 1.02}, Entries: 1000}, reportRow{Name: "x", Entries: 100}
	if lines := (&report{Rows: []reportRow{small}}).worse(report{Rows: []reportRow{large}}); len(lines) > 0 {
		t.Errorf("a row about fewer entries is compared: %q", lines)
	}
	if lines := (&report{Rows: []reportRow{{Name: "new"}}}).worse(report{}); len(lines) > 0 {
		t.Errorf("a new row is worse: %q", lines)
	}
}

func TestLine(t *testing.T) {
	r := (&report{}).add(row{name: "get-1-cpu", target: 1.15, atMost: true}, outcome{estimate: estimate{1.2, 1.1, 1.3}})
	want := `{"name":"get-1-cpu","ratio":1.200,"low":1.100,"high":1.300,"target":1.15,"most":true,"ok":true}`
	if got := r.line(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRowNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.name] {
			t.Errorf("two rows have the name %s", r.name)
		}
		seen[r.name] = true
	}
}

func TestCompareTails(t *testing.T) {
	slow, fast := result{}, result{}
	for i := range 4000 {
		d := time.Microsecond
		if i%50 == 0 { // 2 of 100, in each part
			d = 100 * time.Microsecond
		}
		fast.latencies, slow.latencies = append(fast.latencies, d), append(slow.latencies, 3*d)
	}
	if got := compareTails(slow, fast); got != exactly(3) {
		t.Errorf("got %v, want 3", got)
	}
}

func TestEstimateSittings(t *testing.T) {
	of := func(ratios ...float64) (xs []estimate) {
		for _, r := range ratios {
			xs = append(xs, about(r, 0.01))
		}
		return xs
	}
	quiet := estimateSittings(of(1.00, 1.01, 0.99, 1.00, 1.02, 0.98, 1.00, 1.01, 0.99, 1.00))
	disturbed := estimateSittings(of(1.00, 1.01, 0.99, 1.60, 1.02, 0.98, 1.70, 1.01, 0.99, 1.00))
	for _, e := range []estimate{quiet, disturbed} {
		if math.Abs(e.Ratio-1) > 0.01 || e.Low > 1 || e.High < 1 || e.High-e.Low > 0.12 {
			t.Errorf("got %v, want about 1", e)
		}
	}
	if e := merge([]outcome{{estimate: about(2, 0.01), variants: []result{{}}}}).estimate; e.Low > 1.71 || e.High < 2.29 {
		t.Errorf("a single sitting has the bounds %v, want at least 15 %% to each side of 2", e)
	}
	if e := merge([]outcome{{estimate: exactly(2)}}).estimate; e != exactly(2) {
		t.Errorf("a count has the bounds %v, want exactly 2", e)
	}
}
