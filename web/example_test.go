package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// This example goes from a new store to a page for administrators: ann creates an account with an
// invitation sent by mail, signs in, and gets a tag.
func Example() {
	ctx := context.Background()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	users, err := db.Type("user")
	if err != nil {
		fmt.Println(err)
		return
	}

	// Using the mailed secret proves that somebody can read mail to the address.
	invitation, err := users.Invite(ctx, "email", "ann@example.com", userdb.Token{}, userdb.Attempt{Origin: "192.0.2.7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ann, err := users.AcceptInvitation(ctx, invitation.Secret, userdb.NewEntry{Facets: schema.Texts("name", "ann"), Password: "correct horse battery"})
	fmt.Println(ann.Text("email"), ann.Verified("email"), err)

	auth := web.Auth{Users: users, SignInPath: "/signin"}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /signin", func(w http.ResponseWriter, r *http.Request) {
		if _, err := auth.SignIn(w, r, r.FormValue("identifier"), r.FormValue("password")); err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)
			for _, p := range web.Problems(err) {
				fmt.Fprintln(w, p.Text)
			}
			return
		}
		http.Redirect(w, r, web.ReturnPath(r), http.StatusSeeOther)
	})
	mux.Handle("GET /admin", auth.RequireTag("admin", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello, ", web.Entry(r.Context()).Text("name"))
	})))
	site := httptest.NewServer(http.NewCrossOriginProtection().Handler(mux))
	defer site.Close()

	jar, _ := cookiejar.New(nil)
	browser := http.Client{Jar: jar}
	show := func(resp *http.Response, err error) {
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		fmt.Printf("%s: %s\n", resp.Status, body)
	}
	signIn := func(password string) {
		form := url.Values{"identifier": {"ann@example.com"}, "password": {password}, "return": {"/admin"}}
		show(browser.PostForm(site.URL+"/signin", form))
	}
	signIn("wrong horse")
	signIn("correct horse battery")
	if _, err := users.Tags(hints.UID(ann.UID())).Add(ctx, "admin"); err != nil {
		fmt.Println(err)
	}
	show(browser.Get(site.URL + "/admin"))
	// Output:
	// ann@example.com true <nil>
	// 422 Unprocessable Entity: Wrong name or password.
	//
	// 403 Forbidden: Forbidden
	//
	// 200 OK: hello, ann
}
