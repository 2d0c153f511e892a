package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	cdp "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
)

// TestConsoleStopsJob stops an import that would take minutes, because each line has a password to
// hash.
func TestConsoleStopsJob(t *testing.T) {
	t.Parallel()
	for i, w := range []window{{"console-390-light", 390, "light"}, {"console-1000-dark", 1000, "dark"}, {"console-1440-light-keyboard", 1440, "light"}} {
		t.Run(w.name, func(t *testing.T) {
			d := openConsole(t, w, i == 1)
			d.setUp()
			d.keyboard = i == 2
			var lines strings.Builder
			for n := range 5000 {
				fmt.Fprintf(&lines, `{"type":"user","facets":{"uid":"u%d","name":"Person %d"},"clear_password":"a long password %d"}`+"\n", n, n, n)
			}
			file := filepath.Join(t.TempDir(), "people.jsonl")
			if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			d.visit("/console/import")
			d.run("choosing a file", chromedp.SetUploadFiles("#file", []string{file}, chromedp.ByQuery))
			d.submit("/console/import")
			d.waitForJob("5,000 would be created")
			d.submit("/console/import")
			d.onPage("Import of people.jsonl as type user")
			if d.scripts {
				d.until("waiting for progress", `String(document.querySelector("[data-running] progress")?.value > 0)`, "true")
			}
			d.follow("stopping the job", d.click(`form[action$="/stop"] button`))
			d.waitForJob("topped") // Stopped or stopped
			d.visit("/console/jobs")
			d.onPage("Jobs", ": stopped")
		})
	}
}

// A download describes what a browser received of a file.
type download struct {
	name, state string
	text        []byte // of a complete file
}

// receive clicks a link to a file, calls then when the download has begun, and waits for its end.
func (d *console) receive(link string, then func()) (got download) {
	d.t.Helper()
	folder := d.t.TempDir()
	begun, ended := make(chan string, 1), make(chan *cdp.EventDownloadProgress, 1)
	ctx, stop := context.WithCancel(d.ctx)
	defer stop()
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *cdp.EventDownloadWillBegin:
			begun <- e.SuggestedFilename
		case *cdp.EventDownloadProgress:
			if e.State != cdp.DownloadProgressStateInProgress {
				ended <- e
			}
		}
	})
	d.run("downloading", cdp.SetDownloadBehavior(cdp.SetDownloadBehaviorBehaviorAllowAndName).WithDownloadPath(folder).WithEventsEnabled(true), d.click(link))
	for range 2 {
		select {
		case got.name = <-begun:
			then()
		case e := <-ended:
			got.state = string(e.State)
			// An incomplete file does not exist.
			got.text, _ = os.ReadFile(filepath.Join(folder, e.GUID))
		case <-d.ctx.Done():
			d.t.Fatalf("the download does not end: %+v", got)
		}
	}
	return got
}

// TestConsoleDownloads exports all accounts and a selection, and receives the files. The last
// download is cut off because the operator is disabled in the middle.
func TestConsoleDownloads(t *testing.T) {
	for i, w := range []window{{"390-dark", 390, "dark"}, {"1000-light", 1000, "light"}, {"1440-dark", 1440, "dark"}} {
		t.Run(w.name, func(t *testing.T) {
			// Chromium makes a socket in this directory. Names of sockets must be short.
			t.Setenv("TMPDIR", t.TempDir())
			d := openConsole(t, w, i == 0)
			d.createAccounts()
			d.userdb(password+"\n", "create", "user", "uid=jo", "name=Größe.ς", "email=jo@straße.example", "bio=one\ntwo", "--password-stdin")
			d.setUp()
			d.keyboard = i == 2
			d.visit("/console/types/user?order=name&where=job:cook")
			d.run("selecting accounts", d.click(`[name=uid][value=u03]`), d.click(`[name=uid][value=u04]`))
			d.follow("exporting", d.click(`form[action="/console/bulk"] button[value=export]`))
			d.submit("/console/bulk")
			d.waitForJob("Wrote 2 accounts.")
			d.wantExport("u03", "u04")
			d.visit("/console/export")
			d.submit("/console/export")
			d.waitForJob("Wrote 32 accounts.")
			d.wantExport(slices.Sorted(maps.Keys(d.accounts()))...)
			d.cutOff()
		})
	}
}

const downloadLink = `main a[href$="/files/accounts.jsonl"]`

// wantExport downloads the export on the page, and checks that it has these accounts.
func (d *console) wantExport(uids ...string) {
	d.t.Helper()
	got := d.receive(downloadLink, func() {})
	if got.name != "accounts.jsonl" || got.state != "completed" {
		d.t.Errorf("got the file %s, %s; want accounts.jsonl, completed", got.name, got.state)
	}
	if all := parseExport(d.t, got.text); !slices.Equal(slices.Sorted(maps.Keys(all)), uids) || len(all) > 2 && all["jo"]["email"] != "jo@straße.example" {
		d.t.Errorf("got the accounts %v, want %q", all, uids)
	}
}

// accounts returns the facets of all accounts, by UID.
func (d *console) accounts() map[string]map[string]any {
	d.t.Helper()
	return parseExport(d.t, []byte(d.userdb("", "export")))
}

func parseExport(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for line := range bytes.Lines(text) {
		one := struct{ Facets map[string]any }{}
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all[one.Facets["uid"].(string)] = one.Facets
	}
	return all
}

// cutOff puts a pipe in the place of the file on the page, and disables the operator when the
// browser has received a part of what comes out of it.
func (d *console) cutOff() {
	d.t.Helper()
	var path string
	d.run("reading the link", chromedp.AttributeValue(downloadLink, "href", &path, nil, chromedp.ByQuery))
	job := strings.Split(path, "/")[3]
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "userdb-console-*", job, "accounts.jsonl"))
	if err != nil || len(files) != 1 {
		d.t.Fatalf("the job has the files %q, %v", files, err)
	}
	if err = os.Remove(files[0]); err == nil {
		err = syscall.Mkfifo(files[0], 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		pipe, err := os.OpenFile(files[0], os.O_WRONLY, 0)
		for err == nil {
			_, err = pipe.Write(bytes.Repeat([]byte("{}\n"), 1<<14))
		}
		_ = pipe.Close()
	}()
	got := d.receive(downloadLink, func() { d.userdb("", "operator", "disable", "root") })
	if <-cut; got.state != "canceled" || len(got.text) > 0 {
		d.t.Errorf("got the file %s, %s, with %d bytes; want none", got.name, got.state, len(got.text))
	}
	d.visit("/console")
	d.onPage("Sign in")
}
