package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{9, 1, 5, 6}, 5.5},
	} {
		if got := median(c.xs); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.xs, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{[]time.Duration{7}, 0.99, 7},
		{[]time.Duration{1, 2}, 0.5, 1},
		{[]time.Duration{1, 2, 3}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred[:99], 0.99, 99},
	} {
		if got := quantile(c.sorted, c.q); got != c.want {
			t.Errorf("quantile of %d at %v = %d, want %d", len(c.sorted), c.q, got, c.want)
		}
	}
}

// TestBootstrapCovers draws samples whose true median is known, and checks that nearly all
// intervals contain it.
func TestBootstrapCovers(t *testing.T) {
	const samples = 100
	random := rand.New(rand.NewPCG(3, 4))
	covered := 0
	for range samples {
		xs := make([]float64, 10)
		for i := range xs {
			xs[i] = 2 + random.NormFloat64()
		}
		low, high := bootstrap(xs)
		if m := median(xs); low > m || m > high {
			t.Errorf("the interval %v to %v does not contain the median %v", low, high, m)
		}
		if low <= 2 && 2 <= high {
			covered++
		}
	}
	// Intervals from ten values are a little too narrow, so that fewer than 95 may contain the
	// median. If all contained it, they would be too wide.
	if covered < 88 || covered > 99 {
		t.Errorf("%d of %d intervals contain the median, want 88 to 99", covered, samples)
	}
}

func TestBootstrapOfEqualValues(t *testing.T) {
	if low, high := bootstrap([]float64{2, 2, 2}); low != 2 || high != 2 {
		t.Errorf("the interval is %v to %v, want 2 to 2", low, high)
	}
	if low, high := bootstrap(nil); low != 0 || high != 0 {
		t.Errorf("the interval of no values is %v to %v, want 0 to 0", low, high)
	}
}
