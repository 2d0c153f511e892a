package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// A jobsPage holds a form that starts a job, and the latest jobs of its kind.
type jobsPage struct {
	Jobs  []admin.Job
	Types []string
	NewID string // of the job that the form starts
}

func (c *Console) jobList(kind, title string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { c.showJobs(w, r, kind, title) }
}

func (c *Console) showJobs(w http.ResponseWriter, r *http.Request, kind, title string, problems ...web.Problem) {
	db, err := c.view(r.Context())
	var all []admin.Job
	if err == nil {
		all, err = c.jobs.jobs.In(operatorNamespace(r)).All(r.Context())
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	data := jobsPage{Types: db.Schema().Names(), NewID: admin.NewJobID()}
	for _, j := range all {
		if kind == "" || j.Kind == kind {
			data.Jobs = append(data.Jobs, j)
		}
	}
	name := kind
	if kind == "" { // the page with all jobs
		name = "jobs-page"
	}
	c.show(w, r, statusOf(problems), page{Name: name, Title: title, Data: data, Problems: problems})
}

// jobInput is the name of the input with the ID of the job that a form starts. A browser that sends
// the form again, such as after Back, is redirected to the job that it has started.
const jobInput = "job"

// tooManyJobs is what an operator sees after errBusy.
const tooManyJobs = "Too many jobs are already running: at most four run at a time, and some places are kept for other operators. Wait for one to end, or stop one."

// respondStarted sends the response to a request that was to start the job j.
func (c *Console) respondStarted(w http.ResponseWriter, r *http.Request, j admin.Job, err error, kind, title string) {
	switch {
	case errors.Is(err, admin.ErrJobExists):
		http.Redirect(w, r, "/console/jobs/"+j.ID, http.StatusSeeOther)
	case errors.Is(err, errBusy):
		c.showJobs(w, r, kind, title, web.Problem{Code: userdb.CodeThrottled, Text: tooManyJobs})
	case err != nil:
		c.fail(w, r, err)
	default:
		http.Redirect(w, r, "/console/jobs/"+j.ID, http.StatusSeeOther)
	}
}

// startCheck starts a check or, once that is confirmed, a repair.
func (c *Console) startCheck(w http.ResponseWriter, r *http.Request) {
	repair := r.PostFormValue("repair") != ""
	if repair && r.PostFormValue("confirm") == "" {
		c.show(w, r, http.StatusOK, page{Name: "check-confirm", Title: "Repair all accounts?", Data: admin.NewJobID()})
		return
	}
	db, err := c.view(r.Context())
	var j admin.Job
	if err == nil {
		j, err = c.jobs.checkJob(r.Context(), db, r.PostFormValue(jobInput), senderName(r), repair)
	}
	c.respondStarted(w, r, j, err, "check", "Check")
}

func (c *Console) startExport(w http.ResponseWriter, r *http.Request) {
	db, err := c.view(r.Context())
	typ := r.PostFormValue("type")
	if err == nil && typ != "" {
		if _, unknown := db.Type(typ); unknown != nil {
			err = userdb.ErrNotFound
		}
	}
	var j admin.Job
	if err == nil {
		j, err = c.jobs.exportJob(r.Context(), db, r.PostFormValue(jobInput), senderName(r), typ)
	}
	c.respondStarted(w, r, j, err, "export", "Export accounts")
}

// startImport starts a dry run of an uploaded file, or the import of a file after its dry run. For
// an uploaded CSV file it shows the page that maps the columns.
func (c *Console) startImport(w http.ResponseWriter, r *http.Request) {
	if !isUpload(r) {
		u, err := c.triedUpload(r)
		c.beginImport(w, r, u, false, err)
		return
	}
	u, err := c.jobs.receive(w, r)
	signedIn := false
	c.requireSession(func() {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signedIn = true
		if err == nil && u.CSV {
			c.beginMapping(w, r, u)
			return
		}
		c.beginImport(w, r, u, true, err)
	})).ServeHTTP(w, r) // the session may have ended while the file arrived
	if !signedIn {
		u.remove()
	}
}

// triedUpload returns the upload of the dry run that a form names, which must have ended well. The
// error is ErrJobExists if the upload has been imported.
func (c *Console) triedUpload(r *http.Request) (upload, error) {
	id := r.PostFormValue("from")
	d, ok := c.jobs.details(id)
	if ok && d.Import != "" {
		return upload{Import: d.Import}, admin.ErrJobExists
	}
	if !ok || d.Upload.Path == "" {
		return upload{}, errElsewhere
	}
	j, err := c.jobs.jobs.In(operatorNamespace(r)).Find(r.Context(), id)
	switch {
	case errors.Is(err, userdb.ErrNotFound):
		return upload{}, errElsewhere
	case err == nil && !d.canImport(j):
		err = uploadError("The dry run of this file is still running, was stopped or failed. Upload the file again.")
	}
	return d.Upload, err
}

