package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// startForm sends a form except for its last byte, and returns when the console has looked up the
// session and waits for that byte. finish sends the byte and returns the response.
func (d *testConsole) startForm(path, contentType, text string) (finish func() *http.Response) {
	d.t.Helper()
	return d.startRequest(http.MethodPost, path, contentType, text)
}

// startRequest does the same as startForm with another method.
func (d *testConsole) startRequest(method, path, contentType, text string) (finish func() *http.Response) {
	d.t.Helper()
	body, rest := io.Pipe()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, body)
	must(d.t, err)
	r.Header.Set("Content-Type", contentType)
	d.t.Cleanup(func() { _ = rest.Close() }) // so that the console can end even if the test fails
	answers := make(chan *http.Response, 1)
	before := d.calls.countEnded("Session")
	go func() {
		answer, err := d.client.Do(r)
		if err != nil {
			d.t.Error(err)
			answer = &http.Response{Body: http.NoBody}
		}
		answers <- answer
	}()
	_, err = io.WriteString(rest, text[:len(text)-1])
	must(d.t, err)
	for end := time.Now().Add(20 * time.Second); d.calls.countEnded("Session") == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatal("the console does not look up the session")
		}
	}
	return func() *http.Response {
		d.t.Helper()
		// If these fail, the console has answered already.
		_, _ = io.WriteString(rest, text[len(text)-1:])
		_ = rest.Close()
		answer := <-answers
		must(d.t, answer.Body.Close())
		return answer
	}
}

// setEnabled disables an operator or enables them again.
func (d *testConsole) setEnabled(name string, enabled bool) {
	d.t.Helper()
	operators, err := admin.Operators(d.db)
	must(d.t, err)
	if enabled {
		must(d.t, operators.Enable(d.t.Context(), hints.Any(name)))
	} else {
		must(d.t, operators.Disable(d.t.Context(), hints.Any(name)))
	}
}

// setPassword sets the password of an operator, which ends their sessions.
func (d *testConsole) setPassword(name, password string) error {
	d.t.Helper()
	operators, err := admin.Operators(d.db)
	must(d.t, err)
	_, err = operators.SetPassword(d.t.Context(), hints.Any(name), password)
	return err
}

// TestDisabledWhileFormArrives checks that a form has no effect if its operator is disabled while
// it arrives: it creates no key, job or link, and changes neither the password nor anything else.
func TestDisabledWhileFormArrives(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		dry := d.upload(http.StatusSeeOther, "people.csv", people, "type", "user")
		d.waitForJob(dry)
		keys, err := admin.OpenKeys(d.db)
		must(t, err)
		jobs, err := admin.OpenJobs(d.db)
		must(t, err)
		before, err := jobs.All(t.Context())
		must(t, err)
		const form, at = "application/x-www-form-urlencoded", "/console/types/user/u1"
		file := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x.csv\"\r\n\r\n" + people + "\r\n--b--\r\n"
		for _, sent := range []struct{ path, kind, text string }{
			{"/console/keys", form, "name=back&scope=admin"},
			{"/console/export", form, "type=user"},
			{"/console/check", form, "repair=true&confirm=true"},
			{"/console/import", form, "from=" + dry[strings.LastIndex(dry, "/")+1:]},
			{"/console/import", "multipart/form-data; boundary=b", file},
			{at + "/password", form, "password=another+long+password"},
			{at + "/tokens", form, "purpose=reset"},
			{at + "/disable", form, "x=y"},
		} {
			finish := d.startForm(sent.path, sent.kind, sent.text)
			d.setEnabled(operatorName, false)
			answer := finish()
			status, to := http.StatusSeeOther, "/console/signin"
			if sent.path == "/console/keys" { // the page to sign in carries this form
				status, to = http.StatusUnauthorized, ""
			}
			if got := answer.Header.Get("Location"); answer.StatusCode != status || got != to {
				t.Errorf("%s: got %s to %q, want %d to %q", sent.path, answer.Status, got, status, to)
			}
			d.setEnabled(operatorName, true)
			d.signIn(operatorName, goodPassword)
		}
		if all, err := keys.All(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("got the keys %+v, %v, want none", all, err)
		}
		if all, err := jobs.All(t.Context()); err != nil || len(all) != len(before) {
			t.Errorf("got the jobs %+v, %v, want the %d from before", all, err, len(before))
		}
		e, err := d.users.Find(t.Context(), hintOf("u1"))
		must(t, err)
		if past := d.history("u1"); e.Disabled() || len(past) != 1 {
			t.Errorf("the account has the history %q, want only its creation", past)
		}
		uploads, err := os.ReadDir(d.console.jobs.folder)
		must(t, err)
		n := 0
		for _, u := range uploads {
			if strings.HasPrefix(u.Name(), "upload-") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d uploads are left, want that of the dry run", n)
		}
	})
}

// makeFile runs a job that makes a file of the given size, and returns the path of the file.
func (d *testConsole) makeFile(size int64) string {
	d.t.Helper()
	j, err := d.console.jobs.begin(d.t.Context(), admin.Job{Kind: "export", By: operatorName}, detail{}, func(_ context.Context, w *task) (string, error) {
		file, err := d.console.jobs.create(w.ID, exportFile)
		if err != nil {
			return "", err
		}
		w.update(func(d *detail) { d.Files = []string{exportFile} })
		return "", errors.Join(file.Truncate(size), file.Close())
	})
	must(d.t, err)
	d.waitForJob("/console/jobs/" + j.ID)
	return "/console/jobs/" + j.ID + "/files/" + exportFile
}

