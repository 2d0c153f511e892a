package userdb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/userdb"
)

// describeValues returns values of a field as "ada@x.org/work bob".
func describeValues(e userdb.Entry, field string) string {
	var words []string
	for _, v := range e.TextValues(field) {
		word := v.Text
		if v.Label != "" {
			word += "/" + v.Label
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestLabels checks that values have the labels that SetLabel and Create give them, whatever their
// position in the field, and that invalid labels are refused.
func TestLabels(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: manySchema()}), "user")
		n := 0
		for _, tt := range []struct {
			what string
			edit func(e *userdb.Entry)
			want string
		}{
			{"nothing", func(*userdb.Entry) {}, "a/home b/work c"},
			{"a label of the first", func(e *userdb.Entry) { e.SetLabel("email", "A", "other") }, "a/other b/work c"},
			{"a label of another", func(e *userdb.Entry) { e.SetLabel("email", "c", "x y/z") }, "a/home b/work c/x y/z"},
			{"no label of the first", func(e *userdb.Entry) { e.SetLabel("email", "a", "") }, "a b/work c"},
			{"no label of another", func(e *userdb.Entry) { e.SetLabel("email", "b", "") }, "a/home b c"},
			{"a value that the entry lacks", func(e *userdb.Entry) { e.SetLabel("email", "d", "work") }, "a/home b/work c"},
			{"another is put first", func(e *userdb.Entry) { e.PutFirst("email", "b") }, "b/work a/home c"},
			{
				"a label of one that is put first",
				func(e *userdb.Entry) { e.PutFirst("email", "b"); e.SetLabel("email", "b", "other") }, "b/other a/home c",
			},
			{"no label of one that is put first", func(e *userdb.Entry) { e.PutFirst("email", "b"); e.SetLabel("email", "b", "") }, "b a/home c"},
			{"a label, then another first", func(e *userdb.Entry) { e.SetLabel("email", "c", "other"); e.PutFirst("email", "c") }, "c/other a/home b/work"},
			{"another spelling", func(e *userdb.Entry) { e.SetTexts("email", "A", "B") }, "A/home B/work"},
			{"a new value", func(e *userdb.Entry) { e.AddText("email", "d"); e.SetLabel("email", "d", "new") }, "a/home b/work c d/new"},
		} {
			n++
			e, err := users.Create(t.Context(), userdb.NewEntry{
				UID: fmt.Sprint("u", n), Values: map[string][]string{"email": {"a", "b", "c"}},
				Labels: map[string]map[string]string{"email": {"a": "home", "B": "work", "nobody": "x"}},
			})
			must(t, err)
			before := describeValues(e, "email")
			tt.edit(&e)
			if got := describeValues(e, "email"); got != tt.want {
				t.Errorf("%s: the copy has %s, want %s", tt.what, got, tt.want)
			}
			saved, err := users.Save(t.Context(), e)
			must(t, err)
			read, err := users.Find(t.Context(), uid(e.UID()))
			must(t, err)
			if got := describeValues(saved, "email") + ", " + describeValues(read, "email"); got != tt.want+", "+tt.want {
				t.Errorf("%s: saved, and read again, the values are %s, want %s twice; before they were %s", tt.what, got, tt.want, before)
			}
			for _, label := range []string{"-", strings.Repeat("x", 65)} {
				read.SetLabel("email", read.Text("email"), label)
				_, err = users.Save(t.Context(), read)
				wantField(t, "the label "+label, err, userdb.ErrInvalid, "email")
			}
			must(t, users.Delete(t.Context(), uid(e.UID())))
		}
	})
}
