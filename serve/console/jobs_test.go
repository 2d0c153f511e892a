package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// upload sends a file, and takes the columns of CSV as the console guesses them. Like sendFile, it
// returns the body of the response, or the target of the redirect.
func (d *testConsole) upload(want int, name, text string, fields ...string) string {
	d.t.Helper()
	to := d.sendFile(want, name, text, fields...)
	if strings.HasPrefix(to, "/console/import/") {
		to = d.do(want, to, "do", "dry")
	}
	return to
}

// sendFile sends a file and returns the body of the response, or the target of the redirect.
func (d *testConsole) sendFile(want int, name, text string, fields ...string) string {
	d.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i := 0; i+1 < len(fields); i += 2 {
		must(d.t, form.WriteField(fields[i], fields[i+1]))
	}
	if name != "" {
		part, err := form.CreateFormFile("file", name)
		must(d.t, err)
		_, err = io.WriteString(part, text)
		must(d.t, err)
	}
	must(d.t, form.Close())
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.base+"/console/import", &body)
	must(d.t, err)
	r.Header.Set("Content-Type", form.FormDataContentType())
	return d.send(want, r)
}

// waitForJob waits for a job to end and returns its page.
func (d *testConsole) waitForJob(path string) string {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		body := d.do(http.StatusOK, path)
		if !strings.Contains(body, "data-running") {
			return body
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("the job does not end: %s", pageText(body))
		}
	}
}

const people = "uid,name,email,job\n" +
	"p1,Ann,ann@example.com,baker\n" +
	"p2,Ben,no address,baker\n" +
	"p3,Alice,alice2@example.com,baker\n" +
	"p4,=cmd|' /C calc'!A0,dan@example.com,+1\n"

// TestImport checks that a dry run comes first, followed by the import of the same file, and that
// no spreadsheet runs the refused lines in the download.
func TestImport(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		at := d.upload(http.StatusSeeOther, "people.csv", people+"p5,@SUM(A1),also no address,-2\n", "type", "user", "on_duplicate", "fail")
		dry := d.waitForJob(at)
		d.wantText(dry, "done.", "5 lines read: 2 would be created", "3 refused", "Line 3:", "Line 4:", "Import the file")
		if _, err := d.users.Find(t.Context(), hintOf("p1")); !isAny(err, userdb.ErrNotFound) {
			t.Errorf("after a dry run: got %v, want ErrNotFound", err)
		}
		real := d.waitForJob(d.do(http.StatusSeeOther, "/console/import", "from", at[strings.LastIndex(at, "/")+1:]))
		d.wantText(real, "2 created", "3 refused", "Started by Olga")
		_, err := d.users.Find(t.Context(), hintOf("p1"))
		must(t, err)
		if past := d.history("p1"); past[0] != "create operator:"+operatorName {
			t.Errorf("the history is %q, want create first", past)
		}
		file := regexp.MustCompile(`href="(/console/jobs/[^"]*/files/refused.csv)"`).FindStringSubmatch(real)
		if file == nil {
			t.Fatal("there is no file of refused lines")
		}
		answer, err := d.client.Get(d.base + file[1])
		must(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		if kind := answer.Header.Get("Content-Disposition"); !strings.HasPrefix(kind, "attachment") {
			t.Errorf("the browser shows the file as a page: %q", kind)
		}
		if !strings.Contains(string(text), "'@SUM(A1)") || regexp.MustCompile(`(?m)(^|,)"?[=+@-]`).Match(text) {
			t.Errorf("a spreadsheet would run\n%s", text)
		}
		d.wantText(d.do(http.StatusOK, "/console/import"), "Dry run of people.csv", "Import of people.csv")
	})
}

