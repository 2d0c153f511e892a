package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A chart draws lines through points, whose positions on the x axis have labels.
type chart struct {
	file, title, x, y string
	labels            []string
	lines             []line
}

// A line has one y for each label.
type line struct {
	name string
	y    []float64
}

// draw writes a chart to a directory, as SVG.
func (c chart) draw(dir string) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	var ticks plot.ConstantTicks
	for i, label := range c.labels {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: label})
	}
	p.X.Tick.Marker = ticks
	highest := 0.0
	for i, l := range c.lines {
		var points plotter.XYs
		for x, y := range l.y {
			points, highest = append(points, plotter.XY{X: float64(x), Y: y}), max(highest, y)
		}
		drawn, dots, err := plotter.NewLinePoints(points)
		must(err)
		drawn.Color, dots.Color, dots.Shape, drawn.Width = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i), vg.Points(2)
		p.Add(drawn, dots)
		p.Legend.Add(l.name, drawn, dots)
	}
	p.Y.Min, p.Y.Max = 0, 1.35*highest // leave room for the legend
	must(p.Save(16*vg.Centimeter, 10*vg.Centimeter, filepath.Join(dir, c.file+".svg")))
}

// charted lists the measurements that are drawn.
var charted = []func(b *bench, ctx context.Context) chart{(*bench).byCallers, (*bench).byPercentile, (*bench).byIdentifiers}

var callers = []int{1, 4, 16, 32, 64, 128}

// byCallers measures the throughput of reads by the number of callers.
func (b *bench) byCallers(ctx context.Context) chart {
	c := chart{file: "speed-callers", title: "Finding an entry by its UID", x: "callers at the same time", y: "thousands a second"}
	other := b.rueidisClient()
	defer other.Close()
	db, users := b.server.open(ctx, userdb.Options{})
	defer db.Close()
	bare := b.server.client(slices.Max(callers) + 8)
	defer bare.Close()
	variants := []variant{findVariant(users), bareGet(bare), rueidisGet(other), autoGet(mustGet(bare.AutoPipeline()))}
	for _, v := range variants {
		c.lines = append(c.lines, line{name: v.name})
	}
	b = b.onAllCores().withBlocks(40, 20*time.Millisecond)
	for _, n := range callers {
		c.labels = append(c.labels, fmt.Sprint(n))
		for i, r := range b.interleave(ctx, n, variants...) {
			c.lines[i].y = append(c.lines[i].y, r.Rate/1000)
		}
	}
	return c
}

var percentiles = []float64{10, 25, 50, 75, 90, 95, 99, 99.9}

// byPercentile measures how long reads take while ten times as many logins arrive as the machine
// can hash.
func (b *bench) byPercentile(ctx context.Context) (c chart) {
	b.withFlood(ctx, func(users *userdb.Type, start func() *flood) outcome {
		c = chart{file: "speed-flood", title: "Finding an entry by its UID, four callers", x: "percentile", y: "microseconds"}
		for _, p := range percentiles {
			c.labels = append(c.labels, fmt.Sprint(p))
		}
		b := b.onAllCores().withBlocks(30, 100*time.Millisecond)
		c.lines = append(c.lines, line{"nobody logs in", latencies(b.interleave(ctx, 4, findVariant(users))[0])})
		start()
		c.lines = append(c.lines, line{"ten times more logins than can be hashed", latencies(b.interleave(ctx, 4, findVariant(users))[0])})
		return outcome{}
	})
	return c
}

// latencies returns the latencies of r at the percentiles.
func latencies(r result) (all []float64) {
	for _, p := range percentiles {
		all = append(all, percentile(r.latencies, p))
	}
	return all
}

// byIdentifiers measures the memory of entries by the number of their identifiers.
func (b *bench) byIdentifiers(ctx context.Context) chart {
	c := chart{file: "speed-memory", title: "Memory of an entry in Redis", x: "identifiers besides the UID", y: "bytes", lines: []line{{name: "of 20 characters each"}}}
	const entries = 5000
	for n := range 7 {
		s := schema.Schema{Types: map[string]schema.Type{"user": {Primary: "uid", Fields: map[string]schema.Field{"job": {}}}}}
		for i := range n {
			s.Types["user"].Fields[fmt.Sprint("id", i)] = schema.Field{Role: schema.RoleSecondary}
		}
		b.server.admin.FlushAll(ctx)
		db, users := b.server.open(ctx, userdb.Options{Schema: s})
		before := info(ctx, b.server.admin, "memory")["used_memory_dataset"]
		for k := range entries {
			facets := schema.Texts("job", "cook")
			for i := range n {
				facets[fmt.Sprint("id", i)] = schema.Text(fmt.Sprintf("identifier %d %7d", i, k))
			}
			mustGet(users.Create(ctx, userdb.NewEntry{UID: uid(k), Facets: facets}))
		}
		c.labels = append(c.labels, fmt.Sprint(n))
		c.lines[0].y = append(c.lines[0].y, (info(ctx, b.server.admin, "memory")["used_memory_dataset"]-before)/entries)
		must(db.Close())
	}
	return c
}
