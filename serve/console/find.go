package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on searches. findSimilar always looks up the first likeliestTexts of the similar texts. It
// looks up the others only if those find nothing, and only until similarTimeout after it began.
const (
	similarTimeout   = 80 * time.Millisecond
	likeliestTexts   = 256
	maxSimilar       = 5
	maxSimilarLength = 40 // characters of the query
	maxSuggestions   = 8
	maxQuery         = hints.MaxValue
)

// A searchResult holds what was found for a query.
type searchResult struct {
	Query       string
	ReadAs      string // the form in which the query is compared, if it differs from the query
	Found       []match
	Held        []heldValue
	Near        []match // accounts with an identifier one letter away
	Completions []match // accounts with an identifier that begins with the query
	Lists       []crumb // lists of all such accounts, if there may be more
}

// A match describes an account and how it was found.
type match struct {
	Type, UID, Label string
	Field, Value     string // the identifier that matches
	Other            string // another identifier than Label, or ""
	Disabled         bool
	Claims           []inspect.Claim // the records that prove it
	SignIn           string          // a sentence: whether its owner can sign in, and why not
	key              recordkey.Key
}

func (c *Console) find(w http.ResponseWriter, r *http.Request) {
	q := r.FormValue("q")
	p := page{Name: "find", Title: "Search", Query: q, Searching: true, Data: searchResult{Query: q}}
	if strings.TrimSpace(q) != "" && len(q) <= maxQuery {
		db, err := c.view(r.Context())
		var f searchResult
		if err == nil {
			f, err = search(r.Context(), db, q)
		}
		if err != nil {
			c.fail(w, r, err)
			return
		}
		if r.FormValue("open") != "" && len(f.Found) == 1 && len(f.Held) == 0 {
			params := ""
			if f.ReadAs != "" {
				params = "?" + url.Values{"q": {q}}.Encode()
			}
			http.Redirect(w, r, accountPath(f.Found[0].Type, f.Found[0].UID)+params, http.StatusSeeOther)
			return
		}
		p.Data = f
	}
	c.show(w, r, http.StatusOK, p)
}

// findPath returns the path of the search page for a text.
func findPath(q string) string { return "/console/find?" + url.Values{"q": {q}}.Encode() }

// search returns the accounts that have q as an identifier or, if there are none, those with a
// similar one. It also returns held values that equal q, and accounts with an identifier that
// begins with q.
func search(ctx context.Context, db *userdb.DB, q string) (f searchResult, err error) {
	f.Query = q
	types := db.Schema().Types
	for _, name := range db.Schema().Names() {
		t, err := db.Type(name)
		if err != nil {
			return f, err
		}
		if readAs := types[name].Canonical(q); readAs != q && f.ReadAs == "" {
			f.ReadAs = readAs
		}
		found, err := findExact(ctx, db, t, types[name], q)
		if err != nil {
			return f, err
		}
		f.Found = append(f.Found, found...)
		held, err := findHeld(ctx, t, types[name], q)
		if err != nil {
			return f, err
		}
		f.Held = append(f.Held, held...)
	}
	if len(f.Found) == 0 {
		f.Near = findSimilar(ctx, db, q)
	}
	completions := findByPrefix(ctx, db, q)
	if len(completions) == maxSuggestions {
		f.Lists = prefixLists(db, q)
	}
	f.Completions = slices.DeleteFunc(completions, func(m match) bool {
		same := func(o match) bool { return o.key == m.key }
		return slices.ContainsFunc(f.Found, same) || slices.ContainsFunc(f.Near, same)
	})
	return f, nil
}

// findExact returns the accounts of one type that have q as an identifier, UID or record key. It is
// no error if q cannot be one of these.
func findExact(ctx context.Context, db *userdb.DB, t *userdb.Type, declared schema.Type, q string) (found []match, err error) {
	word := strings.TrimSpace(q)
	all := []hints.Hint{hints.Any(q), hints.UID(word)}
	if key, err := recordkey.Parse(word); err == nil && key.Namespace() == (recordkey.Namespace{}) && key.Type() == t.Name() {
		all = append(all, hints.Key(key))
	}
	for e, err := range t.FindAll(ctx, all...) {
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m := matchOf(e, declared, q)
		if slices.ContainsFunc(found, func(o match) bool { return o.key == m.key }) {
			continue
		}
		if m.Claims, err = inspect.Claims(ctx, db, t.Name(), q); err != nil {
			return nil, err
		}
		if r, err := reportLogin(ctx, db, t, e); err == nil {
			m.SignIn = r.why.Sentence
		}
		found = append(found, m)
	}
	return found, nil
}

// newMatch describes an account that was found by a value of one of its fields.
func newMatch(e userdb.Entry, declared schema.Type, field, value string) match {
	m := match{Type: e.Type(), UID: e.UID(), Label: accountLabel(e, declared), Field: field, Value: value, Disabled: e.Disabled(), key: e.Key()}
	for _, one := range identifiersOf(e, declared) {
		if m.Other == "" && one.Text != m.Label {
			m.Other = one.Text
		}
	}
	return m
}

// matchOf describes an account that was found by q, with the value that equals q.
func matchOf(e userdb.Entry, declared schema.Type, q string) match {
	m := newMatch(e, declared, declared.Primary, e.UID())
	for _, field := range declared.Typed() {
		for _, text := range e.Texts(field) {
			if declared.Canonical(text) == declared.Canonical(q) {
				m.Field, m.Value = field, text
			}
		}
	}
	return m
}

