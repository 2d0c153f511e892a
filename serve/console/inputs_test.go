package console

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// completions lists what browsers and password managers may fill into the inputs of the templates,
// by the name of the input. Other inputs have "off".
var completions = map[string]string{
	"~password": "current-password",
	"~code":     "one-time-code",
	"":          "username", // hidden inputs that are not sent say whose password a form has
}

// fieldCompletions lists the same for inputs of the templates field and code-field.
var fieldCompletions = []string{
	`"name" "Your name" "text" "username"`,
	`"password" "Password, at least 8 characters" "password" "new-password"`,
	`"name" "Name" "text" $complete`,
	`"password" "Password" "password" "current-password"`,
	`"password" "New password" "password" "new-password"`,
	`"code" "Code from your authenticator app, or a recovery code" "text" "one-time-code"`,
	`"code" "Recovery code" "text" "off"`,
	`"code" "Code from the app" "text" "one-time-code"`,
	`"label" "A name for it, such as “my phone”, at most 64 letters" "text" "off"`,
	`"passkey-label" "A name for it, such as “my laptop”, at most 64 letters" "text" "off"`,
	`"password" "Password" "password" "current-password"`,
	`"name" "Name" "text" "off"`,
}

// TestAutocomplete checks that every input says what browsers may fill in, and that browsers
// restore nothing in forms, except those for signing in: in a list of accounts that has changed,
// the wrong ones would be selected.
func TestAutocomplete(t *testing.T) {
	files, err := templateFiles.ReadDir("pages")
	must(t, err)
	var fields []string
	seen := map[string]bool{}
	for _, file := range files {
		text, err := templateFiles.ReadFile("pages/" + file.Name())
		must(t, err)
		for _, tag := range regexp.MustCompile(`<(input|textarea|select|form)\b(?:[^>{]|\{\{.*?\}\})*>`).FindAllString(string(text), -1) {
			attribute := func(name string) string {
				found := regexp.MustCompile(` ` + name + `="([^"]*)"`).FindStringSubmatch(tag)
				if found == nil {
					return ""
				}
				return found[1]
			}
			got, name := attribute("autocomplete"), attribute("name")
			switch kind := attribute("type"); {
			case strings.HasPrefix(tag, "<form"):
				ofOperator := slices.ContainsFunc([]string{"/console/signin", "/console/setup", "/console/enrol", " data-passkey"}, func(part string) bool { return strings.Contains(tag, part) })
				if (got == "off") == ofOperator && !strings.Contains(tag, "/console/signout") {
					t.Errorf("%s: %s has the autocomplete %q, want off: %v", file.Name(), tag, got, !ofOperator)
				}
				continue
			case kind == "hidden" || kind == "checkbox" || kind == "file" || strings.HasPrefix(tag, "<select"):
				continue // the form counts
			}
			want, known := completions[name]
			if !known {
				want = "off"
			}
			if got == "{{.Complete}}" { // the template field or code-field
				continue
			}
			if seen[name] = true; got != want {
				t.Errorf("%s: %s has the autocomplete %q, want %q", file.Name(), tag, got, want)
			}
		}
		for _, call := range regexp.MustCompile(`\.Field ("[^"]+" "[^"]+" "\w+" \S+)`).FindAllStringSubmatch(string(text), -1) {
			fields = append(fields, call[1])
		}
	}
	slices.Sort(fields)
	if want := slices.Sorted(slices.Values(fieldCompletions)); !slices.Equal(fields, want) {
		t.Errorf("got the fields\n%s\nwant\n%s", strings.Join(fields, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range []string{"~password", "~code", "", "add", "value"} {
		if !seen[name] {
			t.Errorf("no template has an input %s", name)
		}
	}
}

// TestRefusals checks that a page whose inputs were refused lists the problems at its top, in the
// order of the inputs and with links to them, and puts the focus there.
func TestRefusals(t *testing.T) {
	d := open(t, "memory:")
	e := d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
	const at = "/console/types/user/u1"
	for _, test := range []struct {
		status   int
		path     string
		form     []string
		id, text string
	}{
		{http.StatusUnprocessableEntity, at, []string{"rev", e.Rev(), "email", "no address"}, "f-email", "email: This is not an e-mail address."},
		{http.StatusUnprocessableEntity, at, []string{"rev", e.Rev(), "email", "no address", "age", "old"}, "f-age", "email: This is not an e-mail address.age: "},
		{http.StatusUnprocessableEntity, at + "/values", []string{"rev", e.Rev(), "field", "email", "do", "add", "value", "no address"}, "a-email", "email: This is not an e-mail address."},
		{http.StatusUnprocessableEntity, at + "/password", []string{"password", "short"}, "password", "password: At least"},
		{http.StatusUnprocessableEntity, "/console/new", []string{"email", "no address"}, "f-email", "email: This is not an e-mail address."},
		{http.StatusBadRequest, "/console/keys", []string{"name", "shop"}, "scope-read", "scope: Choose at least one."},
		{http.StatusUnprocessableEntity, "/console/keys", []string{"name", "a b", "scope", "read"}, "name", "name: A name consists of"},
		{http.StatusUnprocessableEntity, "/console/security/add", []string{"label", strings.Repeat("x", 70)}, "label", "label: "},
		{http.StatusUnprocessableEntity, "/console/history?from=x", nil, "from", "from: Not a date"},
		{http.StatusUnprocessableEntity, "/console/history?from=2026-02-02&until=2026-02-01", nil, "until", "until: This is before"},
		{http.StatusUnprocessableEntity, "/console/history?account=nobody&from=x&until=x", nil, "until", "account: Nobody has “nobody”.from: Not a date: write 2026-11-20 or 2026-11-20 08:02.until: "},
		{http.StatusNotFound, "/console/history?account=nobody", nil, "account", "account: Nobody has"},
	} {
		body := d.do(test.status, test.path, test.form...)
		_, top, _ := strings.Cut(body, "<h1")
		top, _, _ = strings.Cut(top, "</div>")
		link := fmt.Sprintf(`<a href="#%s">`, test.id)
		if !strings.Contains(top, ` tabindex="-1" autofocus>`) || !strings.Contains(top, link) || !strings.Contains(body, fmt.Sprintf(` id="%s"`, test.id)) {
			t.Errorf("%s %q: the page does not begin with a link to %s:\n%s", test.path, test.form, test.id, top)
		}
		d.wantText(top, test.text)
	}
	if body := d.do(http.StatusOK, at); strings.Contains(body, "refusals") {
		t.Error("a page without problems lists some")
	}
}
