package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestBulkGoesOn checks that a refused account does not end a job, and that the result of a job
// that ends early says how far it got. It also checks that pages show a running job until it is
// stopped, and that a page asks before accounts are disabled or enabled.
func TestBulkGoesOn(t *testing.T) {
	refused := &userdb.FieldError{Err: userdb.ErrInvalid, Field: "tags", Rule: "size", Reason: "too long"}
	for _, test := range []struct {
		errs []error
		want string
		end  error
	}{
		{[]error{nil, refused, nil}, "Disabled 2 accounts. 1 account was refused: too long.", nil},
		{[]error{refused, userdb.ErrNotFound, refused}, "Disabled 0 accounts. 1 account no longer exists or cannot be read. 2 accounts were refused, the first because: too long.", nil},
		{[]error{nil, userdb.ErrNotFound, userdb.ErrCorrupt}, "Disabled 1 account. 2 accounts no longer exist or cannot be read.", nil},
		{[]error{nil, refused, context.Canceled, nil}, "Disabled 1 account. 1 account was refused: too long.", context.Canceled},
	} {
		work, n := bulkWork{do: "disable", uids: make([]string, len(test.errs))}, 0
		res, err := work.each(func(hints.Hint) error { n++; return test.errs[n-1] }, func(int) {})
		if got := res.text(work.do); got != test.want || err != test.end { //nolint:errorlint
			t.Errorf("%v: got %q, %v; want %q, %v", test.errs, got, err, test.want, test.end)
		}
	}
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	work := bulkWork{do: "tag", tag: strings.Repeat("x", 70_000), uids: []string{"u1"}}
	j, err := d.console.jobs.bulkJob(t.Context(), d.db, d.users, admin.Job{ID: admin.NewJobID(), Kind: bulkKind, By: operatorName, Title: "t"}, work)
	must(t, err)
	d.wantText(d.waitForJob("/console/jobs/"+j.ID), "Added the tag to 0 accounts. 1 account was refused:")
	d.wantText(d.do(http.StatusOK, "/console/jobs"), "by Olga: done. Added the tag to 0 accounts.")
	running, err := d.console.jobs.begin(t.Context(), admin.Job{Kind: bulkKind, By: operatorName, Title: "Disable 4 accounts"}, detail{}, func(ctx context.Context, w *task) (string, error) {
		w.setProgress(1, 4)
		<-ctx.Done()
		return "", ctx.Err()
	})
	must(t, err)
	must(t, errorOf(d.console.jobs.jobs.Heartbeat(t.Context(), running.ID, 1, 4)))
	for _, page := range []string{"/console", "/console/jobs"} {
		d.wantText(d.do(http.StatusOK, page), "Disable 4 accounts, just now by Olga: running, 25 %")
	}
	d.post(http.StatusSeeOther, "/console/jobs/"+running.ID+"/stop")
	d.waitForJob("/console/jobs/" + running.ID)
	d.wantNoText(d.do(http.StatusOK, "/console"), "Disable 4 accounts")
	for do, question := range map[string]string{"disable": "until it is enabled again. All its sessions", "enable": "The owner of 1 account can"} {
		d.wantText(d.do(http.StatusOK, "/console/bulk", "type", "user", "do", do, "uid", "u1"), question)
	}
}

// TestBulkTagsOfUnproven checks that the tag for several accounts is not given to those whose
// address nobody has verified.
func TestBulkTagsOfUnproven(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	must(t, errorOfEntry(d.users.Create(t.Context(), userdb.NewEntry{UID: "u2", Facets: schema.Texts("name", "Mallory"), SelfRegistered: true})))
	work := bulkWork{do: "tag", tag: "staff", uids: []string{"u1", "u2"}}
	j, err := d.console.jobs.bulkJob(t.Context(), d.db, d.users, admin.Job{ID: admin.NewJobID(), Kind: bulkKind, By: operatorName, Title: "t"}, work)
	must(t, err)
	d.wantText(d.waitForJob("/console/jobs/"+j.ID), "Added the tag to 1 account. 1 account was refused: nobody has verified its address")
	for uid, want := range map[string]bool{"u1": true, "u2": false} {
		if has, err := d.users.Tags(hints.UID(uid)).Has(t.Context(), "staff"); err != nil || has != want {
			t.Errorf("%s has the tag: got %t, %v; want %t", uid, has, err, want)
		}
	}
}

func errorOfEntry(_ userdb.Entry, err error) error { return err }

func errorOf(_ bool, err error) error { return err }

// TestNewsAreGrouped checks that equal events in the news are one line with the time of the newest.
func TestNewsAreGrouped(t *testing.T) {
	d := open(t, "memory:")
	_, since, _ := strings.Cut(d.do(http.StatusOK, "/console/history"), `data-since="`)
	since, _, _ = strings.Cut(since, `"`)
	at := func(body string) string {
		_, at, _ := strings.Cut(body, `datetime="`)
		at, _, _ = strings.Cut(at, `"`)
		return at
	}
	d.createAccount("u1", "name", "Alice")
	for i := range 2 {
		if i > 0 {
			waitForNextSecond()
		}
		_, _ = d.users.Login(t.Context(), "Alice", "wrong", userdb.Attempt{Origin: "192.0.2.7"})
	}
	news := d.do(http.StatusOK, "/console/history?since="+since)
	d.wantText(news, "failed to sign in 2 times")
	if all := d.do(http.StatusOK, "/console/history"); at(news) != at(all) {
		t.Errorf("the news has the time %s, want that of the newest event, %s", at(news), at(all))
	}
}

// TestKindsToChoose checks that the history can be filtered by every kind that it can show.
func TestKindsToChoose(t *testing.T) {
	for kind := range kindTexts {
		if !slices.Contains(eventKinds, kind) {
			t.Errorf("%s cannot be chosen", kind)
		}
	}
}

// TestReadAs checks that the page of an account says how a text is read only if the text is one of
// the account's. It also checks that the home page of an empty store has no empty paragraph, and
// that the style sheet hides elements with the attribute hidden.
func TestReadAs(t *testing.T) {
	d := open(t, "memory:")
	if strings.Contains(d.do(http.StatusOK, "/console"), "<p></p>") {
		t.Error("there is an empty paragraph")
	}
	d.createAccount("u1", "name", "Alice")
	d.wantText(d.do(http.StatusOK, "/console/types/user/u1?q=ALICE"), "ALICE is read as alice")
	d.wantNoText(d.do(http.StatusOK, "/console/types/user/u1?q=MALLORY"), "is read as")
	style, err := files.ReadFile("pages/style.css")
	if must(t, err); !strings.Contains(string(style), "[hidden] { display: none !important; }") {
		t.Error("style.css shows what is hidden")
	}
}

// waitForNextSecond returns when another second of the clock has begun.
func waitForNextSecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second + 10*time.Millisecond).Sub(now))
}