// TestBadUploads checks that bad uploads start nothing and leave nothing behind.
func TestBadUploads(t *testing.T) {
	d := open(t, "memory:")
	body := d.upload(http.StatusUnprocessableEntity, "", "", "on_duplicate", "update")
	if d.wantText(body, "Choose a file."); !strings.Contains(body, `<option value="update" selected>`) {
		t.Errorf("the form has lost what was chosen:\n%s", body)
	}
	d.wantText(d.upload(http.StatusUnprocessableEntity, "x.csv", people, "type", "nosuch"), "Choose one of the types.")
	d.wantText(d.upload(http.StatusUnprocessableEntity, "x.csv", people, "on_duplicate", "nosuch"), "Choose what to do")
	d.wantText(d.do(http.StatusUnprocessableEntity, "/console/import", "from", "../../etc"), "in another process")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+"/console/import", strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.csv\"\r\n\r\nuid,name"))
	must(t, err)
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	d.wantText(d.send(http.StatusUnprocessableEntity, r), "The file did not arrive completely.")
	d.wantText(d.sendFile(http.StatusUnprocessableEntity, "x.csv", "\xff\xfeu"), "It is UTF-16")
	d.wantText(d.sendFile(http.StatusUnprocessableEntity, "x.csv", ""), "The file is empty.")
	d.wantText(d.sendFile(http.StatusUnprocessableEntity, "x.csv", "name"+strings.Repeat(",x", maxMapped)+"\n"), "more than 200 columns")
	d.wantText(d.waitForJob(d.upload(http.StatusSeeOther, "../../x.jsonl", "no json\n")), "failed.", "neither JSON lines nor a JSON list", "x.jsonl")
	d.wantNoFiles()
}

// wantNoFiles checks that no file of a job is left.
func (d *testConsole) wantNoFiles() {
	d.t.Helper()
	left, err := os.ReadDir(d.console.jobs.folder)
	must(d.t, err)
	for _, e := range left {
		if e.Name() != lockName {
			d.t.Errorf("%s is left", e.Name())
		}
	}
}

// TestFilesOfFailedJobs checks that a job that fails or is stopped leaves no file: on a full disk,
// the next job would also fail.
func TestFilesOfFailedJobs(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	r := d.console.jobs
	j, err := r.begin(t.Context(), admin.Job{Kind: "export", By: operatorName}, detail{}, func(ctx context.Context, w *task) (string, error) {
		file, err := r.create(w.ID, exportFile)
		if err == nil {
			_, err = file.WriteString("half of")
		}
		<-ctx.Done()
		return "", errors.Join(err, file.Close(), ctx.Err())
	})
	must(t, err)
	d.post(http.StatusSeeOther, "/console/jobs/"+j.ID+"/stop")
	d.wantText(d.waitForJob("/console/jobs/"+j.ID), "stopped")
	d.wantNoFiles()

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	must(t, full.Close())
	defer func(before func(string) (*os.File, error)) { openNew = before }(openNew)
	original := openNew
	openNew = func(path string) (*os.File, error) { // the file exists, but its disk has no room
		file, err := original(path)
		if err == nil {
			err = file.Close()
		}
		must(t, err)
		return os.OpenFile("/dev/full", os.O_WRONLY, 0)
	}
	page := d.waitForJob(d.post(http.StatusSeeOther, "/console/export"))
	d.wantText(page, "failed. The service could not read or write a file on its disk.")
	d.wantNoText(page, "Download")
	d.wantNoFiles()
	openNew = original
	at := d.upload(http.StatusSeeOther, "x.csv", "uid,name\na,A\n")
	d.wantText(d.waitForJob(at), "1 would be created")
}

// TestDisk checks that an upload and an export report a folder that cannot be written to.
func TestDisk(t *testing.T) {
	if os.Getuid() == 0 {
		t.Setenv("TMPDIR", "/dev/null/nowhere") // root may write anywhere
	} else {
		t.Setenv("TMPDIR", t.TempDir()+"/nowhere")
	}
	d := open(t, "memory:")
	d.wantText(d.upload(http.StatusUnprocessableEntity, "x.csv", people), "The service could not create a file on its disk.")
	d.wantText(d.waitForJob(d.post(http.StatusSeeOther, "/console/export")), "failed.", "The service could not read or write a file")
}

