package transfer

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// importBatches imports text into an empty store, with the given numbers of lines in the first
// batch and in later batches.
func importBatches(t *rapid.T, db *userdb.DB, text, onDuplicate string, first, later int) (Report, []string) {
	var refused []string
	o := ImportOptions{OnDuplicate: onDuplicate, Refused: func(line int64, reason string) { refused = append(refused, fmt.Sprint(line, " ", reason)) }}
	im, err := newImporter(t.Context(), db, strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	im.firstSize, im.batchSize = first, later
	if err := im.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return im.state.Report, refused
}

// entriesOf returns the name, email and job of all entries, by UID, and checks that no record is
// damaged.
func entriesOf(t *rapid.T, db *userdb.DB) map[string]string {
	typ, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for e, err := range typ.All(t.Context(), userdb.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[e.UID()] = fmt.Sprint(e.Text("name"), "|", e.Text("email"), "|", e.Text("job"))
	}
	for p, err := range check.Run(t.Context(), db, check.Options{}) {
		if err != nil || p.Severity == check.SeverityError {
			t.Fatal(p, err)
		}
	}
	return all
}

// lineGen returns a generator of lines that often share UIDs and identifiers.
func lineGen() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		facets := []string{fmt.Sprintf(`"uid":"u%d"`, rapid.IntRange(0, 12).Draw(t, "uid"))}
		if rapid.Bool().Draw(t, "named") {
			facets = append(facets, fmt.Sprintf(`"name":"n%d"`, rapid.IntRange(0, 12).Draw(t, "name")))
		}
		if rapid.Bool().Draw(t, "mailed") {
			facets = append(facets, fmt.Sprintf(`"email":"m%d@x.org"`, rapid.IntRange(0, 12).Draw(t, "mail")))
		}
		facets = append(facets, fmt.Sprintf(`"job":"c%d"`, rapid.IntRange(0, 99).Draw(t, "job")))
		return `{"facets":{` + strings.Join(facets, ",") + "}}\n"
	})
}

// TestImportOrder checks that lines processed concurrently have the same outcome as lines processed
// one by one.
func TestImportOrder(t *testing.T) {
	shared := redistest.Shared(t).Client()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(lineGen(), 0, 60).Draw(t, "lines"), "")
		on := rapid.SampledFrom([]string{DuplicateFail, DuplicateSkip, DuplicateUpdate}).Draw(t, "on")
		var entries [2]map[string]string
		var reports [2]Report
		var refused [2][]string
		for i, batchSize := range []int{1, rapid.IntRange(2, 9).Draw(t, "batch")} {
			if err := shared.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			db, err := redisdb.New(t.Context(), shared, userdb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			reports[i], refused[i] = importBatches(t, db, text, on, 1, batchSize)
			entries[i] = entriesOf(t, db)
		}
		if !maps.Equal(entries[0], entries[1]) || reports[0] != reports[1] || strings.Join(refused[0], "\n") != strings.Join(refused[1], "\n") {
			t.Fatalf("%s\none by one, the lines have the outcome\n%v\n%+v\n%q\nbut several at a time\n%v\n%+v\n%q", text, entries[0], reports[0], refused[0], entries[1], reports[1], refused[1])
		}
	})
}

// SetFinishTimeout sets how long an import goes on after its context has ended.
func SetFinishTimeout(d time.Duration) (undo func()) {
	before := finishTimeout
	finishTimeout = d
	return func() { finishTimeout = before }
}
