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

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// Limits on the jobs of one process.
const (
	maxRunning    = 4
	beatInterval  = time.Second      // between two reports of progress
	recordTimeout = 10 * time.Second // for writing one report
	sweepInterval = time.Minute      // between two searches for files of jobs that are gone
	maxUpload     = 1 << 30          // bytes
	// maxUploads is how many uploads are kept after dry runs. Up to as many again are kept while
	// operators map their columns.
	maxUploads = 4
)

// errBusy means that the process runs as many jobs as it may, or as many as one operator may have,
// or that the runner has stopped.
var errBusy = errors.New("too many jobs are already running here")

// A runner runs jobs in the background. It keeps their files in a temporary folder of this process
// and removes that folder when it closes.
type runner struct {
	jobs *admin.Jobs
	host string // a random name of this process

	mu      sync.Mutex
	tasks   map[string]*task // includes jobs that have ended, while their files exist
	pending pendingUploads
	folder  string         // "" until it is created
	lock    *os.File       // tells other processes that the folder is in use
	running map[string]int // by the operator who began them
	begun   int            // jobs so far
	stopped bool
	wg      sync.WaitGroup

	sweepOnce sync.Once
	closing   chan struct{} // closed by end
	end       func()
}

// A task is a job that this process runs or ran.
type task struct {
	admin.Job
	number      int // counts the jobs of this process, in the order in which they began
	done, total atomic.Int64
	stop        context.CancelFunc
	ended       chan struct{} // closed when it has ended

	mu     sync.Mutex
	detail detail
}

// A detail holds the results of a job that are not in the job's record, only in this process.
type detail struct {
	Problems []problemLine
	Codes    map[string]int // number of problems by code
	Refused  []refusedLine
	Files    []string // names of files to download
	Upload   upload   // set by a dry run: the input of the actual import
	Import   string   // ID of that import, once it has begun
}

// canImport reports whether the details belong to a dry run that has ended well, so that the import
// of its file may follow. j is that job.
func (d detail) canImport(j admin.Job) bool { return d.Upload.Path != "" && j.State == admin.JobDone }

// dropUpload removes the upload of a dry run.
func (d *detail) dropUpload() {
	d.Upload.remove()
	d.Upload = upload{}
}

// newRunner returns a runner. It removes the folders of runners whose processes have died.
func newRunner(db *userdb.DB) (*runner, error) {
	removeAbandoned(os.TempDir())
	jobs, err := admin.OpenJobs(db)
	r := &runner{jobs: jobs, host: rand.Text(), tasks: map[string]*task{}, running: map[string]int{}, closing: make(chan struct{})}
	r.end = sync.OnceFunc(func() { close(r.closing) })
	return r, err
}

// begin starts a job in the background. The job keeps the values of ctx, such as the actor, but
// does not end with it. do returns the text that describes the result. If the job cannot be
// recorded, begin returns j with the error.
func (r *runner) begin(ctx context.Context, j admin.Job, d detail, do func(ctx context.Context, w *task) (string, error)) (admin.Job, error) {
	by := j.By
	if err := r.reserve(by); err != nil {
		return admin.Job{}, err
	}
	j.Host, j.PasswordChanged = r.host, web.Entry(ctx).PasswordChanged()
	asked := j
	j, err := r.jobs.Begin(ctx, j)
	if err != nil {
		r.release(by)
		return asked, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &task{Job: j, stop: stop, ended: make(chan struct{}), detail: d}
	r.mu.Lock()
	r.begun++
	r.tasks[j.ID], w.number = w, r.begun
	if r.stopped {
		stop()
	}
	r.mu.Unlock()
	r.removeUnlisted(ctx)
	r.removeUploads()
	r.startSweep(ctx)
	go r.reportProgress(ctx, w)
	go func() {
		defer r.release(by)
		text, err := do(ctx, w)
		if err != nil { // nobody can use its files, which may fill the disk
			r.removeFiles(w)
		}
		r.finish(ctx, w, text, err)
		close(w.ended)
		stop()
	}()
	return j, nil
}

// reserve counts one more running job of an operator, which close waits for. It returns errBusy
// unless more places are free than the operator already uses, so that one operator alone cannot use
// up all of them.
func (r *runner) reserve(operator string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := maxRunning
	for _, n := range r.running {
		free -= n
	}
	if free <= r.running[operator] || r.stopped {
		return errBusy
	}
	r.running[operator]++
	r.wg.Add(1)
	return nil
}

// release undoes reserve.
func (r *runner) release(operator string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[operator]--; r.running[operator] == 0 {
		delete(r.running, operator)
	}
	r.wg.Done()
}

// reportProgress reports a job's progress regularly and stops the job if somebody asks for that.
// The job continues if the store does not respond.
func (r *runner) reportProgress(ctx context.Context, w *task) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.ended:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		recordCtx, cancel := context.WithTimeout(ctx, recordTimeout)
		stop, err := r.jobs.Heartbeat(recordCtx, w.ID, w.done.Load(), w.total.Load())
		if cancel(); stop || errors.Is(err, userdb.ErrNotFound) {
			w.stop()
		}
	}
}