func TestExport(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		for i := range 30 {
			d.createAccount(fmt.Sprintf("u%02d", i), "name", fmt.Sprintf("Name %02d", i), "email", fmt.Sprintf("n%02d@example.com", i))
		}
		at := d.do(http.StatusSeeOther, "/console/export", "type", "user")
		d.wantText(d.waitForJob(at), "Wrote 30 accounts.")
		text := d.fetch(at + "/files/accounts.jsonl")
		if strings.Count(text, "\n") != 30 || !strings.Contains(text, "n07@example.com") || strings.Contains(text, "$2a$") {
			t.Errorf("the file does not have 30 accounts without hashes:\n%s", text)
		}
		d.do(http.StatusNotFound, at+"/files/..%2F..%2Fpasswd")
		d.do(http.StatusNotFound, "/console/jobs/nosuch")
		d.do(http.StatusNotFound, "/console/export", "type", "nosuch")
	})
}

// TestDownload checks the name, the kind, the length and the content of exports, whether of all
// accounts or of some, and that a client of HTTP/1.0 does not get a part of a file as the whole.
func TestDownload(t *testing.T) {
	d := open(t, "memory:")
	for i := range 3 {
		d.createAccount(fmt.Sprint("u", i), "name", fmt.Sprint("Größe ", i))
	}
	asked := d.do(http.StatusOK, "/console/bulk", "type", "user", "do", "export", "uid", "u0", "uid", "u2")
	for job, want := range map[string][]string{
		d.post(http.StatusSeeOther, "/console/export"):                                    {"u0", "u1", "u2"},
		d.do(http.StatusSeeOther, "/console/bulk", d.fillForm(asked, "/console/bulk")...): {"u0", "u2"},
	} {
		d.waitForJob(job)
		answer, err := d.client.Get(d.base + job + "/files/accounts.jsonl")
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, errors.Join(err, answer.Body.Close()))
		for name, value := range map[string]string{"Content-Disposition": `attachment; filename="accounts.jsonl"`, "Content-Type": "application/x-ndjson"} {
			if got := answer.Header.Get(name); got != value {
				t.Errorf("the %s is %q, want %q", name, got, value)
			}
		}
		if answer.ContentLength != int64(len(text)) {
			t.Errorf("the length is %d, want %d", answer.ContentLength, len(text))
		}
		var got []string
		for line := range strings.Lines(string(text)) {
			one := struct{ Facets map[string]string }{}
			must(t, json.Unmarshal([]byte(line), &one))
			got = append(got, one.Facets["uid"])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || !strings.Contains(string(text), "Größe") {
			t.Errorf("the file has the accounts %q, want %q:\n%s", got, want, text)
		}
	}
	d.wantCutOff()
}

// wantCutOff checks that a client of HTTP/1.0 notices that its operator was disabled in the middle
// of a download.
func (d *testConsole) wantCutOff() {
	d.t.Helper()
	before := signedInInterval
	signedInInterval = 0
	defer func() { signedInInterval = before }()
	at, err := url.Parse(d.base)
	must(d.t, err)
	r := httptest.NewRequest(http.MethodGet, d.base+d.makeFile(64<<20), nil)
	conn, err := net.Dial("tcp", at.Host)
	must(d.t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: %s\r\nCookie: %s\r\n\r\n", r.URL.Path, at.Host, d.client.Jar.Cookies(at)[0])
	must(d.t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), r)
	must(d.t, err)
	_, err = io.ReadFull(answer.Body, make([]byte, 1000))
	must(d.t, err)
	d.setEnabled(operatorName, false)
	if n, err := io.Copy(io.Discard, answer.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		d.t.Errorf("got %d bytes, %v; want an unexpected end", n, err)
	}
	must(d.t, answer.Body.Close())
	d.setEnabled(operatorName, true)
}

