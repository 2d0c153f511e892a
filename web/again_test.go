package web_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// TestNothingEnteredIsLost checks that a form that is sent while the server is down comes back with
// what was entered, except passwords and codes, in the language of the visitor, and that it can be
// sent again.
func TestNothingEnteredIsLost(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server)
	sent := 0
	s := newFlows(t, proxy.URL(), func(f *web.Flows) {
		f.Languages, f.Brief = []string{"en", "de", "fr", "es"}, userdb.SessionOptions{Lifetime: briefLife}
	})
	comments := s.flows.Page("sent", func(r *http.Request) (any, error) {
		_, err := s.users.Page(r.Context(), userdb.Query{Order: "name", Limit: 1})
		return "the comments", err
	}, func(_ http.ResponseWriter, r *http.Request) (string, error) {
		sent++
		_, err := s.users.Update(r.Context(), uidOf(r), func(e *userdb.Entry) error { return nil })
		return "/", err
	})
	mux := http.NewServeMux()
	s.flows.Register(mux)
	mux.Handle("/comments", s.flows.Require(comments))
	s.server.Config.Handler = web.Protect(mux)
	s.create("ann")
	ann := s.client()
	if status, _, body := s.send(ann, "/signin", "identifier", "ann", "password", goodPassword); status != http.StatusSeeOther {
		t.Fatal(status, body)
	}
	invitation, err := s.users.Invite(t.Context(), "email", "new@example.com", userdb.Token{}, userdb.Attempt{})
	if err != nil {
		t.Fatal(err)
	}
	proxy.CutRequests(1<<30, "")
	languages := []struct{ name, text string }{
		{"en", "The service is not responding."}, {"de", "Der Dienst antwortet nicht."}, {"fr", "Le service ne répond pas."}, {"es", "El servicio no responde."},
	}
	for n, tt := range []struct {
		c    *http.Client
		path string
		form []string
		want []string
	}{
		{s.client(), "/signin", []string{"identifier", "Zoë", "password", "my horse", "stay", "1"}, []string{`<input id="identifier" name="identifier" type="text" value="Zoë"`, " checked"}},
		{ann, "/signin", []string{"identifier", "Zoë", "password", "my horse"}, []string{`<input id="identifier" name="identifier" type="text" value="Zoë"`}},
		{s.client(), "/signup", []string{"email", "zoë@example.com"}, []string{`name="email" type="text" value="zoë@example.com"`}},
		{s.client(), "/forgot", []string{"identifier", "Zoë"}, []string{`value="Zoë"`}},
		{
			s.client(), "/welcome",
			[]string{"token", invitation.Secret, "name", "Zoë <b>", "password", "my horse"},
			[]string{`<input type="hidden" name="name" value="Zoë &lt;b&gt;">`, `<input type="hidden" name="token" value="` + invitation.Secret + `">`, `<form method="post">`},
		},
		{ann, "/account/password", []string{"old", "my horse", "new", "your horse"}, []string{`<form method="post">`}},
		{
			ann, "/comments?page=2",
			[]string{"text", "first line\r\nsecond line", "shown-text", "", "Password2", "my horse", "code", "123456"},
			[]string{"<input type=\"hidden\" name=\"text\" value=\"first line\r\nsecond line\">", `<input type="hidden" name="shown-text" value="">`},
		},
	} {
		language := languages[n%len(languages)]
		tt.c.Transport = withHeader{"Accept-Language", language.name}
		status, _, body := s.send(tt.c, tt.path, tt.form...)
		for _, want := range append(tt.want, language.text, `<html lang="`+language.name+`">`) {
			if status != http.StatusServiceUnavailable || !strings.Contains(body, want) {
				t.Errorf("%s in %s: got %d, want 503 and a page with %q:\n%s", tt.path, language.name, status, want, body)
			}
		}
		if strings.Contains(body, "horse") || strings.Contains(body, "123456") {
			t.Errorf("%s: the page shows a password or a code:\n%s", tt.path, body)
		}
	}
	if status, _, body := s.send(ann, "/comments"); status != http.StatusServiceUnavailable || strings.Contains(body, "<form method=\"post\">\n") {
		t.Errorf("without a form: got %d, want 503 and no form:\n%s", status, body)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+"/comments", strings.NewReader("--x\r\nContent-Disposition: form-data; name=text\r\n\r\nhello\r\n--x--\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	response, err := ann.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); response.StatusCode != http.StatusServiceUnavailable || err != nil || strings.Contains(string(body), "<form method=\"post\">\n") {
		t.Errorf("a body that was not read: got %d (%v), want 503 and no empty form in its place:\n%s", response.StatusCode, err, body)
	}
	proxy.Pass()
	if sent != 0 {
		t.Errorf("%d forms of an unknown visitor were processed, want none", sent)
	}
	if status, to, body := s.send(ann, "/comments?page=2", "text", "first line\r\nsecond line"); status != http.StatusSeeOther || to != "/" {
		t.Errorf("sent again: got %d to %q, want 303 to /:\n%s", status, to, body)
	}
}

// TestNoCacheKeepsForm checks that no cache keeps a page that a visitor gets while the server is
// down, which may have a form with what was entered.
func TestNoCacheKeepsForm(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t))
	s := newFlows(t, proxy.URL(), nil)
	s.create("ann")
	ann := s.client()
	if status, _, body := s.send(ann, "/signin", "identifier", "ann", "password", goodPassword); status != http.StatusSeeOther {
		t.Fatal(status, body)
	}
	proxy.CutRequests(-1, "")
	for _, path := range []string{"/signin", "/account/email"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+path, strings.NewReader("email=x&identifier=x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := ann.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if h := response.Header; response.StatusCode != http.StatusServiceUnavailable || h.Get("Cache-Control") != "no-store" || h.Get("Vary") != "Cookie" {
			t.Errorf("%s: got %d with Cache-Control %q and Vary %q, want 503, no-store and Cookie", path, response.StatusCode, h.Get("Cache-Control"), h.Get("Vary"))
		}
	}
}

// TestFullQueueKeepsForm checks that the form comes back if the queue of mails is full.
func TestFullQueueKeepsForm(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	release := make(chan struct{})
	s.flows.Mail = &web.MailQueue{Size: 1, Send: func(context.Context, web.Mail) error { <-release; return nil }}
	if err := s.flows.Mail.Mail(t.Context(), web.Mail{Kind: web.MailReset}); err != nil {
		t.Fatal(err)
	}
	status, _, body := s.send(s.client(), "/signup", "email", "new@example.com")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, `value="new@example.com"`) {
		t.Errorf("got %d, want 503 and what was entered:\n%s", status, body)
	}
	close(release)
}
