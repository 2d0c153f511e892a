package web

import (
	"bytes"
	"cmp"
	"embed"
	"html/template"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A Page holds the data that a template shows. Name is one of signup, sent, welcome, signin, code,
// forgot, reset, confirm, add, confirmed, prove, password, email, addresses, devices, verify,
// security, app, codes, gone and again; with package web/oidc one of continue, unlinked and links;
// or the name that the application passed to Flows.Page. There is also a default template for the
// name account.
type Page struct {
	Name     string
	Status   int          // of the response
	Me       userdb.Entry // the visitor, if signed in
	Session  userdb.Session
	Form     url.Values // the form that was sent, and the query
	Problems []Problem
	// Data is what the page is about:
	//
	//   - sent: the text that was entered
	//   - welcome: a userdb.Invitation
	//   - signin, code, verify: the path to return to
	//   - reset: a userdb.Token
	//   - confirm, add, confirmed: a Confirming
	//   - prove: a Proving
	//   - devices: what Type.Sessions returns
	//   - security: what Type.Factors returns
	//   - app: a userdb.TOTPEnrolment
	//   - codes: the recovery codes
	//   - again: the inputs of a form that could not be processed, as []Input, without passwords;
	//     see SendTo
	Data any

	Site         string // Flows.Site
	Paths        Paths
	Fields       []Field
	Identifier   string // Flows.Identifier
	Address      string // the facet of addresses
	MaxAddresses int    // how many of them an entry may have
	CanSignUp    bool
	AtOnce       bool // the page signup creates the account
	Providers    []Provider

	CanAddFactors bool   // see userdb.Type.AllowsFactors
	Language      string // of the page, see Flows.Languages
	MinPassword   int    // how many characters a password needs
	Passkeys      bool   // whether visitors can use passkeys
	CanStay       bool   // whether visitors choose at the sign-in to stay signed in
	// Links are the linked accounts of the visitor, for the pages security and links.
	Links []LinkedIdentity

	declared map[string]schema.Field
	from     string // the page that the visitor asked for, if another one is shown in its place
	kept     []Input
	sendTo   string // where the page "again" sends its form, if that is another path
}

// SendTo returns the path to which the page "again" sends its form after the visitor has signed in
// or proved who they are. It is "" if the form goes to the path of the page, because the store did
// not answer.
func (p Page) SendTo() string { return p.sendTo }

// AnotherLink returns the path of the page that mails another link in place of one that is no
// longer valid, or "" if there is none.
func (p Page) AnotherLink() string {
	switch p.from {
	case "welcome":
		if p.CanSignUp && p.Me.UID() == "" {
			return p.Paths.SignUp
		}
		return ""
	case "confirm":
		return p.Paths.Email
	case "add":
		return p.Paths.Addresses
	case "prove":
		switch {
		case p.Me.Unproven():
			return p.Paths.Security
		case p.Me.UID() != "":
			return ""
		}
	}
	return p.Paths.Forgot
}

// A Field describes an input for a facet.
type Field struct {
	Name         string // the facet
	Label        string
	Autocomplete string // the attribute of the same name
}

// An Input is an input of a form. Templates use type text for addresses, because browsers change ß
// to ss in inputs of type email, and for codes, because they drop zeros in inputs of type number.
// Besides the types of HTML there are select, with Options, and textarea. A checkbox is ticked if
// the Value is true. The template facet also sends Shown, the value that the form showed first, in
// a hidden input; see Touched and Flows.SaveForm.
type Input struct {
	Name, Label, Type, Autocomplete, Value, Shown string
	Problems                                      []Problem
	Options                                       []Option
}

// An Option is one of the values of an Input. Its Label is in the catalogue of the page under the
// field and the value ("size small") or under the value, or it is the value.
type Option struct{ Value, Label string }

// Of returns the problems of a field, or of the form as a whole if field is "". Those of a facet
// for which the form has no input, such as a required one that is missing in Flows.Fields, are
// problems of the form, and begin with the name of the facet.
func (p Page) Of(field string) []Problem {
	var found []Problem
	for _, problem := range p.Problems {
		switch input := p.fieldOf(problem); {
		case input == field:
			found = append(found, problem)
		case field == "" && !p.hasInput(input):
			problem.Text = input + ": " + problem.Text
			found = append(found, problem)
		}
	}
	return found
}

// hasInput reports whether the form of a page has an input for a field, or the page shows the
// problems of the field in another way.
func (p Page) hasInput(field string) bool {
	switch p.Name {
	case "signup", "welcome":
		return field == "password" || field == "email" && p.Name == "signup" ||
			slices.ContainsFunc(p.Fields, func(f Field) bool { return f.Name == field })
	case "confirm", "add":
		return field == p.Address
	}
	return true
}

// fieldOf returns the form's field that a problem belongs to. In a form with an old and a new
// password, either the old one is wrong or missing, or the new one is too weak.
func (p Page) fieldOf(problem Problem) string {
	if p.Name == "again" {
		return ""
	}
	if problem.Field == "code" && p.Form.Has("recovery") {
		return "recovery"
	}
	if problem.Field == "factor" && problem.Rule == "name" {
		return map[string]string{"add": "label", "passkey": "passkey-name"}[p.Form.Get("do")]
	}
	if problem.Field == "factor" {
		return ""
	}
	if p.Form.Has("old") {
		return cmp.Or(map[string]string{"password": "new", "old": "old"}[problem.Field], map[string]string{"login": "old"}[problem.Rule])
	}
	if problem.Field == p.Address && slices.Contains([]string{"signup", "email", "addresses"}, p.Name) {
		return "email"
	}
	return problem.Field
}

// Rev returns the revision for the hidden input rev of a form that changes the visitor's entry. It
// is that of the form that was sent, or of the entry if there is none or after a conflict.
func (p Page) Rev() string {
	if p.Form.Has("rev") && p.Status != http.StatusConflict {
		return p.Form.Get("rev")
	}
	return p.Me.Rev()
}

// Ticked reports whether the box with a value is ticked, among those that stand for the members of
// a set: as in the form that was sent, or else as stored. Beside the boxes, the form has hidden
// inputs shown-FIELD: one whose value is empty, and one for each stored member; see Touched.
func (p Page) Ticked(field, value string, stored []string) bool {
	if p.Form.Has(field) || p.Form.Has("shown-"+field) {
		return slices.Contains(p.Form[field], value)
	}
	return slices.Contains(stored, value)
}

// Shown returns the value that a facet's input showed when the form was made. For a checkbox that
// was not ticked it is "".
func (p Page) Shown(field string) string {
	return shown(p.Form, p.declared[field].Codec, p.Me, field)
}

func shown(form url.Values, codec schema.Codec, e userdb.Entry, field string) string {
	if sent, is := form["shown-"+field]; is {
		return sent[0]
	}
	return inputText(codec, e.Text(field))
}

// inputText returns the text with which an input shows a stored value. A date at midnight UTC is
// written without a time, because an input of type date shows nothing else, and "" stands for a
// checkbox that is not ticked.
func inputText(codec schema.Codec, stored string) string {
	switch codec {
	case schema.CodecDate:
		if day, ok := strings.CutSuffix(stored, "T00:00:00.000Z"); ok && len(day) == len(time.DateOnly) {
			return day
		}
	case schema.CodecBoolean:
		return strings.TrimSuffix(stored, "false")
	}
	return stored
}

// Field returns an input for a template. Its label is translated, and its value is what the visitor
// entered, or else what is stored. Passwords and codes are not shown again. If kind is "text", the
// schema and the value choose the type: checkbox for a facet with the codec boolean; select if the
// pattern of the facet is a list of words, such as "^(red|green|blue)$"; and textarea for a value
// with line breaks, which an input of one line would drop. For a facet in which visitors may begin
// another line, kind is "textarea". If browsers would change or hide the value in an input of the
// kind, as they do with addresses in one of kind email, the type is text: a form that nobody
// touched must not change what is stored.
func (p Page) Field(name, label, kind, autocomplete, stored string) Input {
	declared := p.declared[name]
	value := inputText(declared.Codec, stored)
	secret := kind == "password" || autocomplete == "one-time-code" || name == "recovery"
	sent, is := p.Form[name]
	switch {
	case is && !secret:
		value = sent[0]
	case declared.Codec == schema.CodecBoolean && p.Form.Has("shown-"+name):
		value = "" // browsers send nothing for a box that is not ticked
	}
	if !browsersKeep(kind, value) {
		kind = "text"
	}
	label = strings.ReplaceAll(catalogueOf(p.Language).lookup(label), "{min}", strconv.Itoa(p.MinPassword))
	in := Input{Name: name, Label: label, Type: kind, Autocomplete: autocomplete, Value: value, Problems: p.Of(name)}
	in.Shown = inputText(declared.Codec, stored)
	if before, is := p.Form["shown-"+name]; is {
		in.Shown = before[0]
	}
	if kind != "text" {
		return in
	}
	words := wordsOf(declared)
	switch {
	case declared.Codec == schema.CodecBoolean:
		if in.Type = "checkbox"; value == "on" || value == "1" {
			in.Value = "true"
		}
	case words != nil:
		in.Type = "select"
		if value == "" || !declared.Required {
			words = append([]string{""}, words...)
		}
		if !slices.Contains(words, value) {
			words = append(words, value) // stored under an earlier schema: it must not change
		}
		for _, word := range words {
			in.Options = append(in.Options, Option{word, p.optionLabel(name, word)})
		}
	case strings.ContainsAny(value, "\r\n"):
		in.Type = "textarea"
	}
	return in
}

// ownTexts are the texts of this package in English. Their keys, such as "unknown", are not words
// of a site.
var ownTexts = maps.Clone(Texts)

// optionLabel returns the label of a value of a facet.
func (p Page) optionLabel(field, word string) string {
	if word == "" {
		return "–"
	}
	keys := []string{field + " " + word}
	if _, own := ownTexts[word]; !own {
		keys = append(keys, word)
	}
	if text := catalogueOf(p.Language).lookup(keys...); text != keys[0] {
		return text
	}
	return word
}

// wordPattern matches a pattern that is a list of words. It does not match a list without ^ and $,
// which also allows values that merely contain one of the words.
var wordPattern = regexp.MustCompile(`^\^\((?:\?:)?([\pL\pN _-]+(?:\|[\pL\pN _-]+)+)\)\$$`)

// wordsOf returns the values that a facet can have, if its pattern lists them.
func wordsOf(f schema.Field) []string {
	match := wordPattern.FindStringSubmatch(f.Pattern)
	if match == nil || f.Role.Has(schema.RoleSecondary) {
		return nil
	}
	return strings.Split(match[1], "|")
}

// numeral matches what browsers show in an input of type number.
var numeral = regexp.MustCompile(`^-?([0-9]+(\.[0-9]+)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)

// color matches what browsers show in an input of type color.
var color = regexp.MustCompile(`^#[0-9a-f]{6}$`)

// layouts holds, by the kind of an input, the form in which browsers show and send its value. They
// change or hide all other texts.
var layouts = map[string]string{"date": time.DateOnly, "time": "15:04", "month": "2006-01", "datetime-local": "2006-01-02T15:04"}

// browsersKeep reports whether browsers show a text in an input of a kind, and send it unchanged.
func browsersKeep(kind, text string) bool {
	switch kind {
	case "date", "time", "month", "datetime-local":
		at, err := time.Parse(layouts[kind], text)
		return text == "" || err == nil && at.Format(layouts[kind]) == text && (kind == "time" || at.Year() > 0)
	case "number":
		_, err := strconv.ParseFloat(text, 64) // an error if it is too large
		return text == "" || numeral.MatchString(text) && err == nil
	case "color":
		return color.MatchString(text) // browsers show black for an empty text
	case "search", "tel", "url":
		return !strings.ContainsAny(text, "\r\n") && (kind != "url" || strings.TrimSpace(text) == text)
	case "week":
		return text == ""
	case "email", "range":
		return false
	}
	return true
}

//go:embed pages
var files embed.FS

// Templates returns the templates of all pages of Flows, and of their parts: head, nav, notes,
// bottom, field, facet, mine, kept, stay and qr. An application parses its own templates into them
// and passes the result to RenderTemplates; a template of its own replaces the one of the same
// name. The template qr is empty; with package web/qr it can show the QR code of an authenticator
// app.
func Templates() *template.Template {
	return template.Must(template.ParseFS(files, "pages/*.html"))
}

// RenderTemplates returns a function for Flows.Render that executes the template with the name of
// the page. If that fails, the visitor gets a short text with status 500.
func RenderTemplates(t *template.Template) func(http.ResponseWriter, *http.Request, Page) {
	return func(w http.ResponseWriter, r *http.Request, p Page) {
		var b bytes.Buffer // so that a template that fails writes nothing
		if err := t.ExecuteTemplate(&b, p.Name, p); err != nil {
			slog.ErrorContext(r.Context(), "userdb: a page was not shown", slog.Any("error", err))
			sendText(w, r, p.Language, "failed page", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(p.Status)
		_, _ = b.WriteTo(w)
	}
}

// Protect wraps all pages of a site. It refuses forms that other sites send, and forms of over 64
// KiB, and parses all other forms. Its headers forbid pages to use anything from other sites, and
// hide the addresses of pages, which may contain secrets, from other sites. It refuses in the
// language of Catalogues that suits the request best.
func Protect(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sendText(w, r, "", "other site", http.StatusForbidden)
	}))
	return protection.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "same-origin")
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		if err := r.ParseForm(); err != nil {
			sendText(w, r, "", "unreadable form", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// sendText responds with a text of a catalogue alone. If the language is "", it is that of
// requestLanguage.
func sendText(w http.ResponseWriter, r *http.Request, language, key string, status int) {
	language = cmp.Or(language, requestLanguage(r))
	setLanguage(w, language)
	http.Error(w, catalogueOf(language).lookup(key), status)
}

// setLanguage sets the language of an answer for which the header Accept-Language may have chosen
// it.
func setLanguage(w http.ResponseWriter, language string) {
	w.Header().Set("Content-Language", language)
	w.Header().Add("Vary", "Accept-Language")
}