// TestFormsStartOneJob checks that a form for a job that is sent again, as browsers do after Back,
// leads to the job that it started.
func TestFormsStartOneJob(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		dry := d.upload(http.StatusSeeOther, "people.csv", people, "type", "user", "on_duplicate", "update")
		d.waitForJob(dry)
		for path, body := range map[string]string{
			"/console/export": d.do(http.StatusOK, "/console/export"),
			"/console/check":  d.do(http.StatusOK, "/console/check", "repair", "true"),
			"/console/import": d.do(http.StatusOK, dry),
		} {
			form := d.fillForm(body, path)
			job := d.do(http.StatusSeeOther, path, form...)
			d.waitForJob(job)
			if again := d.do(http.StatusSeeOther, path, form...); again != job {
				t.Errorf("%s started %s and then %s, want the same job", path, job, again)
			}
		}
		d.wantText(d.do(http.StatusOK, dry), "The import of this file")
		d.wantNoText(d.do(http.StatusOK, dry), "Import the file")
		for path, want := range map[string]int{"/console/export": 1, "/console/check": 1, "/console/import": 2} {
			if n := strings.Count(d.do(http.StatusOK, path), `<li><a href="/console/jobs/`); n != want {
				t.Errorf("%s lists %d jobs, want %d", path, n, want)
			}
		}
		d.do(http.StatusNotFound, "/console/export", "job", "../../etc")
	})
}

