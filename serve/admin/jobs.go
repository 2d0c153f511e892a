package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// The states of a job.
const (
	JobRunning = "running"
	JobDone    = "done"
	JobFailed  = "failed"
	JobStopped = "stopped"
	JobLost    = "lost" // stored as running, but its process has died or cannot reach the store
)

// MaxJobs is about how many ended jobs a namespace keeps. Begin leaves one fewer, because the job
// that begins will also end.
const MaxJobs = 20

// jobSilence is the time without a report after which a running job counts as lost. It is measured
// by the store's clock, because the clocks of two processes may differ.
const jobSilence = 30 * time.Second

const jobType = "job"

// A Job describes work in the background of a service process: an import, an export, a check, or a
// change of several accounts.
type Job struct {
	ID            string    `userdb:"id,primary"`
	Kind          string    `userdb:"kind"`
	By            string    `userdb:"by"`        // the operator's name
	Namespace     string    `userdb:"namespace"` // of the console that started it
	Title         string    `userdb:"title"`     // such as the name of a file
	Host          string    `userdb:"host"`      // the process that runs it and has its files
	Began         time.Time `userdb:"began,ordered"`
	LastHeartbeat time.Time `userdb:"heard"` // when its process last reported
	Ended         time.Time `userdb:"ended"` // zero while it runs
	State         string    `userdb:"state"`
	Done          float64   `userdb:"done"`  // in the unit of Total
	Total         float64   `userdb:"about"` // in entries, records or bytes; 0 if unknown
	Result        string    `userdb:"text"`  // for people to read
	Stop          bool      `userdb:"stop"`  // somebody has asked for it to stop
	// PasswordChanged is the time of the operator's last change of password before signing in. It
	// is zero if no signed-in operator started the job.
	PasswordChanged time.Time `userdb:"password_changed"`
}

// Finished reports whether a job has ended.
func (j Job) Finished() bool { return j.State != JobRunning }

// Percent returns the progress of a job from 0 to 100, or -1 if it is unknown. A job that runs has
// at most 99: an import may have read its whole file, but not yet written the last lines.
func (j Job) Percent() int {
	most := 99.0
	if j.Finished() {
		most = 100
	}
	if j.Total <= 0 {
		return -1
	}
	return int(min(most, 100*j.Done/j.Total))
}

func declareJob() (schema.Type, error) {
	t, err := schema.From[Job]()
	t.Fold = schema.FoldExact
	return t, err
}

// Jobs holds the jobs of a store, as seen from one namespace. It is safe for concurrent use.
type Jobs struct {
	view  *view.View
	all   *userdb.Type
	typed *userdb.Typed[Job]
	// operators is the type of the operators, who start jobs.
	operators *userdb.Type
	ns        string
}

// OpenJobs returns the jobs that can be seen from the namespace of db.
func OpenJobs(db *userdb.DB) (*Jobs, error) {
	adminDB, t, operators, err := openWithOperators(db, jobType)
	if err != nil {
		return nil, err
	}
	typed, err := userdb.Of[Job](t)
	return &Jobs{view.Of(adminDB), t, typed, operators, namespaceOf(db)}, err
}

// In returns the jobs as seen from another namespace.
func (js *Jobs) In(ns string) *Jobs { return &Jobs{js.view, js.all, js.typed, js.operators, ns} }

// SessionTime returns the time by the clock that sets the times of an operator's sessions.
func (js *Jobs) SessionTime(ctx context.Context, operator userdb.Entry) (time.Time, error) {
	if at := js.view.StoreTime(); !at.IsZero() {
		return at, nil
	}
	return js.view.Engine.Time(ctx, operator.Key().In(js.view.NS))
}

// NewJobID returns an ID for a new job.
func NewJobID() string { return strings.ToLower(rand.Text()) }

var jobIDs = regexp.MustCompile(`^[a-z2-7]{26}$`)

// ErrJobExists means that a job with the ID has already begun.
var ErrJobExists = coded.New(userdb.CodeConflict, "the job has already begun")

// Begin records the start of a job. It sets the job's namespace, state and times, and an ID if the
// job has none. If the namespace then has too many ended jobs, Begin removes the oldest. It returns
// ErrJobExists if the ID is taken, and ErrNotFound if the ID is not in the form of NewJobID. If the
// operator who starts the job has been disabled or has been given another password, it records the
// job as stopped and returns ErrOperatorDisabled.
func (js *Jobs) Begin(ctx context.Context, j Job) (Job, error) {
	if j.ID == "" {
		j.ID = NewJobID()
	}
	if !jobIDs.MatchString(j.ID) {
		return Job{}, userdb.ErrNotFound
	}
	now, err := storeTime(ctx, js.view)
	if err != nil {
		return Job{}, err
	}
	j.Namespace, j.State = js.ns, JobRunning
	j.Began = now.UTC().Truncate(time.Millisecond)
	j.LastHeartbeat = j.Began
	if j, err = js.typed.Create(ctx, j); err != nil {
		if errors.Is(err, userdb.ErrDuplicate) {
			err = ErrJobExists
		}
		return Job{}, err
	}
	// Create comes before prune, so that an attempt to begin the oldest job again finds it.
	if err = js.prune(ctx); err == nil {
		err = js.checkOperator(ctx, j)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return Job{}, errors.Join(err, js.End(ctx, j.ID, JobStopped, "", 0, 0))
	}
	return j, nil
}

