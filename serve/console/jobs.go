package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/userdb"
)

// What bounds jobs of one process.
const (
	mostRunning = 4
	beatTime    = time.Second      // between two notes of how far a job is
	noteTime    = 10 * time.Second // that one note may take
	mostUpload  = 1 << 30          // bytes
)

// errBusy says that as many jobs run as may.
var errBusy = errors.New("four jobs run here already")

// A runner runs jobs in the background. What they leave in files lies in a folder of this process alone, which goes with it.
type runner struct {
	jobs *own.Jobs
	host string

	mu      sync.Mutex
	works   map[string]*work // also those that have ended, as long as their files are here
	folder  string           // "": none was made yet
	running int
	stopped bool
	all     sync.WaitGroup
}

// A work is a job of this process.
type work struct {
	own.Job
	done, about atomic.Int64
	stop        context.CancelFunc
	over        chan struct{} // closed when it has ended

	mu     sync.Mutex
	detail detail
}

// A detail is what a job leaves besides its record.
type detail struct {
	Problems []problemLine
	Codes    map[string]int // how many problems there are of each code
	Refused  []refusedLine
	Files    []string // names of files to download
	Upload   upload   // of a dry run: what the real one reads
}

func newRunner(db *userdb.DB) (*runner, error) {
	jobs, err := own.JobsOf(db)
	return &runner{jobs: jobs, host: rand.Text(), works: map[string]*work{}}, err
}

// begin runs a job in the background. ctx is the request's: its actor and values stay, its end means nothing. do returns what came of it.
func (r *runner) begin(ctx context.Context, j own.Job, d detail, do func(ctx context.Context, w *work) (string, error)) (own.Job, error) {
	if err := r.reserve(); err != nil {
		return own.Job{}, err
	}
	j.Host = r.host
	j, err := r.jobs.Begin(ctx, j)
	if err != nil {
		r.release()
		return own.Job{}, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &work{Job: j, stop: stop, over: make(chan struct{}), detail: d}
	r.mu.Lock()
	r.works[j.ID] = w
	if r.stopped {
		stop()
	}
	r.mu.Unlock()
	r.forget(ctx)
	go r.beat(ctx, w)
	go func() {
		defer r.all.Done()
		defer r.release()
		text, err := do(ctx, w)
		r.end(ctx, w, text, err)
		close(w.over)
		stop()
	}()
	return j, nil
}

// reserve keeps the place of a job, whose end all waits for.
func (r *runner) reserve() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running >= mostRunning || r.stopped {
		return errBusy
	}
	r.running++
	r.all.Add(1)
	return nil
}

func (r *runner) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

// beat notes how far a job is, and ends it where somebody wants that. A store that does not answer ends nothing.
func (r *runner) beat(ctx context.Context, w *work) {
	tick := time.NewTicker(beatTime)
	defer tick.Stop()
	for {
		select {
		case <-w.over:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		noting, cancel := context.WithTimeout(ctx, noteTime)
		stop, err := r.jobs.Beat(noting, w.ID, w.done.Load(), w.about.Load())
		if cancel(); stop || errors.Is(err, userdb.ErrNotFound) {
			w.stop()
		}
	}
}

// end notes what came of a job.
func (r *runner) end(ctx context.Context, w *work, text string, err error) {
	state := own.JobDone
	switch {
	case err != nil && ctx.Err() != nil:
		state = own.JobStopped
	case err != nil:
		state, text = own.JobFailed, cmpText(text, whatFailed(err))
	}
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	// Where the store does not answer, the job is taken for lost, which it is.
	_ = r.jobs.End(noting, w.ID, state, text, w.done.Load(), w.about.Load())
}

func cmpText(text, more string) string {
	if text == "" {
		return more
	}
	return text + " " + more
}

// close ends all jobs, and removes their files. It returns when ctx ends at the latest.
func (r *runner) close(ctx context.Context) {
	r.mu.Lock()
	r.stopped = true
	for _, w := range r.works {
		w.stop()
	}
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		r.all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.folder != "" {
		_ = os.RemoveAll(r.folder) // it is in a temporary place
	}
}

// stop ends a job: at once here, else when its process asks next.
func (r *runner) stop(ctx context.Context, ns, id string) error {
	err := r.jobs.As(ns).WantStop(ctx, id)
	if w := r.work(id); w != nil && !errors.Is(err, userdb.ErrNotFound) {
		w.stop()
	}
	return err
}

// work is a job of this process; nil: it is another one's.
func (r *runner) work(id string) *work {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.works[id]
}

// look is what this process has of a job; false: another one has it.
func (r *runner) look(id string) (detail, bool) {
	w := r.work(id)
	if w == nil {
		return detail{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.detail
	d.Problems, d.Refused, d.Files = slices.Clone(d.Problems), slices.Clone(d.Refused), slices.Clone(d.Files)
	return d, true
}

// forget removes the files of jobs that are not listed any more.
func (r *runner) forget(ctx context.Context) {
	all, err := r.jobs.All(ctx)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, w := range r.works {
		if !slices.ContainsFunc(all, func(j own.Job) bool { return j.ID == id }) {
			_ = os.RemoveAll(filepath.Join(r.folder, id)) // the folder goes at the end in any case
			w.add(func(d *detail) { d.Upload.drop() })
			delete(r.works, id)
		}
	}
}

// create makes a file of a job, by a name of ours.
func (r *runner) create(id, name string) (*os.File, error) {
	folder, err := r.place(id)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(folder, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// place is the folder of a job, or of an upload.
func (r *runner) place(id string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.folder == "" {
		folder, err := os.MkdirTemp("", "userdb-console-*")
		if err != nil {
			return "", err
		}
		r.folder = folder
	}
	folder := filepath.Join(r.folder, id)
	return folder, os.MkdirAll(folder, 0o700)
}

// open is a file that a job of this process has left, by its name among those that there are.
func (r *runner) open(id, name string) (*os.File, error) {
	d, is := r.look(id)
	if !is || !slices.Contains(d.Files, name) {
		return nil, userdb.ErrNotFound
	}
	r.mu.Lock()
	path := filepath.Join(r.folder, id, name)
	r.mu.Unlock()
	return os.Open(path)
}

// add changes what a job leaves.
func (w *work) add(change func(*detail)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.detail)
}

// at is how far the job is.
func (w *work) at(done, about int64) {
	w.done.Store(done)
	w.about.Store(about)
}

// whatFailed is an error for the page of a job, without the keys of records.
func whatFailed(err error) string {
	switch code := userdb.CodeOf(err); {
	case code == userdb.CodeUnavailable:
		return "The store did not answer."
	case code == userdb.CodeCorrupt:
		return "A record is damaged: the page Check tells which."
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), isDisk(err):
		return "The disk of the service did not take, or give, its file."
	}
	return fmt.Sprintf("It failed: %v.", err)
}

// isDisk reports whether a file is what failed.
func isDisk(err error) bool {
	_, is := errors.AsType[*os.PathError](err)
	return is
}