// finish records the result of a job.
func (r *runner) finish(ctx context.Context, w *task, text string, err error) {
	state := admin.JobDone
	switch {
	case err != nil && ctx.Err() != nil:
		state = admin.JobStopped
	case err != nil:
		state, text = admin.JobFailed, joinText(text, failureText(err))
	}
	recordCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	// If the store does not respond, the job later counts as lost.
	_ = r.jobs.End(recordCtx, w.ID, state, text, w.done.Load(), w.total.Load())
}

func joinText(text, more string) string {
	if text == "" {
		return more
	}
	return text + " " + more
}

// close stops all jobs and removes their files. It returns when they have ended or ctx is done.
func (r *runner) close(ctx context.Context) {
	r.end()
	r.mu.Lock()
	r.stopped = true
	for _, w := range r.tasks {
		w.stop()
	}
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.folder != "" {
		_ = os.RemoveAll(r.folder) // if it fails, the next process does it
		_ = r.lock.Close()         // nothing was written
	}
}

// stop stops a job: at once if it runs here, or else when its process next asks.
func (r *runner) stop(ctx context.Context, ns, id string) error {
	err := r.jobs.In(ns).RequestStop(ctx, id)
	if w := r.task(id); w != nil && !errors.Is(err, userdb.ErrNotFound) {
		w.stop()
	}
	return err
}

// task returns a job of this process, or nil if it belongs to another one.
func (r *runner) task(id string) *task {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tasks[id]
}

// details returns a copy of the details of a job, or false if it belongs to another process.
func (r *runner) details(id string) (detail, bool) {
	w := r.task(id)
	if w == nil {
		return detail{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.detail
	d.Problems, d.Refused, d.Files = slices.Clone(d.Problems), slices.Clone(d.Refused), slices.Clone(d.Files)
	return d, true
}

// removeUnlisted removes the files of jobs that have ended and are no longer listed.
func (r *runner) removeUnlisted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	// This comes before the list is read: a job that begins and ends after that is not in the list.
	ended := r.endedTasks()
	all, err := r.jobs.All(ctx)
	if err != nil {
		return
	}
	for _, w := range ended {
		if !slices.ContainsFunc(all, func(j admin.Job) bool { return j.ID == w.ID }) {
			r.remove(w)
		}
	}
}

// startSweep starts sweep, if it has not begun yet.
func (r *runner) startSweep(ctx context.Context) {
	r.sweepOnce.Do(func() { go r.sweep(context.WithoutCancel(ctx)) })
}

// sweep regularly removes uploads that nobody imports, and calls removeUnlisted, because another
// process may drop a namespace, and its jobs with it.
func (r *runner) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.closing:
			return
		case <-tick.C:
		}
		r.pending.removeExpired(time.Now())
		r.removeUnlisted(ctx)
	}
}

