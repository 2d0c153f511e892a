package scim

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// storedUsers returns the stored type of the users.
func (d directory) storedUsers() schema.Type {
	d.t.Helper()
	sc, err := migrate.StoredSchema(d.Ctx, d.DB)
	if err != nil {
		d.t.Fatal(err)
	}
	return sc.Types[UserType]
}

// apply changes the stored type of the users as 'userdb schema apply' does.
func (d directory) apply(to schema.Type) error {
	plan, err := migrate.Plan(d.Ctx, d.DB, schema.Schema{Types: map[string]schema.Type{UserType: to}})
	if err == nil {
		err = plan.Apply(d.Ctx, nil)
	}
	return err
}

// edited returns a copy of a type whose fields edit has changed.
func edited(t schema.Type, edit func(fields map[string]schema.Field)) schema.Type {
	t.Fields = maps.Clone(t.Fields)
	edit(t.Fields)
	return t
}

// withoutSCIM returns a copy of a type without the indexes that SCIM needs.
func withoutSCIM(t schema.Type) schema.Type {
	t = edited(t, func(fields map[string]schema.Field) {
		delete(fields, externalField)
		delete(fields, addedField)
	})
	t.Tertiary = maps.Clone(t.Tertiary)
	t.Tertiary[tagsName] = schema.Tertiary{Kind: "set"}
	return t
}

// TestSchemaLosesIndexes checks that lists, filters and members are complete after a change of the
// schema has removed the indexes of SCIM and no request of SCIM has written since, and that writes
// go on. A group that is deleted then leaves its tag to nobody.
func TestSchemaLosesIndexes(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		d := newDirectory(t, s.Under(t, schema.User()), map[string]string{"Heads": "head"})
		id, _ := d.must("POST", "/Users", `{"userName":"ada@x.org","externalId":"e1"}`)["id"].(string)
		group := d.createGroup("Heads", id)
		for name, ask := range map[string]func(){
			"a filter": func() {
				if ids, total := d.resources("/Users?filter=" + url.QueryEscape(`externalId eq "e1"`)); !slices.Equal(ids, []string{id}) || total != 1 {
					t.Errorf("a filter: got %q of %d, want %q of 1", ids, total, id)
				}
			},
			"a list": func() {
				if ids, total := d.resources("/Users"); !slices.Equal(ids, []string{id}) || total != 1 {
					t.Errorf("a list: got %q of %d, want %q of 1", ids, total, id)
				}
			},
			"members": func() {
				if got := memberValues(d.must("GET", "/Groups/"+group, "")); !slices.Equal(got, []string{id}) {
					t.Errorf("members: got %q, want %q", got, id)
				}
			},
		} {
			if err := d.apply(withoutSCIM(d.storedUsers())); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			ask()
		}
		for _, sent := range [][3]string{
			{"POST", "/Users/.search", `{"filter":"externalId eq \"e1\""}`},
			{"POST", "/Users", `{"userName":"bob@x.org","externalId":"e2"}`},
			{"PATCH", "/Users/" + id, `{"Operations":[{"op":"replace","path":"externalId","value":"e3"}]}`},
			{"POST", "/Groups", groupBody("Others")},
			{"PUT", "/Groups/" + group, groupBody("Heads", id)},
			{"PATCH", "/Groups/" + group, `{"Operations":[{"op":"replace","path":"members","value":[{"value":"` + id + `"}]}]}`},
			{"DELETE", "/Groups/" + group, ""},
		} {
			if err := d.apply(withoutSCIM(d.storedUsers())); err != nil {
				t.Fatalf("%s %s: %v", sent[0], sent[1], err)
			}
			d.must(sent[0], sent[1], sent[2])
		}
		tags, err := d.Type(t, UserType).Tags(hints.UID(id)).Members(d.Ctx)
		if err != nil || len(tags) > 0 {
			t.Errorf("the member of a deleted group: got the tags %q, %v; want none", tags, err)
		}
	})
}

// processKey is the key of the name of a process in the context of its commands.
type processKey struct{}

// An interrupter is a hook that calls do before the command with a number of one process.
type interrupter struct {
	process  string
	at, seen int
	do       func()
}

func (i *interrupter) before(ctx context.Context) {
	if i.do == nil || ctx.Value(processKey{}) != i.process {
		return
	}
	if i.seen++; i.seen == i.at {
		do := i.do
		i.do = nil
		do()
	}
}

func (*interrupter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i *interrupter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { i.before(ctx); return next(ctx, cmd) }
}

func (i *interrupter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { i.before(ctx); return next(ctx, cmds) }
}

// A schemaChange is a change that an operator makes, and what is true of the stored type after it.
type schemaChange struct {
	name  string
	to    func(schema.Type) schema.Type
	holds func(schema.Type) bool
}

var schemaChanges = []schemaChange{
	{"an index is added", func(t schema.Type) schema.Type {
		return edited(t, func(fields map[string]schema.Field) { fields["phone"] = schema.Field{Role: schema.RoleIndexed} })
	}, func(t schema.Type) bool { return t.Fields["phone"].Role == schema.RoleIndexed }},
	{"an index is removed", func(t schema.Type) schema.Type {
		return edited(t, func(fields map[string]schema.Field) { delete(fields, "job") })
	}, func(t schema.Type) bool { _, has := t.Fields["job"]; return !has && slices.Contains(t.Retired, "job") }},
	{"values are added", func(t schema.Type) schema.Type {
		return edited(t, func(fields map[string]schema.Field) {
			f := fields["email"]
			f.Many = 5
			fields["email"] = f
		})
	}, func(t schema.Type) bool { return t.Fields["email"].Many == 5 }},
	{"the indexes of SCIM are removed again", withoutSCIM, func(schema.Type) bool { return true }},
}

