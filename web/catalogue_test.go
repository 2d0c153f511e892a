package web_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/web"
)

// textsOfPages returns the texts that the templates of Flows show.
func textsOfPages(t *testing.T) map[string]bool {
	t.Helper()
	// Flows sets the first label, and the second is that of a field.
	found := map[string]bool{"E-mail address or name": true, "Name": true}
	call := regexp.MustCompile(`\.(?:T|Field "[a-z-]+") "([^"]+)"`)
	for _, template := range web.Templates().Templates() {
		if template.Tree == nil {
			continue
		}
		for _, match := range call.FindAllStringSubmatch(template.Tree.Root.String(), -1) {
			found[match[1]] = true
		}
		source := regexp.MustCompile(`(?s)\{\{.*?\}\}|<[^>]*>`).ReplaceAllString(template.Tree.Root.String(), "")
		if left := regexp.MustCompile(`[A-Za-z]{2}[^\n]*`).FindString(source); left != "" {
			t.Errorf("template %s has a text that is not translated: %q", template.Name(), left)
		}
	}
	return found
}

// TestCatalogues checks that every catalogue has every text, and no other, and that a translation
// has the placeholders and tags of the English text.
func TestCatalogues(t *testing.T) {
	english := map[string]string{}
	for key, text := range web.Texts {
		english[key] = strings.ReplaceAll(text, "{reason}", "") // reasons are in English
	}
	for text := range textsOfPages(t) {
		if _, has := english[text]; !has {
			english[text] = text
		}
	}
	marks := regexp.MustCompile(`\{[a-z]+\}|</?[a-z]+>`)
	marksOf := func(text string) []string { return slices.Sorted(slices.Values(marks.FindAllString(text, -1))) }
	for _, name := range []string{"de", "fr", "es"} {
		catalogue := web.Catalogues[name]
		for key, text := range english {
			translated, has := catalogue[key]
			switch {
			case !has:
				t.Errorf("%s: no text for %q", name, key)
			case !slices.Equal(marksOf(text), marksOf(translated)):
				t.Errorf("%s: %q has %v, want %v", name, key, marksOf(translated), marksOf(text))
			case strings.TrimSpace(translated) == "":
				t.Errorf("%s: %q is empty", name, key)
			}
		}
		for key := range catalogue {
			if _, has := english[key]; !has {
				t.Errorf("%s: no page shows the text %q", name, key)
			}
		}
	}
}

// TestFrenchSpaces checks that a space beside a French punctuation mark does not break the line.
func TestFrenchSpaces(t *testing.T) {
	breaking := regexp.MustCompile(` [:;?!»]|« `)
	for key, text := range web.Catalogues["fr"] {
		if breaking.MatchString(text) {
			t.Errorf("%q: %q has a space that may break", key, text)
		}
	}
}

// TestKindsOfMails checks that there are a subject and a text for each kind of mail.
func TestKindsOfMails(t *testing.T) {
	for _, kind := range []web.MailKind{
		web.MailWelcome, web.MailInvited, web.MailRegistered, web.MailReset, web.MailChange, web.MailAdd, web.MailChanging, web.MailAdding,
		web.MailFirst, web.MailRemoved,
		web.MailLinked, web.MailUnlinked, web.MailFactorAdded, web.MailFactorRemoved, web.MailNewCodes,
		web.MailProve, web.MailPassword, web.MailPasskeyAdded, web.MailPasskeyRemoved,
	} {
		m := web.Mail{Kind: kind, Address: "new@example.com", Language: "de"}
		if strings.HasPrefix(m.Subject(), "mail ") || strings.HasPrefix(m.Text(), "mail ") || strings.Contains(m.Text(), "{address}") {
			t.Errorf("%s: got %q, %q; want a subject and a text", kind, m.Subject(), m.Text())
		}
	}
}

