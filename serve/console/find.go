package console

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// What looking for something near takes at most: the likeliest are looked up in any case, and others for a moment.
const (
	nearTime      = 80 * time.Millisecond
	likeliest     = 256
	mostNear      = 5
	longestNear   = 40 // characters of what was typed
	mostSuggested = 8
	longestQuery  = hints.MaxValue
)

// A finding is what there is for a text.
type finding struct {
	Query  string
	Read   string // how it is compared, where that is another text
	Found  []match
	Near   []match // accounts that have something one letter away
	Begins []match // accounts that have something that begins so
}

// A match is an account, and how it was found.
type match struct {
	Type, UID, Label string
	Field, Value     string          // what it has
	Claims           []inspect.Claim // the records that say so
	Standing         string          // why its owner cannot sign in, or that they can
	key              recordkey.Key
}

func (c *Console) find(w http.ResponseWriter, r *http.Request) {
	q := r.FormValue("q")
	p := page{Name: "find", Title: "Find an account", Data: finding{Query: q}}
	if strings.TrimSpace(q) != "" && len(q) <= longestQuery {
		db, err := c.view(r.Context())
		var f finding
		if err == nil {
			f, err = look(r.Context(), db, q)
		}
		if err != nil {
			c.fail(w, r, err)
			return
		}
		p.Data = f
	}
	c.show(w, r, http.StatusOK, p)
}

// look finds the accounts that a text may mean, and where there is none, what is near it.
func look(ctx context.Context, db *userdb.DB, q string) (f finding, err error) {
	f.Query = q
	types := db.Schema().Types
	for _, name := range db.Schema().Names() {
		t, err := db.Type(name)
		if err != nil {
			return f, err
		}
		if read := types[name].Canonical(q); read != q && f.Read == "" {
			f.Read = read
		}
		found, err := exactly(ctx, db, t, types[name], q)
		if err != nil {
			return f, err
		}
		f.Found = append(f.Found, found...)
	}
	if len(f.Found) == 0 {
		f.Near = near(ctx, db, q)
	}
	f.Begins = slices.DeleteFunc(beginning(ctx, db, q), func(m match) bool {
		same := func(o match) bool { return o.key == m.key }
		return slices.ContainsFunc(f.Found, same) || slices.ContainsFunc(f.Near, same)
	})
	return f, nil
}

// exactly finds accounts of one type by an identifier, by their UID and by their record key. A text that can be none is nobody's.
func exactly(ctx context.Context, db *userdb.DB, t *userdb.Type, declared schema.Type, q string) (found []match, err error) {
	word := strings.TrimSpace(q)
	all := []hints.Hint{hints.Any(q), hints.UID(word)}
	if key, err := recordkey.Parse(word); err == nil && key.Namespace() == (recordkey.Namespace{}) && key.Type() == t.Name() {
		all = append(all, hints.Key(key))
	}
	for e, err := range t.FindAll(ctx, all...) {
		if absent(err) {
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
		if why, err := whyOf(ctx, db, t, e); err == nil {
			m.Standing = why.Sentence
		}
		found = append(found, m)
	}
	return found, nil
}

// matchOf is an account, and by which of its facets a text means it.
func matchOf(e userdb.Entry, declared schema.Type, q string) match {
	m := match{Type: e.Type(), UID: e.UID(), Label: labelOf(e, declared), Field: declared.Primary, Value: e.UID(), key: e.Key()}
	for _, field := range declared.Secondary() {
		if text := e.Text(field); text != "" && declared.Canonical(text) == declared.Canonical(q) {
			m.Field, m.Value = field, text
		}
	}
	return m
}

// absent reports whether an error says that there is no such account, or can be none.
func absent(err error) bool {
	return isAny(err, userdb.ErrNotFound, hints.ErrHint, userdb.ErrInvalid)
}

// near finds accounts with an identifier from which one letter was left out, put in, mistaken, or exchanged with its neighbour.
func near(ctx context.Context, db *userdb.DB, q string) (found []match) {
	brief, cancel := context.WithTimeout(ctx, nearTime)
	defer cancel()
	for _, name := range db.Schema().Names() {
		t, err := db.Type(name)
		declared := db.Schema().Types[name]
		texts := oneLetterAway(declared.Canonical(q))
		if err != nil {
			continue
		}
		first := min(len(texts), likeliest)
		found = append(found, having(ctx, t, declared, texts[:first])...)
		if len(found) == 0 {
			found = append(found, having(brief, t, declared, texts[first:])...)
		}
	}
	return found[:min(len(found), mostNear)]
}

// having are the accounts of a type that have one of some texts.
func having(ctx context.Context, t *userdb.Type, declared schema.Type, texts []string) (found []match) {
	all := make([]hints.Hint, len(texts))
	for i, text := range texts {
		all[i] = hints.Any(text)
	}
	i := 0
	for e, err := range t.FindAll(ctx, all...) {
		if i++; err == nil && !slices.ContainsFunc(found, func(o match) bool { return o.key == e.Key() }) {
			found = append(found, matchOf(e, declared, texts[i-1]))
		}
		if len(found) == mostNear {
			break
		}
	}
	return found
}

// oneLetterAway are the texts that a text may have been meant for; the likeliest first. None for one that is too long.
func oneLetterAway(text string) (all []string) {
	letters := []rune(text)
	if n := len(letters); n < 2 || n > longestNear {
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

// beginning finds accounts with an identifier that begins so, by the ordered indexes of identifying fields.
func beginning(ctx context.Context, db *userdb.DB, q string) (found []match) {
	if len([]rune(strings.TrimSpace(q))) < 2 {
		return nil
	}
	for name, declared := range db.Schema().Types {
		t, err := db.Type(name)
		if err != nil {
			continue
		}
		for _, field := range declared.Ordered() {
			if !declared.Fields[field].Role.Has(schema.RoleSecondary) {
				continue
			}
			p, err := t.Page(ctx, userdb.Query{Order: field, Prefix: declared.Canonical(q), Limit: mostSuggested})
			if err != nil {
				continue
			}
			for _, e := range p.Entries {
				found = append(found, match{Type: name, UID: e.UID(), Label: labelOf(e, declared), Field: field, Value: e.Text(field), key: e.Key()})
			}
		}
	}
	slices.SortFunc(found, func(a, b match) int { return strings.Compare(a.Value, b.Value) })
	return found[:min(len(found), mostSuggested)]
}

// suggest answers the script of the input, as somebody types.
func (c *Console) suggest(w http.ResponseWriter, r *http.Request) {
	values := []string{}
	if db, err := c.view(r.Context()); err == nil && len(r.FormValue("q")) <= longestQuery {
		for _, m := range beginning(r.Context(), db, r.FormValue("q")) {
			values = append(values, m.Value)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(slices.Compact(values)) // a browser that is gone is told nothing
}
