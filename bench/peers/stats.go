package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// resamples is how many samples bootstrap draws.
const resamples = 10_000

// median returns the middle of xs, or the mean of the two in the middle, and 0 if xs is empty.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// bootstrap returns a 95 % confidence interval of the median of xs, from the percentiles of
// resampled medians. It draws the same samples in every run.
func bootstrap(xs []float64) (low, high float64) {
	if len(xs) == 0 {
		return 0, 0
	}
	random := rand.New(rand.NewPCG(1, 2))
	medians, drawn := make([]float64, resamples), make([]float64, len(xs))
	for i := range medians {
		for j := range drawn {
			drawn[j] = xs[random.IntN(len(xs))]
		}
		medians[i] = median(drawn)
	}
	slices.Sort(medians)
	return medians[resamples*25/1000], medians[resamples*975/1000-1]
}

// quantile returns the smallest duration in sorted such that a share q of the durations is no
// longer than it, or 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(i, 1), len(sorted))-1]
}