// TestBodyOfGet checks that the console refuses a GET with a body, because it would have to wait
// for the body, and the operator may be disabled meanwhile.
func TestBodyOfGet(t *testing.T) {
	d := open(t, "memory:")
	path := d.makeFile(1000)
	for _, kind := range []string{"multipart/form-data; boundary=b", "application/x-www-form-urlencoded"} {
		finish := d.startRequest(http.MethodGet, path, kind, "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nx\r\n--b--\r\n")
		d.setEnabled(operatorName, false)
		if answer := finish(); answer.StatusCode != http.StatusBadRequest {
			t.Errorf("a GET with a body of type %s: got %s, want 400", kind, answer.Status)
		}
		d.setEnabled(operatorName, true)
		d.signIn(operatorName, goodPassword)
	}
}

// TestDisabledWhileDownloading checks that a download is cut off if its operator is disabled or the
// password of its operator is set, and that the check before the first byte fails if the operator
// has been disabled or deleted.
func TestDisabledWhileDownloading(t *testing.T) {
	d := open(t, "memory:")
	const size = 64 << 20 // more than the buffers between server and client hold
	path := d.makeFile(size)
	for name, end := range map[string]func(){
		"disabled":         func() { d.setEnabled(operatorName, false) },
		"password was set": func() { must(t, d.setPassword(operatorName, goodPassword)) },
	} {
		before := signedInInterval
		signedInInterval = 0
		answer, err := d.client.Get(d.base + path)
		must(t, err)
		_, err = io.ReadFull(answer.Body, make([]byte, 1000))
		must(t, err)
		end()
		if n, err := io.Copy(io.Discard, answer.Body); err == nil || n > size/2 {
			t.Errorf("%s: got %d more bytes, %v; want a response that is cut off", name, n, err)
		}
		must(t, answer.Body.Close())
		signedInInterval = before
		d.setEnabled(operatorName, true)
		d.signIn(operatorName, goodPassword)
	}
	for _, end := range []func(){func() { d.setEnabled(operatorName, false) }, func() {
		must(t, d.console.operators.Delete(t.Context(), hints.Any(operatorName)))
	}} {
		d.setEnabled(operatorName, true)
		d.signIn(operatorName, goodPassword)
		checkFirst := d.newCheck(path)
		end()
		if err := checkFirst(); !errors.Is(err, admin.ErrOperatorDisabled) {
			t.Errorf("before the first byte: got %v, want ErrOperatorDisabled", err)
		}
	}
}

// newCheck returns the function with which a request for a file checks that its operator may still
// sign in.
func (d *testConsole) newCheck(path string) (check func() error) {
	handler := d.console.auth.Require(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { check = d.console.checkSignedIn(r) }))
	r := httptest.NewRequest(http.MethodGet, path, nil)
	at, err := url.Parse(d.base)
	must(d.t, err)
	for _, cookie := range d.client.Jar.Cookies(at) {
		r.AddCookie(cookie)
	}
	handler.ServeHTTP(httptest.NewRecorder(), r)
	return check
}

// TestImportOfUnfinishedDryRun checks that only a dry run that has ended well leads to an import.
func TestImportOfUnfinishedDryRun(t *testing.T) {
	d := open(t, "memory:")
	for name, do := range map[string]func(ctx context.Context) error{
		"running": func(ctx context.Context) error { <-ctx.Done(); return nil },
		"stopped": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"failed":  func(context.Context) error { return userdb.ErrUnavailable },
	} {
		j, err := d.console.jobs.begin(t.Context(), admin.Job{Kind: "import", By: operatorName, Title: name},
			detail{Upload: upload{Path: t.TempDir() + "/file", Name: "people.csv", Type: "user", CSV: true}},
			func(ctx context.Context, _ *task) (string, error) { return "", do(ctx) })
		must(t, err)
		page := "/console/jobs/" + j.ID
		if name == "stopped" {
			d.post(http.StatusSeeOther, page+"/stop")
		}
		if name != "running" {
			d.wantText(d.waitForJob(page), name)
		}
		d.wantText(d.do(http.StatusUnprocessableEntity, "/console/import", "from", j.ID), " again.")
	}
	all, err := d.console.jobs.jobs.All(t.Context())
	if must(t, err); len(all) != 3 {
		t.Errorf("got the jobs %+v, want only the three dry runs", all)
	}
}

// TestCloseAfterRefusedJob checks that a job that was refused at its start does not keep the
// console from closing.
func TestCloseAfterRefusedJob(t *testing.T) {
	d := open(t, "memory:")
	d.setEnabled(operatorName, false)
	_, err := d.console.jobs.begin(t.Context(), admin.Job{Kind: "export", By: operatorName}, detail{}, func(context.Context, *task) (string, error) {
		t.Error("the job of a disabled operator runs")
		return "", nil
	})
	if !errors.Is(err, admin.ErrOperatorDisabled) {
		t.Errorf("beginning a job: got %v, want ErrOperatorDisabled", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if d.console.Close(ctx); ctx.Err() != nil {
		t.Error("the console waits for a job that never began")
		d.console.jobs.wg.Done() // so that closing it again ends
	}
}
