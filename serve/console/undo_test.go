package console

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// TestSignInsNotRead checks that the tab with the sign-ins of an account does not say that there
// are none if it has not read all of them, and that it leads to the others.
func TestSignInsNotRead(t *testing.T) {
	server := redistest.Start(t)
	d := open(t, server.URL())
	d.createAccount("u", "name", "Alice")
	_, err := d.users.Login(t.Context(), "Alice", goodPassword, userdb.Attempt{Origin: "192.0.2.1"})
	must(t, err)
	stream, err := history.FeedKey(recordkey.Namespace{}, history.FeedLogins, 0)
	must(t, err)
	pipe := server.Client().Pipeline()
	for range 8000 {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: stream.String(), Values: []string{"e", "user/uid:other - login / / / /"}})
	}
	_, err = pipe.Exec(t.Context())
	must(t, err)
	body := d.do(http.StatusOK, "/console/types/user/u?tab=signins")
	d.wantText(body, "None among those that were read.")
	d.wantNoText(body, "There is no record of a sign-in")
	older := regexp.MustCompile(`href="([^"]*)">Older sign-ins`).FindStringSubmatch(body)
	if older == nil {
		t.Fatal("there is no link to older sign-ins")
	}
	d.wantText(d.do(http.StatusOK, html.UnescapeString(older[1])), "A visitor signed in from 192.0.2.1")
}

// TestUndoIsOwn checks that a page offers to undo an action only to the operator who has just done
// it, and only until a later action replaces it, whatever the URL of the page says.
func TestUndoIsOwn(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	const at = "/console/types/user/u1"
	offers := func(path string, want bool) {
		t.Helper()
		body := d.do(http.StatusOK, path)
		if got := strings.Contains(pageText(body), "Undo"); got != want {
			t.Errorf("%s offers to undo the action: got %t, want %t", path, got, want)
		}
	}
	for _, forged := range []string{"?done=disable&changed=true", "?done=enable&changed=true", "?done=tags&removed=admin", "?done=tags&added=admin"} {
		offers(at+forged, false)
	}
	users, ctx := d.users, t.Context()
	must(t, users.Disable(ctx, hintOf("u1")))
	offers(at+"?done=disable&changed=true", false) // somebody else disabled it
	offers(d.post(http.StatusSeeOther, at+"/disable"), false)
	enabled := d.post(http.StatusSeeOther, at+"/enable")
	offers(enabled, true)
	offers(d.post(http.StatusSeeOther, at+"/enable"), false) // it was enabled before
	disabled := d.post(http.StatusSeeOther, at+"/disable")
	offers(disabled, true)
	offers(enabled, false)
	d.advance(undoFor + time.Minute)
	offers(disabled, false)
	d.advance(0)
	must(t, users.Enable(ctx, hintOf("u1")))
	must(t, users.Disable(ctx, hintOf("u1")))
	offers(disabled, false)

	added := d.do(http.StatusSeeOther, at+"/tags", "add", "vip")
	offers(added, true)
	offers(at+"?done=tags&removed=vip", false)
	offers(d.do(http.StatusSeeOther, at+"/tags", "add", "vip"), false) // the tag was there before
	offers(d.do(http.StatusSeeOther, at+"/tags", "remove", "other"), false)
	removed := d.do(http.StatusSeeOther, at+"/tags", "remove", "vip")
	offers(removed, true)
	_, err := users.Tags(hintOf("u1")).Add(ctx, "other")
	must(t, err)
	offers(removed, false)

	added = d.do(http.StatusSeeOther, at+"/tags", "add", "staff")
	code := regexp.MustCompile(`&undo=([^&]+)`).FindString(added)
	if code == "" {
		t.Errorf("%s has no code", added)
	}
	for _, forged := range []string{"?done=tags&removed=admin", "?done=tags&added=other", "?done=tags&added=staff"} {
		offers(at+forged, false)
		offers(at+forged+"&undo=", false)
		offers(at+forged+code, forged == "?done=tags&added=staff")
	}
	d.createAccount("u2", "name", "Bob")
	other := d.do(http.StatusSeeOther, "/console/types/user/u2/tags", "add", "staff")
	offers(other, true)
	offers(strings.Replace(added, "u1", "u2", 1), false) // the code is for another account
	_, err = newOperator(t, d, "Paul")
	must(t, err)
	paul := d.newBrowser()
	paul.signIn("Paul", goodPassword)
	paul.do(http.StatusSeeOther, "/console/types/user/u2/tags", "add", "new")
	offers(other, false)
	again := d.do(http.StatusSeeOther, at+"/tags", "add", "second")
	offers(again, true)
	offers(added, false) // it was not the last change

	silent := openWith(t, "memory:", false)
	silent.createAccount("u1", "name", "Alice")
	silent.wantNoText(silent.do(http.StatusOK, silent.post(http.StatusSeeOther, at+"/disable")), "Undo")
}
