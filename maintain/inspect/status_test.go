package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// summary returns the parts of a status that tests compare: types, namespaces, and the codes of
// warnings about the schema or about what could not be read.
func (s *site) summary(t *testing.T) string {
	t.Helper()
	st, err := inspect.StatusOf(s.Ctx, s.DB, nil)
	if err != nil {
		t.Fatal(err)
	}
	return summarize(st)
}

func summarize(st inspect.Status) string {
	var parts []string
	for _, t := range st.Types {
		n := "?"
		if t.Entries != nil {
			n = fmt.Sprint(*t.Entries)
		}
		parts = append(parts, fmt.Sprintf("%s %s stored=%t changing=%t fields=%d %s", t.Type, n, t.Stored, t.Changing, t.Fields, t.Canonical))
	}
	for _, n := range st.Namespaces {
		parts = append(parts, fmt.Sprintf("%s/ %d of %d", n.Namespace, n.Entries, n.Records))
	}
	for _, w := range st.Warnings {
		if strings.HasPrefix(w.Code, "schema") || w.Code == "not_learned" {
			parts = append(parts, w.Code)
		}
	}
	return strings.Join(parts, "; ")
}

func TestStatus(t *testing.T) {
	form := schema.FormVersion()
	eachEngine(t, func(t *testing.T, s *site) {
		want := "firm 0 stored=false changing=false fields=1 ; user 0 stored=false changing=false fields=8 " + form
		if got := s.summary(t); got != want {
			t.Errorf("an empty store\n got %s\nwant %s", got, want)
		}
		for n := range 3 {
			s.User(t, n)
		}
		if err := s.Type(t, "user").Delete(s.Ctx, hints.UID("u1")); err != nil {
			t.Fatal(err)
		}
		inner := testdb.Must(s.DB.In(testdb.Must(s.NS.Sub("in side"))))
		x := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "x")}
		testdb.Must(testdb.Must(inner.Type("user")).Create(s.Ctx, x))
		want = "firm 0 stored=false changing=false fields=1 ; user 2 stored=true changing=false fields=8 " + form + "; in+_side/ 1 of 4"
		if got := s.summary(t); got != want {
			t.Errorf("some entries\n got %s\nwant %s", got, want)
		}

		// The stored schema is in force, and a different schema of the program is reported.
		other := testdb.DefaultSchema()
		other.Types["user"].Fields["job"] = schema.Field{Role: schema.RoleSecondary}
		delete(other.Types["user"].Fields, "motto")
		if got := newSite(&testdb.Site{Ctx: s.Ctx, DB: testdb.Must(s.DB.With(other))}).summary(t); got != want+"; schema" {
			t.Errorf("a program with another schema\n got %s\nwant %s", got, want+"; schema")
		}
		s.Do(t, "HSET", "~/schema/user", "next", testdb.Must(s.Raw.HGet(s.Ctx, s.Key("~/schema/user"), "schema").Result()))
		changing := strings.Replace(want, "stored=true changing=false", "stored=true changing=true", 1)
		if got := s.summary(t); got != changing+"; schema_change" {
			t.Errorf("a change under way\n got %s\nwant %s", got, changing+"; schema_change")
		}

		// The status still includes everything else if something cannot be determined.
		s.Do(t, "HSET", "~/schema/user", "schema", "{")
		damaged := strings.Replace(changing, "stored=true", "stored=false", 1) + "; not_learned; schema_change"
		if got := s.summary(t); got != damaged {
			t.Errorf("a damaged schema\n got %s\nwant %s", got, damaged)
		}
		ctx, cancel := context.WithCancel(s.Ctx)
		cancel()
		if _, err := inspect.StatusOf(ctx, s.DB, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: got %v, want context.Canceled", err)
		}
	})
}

// TestServerThatCannotSave checks that a store can be opened and read, and that the status says
// what is wrong, while a server refuses writes and PING because it cannot save.
func TestServerThatCannotSave(t *testing.T) {
	server := redistest.Start(t, redistest.Config("save 3600 1", "enable-protected-configs yes"))
	c, gone := server.Client(), filepath.Join(t.TempDir(), "gone")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	before := testdb.Must(c.ConfigGet(t.Context(), "dir").Result())["dir"]
	must(os.Mkdir(gone, 0o700))
	must(c.ConfigSet(t.Context(), "dir", gone).Err())
	must(os.Remove(gone))
	must(c.BgSave(t.Context()).Err())
	for !redis.HasErrorPrefix(c.Ping(t.Context()).Err(), "MISCONF") {
		time.Sleep(time.Millisecond)
	}
	db, err := userdb.Open(t.Context(), server.URL(), userdb.Options{})
	must(err)
	st, err := inspect.StatusOf(t.Context(), db, nil)
	if err != nil || len(st.Warnings) != 1 || st.Warnings[0].Code != "save_failed" {
		t.Errorf("got the warnings %+v, error %v; want save_failed", st.Warnings, err)
	}
	_, err = testdb.Must(db.Type("user")).Create(t.Context(), userdb.NewEntry{UID: "x"})
	if !errors.Is(err, userdb.ErrUnavailable) {
		t.Errorf("a write: got %v, want ErrUnavailable", err)
	}
	must(errors.Join(db.Close(), c.ConfigSet(t.Context(), "dir", before).Err()))
}