// endedTasks returns the jobs of this process that have ended.
func (r *runner) endedTasks() (ended []*task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.tasks {
		if w.hasEnded() {
			ended = append(ended, w)
		}
	}
	return ended
}

// remove removes the files of a job that has ended, and forgets the job.
func (r *runner) remove(w *task) {
	r.removeFiles(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tasks, w.ID)
}

// removeFiles removes the files of a job, and the upload of a dry run.
func (r *runner) removeFiles(w *task) {
	r.mu.Lock()
	folder := r.folder
	r.mu.Unlock()
	w.update(func(d *detail) {
		if folder != "" {
			_ = os.RemoveAll(filepath.Join(folder, w.ID)) // close removes the folder in any case
		}
		d.dropUpload()
		d.Files = nil
	})
}

// setImported records that the import of a dry run's upload has begun, and removes the upload. The
// import has the file open.
func (r *runner) setImported(id, importID string) {
	if w := r.task(id); w != nil {
		w.update(func(d *detail) {
			d.dropUpload()
			d.Import = importID
		})
	}
}

// removeUploads removes the uploads of dry runs that have ended, except those of the last
// maxUploads. An upload that was removed must be sent again before it can be imported.
func (r *runner) removeUploads() {
	var dry []*task
	for _, w := range r.endedTasks() {
		if w.hasUpload() {
			dry = append(dry, w)
		}
	}
	slices.SortFunc(dry, func(a, b *task) int { return b.number - a.number })
	for _, w := range dry[min(maxUploads, len(dry)):] {
		w.update((*detail).dropUpload)
	}
}

// create creates a file of a job. name is a constant of this package, never an operator's text.
func (r *runner) create(id, name string) (*os.File, error) {
	folder, err := r.makeFolder(id)
	if err != nil {
		return nil, err
	}
	return openNew(filepath.Join(folder, name))
}

// openNew creates a file. Tests replace it.
var openNew = func(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// makeFolder returns the folder of a job or of an upload, which it creates if necessary.
func (r *runner) makeFolder(id string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.folder == "" || !hasLock(r.folder, r.lock) {
		folder, lock, err := newFolder(os.TempDir())
		if err != nil {
			return "", err
		}
		if r.lock != nil {
			_ = r.lock.Close() // nothing was written
		}
		r.folder, r.lock = folder, lock
	}
	folder := filepath.Join(r.folder, id)
	return folder, os.MkdirAll(folder, 0o700)
}

// openFile opens a file of a job of this process. name must be one of the job's files.
func (r *runner) openFile(id, name string) (*os.File, error) {
	d, ok := r.details(id)
	if !ok || !slices.Contains(d.Files, name) {
		return nil, userdb.ErrNotFound
	}
	r.mu.Lock()
	path := filepath.Join(r.folder, id, name)
	r.mu.Unlock()
	return os.Open(path)
}

// update calls change with the details of the job, under its lock.
func (w *task) update(change func(*detail)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.detail)
}

func (w *task) hasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// hasUpload reports whether the job is a dry run whose upload still exists.
func (w *task) hasUpload() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.detail.Upload.Path != ""
}

// setProgress sets how much of the total is done.
func (w *task) setProgress(done, total int64) {
	w.done.Store(done)
	w.total.Store(total)
}

// failureText describes an error for the page of a job. It puts errors about records into words
// that contain no keys.
func failureText(err error) string {
	switch code := userdb.CodeOf(err); {
	case errors.Is(err, transfer.ErrLost):
		return "A server restarted, or a replica took over, during the import: some of these lines may be missing. Import the file again, and leave accounts that exist unchanged."
	case code == userdb.CodeUnavailable:
		return "The store did not respond."
	case code == userdb.CodeCorrupt:
		return "A record is damaged. The Check page says which."
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission), isFileError(err):
		return "The service could not read or write a file on its disk."
	}
	return fmt.Sprintf("It failed: %v.", err)
}

// isFileError reports whether err comes from an operation on a file.
func isFileError(err error) bool {
	_, ok := errors.AsType[*os.PathError](err)
	return ok
}
