package userdbtest

import (
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// A Browser visits the pages of a site in a test. It keeps cookies, follows redirects, and fills in
// forms as a visitor does, with their hidden inputs. It runs no scripts. Each Browser is a visitor
// of its own. It is not safe for concurrent use.
type Browser struct {
	// Header holds headers to add to each request, such as Accept-Language.
	Header http.Header
	// Addr is the address and port of the visitor.
	Addr string

	Status int    // of the page
	Path   string // of the page, with its query
	Body   string // of the page

	t    TB
	site http.Handler
	jar  http.CookieJar
	page *html.Node
}

// NewBrowser returns a browser for a site, which it visits over https. The browser shows no page
// yet.
func NewBrowser(t TB, site http.Handler) *Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatalf("userdbtest: %v", err)
	}
	return &Browser{Header: http.Header{}, Addr: "192.0.2.1:1234", t: t, site: site, jar: jar}
}

// maxLoads limits the requests that a browser makes for one page, redirects included.
const maxLoads = 10

// Open opens the page at a path. The path may be a whole URL, such as the link of a mail; its host
// is ignored.
func (b *Browser) Open(path string) *Browser {
	b.t.Helper()
	return b.load(http.MethodGet, path, "")
}

// Send fills in a form of the page and sends it. If button is not "", the form is the first one
// that has a button with this text and the inputs in fields; otherwise it is the first one that has
// these inputs. fields holds names of inputs, each followed by a value; a name that is given twice
// is sent twice, and "" unticks a checkbox. Other inputs are sent as the page has them. If there is
// no such form, Send ends the test.
func (b *Browser) Send(button string, fields ...string) *Browser {
	b.t.Helper()
	form, pressed := b.find(button, fields)
	if form == nil {
		b.t.Fatalf("userdbtest: %s has no form with the button %q and the fields %q:\n%s", b.Path, button, fields, b.Text())
		return b
	}
	values := formValues(form, pressed, fields)
	action := attribute(form, "action")
	if action == "" {
		action = b.Path
	}
	if !strings.EqualFold(attribute(form, "method"), http.MethodPost) {
		path, _, _ := strings.Cut(action, "?")
		return b.load(http.MethodGet, path+"?"+values.Encode(), "")
	}
	return b.load(http.MethodPost, action, values.Encode())
}

// formValues returns the values that a browser sends for a form after a click on the button
// pressed. fields holds names of inputs, each followed by the value to send in place of the form's
// own.
func formValues(form, pressed *html.Node, fields []string) url.Values {
	values := url.Values{}
	var named []string
	for i := 0; i+1 < len(fields); i += 2 {
		named = append(named, fields[i])
		if fields[i+1] != "" || !hasCheckbox(form, fields[i]) {
			values.Add(fields[i], crlf.Replace(fields[i+1]))
		}
	}
	for input := range form.Descendants() {
		name := attribute(input, "name")
		if name == "" || slices.Contains(named, name) {
			continue
		}
		switch kind := attribute(input, "type"); {
		case input.Data == "button" && input == pressed,
			input.Data == "input" && kind != "submit" && (kind != "checkbox" && kind != "radio" || has(input, "checked")):
			values.Add(name, valueOf(input))
		case input.Data == "textarea":
			values.Add(name, valueOf(input))
		case input.Data == "select":
			addOptions(values, name, input)
		}
	}
	return values
}

// addOptions adds the selected options of a select. If none is selected and only one can be, a
// browser selects the first.
func addOptions(values url.Values, name string, list *html.Node) {
	var first *html.Node
	for option := range list.Descendants() {
		switch {
		case option.Data != "option":
		case has(option, "selected"):
			values.Add(name, valueOf(option))
		case first == nil:
			first = option
		}
	}
	if first != nil && !values.Has(name) && !has(list, "multiple") {
		values.Add(name, valueOf(first))
	}
}

// crlf makes line breaks those that browsers send, whatever the page has.
var crlf = strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n")

// valueOf returns the value that a browser sends for an input of a form or an option.
func valueOf(n *html.Node) string {
	switch {
	case n.Data == "textarea":
		text := ""
		for d := range n.Descendants() {
			text += d.Data
		}
		return crlf.Replace(text)
	case n.Data == "option" && !has(n, "value"):
		return textOf(n)
	case n.Data == "input" && attribute(n, "type") != "hidden" && attribute(n, "type") != "checkbox":
		return strings.NewReplacer("\r", "", "\n", "").Replace(attribute(n, "value"))
	case n.Data == "input" && !has(n, "value") && attribute(n, "type") == "checkbox":
		return "on"
	}
	return crlf.Replace(attribute(n, "value"))
}

