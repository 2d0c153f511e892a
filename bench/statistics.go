package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// An estimate is a ratio, with bounds between which another run of the same code finds it 99 times
// in a hundred.
type estimate struct {
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// exactly returns the estimate for a ratio that is counted, not sampled.
func exactly(ratio float64) estimate { return estimate{ratio, ratio, ratio} }

// about returns the estimate for a ratio that was measured once, with a relative error.
func about(ratio, relative float64) estimate {
	return estimate{ratio, ratio * (1 - relative), ratio * (1 + relative)}
}

// twoRuns converts the error of one run into the error of the difference between two runs.
const twoRuns = math.Sqrt2

// student holds the factors of Student's t for 99 %, by the number of samples.
var student = [...]float64{2: 63.657, 3: 9.925, 4: 5.841, 5: 4.604, 6: 4.032, 7: 3.707, 8: 3.499, 9: 3.355, 10: 3.250}

// estimateSittings returns the mean of the ratios of several sittings, each of which measured a row
// once. It leaves out the lowest and the highest fifth, which something else on the machine may
// have disturbed. The bounds come from the winsorized variance, but are at least sittingsError from
// the mean. Of fewer than eight ratios none is left out, and a single one is returned unchanged.
func estimateSittings(xs []estimate) estimate {
	if len(xs) == 1 {
		return xs[0]
	}
	ratios := make([]float64, len(xs))
	for i, x := range xs {
		ratios[i] = x.Ratio
	}
	slices.Sort(ratios)
	n, cut := len(ratios), 0
	if n >= 8 {
		cut = n / 5
	}
	kept := ratios[cut : n-cut]
	trimmed := mean(kept)
	for i := range cut { // winsorize: each ratio that was cut counts as the nearest one kept
		ratios[i], ratios[n-1-i] = kept[0], kept[len(kept)-1]
	}
	winsorized, squares := mean(ratios), 0.0
	for _, x := range ratios {
		squares += (x - winsorized) * (x - winsorized)
	}
	h := len(kept)
	around := twoRuns * student[h] * math.Sqrt(squares/float64(h*(h-1)))
	return estimate{trimmed, trimmed - around, trimmed + around}.widened(sittingsError)
}

// These constants say how much two runs may differ, relative to the ratio, even if the sittings of
// one run differ less by chance.
const (
	sittingsError = 0.03 // of a row with several sittings
	singleError   = 0.15 // of a row with one sitting
)

// widened returns e with bounds that differ from the ratio by at least the given part of it.
func (e estimate) widened(relative float64) estimate {
	return estimate{e.Ratio, min(e.Low, e.Ratio*(1-relative)), max(e.High, e.Ratio*(1+relative))}
}

func mean(xs []float64) (m float64) {
	for _, x := range xs {
		m += x / float64(len(xs))
	}
	return m
}

// resamples is how many samples are drawn to find the bounds of a median.
const resamples = 1000

// estimateMedian returns the median of ratios, with bounds by bootstrap. It draws the same samples
// at each call, so the same figures give the same bounds.
func estimateMedian(xs []float64) estimate {
	random := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, resamples)
	sample := make([]float64, len(xs))
	for i := range medians {
		for j := range sample {
			sample[j] = xs[random.IntN(len(xs))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	m := median(xs)
	low, high := medians[resamples*5/1000], medians[resamples*995/1000]
	return estimate{m, m - twoRuns*(m-low), m + twoRuns*(high-m)}
}

// inverse returns the estimate of the inverse ratio.
func (e estimate) inverse() estimate { return estimate{1 / e.Ratio, 1 / e.High, 1 / e.Low} }

// median returns the middle of xs, the upper one if there are two, and 0 if xs is empty.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
