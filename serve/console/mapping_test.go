package console

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestMapping checks that the columns of a file are mapped on the page, that the preview says what
// would be refused and writes nothing, and that the dry run and the import use the same columns.
func TestMapping(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		file := "Full name,E-Mail,Shoe size,,Password\n" +
			"Ann,ann@example.com,38,x,geheim\n" +
			"Ben,no address,39,x,geheim\n"
		for i := range 20 {
			file += fmt.Sprintf("Name %d,n%d@example.com,40,x,geheim\n", i, i)
		}
		at := d.sendFile(http.StatusSeeOther, "people.csv", file, "type", "user")
		page := d.do(http.StatusOK, at)
		d.wantText(page, "Import people.csv", "Nothing has been written yet.", "The first 10 accounts", "refused: ", "n7@example.com", "10 lines read", "Shoe size", "Columns without a name")
		d.wantNoText(page, "n8@example.com", "geheim")
		for _, want := range []string{`<option value="email" selected>`, `<option value="password" selected>`} {
			if !strings.Contains(page, want) {
				t.Errorf("there is no %s", want)
			}
		}
		columns := []string{"c-0", "name", "c-1", "email", "c-2", ""}
		preview := d.do(http.StatusOK, at, append(columns, "do", "preview")...)
		d.wantText(preview, "Ann", "9 would be created", "1 refused", "Name 7", "refused: ")
		d.wantNoText(preview, "geheim")
		d.wantText(d.do(http.StatusUnprocessableEntity, at, "c-0", "email", "c-1", "email", "do", "dry"), "Two columns are")
		d.do(http.StatusOK, at, "c-0", "~rev", "c-1", "nosuch") // neither is a choice
		if all, err := d.console.jobs.jobs.All(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("a preview began %v, %v; want no job", all, err)
		}
		if found, err := d.users.Page(t.Context(), userdb.Query{Limit: 1}); err != nil || len(found.Entries) > 0 {
			t.Errorf("a preview wrote %v, %v; want nothing", found.Entries, err)
		}

		job := d.do(http.StatusSeeOther, at, append(columns, "do", "dry")...)
		d.wantText(d.waitForJob(job), "22 lines read: 21 would be created", "1 refused", "Line 3:")
		for _, form := range [][]string{nil, {"do", "dry"}} {
			if again := d.do(http.StatusSeeOther, at, form...); again != job {
				t.Errorf("the page leads to %s, want %s", again, job)
			}
		}
		d.wantText(d.waitForJob(d.do(http.StatusSeeOther, "/console/import", "from", filepath.Base(job))), "21 created")
		found, err := d.users.Page(t.Context(), userdb.Query{Limit: 100})
		must(t, err)
		for _, e := range found.Entries {
			if e.Text("name") == "Ann" && (e.Text("email") != "ann@example.com" || !e.PasswordChanged().IsZero()) {
				t.Errorf("the account is %v, want the address of the file and no password", e.Facets())
			}
		}
		d.console.jobs.pending.removeExpired(time.Now().Add(2 * pendingFor))
		d.wantText(d.do(http.StatusUnprocessableEntity, at), "Upload it again.")
	})
}

// TestMappedRejects checks that a file of refused lines can be corrected and uploaded again.
func TestMappedRejects(t *testing.T) {
	d := open(t, "memory:")
	job := d.upload(http.StatusSeeOther, "people.csv", people, "type", "user")
	d.waitForJob(job)
	text := strings.Replace(d.fetch(job+"/files/refused.csv"), "no address", "ben@example.com", 1)
	page := d.do(http.StatusOK, d.sendFile(http.StatusSeeOther, "refused.csv", text))
	d.wantText(page, "1 would be created", "begins with ~")
	d.wantNoText(page, "~reason")
}

// TestOddColumns checks that columns that cannot be told apart, and lines that cannot be split, are
// shown as problems.
func TestOddColumns(t *testing.T) {
	d := open(t, "memory:")
	for file, want := range map[string]string{
		"a,a\nx,y\n":                       "The header names",
		"name\nAnn,x\n":                    "2 cells, but the header has 1",
		"name,email\nAnn,\"x\"y\n":         "refused: ",
		"name,email\nAnn,\"x\n":            "a quote that is not closed",
		"name\n":                           "The file has no accounts",
		"ann@example.com\nben@example.org": "refused: ",
	} {
		to := d.sendFile(http.StatusSeeOther, "x.csv", file)
		answer, err := d.client.Get(d.base + to)
		must(t, err)
		answer.Body.Close()
		d.wantText(d.do(answer.StatusCode, to), want)
		if answer.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%q: got %s, want no error of the server", file, answer.Status)
		}
		d.do(answer.StatusCode, to, "c-0", "email", "c-1", "name")
	}
}

