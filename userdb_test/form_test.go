package userdb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// problemsOf returns the problems that err reports, each as a field and a word, such as "email
// required", "name taken" or "password min".
func problemsOf(err error) (problems []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			problems = append(problems, problemsOf(e)...)
		}
		return problems
	}
	var field *userdb.FieldError
	var policy *password.PolicyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &field) && errors.Is(err, userdb.ErrDuplicate):
		return []string{field.Field + " taken"}
	case errors.As(err, &field):
		return []string{field.Field + " " + field.Rule}
	case errors.As(err, &policy):
		return []string{"password " + policy.Rule}
	}
	return []string{err.Error()}
}

// joinsNone is an error that joins no others.
type joinsNone struct{}

func (joinsNone) Error() string   { return "no errors" }
func (joinsNone) Unwrap() []error { return nil }

// TestAllProblemsReported checks that create, accept, update, save and check report all problems of
// a form at once, and that a refused change writes nothing.
func TestAllProblemsReported(t *testing.T) {
	sc := schema.User()
	user := sc.Types["user"]
	user.Fields["job"] = schema.Field{Required: true}
	sc.Types["user"] = user
	eachStore(t, func(t *testing.T, s *site) {
		g := newLoginSite(s, userdb.Options{Schema: sc, HashWorkers: 2})
		ctx := t.Context()
		for _, name := range []string{"alice", "bob"} {
			add(t, g.users, name, "name", name, "email", name+"@example.com", "job", "cook")
		}
		want := func(what string, err error, problems ...string) {
			t.Helper()
			got := problemsOf(err)
			slices.Sort(got)
			slices.Sort(problems)
			if !slices.Equal(got, problems) {
				t.Errorf("%s: got the problems %q, want %q", what, got, problems)
			}
		}
		forms := []struct {
			facets   schema.Facets
			password string
			problems []string
		}{
			{
				schema.Texts("name", "alice", "email", "no address"), "short",
				[]string{"name taken", "email email", "job required", "password min"},
			},
			{
				schema.Texts("name", "ALICE", "email", "alice@EXAMPLE.com", "job", "x"), "",
				[]string{"name taken", "email taken"},
			},
			{
				schema.Texts("name", "alice", "email", "bob@example.com", "job", "x"), "password",
				[]string{"name taken", "email taken", "password blocklist"},
			},
			{
				schema.Texts("name", "new", "email", "new@example.com"), "battery staple",
				[]string{"job required"},
			},
			{
				schema.Texts("name", "new", "job", "x"), "short",
				[]string{"password min"},
			},
			{
				schema.Texts("nick", "x", "nock", "y", "job", "x"), "",
				[]string{"nick undeclared", "nock undeclared"},
			},
		}
		for i, f := range forms {
			_, err := g.users.Create(ctx, userdb.NewEntry{Facets: f.facets, Password: f.password})
			if len(problemsOf(err)) == 0 {
				t.Errorf("form %d is accepted", i)
			}
			want(fmt.Sprint("create ", i), err, f.problems...)
		}
		// Values that the entry with the same UID has do not count as taken.
		facets := schema.Texts("name", "alice", "email", "bob@example.com")
		_, err := g.users.Create(ctx, userdb.NewEntry{UID: "alice", Facets: facets})
		want("create of alice again", err, "email taken", "job required")
		secret := g.invite("new@example.com")
		_, err = g.users.AcceptInvitation(ctx, secret, userdb.NewEntry{Facets: schema.Texts("name", "alice"), Password: "short"})
		want("accept", err, "name taken", "job required", "password min")

		// What the caller has found wrong, such as with a date, is reported together with the rest.
		found := errors.Join(
			&userdb.FieldError{Err: userdb.ErrInvalid, Field: "born", Rule: "date"},
			&userdb.FieldError{Err: userdb.ErrInvalid, Field: "name", Rule: "rude"},
		)
		_, err = g.users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "alice", "email", "bob@example.com"), Password: "short", Problems: found})
		want("create with problems", err, "born date", "name rude", "email taken", "job required", "password min")
		_, err = g.users.AcceptInvitation(ctx, secret, userdb.NewEntry{Facets: schema.Texts("job", "x"), Password: "battery staple", Problems: found})
		want("accept with problems", err, "born date", "name rude")
		_, err = g.users.Create(ctx, userdb.NewEntry{Problems: userdb.ErrConflict})
		want("create with another error", err, userdb.ErrConflict.Error())
		if _, err = g.users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("job", "cook"), Problems: joinsNone{}}); !errors.Is(err, joinsNone{}) {
			t.Errorf("create with an error that joins none: got %v, want that error", err)
		}
		_, err = g.users.Update(ctx, uid("bob"), func(e *userdb.Entry) error {
			e.Put("name", schema.Text("alice"))
			e.Put("email", schema.Text("alice@example.com"))
			e.Drop("job")
			return found
		})
		want("update with problems", err, "born date", "name rude", "email taken", "job required")
		_, err = g.users.Update(ctx, uid("bob"), func(e *userdb.Entry) error {
			e.Put("email", schema.Text("no address"))
			return errors.Join(found, userdb.ErrConflict)
		})
		want("update with another error", err, "born date", "name rude", userdb.ErrConflict.Error())
		_, err = g.users.Update(ctx, uid("bob"), func(*userdb.Entry) error { return found })
		want("update of nothing with problems", err, "born date", "name rude")

		edit := func(e *userdb.Entry) {
			e.Put("name", schema.Text("alice"))
			e.Put("email", schema.Text("no address"))
			e.Drop("job")
		}
		_, err = g.users.Update(ctx, uid("bob"), func(e *userdb.Entry) error { edit(e); return nil })
		want("update", err, "name taken", "email email", "job required")
		e := g.find("bob")
		edit(&e)
		_, err = g.users.Save(ctx, e)
		want("save", err, "name taken", "email email", "job required")
		want("check", g.users.Check(ctx, e), "name taken", "email email", "job required")
		e = g.find("bob")
		e.Put("name", schema.Text("alice"))
		e.Put("email", schema.Text("alice@example.com"))
		_, err = g.users.Save(ctx, e)
		want("save with values that others have", err, "name taken", "email taken")
		want("check with values that others have", g.users.Check(ctx, e), "name taken", "email taken")
		e = g.find("bob")
		e.Put("email", schema.Text("bob@example.org"))
		must(t, g.users.Check(ctx, e))
		_, err = g.users.Update(ctx, uid("bob"), func(e *userdb.Entry) error {
			e.Put("name", schema.Text("alice"))
			e.Put("email", schema.Text("alice@example.com"))
			return nil
		})
		want("update to values that others have", err, "name taken", "email taken")
		if e := g.find("bob"); e.Text("name") != "bob" || e.Text("email") != "bob@example.com" {
			t.Errorf("a refused change was written: %v", e)
		}
	})
}
