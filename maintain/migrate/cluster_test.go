package migrate_test

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// TestMaintenanceOnCluster repairs damage, changes the schema, and copies and drops a namespace on
// a cluster of several servers.
func TestMaintenanceOnCluster(t *testing.T) {
	client := redistest.StartCluster(t).Client()
	from := userSchema(schema.FoldExact)
	db, err := redisdb.New(t.Context(), client, userdb.Options{Schema: from})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(&testdb.Site{Ctx: t.Context(), DB: db})
	s.Edit(t, func(c *view.Config) { c.Engine = testdb.FakeClockEngine(client) })
	user := s.Type(t, "user")
	for _, name := range []string{"Alice", "Bob", "Carol"} {
		e := userdb.NewEntry{UID: name, Tags: []string{"go"}, Facets: schema.Texts("email", name+"@x.org", "name", name, "job", "Cook")}
		if _, err := user.Create(s.Ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range [][]any{
		{"DEL", "user/name:Bob/~prk"},
		{"DEL", "user/email:Bob@x.org/~prk"},
		{"RPUSH", "user/email:Bob@x.org/~prk", "x"},
		{"SET", "user/name:ghost/~prk", "user/uid:ghost"},
		{"SET", "user/name:tab\t/~prk", "user/uid:Bob"},
		{"HDEL", "user/uid:Carol", "~isa", "~prk"},
		{"SREM", "user/job:Cook/~prks", "user/uid:Alice"},
		{"SADD", "user/tags:c/~prks", "user/uid:Alice", "user/uid:ghost", "rubbish"},
		{"SADD", "user/uid:ghost/tags", "c"},
	} {
		if err := client.Do(s.Ctx, words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if done, left := s.Repaired(t, check.Options{}); len(left) > 0 || len(done) < 9 {
		t.Errorf("repaired %q, left %q; want at least 9 repaired and none left", done, left)
	}
	testdb.Same(t, "after the repair", s.Check(t, check.Options{}), nil)

	to := userSchema(schema.FoldCasefold, drop("name"), field("alias", schema.Field{Role: schema.RoleSecondary, Was: "name"}))
	if _, err := s.apply(s.Ctx, to); err != nil {
		t.Fatal(err)
	}
	s.DB = s.withSchema(t, to)
	testdb.Same(t, "under the new schema", s.Check(t, check.Options{}), nil)
	copied, err := migrate.CopyNamespace(s.Ctx, testdb.Must(s.DB.In(testdb.Space(t, "a"))), testdb.Space(t, "a"), testdb.Space(t, "b"))
	if !errors.Is(err, userdb.ErrNotFound) || copied != 0 {
		t.Errorf("copying an empty namespace: got %d, %v; want ErrNotFound", copied, err)
	}
	a := newSite(&testdb.Site{Ctx: s.Ctx, DB: testdb.Must(s.DB.In(testdb.Space(t, "a")))})
	if _, err := a.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "1", Tags: []string{"x"}, Facets: schema.Texts("alias", "Dora", "email", "d@x.org")}); err != nil {
		t.Fatal(err)
	}
	n, err := migrate.CopyNamespace(s.Ctx, s.DB, testdb.Space(t, "a"), testdb.Space(t, "b"))
	if err != nil || n < 5 {
		t.Errorf("copied %d records, %v; want at least 5", n, err)
	}
	b := newSite(&testdb.Site{Ctx: s.Ctx, DB: testdb.Must(s.DB.In(testdb.Space(t, "b")))})
	testdb.Same(t, "the copy", b.Check(t, check.Options{}), nil)
	if _, err := b.Type(t, "user").Find(s.Ctx, hints.Field("alias", "DORA").Of("user")); err != nil {
		t.Errorf("finding the entry in the copy: %v", err)
	}
	if dropped, err := migrate.DropNamespace(s.Ctx, s.DB, testdb.Space(t, "a")); err != nil || dropped != n {
		t.Errorf("dropped %d of %d records, %v", dropped, n, err)
	}
	testdb.Same(t, "the copy, after the source was dropped", b.Check(t, check.Options{}), nil)
	testdb.Same(t, "outside the namespaces, after the source was dropped", s.Check(t, check.Options{}), nil)
}
