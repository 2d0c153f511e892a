package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

const (
	chartStore    = "redis"
	chartAccounts = 100_000
	chartCallers  = 16
)

// labels says what each job does, in a few words.
var labels = map[string]string{
	"get": "read one account", "find": "find one by its address", "list": "list 50 of a city", "session": "check a session",
	"forward": "check one, for a proxy", "sign-in": "sign in", "update": "change a field", "create": "create, with a password",
}

// chartStyle fits light and dark pages.
const chartStyle = `<style>
text { font: 13px system-ui, "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-weight: bold }
.n { font-size: 11px }
.grid { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .grid { stroke: #3d444d }
}
</style>
`

// A bar holds what one product did in one job.
type bar struct {
	product string
	rate    float64 // operations a second
}

// bars returns the bars of a job from reports of different peers: ours and one for each peer.
func bars(reports []report, job string) (all []bar) {
	for _, r := range reports {
		for _, x := range r.Rows {
			if x.Service != chartStore || x.Accounts != chartAccounts || x.Callers != chartCallers || x.Job != job || x.Figures == nil {
				continue
			}
			if len(all) == 0 {
				all = append(all, bar{"userdb on Redis", x.Figures.Ours.Rate})
			}
			all = append(all, bar{peers[r.Peer], x.Figures.Peer.Rate})
		}
	}
	return all
}

// writeChart reads reports from files of JSON and writes their chart to path.
func writeChart(path string, files []string) error {
	var reports []report
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		reports = append(reports, r)
	}
	return os.WriteFile(path, []byte(chart(reports)), 0o644)
}

// chart returns the bars of all jobs as SVG, on a logarithmic scale from 1 to 10,000 operations a
// second, or to the longest bar if that is longer.
func chart(reports []report) string {
	const left, right, top, thick, gap = 190, 700, 62, 13, 12
	longest := 10_000.0
	for _, j := range jobs {
		for _, b := range bars(reports, j.name) {
			longest = max(longest, b.rate)
		}
	}
	x := func(rate float64) float64 {
		return left + (right-left)*math.Log10(max(rate, 1))/math.Log10(longest)
	}
	colors := map[string]string{"userdb on Redis": "#0969da", "PocketBase": "#bc4c00", "Better Auth": "#57804a"}
	var body strings.Builder
	y := top
	var products []string
	for _, j := range jobs {
		all := bars(reports, j.name)
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(&body, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y+thick*len(all)/2+4, cmp.Or(labels[j.name], j.name))
		for _, b := range all {
			fmt.Fprintf(&body, `<rect x="%d" y="%d" width="%.0f" height="%d" fill="%s"/>`, left, y, x(b.rate)-left, thick-2, colors[b.product])
			fmt.Fprintf(&body, `<text x="%.0f" y="%d" class="n">%s</text>`+"\n", x(b.rate)+5, y+thick-3, thousands(b.rate))
			y += thick
			if !slices.Contains(products, b.product) {
				products = append(products, b.product)
			}
		}
		y += gap
	}
	title := fmt.Sprintf("Requests a second over HTTP, %d callers, %s accounts", chartCallers, thousands(chartAccounts))
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 %d" role="img" aria-labelledby="t">`+"\n", y+14)
	fmt.Fprintf(&s, "<title id=\"t\">%s</title>\n%s", title, chartStyle)
	fmt.Fprintf(&s, `<text x="20" y="22" class="title">%s</text>`+"\n", title)
	for i, p := range products {
		fmt.Fprintf(&s, `<rect x="%d" y="34" width="11" height="11" fill="%s"/><text x="%d" y="44">%s</text>`+"\n", left+150*i, colors[p], left+16+150*i, p)
	}
	for d := 0; math.Pow10(d) <= longest; d++ {
		at := x(math.Pow10(d))
		fmt.Fprintf(&s, `<path d="M%.0f %dV%d" class="grid"/><text x="%.0f" y="%d" class="n" text-anchor="middle">%s</text>`+"\n", at, top-6, y-gap+4, at, y+6, thousands(math.Pow10(d)))
	}
	return s.String() + body.String() + "</svg>\n"
}

// thousands formats a figure as a whole number, with commas between thousands.
func thousands(x float64) string {
	text := fmt.Sprintf("%.0f", x)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