func TestChooseLanguage(t *testing.T) {
	for _, tt := range []struct {
		header  string
		offered []string
		want    string
	}{
		{"de", nil, "en"},
		{"", []string{"fr", "de"}, "fr"},
		{"de-AT,de;q=0.9,en;q=0.5", []string{"en", "de", "fr", "es"}, "de"},
		{"pt, es;q=0.8, en;q=0.7", []string{"en", "es"}, "es"},
		{"ja", []string{"de", "en"}, "de"},
		{"en;q=0.1, fr;q=0.9", []string{"en", "fr"}, "fr"},
		{"\x00;;;q=x", []string{"es", "en"}, "es"},
		{"de" + strings.Repeat(",ja", 300), []string{"en", "de"}, "de"},
		{"de" + strings.Repeat(",ja", 10_000), []string{"en", "de"}, "en"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Accept-Language", tt.header)
		if got := web.ChooseLanguage(r, tt.offered...); got != tt.want {
			t.Errorf("%q of %v: got %q, want %q", tt.header, tt.offered, got, tt.want)
		}
	}
}

// TestFlowsLanguage checks that pages, problems and mails are in the language of the visitor, and
// that what a visitor types does not become HTML.
func TestFlowsLanguage(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Languages = []string{"en", "de"} })
	c := s.client()
	c.Transport = withHeader{"Accept-Language", "de-CH, en;q=0.5"}
	if _, _, body := s.send(c, "/signup", "email", "x"); !strings.Contains(body, `<html lang="de">`) || !strings.Contains(body, "Das ist keine E-Mail-Adresse.") || !strings.Contains(body, "Registrieren") {
		t.Errorf("the page is not in German:\n%s", body)
	}
	if _, _, body := s.send(s.client(), "/signup", "email", "x"); !strings.Contains(body, `<html lang="en">`) || !strings.Contains(body, "This is not an e-mail address.") {
		t.Errorf("the page is not in English:\n%s", body)
	}
	if _, _, body := s.send(c, "/sent?to="+`<script>{site}</script>`); strings.Contains(body, "<script>") || !strings.Contains(body, "&lt;script&gt;{site}") {
		t.Errorf("the page shows HTML that a visitor entered:\n%s", body)
	}
	if _, _, body := s.send(c, "/?done=<b>"); strings.Contains(body, "done") {
		t.Errorf("the page shows an unknown message:\n%s", body)
	}
	s.send(c, "/signup", "email", "new@example.com")
	if s.sent(); len(s.mails) != 1 || s.mails[0].Subject() != "Willkommen" || !strings.HasPrefix(s.mails[0].Text(), "Mit diesem Link") {
		t.Errorf("got the mails %+v, want one in German", s.mails)
	}
}

// TestDenied checks that visitors without the tag of a page get a page in their language, from
// which they can go on.
func TestDenied(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Languages = []string{"en", "de", "es", "fr"} })
	s.create("ann")
	for language, text := range map[string]string{
		"en": "You do not have access to this page.", "de": "Sie haben keinen Zugriff auf diese Seite.",
		"es": "No tiene acceso a esta página.", "fr": "Vous n’avez pas accès à cette page.",
	} {
		c := s.client()
		c.Transport = withHeader{"Accept-Language", language}
		s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
		status, _, body := s.send(c, "/admin")
		if status != http.StatusForbidden || !strings.Contains(body, `<html lang="`+language+`">`) || !strings.Contains(body, text) || !strings.Contains(body, `href="/account">`) {
			t.Errorf("%s: got %d, want 403 and %q:\n%s", language, status, text, body)
		}
	}
}

// TestErrorsWithoutPage checks that forms that are refused before a page sees them, and pages that
// cannot be shown, are answered in the language of the visitor.
func TestErrorsWithoutPage(t *testing.T) {
	broken := web.RenderTemplates(web.Templates())
	site := web.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		broken(w, r, web.Page{Name: "nosuch", Language: r.FormValue("language")})
	}))
	send := func(language, from, body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", from)
		r.Header.Set("Accept-Language", language)
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		if h := w.Header(); h.Get("Vary") != "Accept-Language" || h.Get("Content-Language") == "" {
			t.Errorf("got the headers %v, want Vary and Content-Language", h)
		}
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	for language, want := range map[string][3]string{
		"en-GB":     {"This form cannot be read.", "The page cannot be shown.", "This form came from another site"},
		"de-CH, en": {"Dieses Formular ist nicht lesbar.", "Die Seite lässt sich nicht anzeigen.", "Dieses Formular kam von einer anderen Website."},
		"fr":        {"Ce formulaire est illisible.", "La page ne peut pas être affichée.", "Ce formulaire vient d’un autre site"},
		"es-MX":     {"No se puede leer este formulario.", "No se puede mostrar la página.", "Este formulario procede de otro sitio"},
		"tlh":       {"This form cannot be read.", "The page cannot be shown.", "This form came from another site"},
	} {
		for i, sent := range []struct {
			from, body string
			status     int
		}{
			{"same-origin", "a=%zz", http.StatusBadRequest},
			{"same-origin", "a=b", http.StatusInternalServerError},
			{"cross-site", "a=b", http.StatusForbidden},
		} {
			if status, text := send(language, sent.from, sent.body); status != sent.status || !strings.HasPrefix(text, want[i]) {
				t.Errorf("%s, %+v: got %d %q, want %d %q", language, sent, status, text, sent.status, want[i])
			}
		}
	}
	if _, text := send("fr", "same-origin", "language=de"); !strings.HasPrefix(text, "Die Seite") {
		t.Errorf("got %q, want the language of the page", text)
	}
}

// withHeader adds a header to each request.
type withHeader [2]string

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h[0], h[1])
	return http.DefaultTransport.RoundTrip(r)
}