// TestSchemaChangesMeet checks what happens if a list of SCIM, which adds the indexes that it
// lacks, and an operator's change of the schema interrupt each other at any command. The list is
// complete or refused, the operator's change is not undone, and in the end both are done.
func TestSchemaChangesMeet(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		hook := &interrupter{}
		s = s.Under(t, schema.User())
		s.AddHook(hook)
		for _, c := range schemaChanges {
			for _, interrupted := range []string{"list", "operator"} {
				for at := 1; meet(t, s, hook, c, interrupted, at); at++ {
				}
			}
		}
	})
}

// meet interrupts one of the two before a command and lets the other run meanwhile. It returns
// false if there is no such command.
func meet(t *testing.T, s *testdb.Site, hook *interrupter, c schemaChange, interrupted string, at int) (more bool) {
	if err := s.Raw.FlushDB(s.Ctx).Err(); err != nil {
		t.Fatal(err)
	}
	d := newDirectory(t, freshSite(t, s), nil)
	d.createUsers("u1", "u2", "u3")
	if err := d.apply(withoutSCIM(d.storedUsers())); err != nil {
		t.Fatal(err)
	}
	where := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, %s interrupted before command %d: "+format, append([]any{c.name, interrupted, at}, args...)...)
	}
	as := func(process string) directory {
		site := *d.Site
		site.Ctx = context.WithValue(d.Ctx, processKey{}, process)
		return directory{t, &site, d.h}
	}
	list := func() error {
		v, err := as("list").send("GET", "/Users", "")
		if err == nil && v["totalResults"] != 3.0 {
			where("a list has %v users, want 3", v["totalResults"])
		}
		return err
	}
	// change does what an operator does, who runs the command again if it is refused.
	target := c.to(d.storedUsers())
	change := func() {
		var err error
		for range 5 {
			if err = as("operator").apply(target); !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrSchemaMismatch) {
				break
			}
		}
		if err != nil {
			where("the operator's change: %v", err)
		}
	}
	first, second := func() { list() }, change
	if interrupted == "operator" {
		first, second = change, func() { list() }
	}
	*hook = interrupter{process: interrupted, at: at, do: second}
	first()
	more = hook.do == nil
	hook.do = nil
	if !more {
		second()
	}
	// A directory repeats a request that was refused.
	err := list()
	for range 3 {
		if err != nil {
			err = list()
		}
	}
	rest := d.storedUsers()
	switch pending, _ := migrate.PendingSchema(d.Ctx, d.DB); {
	case err != nil:
		where("the last list: %v", err)
	case rest.Building != nil || len(pending.Types) > 0:
		where("a change is unfinished: %+v %+v", rest.Building, pending)
	case !c.holds(rest):
		where("the operator's change was undone: %+v", rest)
	}
	return more && !t.Failed()
}

// TestRepeatedAfterChange checks the errors of requests that meet a changed schema after they have
// changed something themselves. Whatever their second attempts end with, the errors say that
// changes were made.
func TestRepeatedAfterChange(t *testing.T) {
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		d := newDirectory(t, s.Under(t, schema.User()), nil)
		changed := markPartial("the group was changed", userdb.ErrSchemaMismatch)
		for _, tt := range []struct {
			method        string
			first, second error
			runs          int
			partial       bool
		}{
			{"PUT", changed, nil, 2, false},
			{"PUT", changed, userdb.ErrUnavailable, 2, true},
			{"PUT", changed, badRequest(invalidValue, "no"), 2, true},
			{"PUT", changed, changed, 2, true},
			{"PUT", changed, errNotFound, 2, false}, // deleted with all changes
			{"DELETE", changed, userdb.ErrNotFound, 2, false},
			{"PUT", userdb.ErrSchemaMismatch, userdb.ErrUnavailable, 2, false},
			{"POST", userdb.ErrSchemaMismatch, userdb.ErrUnavailable, 2, false},
			{"POST", changed, nil, 1, true},
			{"PUT", userdb.ErrUnavailable, nil, 1, false},
		} {
			r, err := d.h.collection(d.Ctx, d.DB, d.NS.Path(), UserType)
			if err != nil {
				t.Fatal(err)
			}
			c := &call{collection: r, ctx: d.Ctx, r: httptest.NewRequestWithContext(d.Ctx, tt.method, Prefix+"/Groups/x", http.NoBody)}
			runs := 0
			_, err = c.run(d.DB, func(*call) (answer, error) {
				if runs++; runs == 1 {
					return answer{}, tt.first
				}
				return answer{}, tt.second
			})
			want := tt.second
			if tt.runs == 1 {
				want = tt.first
			}
			if runs != tt.runs || !errors.Is(err, want) || errors.Is(err, ErrPartial) != tt.partial {
				t.Errorf("%s, %v, then %v: got %v after %d attempts, want it marked as partial: %v, after %d",
					tt.method, tt.first, tt.second, err, runs, tt.partial, tt.runs)
			}
		}
	})
}

// freshSite returns s with a DB that knows nothing about the store.
func freshSite(t *testing.T, s *testdb.Site) *testdb.Site {
	t.Helper()
	fresh := *s
	fresh.Edit(t, func(*view.Config) {})
	return &fresh
}
