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

// twoRuns is the factor by which two runs differ more from each other than one of them from the
// truth.
const twoRuns = math.Sqrt2

// student holds the factors of Student's t for 99 %, by the number of samples. It has only the
// numbers in use.
var student = [...]float64{2: 63.657, 3: 9.925, 4: 5.841, 5: 4.604, 6: 4.032, 7: 3.707, 8: 3.499, 10: 3.250}

// estimateMean returns the mean of ratios that were measured independently: 2 to 8 or 10 of them. A
// single one is returned unchanged.
func estimateMean(xs []estimate) estimate {
	n := float64(len(xs))
	if n == 1 {
		return xs[0]
	}
	mean, squares := 0.0, 0.0
	for _, x := range xs {
		mean += x.Ratio / n
	}
	for _, x := range xs {
		squares += (x.Ratio - mean) * (x.Ratio - mean)
	}
	around := twoRuns * student[len(xs)] * math.Sqrt(squares/(n-1)/n)
	return estimate{mean, mean - around, mean + around}
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

// inverse returns the estimate of 1/x.
func (e estimate) inverse() estimate { return estimate{1 / e.Ratio, 1 / e.High, 1 / e.Low} }

// median returns the middle of xs, the upper one of two, and 0 if xs is empty.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
