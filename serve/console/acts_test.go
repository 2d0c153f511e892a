package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// operatorActions returns the operators' actions in the feed as "KIND WHO ABOUT ORIGIN": failed
// sign-ins first, then the others, each with the oldest first. Failures have a feed of their own,
// so events of the two that share a millisecond come in either order.
func (d *testConsole) operatorActions() (all []string) {
	d.t.Helper()
	page, err := d.db.Events(d.t.Context(), userdb.EventQuery{Limit: 1000})
	must(d.t, err)
	var others []string
	for _, e := range page.Events {
		action := fmt.Sprint(e.Kind, " ", e.Actor, " ", e.Purpose, " ", e.Origin)
		switch {
		case e.Kind == userdb.EventOperatorLoginFailed:
			all = append(all, action)
		case e.Kind.IsOperator():
			others = append(others, action)
		}
	}
	return append(all, others...)
}

// TestActs checks that the feed contains the operators' actions with their names and origins, even
// if no histories are kept.
func TestActs(t *testing.T) {
	for _, history := range []bool{true, false} {
		t.Run(fmt.Sprintf("history %v", history), func(t *testing.T) {
			d := openWith(t, "memory:", history)
			d.createAccount("u1", "name", "Alice")
			other := d.newBrowser()
			other.do(http.StatusUnauthorized, "/console/signin", "name", "OLGA", "password", "wrong")
			other.do(http.StatusUnauthorized, "/console/signin", "name", "my own password", "password", "wrong")
			d.do(http.StatusOK, "/console/keys", "name", "shop", "scope", "read")
			d.do(http.StatusSeeOther, "/console/keys/revoke", "name", "shop")
			// The second time it is revoked already, so nothing is done.
			d.do(http.StatusNotFound, "/console/keys/revoke", "name", "shop")
			d.post(http.StatusSeeOther, "/console/types/user/u1/waits")
			d.waitForJob(d.do(http.StatusSeeOther, "/console/export", "type", ""))
			d.waitForJob(d.do(http.StatusSeeOther, "/console/check", "repair", "true", "confirm", "true"))
			want := []string{
				"operator_login_failed visitor Olga 127.0.0.1",
				"operator_login_failed visitor  127.0.0.1",
				"operator_login operator:Olga  127.0.0.1",
				"key_create operator:Olga shop 127.0.0.1",
				"key_revoke operator:Olga shop 127.0.0.1",
				"waits operator:Olga  127.0.0.1",
				"export operator:Olga user 127.0.0.1",
				"repair operator:Olga  127.0.0.1",
			}
			if got := d.operatorActions(); !slices.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			d.wantText(d.do(http.StatusOK, "/console/history"), "This store: Operator Olga created the API key “shop” from 127.0.0.1",
				"A visitor failed to sign in to the console as Olga from 127.0.0.1", "Operator Olga started an export of accounts of type user")
		})
	}
}

// TestPasswordAgain checks that operators who gave their password more than ten minutes ago are
// asked for it before they create a key, an export, a link or a password.
func TestPasswordAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		const at = "/console/types/user/u1"
		forms := map[string][]string{
			"/console/keys":   {"name", "shop", "scope", "read", "scope", "login"},
			"/console/export": {"type", "user"},
			at + "/tokens":    {"purpose", "reset"},
			at + "/password":  {"password", "another long password"},
		}
		d.advance(verifiedFor + time.Minute)
		for path, form := range forms {
			asked := d.do(http.StatusOK, path, form...)
			d.wantText(asked, "Your own password", "Nothing has been done yet.")
			if strings.Contains(asked, "another long password") || strings.Contains(asked, "new-password") {
				t.Error("the page shows or asks for the new password of the account")
			}
			again := append(d.fillForm(asked, path), "~password", "wrong")
			d.wantText(d.do(http.StatusUnauthorized, path, again...), "Wrong password.")
		}
		if all := d.do(http.StatusOK, "/console/keys"); strings.Contains(pageText(all), "shop") {
			t.Error("a key was created without the password")
		}
		_, err := d.users.Login(t.Context(), "alice", goodPassword, userdb.Attempt{})
		must(t, err)
		for path, form := range forms {
			want := map[string]int{"/console/keys": http.StatusOK, at + "/tokens": http.StatusOK}[path]
			if want == 0 {
				want = http.StatusSeeOther
			}
			asked := append(d.fillForm(d.do(http.StatusOK, path, form...), path), "~password", goodPassword)
			if path == at+"/password" { // the page that follows asks for the new password
				body := d.do(http.StatusOK, path, asked...)
				d.wantText(body, "Now enter the new password of the account.")
				asked = d.fillForm(body, path, "password", "another long password")
				d.advance(0) // the operator has just given the password
			}
			d.do(want, path, asked...)
			d.advance(verifiedFor + time.Minute)
		}
		_, err = d.users.Login(t.Context(), "alice", "another long password", userdb.Attempt{})
		must(t, err)
		d.advance(0) // the operator has just given the password
		d.wantText(d.do(http.StatusOK, "/console/keys", "name", "other", "scope", "read"), "The key other has been created.")
	})
}

// TestLeftBehind checks what an operator leaves behind: a key says who created it and when, and the
// operator's jobs can be stopped.
func TestLeftBehind(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.do(http.StatusOK, "/console/keys", "name", "shop", "scope", "read")
		d.wantText(d.do(http.StatusOK, "/console/keys"), "by operator Olga")
		keys, err := admin.OpenKeys(d.db)
		must(t, err)
		herKeys, err := keys.MadeBy(t.Context(), "Olga")
		if must(t, err); len(herKeys) != 1 || herKeys[0].Name != "shop" || time.Since(herKeys[0].CreatedAt) > time.Hour {
			t.Errorf("Olga created %+v, want the key shop", herKeys)
		}
		if others, err := keys.MadeBy(t.Context(), "Paul"); err != nil || len(others) > 0 {
			t.Errorf("Paul created %+v, %v; want no key", others, err)
		}
		forever := func(ctx context.Context, _ *task) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		herJob, err := d.console.jobs.begin(t.Context(), admin.Job{Kind: "check", By: "Olga", Title: "her job"}, detail{}, forever)
		must(t, err)
		hisJob, err := d.console.jobs.begin(t.Context(), admin.Job{Kind: "check", By: "Paul", Title: "his job"}, detail{}, forever)
		must(t, err)
		jobs, err := admin.OpenJobs(d.db)
		must(t, err)
		must(t, jobs.RequestStopOf(t.Context(), "Olga"))
		d.wantText(d.waitForJob("/console/jobs/"+herJob.ID), "her job stopped Started by Olga")
		if j, err := jobs.Find(t.Context(), hisJob.ID); err != nil || j.Finished() || j.Stop {
			t.Errorf("Paul's job is %+v, %v; want it to go on", j, err)
		}
	})
}