// isAbsent reports whether err says that there is no such account or that there cannot be one.
func isAbsent(err error) bool {
	return isAny(err, userdb.ErrNotFound, hints.ErrHint, userdb.ErrInvalid)
}

// findSimilar returns accounts with an identifier that differs from q by one letter that is
// missing, added, replaced, or swapped with its neighbor.
func findSimilar(ctx context.Context, db *userdb.DB, q string) (found []match) {
	brief, cancel := context.WithTimeout(ctx, similarTimeout)
	defer cancel()
	for _, name := range db.Schema().Names() {
		t, err := db.Type(name)
		declared := db.Schema().Types[name]
		texts := similarTexts(declared.Canonical(q))
		if err != nil {
			continue
		}
		first := min(len(texts), likeliestTexts)
		found = append(found, findByTexts(ctx, t, declared, texts[:first])...)
		if len(found) == 0 {
			found = append(found, findByTexts(brief, t, declared, texts[first:])...)
		}
	}
	return found[:min(len(found), maxSimilar)]
}

// findByTexts returns accounts of a type that have one of the texts as an identifier.
func findByTexts(ctx context.Context, t *userdb.Type, declared schema.Type, texts []string) (found []match) {
	all := make([]hints.Hint, len(texts))
	for i, text := range texts {
		all[i] = hints.Any(text)
	}
	i := 0
	for e, err := range t.FindAll(ctx, all...) {
		if i++; err == nil && !slices.ContainsFunc(found, func(o match) bool { return o.key == e.Key() }) {
			found = append(found, matchOf(e, declared, texts[i-1]))
		}
		if len(found) == maxSimilar {
			break
		}
	}
	return found
}

// similarTexts returns the texts that somebody may have meant by text, the likeliest first. It
// returns none if text is too short or too long.
func similarTexts(text string) (all []string) {
	letters := []rune(text)
	if n := len(letters); n < 2 || n > maxSimilarLength {
		return nil
	}
	join := func(parts ...[]rune) { all = append(all, string(slices.Concat(parts...))) }
	for i := range len(letters) - 1 {
		join(letters[:i], []rune{letters[i+1], letters[i]}, letters[i+2:])
	}
	for i := range letters {
		join(letters[:i], letters[i+1:])
	}
	alphabet := []rune("etaoinsrhldcumfpgwybvkxjqz0123456789.-_@")
	for _, letter := range letters {
		if letter > 127 && !slices.Contains(alphabet, letter) {
			alphabet = append(alphabet, letter)
		}
	}
	for _, letter := range alphabet {
		for i := range letters {
			join(letters[:i], []rune{letter}, letters[i+1:])
			join(letters[:i], []rune{letter}, letters[i:])
		}
		join(letters, []rune{letter})
	}
	seen := map[string]bool{text: true}
	return slices.DeleteFunc(all, func(other string) bool {
		again := seen[other]
		seen[other] = true
		return again
	})
}

// findByPrefix returns accounts with an identifier that begins with q, from the ordered indexes of
// identifying fields. They are sorted by that identifier, without regard to case.
func findByPrefix(ctx context.Context, db *userdb.DB, q string) (found []match) {
	if len([]rune(strings.TrimSpace(q))) < 2 {
		return nil
	}
	for _, name := range db.Schema().Names() {
		t, err := db.Type(name)
		if err != nil {
			continue
		}
		declared := db.Schema().Types[name]
		for _, field := range declared.Ordered() {
			if !slices.Contains(declared.Typed(), field) {
				continue
			}
			p, err := t.Page(ctx, userdb.Query{Order: field, Prefix: declared.Canonical(q), Limit: maxSuggestions})
			if err != nil {
				continue
			}
			for _, e := range p.Entries {
				found = append(found, newMatch(e, declared, field, e.Text(field)))
			}
		}
	}
	slices.SortStableFunc(found, func(a, b match) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Value), strings.ToLower(b.Value)), strings.Compare(a.Value, b.Value))
	})
	return found[:min(len(found), maxSuggestions)]
}

// prefixLists returns links to lists, one for each field from which findByPrefix reads. If there
// are several types, the text of each link begins with the name of its type.
func prefixLists(db *userdb.DB, q string) (all []crumb) {
	names := db.Schema().Names()
	for _, name := range names {
		declared := db.Schema().Types[name]
		for _, field := range declared.Ordered() {
			if !slices.Contains(declared.Typed(), field) {
				continue
			}
			label := field
			if len(names) > 1 {
				label = name + " " + field
			}
			all = append(all, crumb{label, typePath(name) + "?" + url.Values{"order": {field}, "prefix": {q}}.Encode()})
		}
	}
	return all
}

// suggest returns completions to the script of the search input.
func (c *Console) suggest(w http.ResponseWriter, r *http.Request) {
	values := []string{}
	if db, err := c.view(r.Context()); err == nil && len(r.FormValue("q")) <= maxQuery {
		for _, m := range findByPrefix(r.Context(), db, r.FormValue("q")) {
			values = append(values, m.Value)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(slices.Compact(values)) // an error means that the browser is gone
}
