package web

import (
	"context"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
)

// A Catalogue holds the texts for visitors in one language. These are its keys:
//
//   - For problems: a field and a rule ("email taken"), a rule, or "". The first of these that
//     exists is used.
//   - For messages after a form: "done" and the value of the query parameter done, such as
//     "done welcome".
//   - For mails: "mail" and the kind, such as "mail reset", and the same with "subject" after it.
//   - For everything else on pages: the English text.
//   - "date layout" and "time layout" are layouts for time.Format, and "seconds", "minutes" and
//     "hours" say how long to wait.
//
// A text contains the names of parameters in {braces}. Texts of pages may contain HTML.
type Catalogue map[string]string

// Catalogues holds the texts by language. Change them, or parts of them, and add further languages
// before serving. Texts that a catalogue lacks are taken from English.
var Catalogues = map[string]Catalogue{"en": Texts, "de": german, "fr": french, "es": spanish}

// maxAcceptLanguage limits the header Accept-Language, in bytes. A longer one counts as absent,
// because sorting thousands of languages costs more than the page.
const maxAcceptLanguage = 1000

// ChooseLanguage returns the offered language that suits the Accept-Language header of a request
// best, or the first one if none suits. If none is offered, it returns "en".
func ChooseLanguage(r *http.Request, offered ...string) string {
	switch len(offered) {
	case 0:
		return "en"
	case 1:
		return offered[0]
	}
	tags := make([]language.Tag, len(offered))
	for i, name := range offered {
		tags[i] = language.Make(name)
	}
	header := r.Header.Get("Accept-Language")
	if len(header) > maxAcceptLanguage {
		header = ""
	}
	wanted, _, _ := language.ParseAcceptLanguage(header)
	_, i, _ := language.NewMatcher(tags).Match(wanted...)
	return offered[i]
}

func catalogueOf(name string) Catalogue {
	if c, has := Catalogues[name]; has {
		return c
	}
	return Texts
}

// lookup returns the text of the first key that c has. If c has none of the keys, it looks in the
// English catalogue, and if that has none either, it returns the last key.
func (c Catalogue) lookup(keys ...string) string {
	for _, catalogue := range []Catalogue{c, Texts} {
		for _, key := range keys {
			if text, has := catalogue[key]; has {
				return text
			}
		}
	}
	return keys[len(keys)-1]
}

// Text returns the text for a problem.
func (c Catalogue) Text(p Problem) string {
	var parameters []string
	for name, value := range p.Params {
		parameters = append(parameters, "{"+name+"}", value)
	}
	if n, err := strconv.Atoi(p.Params["seconds"]); err == nil {
		parameters = append(parameters, "{wait}", c.wait(n))
	}
	return strings.NewReplacer(parameters...).Replace(c.lookup(strings.TrimSpace(p.Field+" "+p.Rule), p.Rule, ""))
}

// wait says for how long to wait, rounded up. It never says 1, so that every text is in the plural.
func (c Catalogue) wait(n int) string {
	unit := "seconds"
	for _, next := range []string{"minutes", "hours"} {
		if n > 120 {
			n, unit = (n+59)/60, next
		}
	}
	return strings.ReplaceAll(c.lookup(unit), "{number}", strconv.Itoa(max(n, 2)))
}

// T returns a text of the page's catalogue. args are names of parameters and their values, which
// are escaped.
func (p Page) T(text string, args ...any) template.HTML {
	var parameters []string
	for pair := range slices.Chunk(args, 2) {
		parameters = append(parameters, "{"+template.HTMLEscaper(pair[0])+"}", template.HTMLEscaper(pair[1:]...))
	}
	return template.HTML(strings.NewReplacer(parameters...).Replace(catalogueOf(p.Language).lookup(text)))
}

// Date returns the date of a time, in UTC and in the language of the page.
func (p Page) Date(t time.Time) string {
	return t.UTC().Format(catalogueOf(p.Language).lookup("date layout"))
}

// Time returns a time, in UTC and in the language of the page.
func (p Page) Time(t time.Time) string {
	return t.UTC().Format(catalogueOf(p.Language).lookup("time layout"))
}

// Done returns the message that the query parameter done asks for, or "".
func (p Page) Done() string {
	key := "done " + p.Form.Get("done")
	if _, has := Texts[key]; !has && catalogueOf(p.Language)[key] == "" {
		return ""
	}
	return catalogueOf(p.Language).lookup(key)
}

type languageKey struct{}

// Language returns the language of the page that a handler of Flows.Page answers with, or "".
func Language(ctx context.Context) string {
	name, _ := ctx.Value(languageKey{}).(string)
	return name
}

// requestLanguage returns the language in which to answer a request that no page of Flows answers:
// the language of its context or, if it has none, the one of Catalogues that suits the request
// best.
func requestLanguage(r *http.Request) string {
	if name := Language(r.Context()); name != "" {
		return name
	}
	return ChooseLanguage(r, append([]string{"en"}, slices.Sorted(maps.Keys(Catalogues))...)...)
}

// language returns the language in which to answer a request.
func (f *Flows) language(r *http.Request) string {
	if f.Language != nil {
		return f.Language(r)
	}
	return ChooseLanguage(r, f.Languages...)
}