// hasCheckbox reports whether a form has a checkbox with a name.
func hasCheckbox(form *html.Node, name string) bool {
	for n := range form.Descendants() {
		if attribute(n, "type") == "checkbox" && attribute(n, "name") == name {
			return true
		}
	}
	return false
}

// Want fails the test unless the page has the status and shows all of the texts.
func (b *Browser) Want(status int, texts ...string) *Browser {
	b.t.Helper()
	shown := b.Text()
	if b.Status != status {
		b.t.Errorf("userdbtest: %s: got status %d, want %d:\n%s", b.Path, b.Status, status, shown)
	}
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			b.t.Errorf("userdbtest: %s does not show %q:\n%s", b.Path, text, shown)
		}
	}
	return b
}

// Value returns the value that a form of the page would send for the first input with a name, or ""
// if there is no such input, or if it is a box that is not ticked.
func (b *Browser) Value(name string) string {
	if b.page == nil {
		return ""
	}
	for n := range b.page.Descendants() {
		if n.Type != html.ElementNode || attribute(n, "name") != name {
			continue
		}
		switch kind := attribute(n, "type"); {
		case n.Data == "select":
			values := url.Values{}
			addOptions(values, name, n)
			return values.Get(name)
		case kind != "checkbox" && kind != "radio" || has(n, "checked"):
			return valueOf(n)
		}
	}
	return ""
}

// Text returns the text of the page without tags. A single space replaces all adjacent white space.
func (b *Browser) Text() string { return textOf(b.page) }

// Do sends a request as a program does, for example with a JSON body and a bearer token. It adds
// the headers in Header that the request lacks, but no cookies. It follows no redirects, and does
// not change the page. The site gets the request, whichever host the request names.
func (b *Browser) Do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	for name, values := range b.Header {
		if r.Header.Get(name) == "" {
			r.Header[name] = values
		}
	}
	r.RemoteAddr = b.Addr
	b.site.ServeHTTP(w, r)
	return w
}

func (b *Browser) load(method, path, body string) *Browser {
	b.t.Helper()
	for range maxLoads {
		u, err := url.Parse(path)
		if err != nil {
			b.t.Fatalf("userdbtest: %v", err)
			return b
		}
		target := &url.URL{Scheme: "https", Host: "example.com", Path: u.Path, RawQuery: u.RawQuery}
		r := httptest.NewRequest(method, target.String(), strings.NewReader(body))
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		for _, cookie := range b.jar.Cookies(target) {
			r.AddCookie(cookie)
		}
		w := b.Do(r)
		b.jar.SetCookies(target, w.Result().Cookies())
		b.Status, b.Path, b.Body = w.Code, target.RequestURI(), w.Body.String()
		if b.page, err = html.Parse(strings.NewReader(b.Body)); err != nil {
			b.t.Fatalf("userdbtest: %s: %v", b.Path, err)
			return b
		}
		if w.Code != http.StatusSeeOther && w.Code != http.StatusFound {
			return b
		}
		method, path, body = http.MethodGet, w.Header().Get("Location"), ""
	}
	b.t.Fatalf("userdbtest: %s redirects again and again", b.Path)
	return b
}

// find returns the form to send and the button that is pressed.
func (b *Browser) find(button string, fields []string) (form, pressed *html.Node) {
	if b.page == nil {
		return nil, nil
	}
	for form := range b.page.Descendants() {
		if form.Data != "form" {
			continue
		}
		var names []string
		pressed = nil
		for n := range form.Descendants() {
			names = append(names, attribute(n, "name"))
			if n.Data == "button" && pressed == nil && (button == "" || textOf(n) == button) {
				pressed = n
			}
		}
		missing := pressed == nil && button != ""
		for i := 0; i < len(fields); i += 2 {
			missing = missing || !slices.Contains(names, fields[i])
		}
		if !missing {
			return form, pressed
		}
	}
	return nil, nil
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// has reports whether an element has an attribute.
func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// textOf returns the text in an element.
func textOf(n *html.Node) string {
	if n == nil {
		return ""
	}
	var text strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && d.Parent.Data != "style" && d.Parent.Data != "script" {
			text.WriteString(d.Data)
		}
		if d.Type == html.ElementNode {
			text.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}