// TestStatusOfStores checks the status of each kind of store, opened by its URL.
func TestStatusOfStores(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.jsonl")
	right := redistest.Config("appendonly yes", "appendfsync always")
	one := redistest.Start(t, right)
	wrong := redistest.Start(t, redistest.Config("maxmemory-policy allkeys-lru", "user app on nopass ~* +@all -config -time -dbsize -scan -zcard"))
	sentinel, nodes := redistest.StartSentinel(t), redistest.StartCluster(t, right)
	for _, test := range []struct {
		name, url, store string
		names            []string // of servers
		warnings         string
	}{
		{name: "memory", url: "memory:", store: "memory"},
		{name: "file", url: "file:" + file, store: "file"},
		{name: "one server", url: one.URL(), store: "redis", names: []string{one.Addr()}},
		{name: "wrong settings", url: wrong.URL(), store: "redis", names: []string{wrong.Addr()}, warnings: "evicts not_persistent"},
		{
			name: "CONFIG, SCAN and ZCARD are forbidden", url: strings.Replace(wrong.URL(), "//", "//app:any@", 1), store: "redis",
			names: []string{wrong.Addr()}, warnings: "evicts not_learned not_learned",
		},
		{name: "Sentinels", url: sentinel.URL(), store: "sentinel", names: []string{sentinel.Master.Addr()}, warnings: "not_persistent"},
		{
			name: "cluster", url: nodes.URL(), store: "cluster",
			names: []string{nodes.Nodes[0].Addr(), nodes.Nodes[1].Addr(), nodes.Nodes[2].Addr()},
		},
	} {
		db, err := userdb.Open(t.Context(), test.url, userdb.Options{})
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		var steps []int64
		st, err := inspect.StatusOf(t.Context(), db, func(done, about int64) { steps = append(steps, done, about) })
		if err := errors.Join(err, db.Close()); err != nil || st.Store != test.store || (st.File == file) != (test.name == "file") {
			t.Errorf("%s: got the store %q, the file %q and error %v; want the store %q, a file only if it is one, and no error", test.name, st.Store, st.File, err, test.store)
		}
		var names, codes []string
		for _, server := range st.Servers {
			names = append(names, server.Name)
			limited := strings.Contains(test.url, "app:")
			if (server.Clock == nil) != limited || (server.AppendFsync == "") != limited || server.Version == "" {
				t.Errorf("%s: got %+v, want a version, and a clock and AppendFsync unless the user has few rights", test.name, server)
			}
		}
		for _, w := range st.Warnings {
			codes = append(codes, w.Code)
		}
		slices.Sort(names)
		slices.Sort(test.names)
		if !slices.Equal(names, test.names) || strings.Join(codes, " ") != test.warnings || !slices.Equal(steps, []int64{0, 2, 1, 2}) {
			t.Errorf("%s: got the servers %q, the warnings %q and the progress %d; want %q, %q and 0 of 2, 1 of 2",
				test.name, names, st.Warnings, steps, test.names, test.warnings)
		}
		text, err := json.Marshal(st)
		if err != nil || strings.Contains(string(text), "any@") {
			t.Errorf("%s: got the JSON %s, error %v; want it without the password \"any\"", test.name, text, err)
		}
	}
}

// TestStatusUnavailable checks the error for a server that does not answer.
func TestStatusUnavailable(t *testing.T) {
	server := redistest.Start(t)
	db := testdb.Must(userdb.Open(t.Context(), server.URL(), userdb.Options{}))
	defer db.Close()
	server.Kill()
	if _, err := inspect.StatusOf(t.Context(), db, nil); !errors.Is(err, userdb.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// TestStatusBuilding checks that the status reports an addition to the schema while it is being
// built, and no longer once another Apply has completed it.
func TestStatusBuilding(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.User(t, 1)
		to := testdb.DefaultSchema()
		user := to.Types["user"]
		user.Fields["job"] = schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered}
		delete(to.Types, "firm")
		plan := testdb.Must(migrate.Plan(s.Ctx, s.DB, to))
		ctx, cancel := context.WithCancel(s.Ctx)
		if err := plan.Apply(ctx, func(int64, int64) { cancel() }); err == nil {
			t.Fatal("Apply was not stopped")
		}
		if got := s.summary(t); !strings.HasSuffix(got, "; schema_building") {
			t.Errorf("while building: got %s, want schema_building at the end", got)
		}
		if err := plan.Apply(s.Ctx, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.summary(t); strings.Contains(got, "building") {
			t.Errorf("when complete: got %s, want no schema_building", got)
		}
	})
}