func (js *Jobs) prune(ctx context.Context) error {
	all, err := js.All(ctx)
	if err != nil {
		return err
	}
	ended := 0
	for _, j := range all {
		if !j.Finished() || j.Namespace != js.ns {
			continue
		}
		if ended++; ended < MaxJobs {
			continue
		}
		if err := js.all.Delete(ctx, hints.UID(j.ID)); err != nil && !errors.Is(err, userdb.ErrNotFound) {
			return err
		}
	}
	return nil
}

// Heartbeat records that a job is still running, and its progress. stop reports whether the job
// must end: somebody has asked for that, or its operator has been disabled or has been given
// another password. The error is ErrNotFound if the job has been removed.
func (js *Jobs) Heartbeat(ctx context.Context, id string, done, total int64) (stop bool, err error) {
	now, err := storeTime(ctx, js.view)
	if err != nil {
		return false, err
	}
	j, err := js.typed.Update(ctx, hints.UID(id), func(j *Job) error {
		j.LastHeartbeat, j.Done, j.Total = now, float64(done), float64(total)
		return nil
	})
	if err == nil && !j.Stop {
		err = js.checkOperator(ctx, j)
	}
	if errors.Is(err, ErrOperatorDisabled) {
		return true, nil
	}
	return j.Stop, err
}

// checkOperator returns ErrOperatorDisabled if the operator who started a job has been disabled, or
// has been given another password since signing in.
func (js *Jobs) checkOperator(ctx context.Context, j Job) error {
	return checkOperatorSince(ctx, js.operators, j.By, j.PasswordChanged)
}

// End records the end of a job and its result.
func (js *Jobs) End(ctx context.Context, id, state, text string, done, total int64) error {
	now, err := storeTime(ctx, js.view)
	if err != nil {
		return err
	}
	_, err = js.typed.Update(ctx, hints.UID(id), func(j *Job) error {
		j.State, j.Result, j.Ended = state, text, now
		j.Done, j.Total = float64(done), float64(total)
		return nil
	})
	return err
}

// RequestStop asks the process of a job to end it. The process does so within seconds.
func (js *Jobs) RequestStop(ctx context.Context, id string) error {
	if _, err := js.Find(ctx, id); err != nil {
		return err
	}
	_, err := js.typed.Update(ctx, hints.UID(id), func(j *Job) error {
		j.Stop = true
		return nil
	})
	return err
}

// RequestStopOf does what RequestStop does for all running jobs that an operator started.
func (js *Jobs) RequestStopOf(ctx context.Context, operator string) error {
	all, err := js.All(ctx)
	for _, j := range all {
		if err == nil && j.By == operator && !j.Finished() {
			err = js.RequestStop(ctx, j.ID)
		}
	}
	return err
}

// Find returns a job. It returns ErrNotFound if none with that ID can be seen from the namespace.
func (js *Jobs) Find(ctx context.Context, id string) (Job, error) {
	j, err := js.typed.Find(ctx, hints.UID(id))
	if err == nil && !CanSee(js.ns, j.Namespace) {
		return Job{}, userdb.ErrNotFound
	}
	if err != nil || j.Finished() {
		return j, err
	}
	now, err := storeTime(ctx, js.view)
	return j.asOf(now), err
}

// All returns the jobs, newest first. It leaves out damaged records.
func (js *Jobs) All(ctx context.Context) (all []Job, err error) {
	var now time.Time // zero until needed
	for j, err := range js.typed.All(ctx, userdb.Query{Order: "began", Reverse: true}) {
		if isDamaged(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !CanSee(js.ns, j.Namespace) {
			continue
		}
		if now.IsZero() && !j.Finished() {
			if now, err = storeTime(ctx, js.view); err != nil {
				return nil, err
			}
		}
		all = append(all, j.asOf(now))
	}
	return all, nil
}

// asOf returns the job as of the given time: a running job is lost if its last report is too old,
// or was made when the clock was wrong.
func (j Job) asOf(now time.Time) Job {
	if j.State == JobRunning && now.Sub(j.LastHeartbeat).Abs() > jobSilence {
		j.State = JobLost
	}
	return j
}
