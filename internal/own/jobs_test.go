package own_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/userdb"
)

// TestJobs: any process sees how far a job is, and can have it stopped; the newest stay.
func TestJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		jobs, err := own.JobsOf(db)
		must(t, err)
		other, err := own.JobsOf(db)
		must(t, err)
		j, err := jobs.Begin(ctx, own.Job{Kind: "import", By: "Olga", Title: "people.csv"})
		must(t, err)
		if stop, err := jobs.Beat(ctx, j.ID, 5, 20); err != nil || stop {
			t.Errorf("%v, %v", stop, err)
		}
		if seen, err := other.Find(ctx, j.ID); err != nil || seen.Percent() != 25 || seen.Over() || seen.By != "Olga" {
			t.Errorf("%+v, %v", seen, err)
		}
		must(t, other.WantStop(ctx, j.ID))
		if stop, err := jobs.Beat(ctx, j.ID, 6, 20); err != nil || !stop {
			t.Errorf("it is not told to stop: %v", err)
		}
		must(t, jobs.End(ctx, j.ID, own.JobStopped, "6 of 20", 6, 20))
		if seen, err := other.Find(ctx, j.ID); err != nil || !seen.Over() || seen.Text != "6 of 20" {
			t.Errorf("%+v, %v", seen, err)
		}
		last := ""
		for i := range own.MostJobs + 3 {
			more, err := jobs.Begin(ctx, own.Job{Kind: "check", Title: fmt.Sprint(i)})
			must(t, err)
			must(t, jobs.End(ctx, more.ID, own.JobDone, "", 0, 0))
			last = more.ID
		}
		all, err := other.All(ctx)
		if err != nil || len(all) != own.MostJobs || all[0].ID != last {
			t.Errorf("%d jobs, %v", len(all), err)
		}
		if _, err := jobs.Find(ctx, j.ID); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("the oldest: %v", err)
		}
	})
}