// TestGuessedColumns checks that of two columns that could be mapped to one field, the console
// chooses the one with the field's name, and that the page shows nothing of columns that may hold
// secrets.
func TestGuessedColumns(t *testing.T) {
	d := open(t, "memory:")
	page := d.do(http.StatusOK, d.sendFile(http.StatusSeeOther, "x.csv", "E-Mail,email,Kennwort,PIN (alt),my.pw,pinboard\nold@example.com,ann@example.com,geheim,geheim,geheim,yes\n"))
	d.wantText(page, "1 would be created", "old@example.com", "yes")
	d.wantNoText(page, "geheim")
	for input, want := range map[string]string{"c-0": "", "c-1": "email"} {
		_, form, _ := strings.Cut(page, `name="`+input+`"`)
		form, _, _ = strings.Cut(form, "</select>")
		if got := strings.Contains(form, " selected"); got != (want != "") || !strings.Contains(form, `"`+want+`"`) {
			t.Errorf("%s has a selected choice: %t; want the choice %q", input, got, want)
		}
	}
}

// TestMappedPasswords checks that neither the preview nor the dry run shows whether a line has the
// password of the account that it updates.
func TestMappedPasswords(t *testing.T) {
	d := open(t, "memory:")
	at := d.upload(http.StatusSeeOther, "people.csv", "name,clear_password\nAnn,"+goodPassword+"\n", "type", "user")
	d.waitForJob(at)
	d.waitForJob(d.do(http.StatusSeeOther, "/console/import", "from", filepath.Base(at)))
	for _, entered := range []string{goodPassword, "another long password"} {
		at := d.sendFile(http.StatusSeeOther, "people.csv", "name,clear_password\nAnn,"+entered+"\n", "type", "user", "on_duplicate", "update")
		d.wantText(d.do(http.StatusOK, at), "0 would be created, 1 updated, 0 left unchanged")
		d.wantText(d.waitForJob(d.do(http.StatusSeeOther, at, "c-0", "name", "c-1", "clear_password", "do", "dry")), "0 would be created, 1 updated, 0 left unchanged")
	}
}

// TestLongRow checks that the page says so if the first account is too long for the preview.
func TestLongRow(t *testing.T) {
	d := open(t, "memory:")
	page := d.do(http.StatusOK, d.sendFile(http.StatusSeeOther, "x.csv", "name,bio\nAnn,"+strings.Repeat("x", 2<<20)+"\n"))
	d.wantText(page, "The first account is too long to be shown")
}

// TestSecondClick checks that other requests wait while a dry run begins, and then find its job.
func TestSecondClick(t *testing.T) {
	var p pendingUploads
	id := p.add(upload{}, recordkey.Key{}, time.Now())
	_, err := p.begin(id, func(upload) (admin.Job, error) {
		if p.mu.TryLock() {
			p.mu.Unlock()
			t.Error("another request does not wait")
		}
		return admin.Job{ID: "job"}, nil
	})
	must(t, err)
	if j, err := p.begin(id, nil); j.ID != "job" || !errors.Is(err, admin.ErrJobExists) {
		t.Errorf("the second click leads to %v, %v; want the job that exists", j, err)
	}
}

// TestPendingUploads checks that an upload belongs to one operator, that a later one replaces it,
// that only a few are kept, and that all are removed if nobody looks at them for a while.
func TestPendingUploads(t *testing.T) {
	d := open(t, "memory:")
	left := func() int {
		all, err := filepath.Glob(filepath.Join(d.console.jobs.folder, "upload-*"))
		must(t, err)
		return len(all)
	}
	first := d.sendFile(http.StatusSeeOther, "people.csv", people)
	_, err := newOperator(t, d, "Paul")
	must(t, err)
	paul := d.newBrowser()
	paul.signIn("Paul", goodPassword)
	paul.wantText(paul.do(http.StatusUnprocessableEntity, first), "Upload it again.")
	paul.wantText(paul.do(http.StatusUnprocessableEntity, first, "do", "dry"), "Upload it again.")
	second := d.sendFile(http.StatusSeeOther, "people.csv", people)
	d.wantText(d.do(http.StatusUnprocessableEntity, first), "Upload it again.")
	d.do(http.StatusOK, second)
	if n := left(); n != 1 {
		t.Errorf("%d files are left, want that of the second upload", n)
	}
	pending := &d.console.jobs.pending
	for i := range maxUploads {
		key, err := recordkey.PRK("operator", "uid", fmt.Sprint(i))
		must(t, err)
		folder := filepath.Join(d.console.jobs.folder, fmt.Sprint("upload-", i))
		must(t, os.Mkdir(folder, 0o700))
		pending.add(upload{Path: filepath.Join(folder, "file")}, key, time.Now().Add(time.Minute))
	}
	d.wantText(d.do(http.StatusUnprocessableEntity, second), "Upload it again.") // the oldest
	if n := left(); n != maxUploads {
		t.Errorf("%d files are left, want %d", n, maxUploads)
	}
	for _, one := range pending.all {
		one.job, one.seen = "begun", time.Now().Add(2*time.Minute)
		break
	}
	key, err := recordkey.PRK("operator", "uid", "last")
	must(t, err)
	pending.add(upload{}, key, time.Now().Add(time.Minute))
	for _, one := range pending.all {
		if one.job != "" {
			t.Error("the upload whose dry run has begun is still there, want it to make room")
		}
	}
	pending.removeExpired(time.Now().Add(pendingFor + 2*time.Minute))
	if n := left(); n != 0 || len(pending.all) != 0 {
		t.Errorf("%d files of %d uploads are left, want none", n, len(pending.all))
	}
}