// beginImport starts the import of an upload, or its dry run. err says why there is no upload.
func (c *Console) beginImport(w http.ResponseWriter, r *http.Request, u upload, dry bool, err error) {
	db, viewErr := c.view(r.Context())
	if err == nil && viewErr == nil && !slices.Contains(db.Schema().Names(), u.Type) {
		err = errType
	}
	var j admin.Job
	if err = errors.Join(err, viewErr); err == nil {
		j, err = c.jobs.importJob(r.Context(), db, senderName(r), u, dry)
	}
	switch {
	case err != nil && dry:
		u.remove()
	case err == nil && !dry:
		c.jobs.setImported(r.PostFormValue("from"), u.Import)
	case errors.Is(err, admin.ErrJobExists):
		j.ID = u.Import
	}
	if problem, ok := errors.AsType[uploadError](err); ok {
		c.showJobs(w, r, "import", "Import accounts", web.Problem{Field: "file", Text: string(problem)})
		return
	}
	c.respondStarted(w, r, j, err, "import", "Import accounts")
}

// An uploadError tells the operator what is wrong with an upload.
type uploadError string

func (e uploadError) Error() string { return string(e) }

const errType = uploadError("Choose one of the types.")

const errElsewhere = uploadError("The file is in another process of the service or no longer exists. Upload it again.")

// stallTimeout is how long an upload or download may go without progress.
const stallTimeout = time.Minute

// receive stores an uploaded file on disk. It never holds the whole file in memory.
func (r *runner) receive(w http.ResponseWriter, req *http.Request) (u upload, err error) {
	req.Body = http.MaxBytesReader(w, req.Body, maxUpload+1<<20)
	parts, err := req.MultipartReader()
	if err != nil {
		return u, uploadError("This form cannot be read.")
	}
	defer func() {
		if err != nil {
			u.remove()
		}
	}()
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // the response follows the whole upload
	u.Type, u.Duplicate = "user", ""
	req.PostForm = url.Values{} // what was chosen, for a page that shows the form again
	for {
		// Ignore the error: if the connection cannot set deadlines, those of the server apply.
		_ = control.SetReadDeadline(time.Now().Add(stallTimeout))
		part, err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return u, uploadProblem(err)
		}
		if part.FormName() == "file" && u.Path == "" {
			if err := r.storeFile(&u, part, control); err != nil {
				return u, err
			}
			continue
		}
		text, err := io.ReadAll(io.LimitReader(part, 1<<10))
		if err != nil {
			return u, uploadProblem(err)
		}
		switch part.FormName() {
		case "type":
			u.Type = string(text)
			req.PostForm.Set("type", u.Type)
		case "on_duplicate":
			u.Duplicate = string(text)
			req.PostForm.Set("on_duplicate", u.Duplicate)
		}
	}
	_ = control.SetWriteDeadline(time.Now().Add(requestTimeout + stallTimeout))
	switch {
	case u.Name == "":
		return u, uploadError("Choose a file.")
	case !slices.Contains([]string{"", "fail", "skip", "update"}, u.Duplicate):
		return u, uploadError("Choose what to do with accounts that already exist.")
	}
	return u, nil
}