// fetch downloads a file.
func (d *testConsole) fetch(path string) string {
	d.t.Helper()
	answer, err := d.client.Get(d.base + path)
	must(d.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(d.t, err)
	return string(text)
}

// TestCheck checks that damage is described in words and repaired after confirmation.
func TestCheck(t *testing.T) {
	d := open(t, "memory:")
	e := d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	d.wantText(d.waitForJob(d.post(http.StatusSeeOther, "/console/check")), "Nothing is wrong.")
	srk, err := recordkey.SRK("user", "email", "alice@example.com")
	must(t, err)
	must(t, removeRecord(t, d, srk.String()))
	if _, err := d.users.Find(t.Context(), hints.Any("alice@example.com")); err == nil {
		t.Fatal("the account is still found")
	}
	d.wantText(d.waitForJob(d.post(http.StatusSeeOther, "/console/check")), "Found one problem.", "cannot be found by an identifier", "srk_missing", "Repair fixes this.")
	confirm := d.do(http.StatusOK, "/console/check", "repair", "true")
	d.wantText(confirm, "Repair all accounts?", "Cancel")
	d.wantText(d.waitForJob(d.do(http.StatusSeeOther, "/console/check", "repair", "true", "confirm", "true")), "Repaired one problem.", "Repaired.")
	if found, err := d.users.Find(t.Context(), hints.Any("alice@example.com")); err != nil || found.Key() != e.Key() {
		t.Errorf("after the repair: got %v, %v, want the account", found, err)
	}
}

// TestStopping checks that a job can be stopped from any process, that it stops when its own
// process shuts down, and that a job whose process died is shown as lost.
func TestStopping(t *testing.T) {
	d := open(t, "memory:")
	other, err := newRunner(d.db)
	must(t, err)
	forever := func(ctx context.Context, w *task) (string, error) {
		w.setProgress(3, 10)
		<-ctx.Done()
		return "Three of ten.", ctx.Err()
	}
	for name, stop := range map[string]func(id string){
		"from this process":    func(id string) { d.post(http.StatusSeeOther, "/console/jobs/"+id+"/stop") },
		"from another process": func(id string) { must(t, other.stop(t.Context(), "", id)) },
	} {
		j, err := d.console.jobs.begin(t.Context(), admin.Job{Kind: "check", By: "Olga", Title: name}, detail{}, forever)
		must(t, err)
		d.wantText(d.do(http.StatusOK, "/console/jobs/"+j.ID), "running", "Stop")
		stop(j.ID)
		d.wantText(d.waitForJob("/console/jobs/"+j.ID), "stopped. Three of ten.")
	}
	j, err := other.begin(t.Context(), admin.Job{Kind: "check", By: "Paul", Title: "there"}, detail{}, forever)
	must(t, err)
	d.wantText(d.do(http.StatusOK, "/console/jobs/"+j.ID), "Another process of the service runs this")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	other.close(ctx)
	d.wantText(d.do(http.StatusOK, "/console/jobs/"+j.ID), "stopped.")
	_, err = other.begin(t.Context(), admin.Job{}, detail{}, forever)
	if err != errBusy { //nolint:errorlint // must be errBusy itself
		t.Errorf("starting a job after close: got %v, want errBusy", err)
	}
	asked := admin.Job{ID: "asked", Kind: "check", Title: "asked", State: admin.JobRunning, Began: time.Now(), LastHeartbeat: time.Now()}
	must(t, storeJob(t, d, asked))
	d.post(http.StatusSeeOther, "/console/jobs/asked/stop")
	stopping := d.do(http.StatusOK, "/console/jobs/asked")
	d.wantText(stopping, "stopping", "Refresh")
	d.wantNoText(stopping, "running")
	if strings.Contains(stopping, "/stop") {
		t.Error("a job that ends soon can be stopped again")
	}
	d.wantText(d.do(http.StatusOK, "/console/jobs"), "stopping")
	lost := admin.Job{ID: "lost", Kind: "check", Title: "lost", State: admin.JobRunning, Began: time.Now().Add(-time.Hour), LastHeartbeat: time.Now().Add(-time.Minute)}
	must(t, storeJob(t, d, lost))
	d.wantText(d.do(http.StatusOK, "/console/jobs/lost"), "lost: its process has ended")
}

// storeJob stores the record of a job without starting it.
func storeJob(t *testing.T, d *testConsole, j admin.Job) error {
	t.Helper()
	inside, err := admin.Open(d.db)
	must(t, err)
	all, err := inside.Type("job")
	must(t, err)
	typed, err := userdb.Of[admin.Job](all)
	must(t, err)
	_, err = typed.Create(t.Context(), j)
	return err
}

// removeRecord removes a record behind the back of the store.
func removeRecord(t *testing.T, d *testConsole, key string) error {
	t.Helper()
	engine := view.Of(d.db).Engine
	found, err := engine.ReadRaw(t.Context(), []store.RawRead{{Key: key, As: store.RawText}})
	if err == nil {
		_, err = engine.Repair(t.Context(), store.Remove{Key: key, Value: found[0].Wire})
	}
	return err
}

// TestTooManyJobs checks that jobs beyond the limit are refused with a message, and that one
// operator cannot keep others from starting jobs.
func TestTooManyJobs(t *testing.T) {
	d := open(t, "memory:")
	begin := func(by string) error {
		_, err := d.console.jobs.begin(t.Context(), admin.Job{Kind: "check", By: by}, detail{}, func(ctx context.Context, _ *task) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		return err
	}
	for _, tt := range []struct {
		by   string
		want error
	}{{"Paul", nil}, {"Paul", nil}, {"Paul", errBusy}, {operatorName, nil}, {operatorName, errBusy}, {"Rita", nil}} {
		if err := begin(tt.by); !errors.Is(err, tt.want) {
			t.Errorf("a job of %s: got %v, want %v", tt.by, err, tt.want)
		}
	}
	d.wantText(d.post(http.StatusTooManyRequests, "/console/check"), "Too many jobs are already running")
	d.wantText(d.sendFile(http.StatusTooManyRequests, "x.jsonl", "{}\n"), "Too many jobs are already running")
	page := d.sendFile(http.StatusSeeOther, "x.csv", people)
	d.wantText(d.do(http.StatusTooManyRequests, page, "do", "dry"), "Too many jobs are already running")
	d.wantText(d.do(http.StatusOK, page), "Start dry run") // the file is kept
}

// TestUploadsAreLimited checks that only the uploads of the last dry runs stay on the disk, and
// that an import of an earlier one asks for the file again.
func TestUploadsAreLimited(t *testing.T) {
	d := open(t, "memory:")
	var dry []string
	for range maxUploads + 3 {
		dry = append(dry, d.upload(http.StatusSeeOther, "people.csv", people, "type", "user"))
		d.waitForJob(dry[len(dry)-1])
		<-d.console.jobs.task(strings.TrimPrefix(dry[len(dry)-1], "/console/jobs/")).ended
	}
	// One more than maxUploads is left: uploads of ended dry runs are removed when a job begins,
	// and the last dry run had not ended then.
	if uploads, _ := filepath.Glob(filepath.Join(d.console.jobs.folder, "upload-*")); len(uploads) != maxUploads+1 {
		t.Errorf("%d uploads are left, want %d", len(uploads), maxUploads+1)
	}
	importing := func(want int, page string) string {
		return d.do(want, "/console/import", "from", page[strings.LastIndex(page, "/")+1:])
	}
	d.wantNoText(d.do(http.StatusOK, dry[0]), "Import the file")
	d.wantText(importing(http.StatusUnprocessableEntity, dry[0]), "Upload it again.")
	// The import removes the upload that is one too many.
	d.wantText(d.waitForJob(importing(http.StatusSeeOther, dry[len(dry)-1-maxUploads])), "lines read: 3 created")
	if uploads, _ := filepath.Glob(filepath.Join(d.console.jobs.folder, "upload-*")); len(uploads) != maxUploads {
		t.Errorf("after an import, %d uploads are left, want %d", len(uploads), maxUploads)
	}
	d.waitForJob(importing(http.StatusSeeOther, dry[len(dry)-1]))
}

// TestFilesOfDeletedJobs checks that a file of a deleted job cannot be downloaded and is removed,
// and that a deleted job that still runs is not forgotten.
func TestFilesOfDeletedJobs(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	r := d.console.jobs
	at := d.post(http.StatusSeeOther, "/console/export")
	d.wantText(d.waitForJob(at), "Wrote 1 account.")
	exported := r.task(strings.TrimPrefix(at, "/console/jobs/"))
	<-exported.ended
	d.do(http.StatusOK, at+"/files/accounts.jsonl")
	running, err := r.begin(t.Context(), admin.Job{Kind: "check"}, detail{}, func(ctx context.Context, _ *task) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	must(t, err)
	inside, err := admin.Open(d.db)
	must(t, err)
	all, err := inside.Type("job")
	must(t, err)
	for _, id := range []string{exported.ID, running.ID} {
		must(t, all.Delete(t.Context(), hints.UID(id)))
	}
	d.wantText(d.do(http.StatusNotFound, at+"/files/accounts.jsonl"), "no longer exists")
	file := filepath.Join(r.folder, exported.ID, exportFile)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("before removeUnlisted: got %v, want the file", err)
	}
	r.removeUnlisted(t.Context())
	if _, err := os.Stat(file); !os.IsNotExist(err) || r.task(exported.ID) != nil {
		t.Errorf("the file of a deleted job: got %v, want it to be gone", err)
	}
	if r.task(running.ID) == nil {
		t.Error("a job that runs is forgotten, so that nothing stops it")
	}
}

// TestManyRefusedLines checks that the file of refused lines has only the first lines, each
// complete, and that the page says how many are missing.
func TestManyRefusedLines(t *testing.T) {
	defer func(before int64) { maxRejects = before }(maxRejects)
	maxRejects = 20_000
	d := open(t, "memory:")
	row := strings.Repeat("x", 5000) + ",nobody\n" // longer than the buffer of a csv.Writer
	page := d.upload(http.StatusSeeOther, "people.csv", "name,email\n"+strings.Repeat(row, 10), "type", "user")
	d.wantText(d.waitForJob(page), "10 refused.", "it lacks the last 7.")
	text := d.do(http.StatusOK, page+"/files/refused.csv")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 4 || len(text) > int(maxRejects) {
		t.Errorf("got %d rows in %d bytes, %v; want a header and three rows", len(rows), len(text), err)
	}
}
