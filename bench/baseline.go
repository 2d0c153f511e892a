package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// rerunDifference is how much a ratio may differ between two runs of the same code, as a part of
// the ratio.
const rerunDifference = 0.03

// readReport reads a report that report.write wrote.
func readReport(path string) (rep report) {
	must(json.Unmarshal(mustGet(os.ReadFile(path)), &rep))
	return rep
}

// worse returns the rows that are worse than the rows of the same name in an earlier report, each
// with both ratios. It passes over rows that the two runs measured with different numbers of
// entries.
func (rep *report) worse(baseline report) (lines []string) {
	earlier := map[string]reportRow{}
	for _, r := range baseline.Rows {
		earlier[r.Name] = r
	}
	for _, r := range rep.Rows {
		if was, found := earlier[r.Name]; found && r.Entries == was.Entries && r.isWorse(was) {
			lines = append(lines, fmt.Sprintf("%s: %.3f (%.3f to %.3f), was %.3f (%.3f to %.3f)", r.Name, r.Ratio, r.Low, r.High, was.Ratio, was.Low, was.High))
		}
	}
	return lines
}

// isWorse reports whether the whole interval of r is worse than that of was, by more than the
// difference between two runs of the same code.
func (r reportRow) isWorse(was reportRow) bool {
	if r.Most {
		return r.Low > was.High*(1+rerunDifference)
	}
	return r.High < was.Low/(1+rerunDifference)
}