func (r *runner) storeFile(u *upload, part *multipart.Part, control *http.ResponseController) error {
	name := filepath.Base(strings.ReplaceAll(part.FileName(), `\`, "/"))
	if part.FileName() == "" {
		return nil // the operator chose no file
	}
	file, err := r.create("upload-"+strings.ToLower(rand.Text()), "file")
	if err != nil {
		return uploadError("The service could not create a file on its disk.")
	}
	u.Path, u.Name, u.CSV = file.Name(), truncate(strings.ToValidUTF8(name, "?")), strings.EqualFold(filepath.Ext(name), ".csv")
	_, err = io.Copy(&diskFile{file}, &deadlineReader{part, control})
	if err = errors.Join(err, file.Close()); err != nil {
		return uploadProblem(err)
	}
	return nil
}

// A diskFile returns an uploadError if it cannot write, so that callers of io.Copy can tell this
// from an error of the reader.
type diskFile struct{ *os.File }

func (f *diskFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if err != nil {
		err = uploadError("The service could not write all of the file to its disk.")
	}
	return n, err
}

// ReadFrom hides the method of the file, which would bypass Write.
func (f *diskFile) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{f}, r)
}

// A deadlineReader extends the read deadline before each read. All reads together may take any
// length of time.
type deadlineReader struct {
	io.Reader
	control *http.ResponseController
}

func (g *deadlineReader) Read(b []byte) (int, error) {
	_ = g.control.SetReadDeadline(time.Now().Add(stallTimeout)) // see receive
	return g.Reader.Read(b)
}

// A deadlineWriter extends the write deadline before each write. All writes together may take any
// length of time, but nothing is written once check returns an error.
type deadlineWriter struct {
	io.Writer
	control *http.ResponseController
	check   func() error
}

func (s *deadlineWriter) Write(b []byte) (int, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // see receive
	return s.Writer.Write(b)
}

// uploadProblem returns what is wrong with an upload that did not arrive completely.
func uploadProblem(err error) error {
	if problem, ok := errors.AsType[uploadError](err); ok {
		return problem
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return uploadError("The file is larger than 1 GiB. Import it with “userdb import”.")
	}
	return uploadError("The file did not arrive completely.")
}

// remove removes the uploaded file.
func (u upload) remove() {
	if u.Path != "" {
		_ = os.RemoveAll(filepath.Dir(u.Path)) // in any case, the runner removes it when it closes
	}
}

// A jobPage holds what the page of a job shows.
type jobPage struct {
	admin.Job
	detail
	IsLocal   bool // this process has its files and details
	CanImport bool // it was a dry run, and the import may follow
	Counts    []string
	Percent   int
	ListPath  string
}

func (c *Console) job(w http.ResponseWriter, r *http.Request) {
	j, err := c.jobs.jobs.In(operatorNamespace(r)).Find(r.Context(), r.PathValue("id"))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	p := jobPage{Job: j, Percent: j.Percent(), ListPath: "/console/" + j.Kind}
	if j.Kind == bulkKind {
		p.ListPath = "/console/jobs"
	}
	p.detail, p.IsLocal = c.jobs.details(j.ID)
	p.CanImport = p.IsLocal && p.canImport(j)
	for code, n := range p.Codes {
		p.Counts = append(p.Counts, fmt.Sprintf("%s: %s", code, formatNumber(n)))
	}
	slices.Sort(p.Counts)
	c.show(w, r, http.StatusOK, page{Name: "job", Title: j.Title, RailPath: p.ListPath, Data: p})
}

func (c *Console) stopJob(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if err := c.jobs.stop(r.Context(), operatorNamespace(r), id); err != nil {
		c.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/console/jobs/"+id, http.StatusSeeOther)
}

// signedInInterval is the time between two checks that the operator who downloads a file may still
// sign in. Tests lower it.
var signedInInterval = time.Second

// checkSignedIn returns a function that returns ErrOperatorDisabled once the operator who sent a
// request has been disabled, has another password or no longer exists, each of which ends the
// session. The function asks the store when it is first called and then at most once in
// signedInInterval. It returns nil if the store does not respond.
func (c *Console) checkSignedIn(r *http.Request) func() error {
	before, interval := web.Entry(r.Context()), signedInInterval
	var checked time.Time
	return func() error {
		if time.Since(checked) < interval {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Second)
		defer cancel()
		e, err := c.operators.Find(ctx, hints.Key(before.Key()))
		checked = time.Now()
		if errors.Is(err, userdb.ErrNotFound) || err == nil && (e.Disabled() || !e.PasswordChanged().Equal(before.PasswordChanged())) {
			return admin.ErrOperatorDisabled
		}
		return nil
	}
}

// download sends a file of a job as an attachment, and records in the feed who took it.
func (c *Console) download(w http.ResponseWriter, r *http.Request) {
	id, name := r.PathValue("id"), r.PathValue("name")
	_, err := c.jobs.jobs.In(operatorNamespace(r)).Find(r.Context(), id)
	if err != nil && !errors.Is(err, userdb.ErrNotFound) {
		c.fail(w, r, err)
		return
	}
	var file *os.File
	if err == nil { // the job still exists
		file, err = c.jobs.openFile(id, name)
	}
	if err != nil {
		c.show(w, r, http.StatusNotFound, page{Name: "message", Title: "File not found", Data: "The file is in another process of the service or no longer exists."})
		return
	}
	defer file.Close()
	c.recordOwnAction(r, userdb.EventExport, id+"/"+name)
	out := &deadlineWriter{w, http.NewResponseController(w), c.checkSignedIn(r)}
	// openFile accepts only names that the console chose.
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if strings.HasSuffix(name, ".csv") {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	} else {
		w.Header().Set("Content-Type", "application/x-ndjson")
	}
	// With the length, even a client of HTTP/1.0 notices if the file is incomplete.
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	}
	if _, err = io.Copy(out, file); err != nil { // an incomplete file must not look complete
		panic(http.ErrAbortHandler)
	}
}
