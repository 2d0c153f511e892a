package userdb_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// TestOpenRefuses opens stores that do not exist or cannot be used. The error must name the
// problem, without the password.
func TestOpenRefuses(t *testing.T) {
	cases := []struct {
		url   string
		kind  error
		words string
	}{
		{"", connect.ErrURL, "no scheme"},
		{"user", connect.ErrURL, "no scheme"},
		{"/var/lib/userdb/users.db", connect.ErrURL, "write file:PATH"},
		{"redis://h:1,g:2", connect.ErrURL, "several hosts"},
		{"redis+cluster://u:p@h:1,g:2/", connect.ErrURL, "several hosts"},
		{"http://localhost", connect.ErrURL, "unknown scheme"},
		{"file:", connect.ErrURL, "names no file"},
		{"redis://:topsecret@local host", connect.ErrURL, ""},
		{"redis://:topsecret@localhost:port", connect.ErrURL, ""},
		{"redis://:topsecret@localhost/x", connect.ErrURL, ""},
		{"redis+sentinel://:topsecret@localhost:1", connect.ErrURL, "master_name"},
		{"redis+sentinel://:topsecret@localhost:1?master_name=m&replica_only=true", connect.ErrURL, "replicas"},
		{"redis://:topsecret@127.0.0.1:1?max_retries=-1", userdb.ErrUnavailable, "connection refused"},
		{"unix://:topsecret@/nowhere/redis.sock?max_retries=-1", userdb.ErrUnavailable, "no such file"},
	}
	for _, c := range cases {
		db, err := userdb.Open(t.Context(), c.url, userdb.Options{})
		wantErr(t, c.url, err, c.kind, c.words)
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: the error contains the password: %v", c.url, err)
		}
		if db != nil {
			t.Errorf("%s: got a DB, want nil", c.url)
		}
	}
	_, err := redisdb.New(t.Context(), nil, userdb.Options{})
	wantErr(t, "a nil client", err, userdb.ErrUnsuitable, "nil")
	_, err = userdb.Open(t.Context(), "memory:", userdb.Options{Schema: schema.Schema{Types: map[string]schema.Type{"user": {}}}})
	wantErr(t, "a bad schema", err, schema.ErrSchema, "types.user.primary")
	_, err = userdb.Open(t.Context(), "memory:", userdb.Options{Peppers: [][]byte{[]byte("topsecret")}})
	if err == nil || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("a short pepper: got %v, want an error without the pepper", err)
	}
}

// TestFilePersists opens a file several times. It must keep what was written, and nobody else may
// open it meanwhile.
func TestFilePersists(t *testing.T) {
	url := "file:" + filepath.Join(t.TempDir(), "new", "dir", "db")
	var rev string
	for round := range 3 {
		db, err := userdb.Open(t.Context(), url, userdb.Options{})
		must(t, err)
		users := typeOf(t, db, "user")
		if round == 0 {
			_, err := users.Create(t.Context(), userdb.NewEntry{
				UID: "u", Facets: schema.Texts("name", "Ann"), Tags: []string{"a"}, Password: clearPassword,
			})
			must(t, err)
		}
		e, err := users.Find(t.Context(), hints.Any("ann"))
		must(t, err)
		if round == 2 && e.Rev() != rev {
			t.Errorf("got revision %q, want %q, which was written before the file was closed", e.Rev(), rev)
		}
		_, err = users.Login(t.Context(), "ANN", clearPassword, userdb.Attempt{})
		must(t, err)
		e, err = users.Update(t.Context(), hints.UID("u"), putText("job", itoa(round)))
		must(t, err)
		rev = e.Rev()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = userdb.Open(ended, url, userdb.Options{})
		wantErr(t, "opening the file a second time", err, userdb.ErrUnavailable, "locked")
		must(t, db.Close())
	}
	if info, err := os.Stat(strings.TrimPrefix(url, "file:")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v; want 0600", info.Mode(), err)
	}
}

// TestMemoryStoresAreSeparate checks that two stores in memory share nothing.
func TestMemoryStoresAreSeparate(t *testing.T) {
	one, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
	must(t, err)
	two, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
	must(t, err)
	add(t, typeOf(t, one, "user"), "u", "name", "Ann")
	if there, err := typeOf(t, two, "user").Exists(t.Context(), hints.Any("ann")); there || err != nil {
		t.Errorf("the other store has the entry: %v, %v; want false", there, err)
	}
	must(t, errors.Join(one.Close(), two.Close()))
}

// TestClosedStoreMethods checks that the methods of basicMethods fail on a closed store.
func TestClosedStoreMethods(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := lossyStore(t, s)
		before, err := users.Find(t.Context(), hints.UID("u"))
		must(t, err)
		s.check()
		for range 3 {
			must(t, s.first.Close())
		}
		for name, method := range basicMethods(s.first, users, before) {
			if err := method(t.Context()); !errors.Is(err, userdb.ErrUnavailable) {
				t.Errorf("%s on a closed store: got %v, want ErrUnavailable", name, err)
			}
		}
		s.first, s.opened = nil, nil
	})
}

// TestCloseKeepsCallersClient checks that Close leaves a caller's client open.
func TestCloseKeepsCallersClient(t *testing.T) {
	srv := redistest.Shared(t)
	c := srv.Client()
	db, err := redisdb.New(t.Context(), c, userdb.Options{})
	must(t, err)
	add(t, typeOf(t, db, "user"), "u", "name", "Ann")
	must(t, db.Close())
	must(t, c.Ping(t.Context()).Err())
	if n := c.Exists(t.Context(), "user/uid:u", "user/name:ann/~prk").Val(); n != 2 {
		t.Errorf("%d records exist, want 2", n)
	}
}
