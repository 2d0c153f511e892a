package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestJobs checks that any process sees the progress of a job and can stop the job, and that the
// newest jobs stay.
func TestJobs(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		jobs, err := admin.OpenJobs(db)
		must(t, err)
		other, err := admin.OpenJobs(db)
		must(t, err)
		j, err := jobs.Begin(ctx, admin.Job{Kind: "import", By: "Olga", Title: "people.csv"})
		must(t, err)
		if stop, err := jobs.Heartbeat(ctx, j.ID, 5, 20); err != nil || stop {
			t.Errorf("first heartbeat: got stop %v, %v; want false", stop, err)
		}
		if seen, err := other.Find(ctx, j.ID); err != nil || seen.Percent() != 25 || seen.Finished() || seen.By != "Olga" {
			t.Errorf("running job: got %+v, %v; want 25 percent by Olga", seen, err)
		}
		must(t, other.RequestStop(ctx, j.ID))
		if stop, err := jobs.Heartbeat(ctx, j.ID, 6, 20); err != nil || !stop {
			t.Errorf("heartbeat after RequestStop: got stop %v, %v; want true", stop, err)
		}
		must(t, jobs.End(ctx, j.ID, admin.JobStopped, "6 of 20", 6, 20))
		if seen, err := other.Find(ctx, j.ID); err != nil || !seen.Finished() || seen.Result != "6 of 20" {
			t.Errorf("ended job: got %+v, %v; want the result 6 of 20", seen, err)
		}
		var last time.Time
		for i := range admin.MaxJobs + 3 {
			more, err := jobs.Begin(ctx, admin.Job{Kind: "check", Title: fmt.Sprint(i)})
			must(t, err)
			must(t, jobs.End(ctx, more.ID, admin.JobDone, "", 0, 0))
			last = more.Began
		}
		all, err := other.All(ctx)
		// Jobs that began in the same millisecond are in any order.
		if err != nil || len(all) != admin.MaxJobs || !all[0].Began.Equal(last) {
			t.Errorf("got %d jobs, %v; want the newest %d", len(all), err, admin.MaxJobs)
		}
		if _, err := jobs.Find(ctx, j.ID); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("finding the oldest job: got %v, want ErrNotFound", err)
		}
	})
}

// A shiftedEngine reports the time of a server whose clock is ahead of this process's clock by
// ahead, or behind it if ahead is negative.
type shiftedEngine struct {
	store.Engine
	ahead time.Duration
}

func (s *shiftedEngine) Time(ctx context.Context, key recordkey.Key) (time.Time, error) {
	at, err := s.Engine.Time(ctx, key)
	return at.Add(s.ahead), err
}

// TestJobsClock checks that a job's times, and whether it is lost, depend only on the server's
// clock.
func TestJobsClock(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx, server := t.Context(), &shiftedEngine{ahead: -time.Hour}
		db, err := view.Reconfigure(db, func(c *view.Config) { server.Engine, c.Engine = c.Engine, server })
		must(t, err)
		jobs, err := admin.OpenJobs(db)
		must(t, err)
		j, err := jobs.Begin(ctx, admin.Job{Kind: "check"})
		must(t, err)
		wantState := func(want string) {
			t.Helper()
			seen, err := jobs.Find(ctx, j.ID)
			all, allErr := jobs.All(ctx)
			if err != nil || allErr != nil || seen.State != want || len(all) != 1 || all[0].State != want {
				t.Errorf("got the job %+v, %v and the jobs %+v, %v; want the state %s", seen, err, all, allErr, want)
			}
		}
		if early := time.Since(j.Began); early < time.Hour-time.Minute || early > time.Hour+time.Minute {
			t.Errorf("the job began at %v, want about an hour ago", j.Began)
		}
		wantState(admin.JobRunning)
		if _, err := jobs.Heartbeat(ctx, j.ID, 1, 2); err != nil {
			t.Error(err)
		}
		wantState(admin.JobRunning)
		server.ahead += time.Minute
		wantState(admin.JobLost)
		const month = 30 * 24 * time.Hour
		server.ahead += month
		_, err = jobs.Heartbeat(ctx, j.ID, 1, 2)
		must(t, err)
		wantState(admin.JobRunning)
		server.ahead -= month // now the last heartbeat is from the future
		wantState(admin.JobLost)
		must(t, jobs.End(ctx, j.ID, admin.JobDone, "", 2, 2))
		if seen, err := jobs.Find(ctx, j.ID); err != nil || seen.State != admin.JobDone || seen.Ended.Sub(seen.Began).Round(time.Minute) != time.Minute {
			t.Errorf("got %+v, %v; want a job that was done after a minute", seen, err)
		}
	})
}

// TestJobsOfOldPassword checks that an operator who signed in with a password that has been
// replaced cannot start a job, and that jobs started before the change end.
func TestJobsOfOldPassword(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		e, err := admin.AddOperator(ctx, db, "Olga", goodPassword)
		must(t, err)
		operators, err := admin.Operators(db)
		must(t, err)
		jobs, err := admin.OpenJobs(db)
		must(t, err)
		job := admin.Job{Kind: "export", By: "Olga", PasswordChanged: e.PasswordChanged()}
		j, err := jobs.Begin(ctx, job)
		must(t, err)
		if stop, err := jobs.Heartbeat(ctx, j.ID, 1, 2); err != nil || stop {
			t.Errorf("before the change: got stop %v, %v; want false", stop, err)
		}
		_, err = operators.SetPassword(ctx, hints.Any("olga"), goodPassword+"2")
		must(t, err)
		if stop, err := jobs.Heartbeat(ctx, j.ID, 1, 2); err != nil || !stop {
			t.Errorf("after the change: got stop %v, %v; want true", stop, err)
		}
		if _, err := jobs.Begin(ctx, job); !errors.Is(err, admin.ErrOperatorDisabled) {
			t.Errorf("beginning another job: got %v, want ErrOperatorDisabled", err)
		}
		all, err := jobs.All(ctx)
		if err != nil || len(all) != 2 || all[0].State != admin.JobStopped {
			t.Errorf("got the jobs %+v, %v; want the last one stopped", all, err)
		}
	})
}

// TestPercent checks that only a job that has ended is shown as complete.
func TestPercent(t *testing.T) {
	for _, test := range []struct {
		state       string
		done, total float64
		want        int
	}{{admin.JobRunning, 3, 10, 30}, {admin.JobRunning, 10, 10, 99}, {admin.JobDone, 10, 10, 100}, {admin.JobDone, 12, 10, 100}, {admin.JobStopped, 5, 10, 50}, {admin.JobRunning, 5, 0, -1}} {
		if got := (admin.Job{State: test.state, Done: test.done, Total: test.total}).Percent(); got != test.want {
			t.Errorf("%+v: got %d, want %d", test, got, test.want)
		}
	}
}
