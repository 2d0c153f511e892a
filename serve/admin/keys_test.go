package admin_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func TestKeys(t *testing.T) {
	ctx := t.Context()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	must(t, err)
	defer db.Close()
	keys, err := admin.OpenKeys(db)
	must(t, err)
	k := admin.Key{Name: "Web-shop", Scopes: []string{admin.ScopeRead, admin.ScopeLogin}, Types: []string{"user"}, Expires: time.Now().Add(time.Hour).Truncate(time.Second)}
	secret, err := keys.Create(ctx, k)
	must(t, err)
	if !regexp.MustCompile(`^udb_[a-z2-7]{32}$`).MatchString(secret) {
		t.Errorf("got the secret %q, want udb_ and 32 characters of base32", secret)
	}
	found, err := keys.Find(ctx, admin.Hash(secret))
	must(t, err)
	if found.Name != "Web-shop" || !found.HasScope(admin.ScopeRead) || found.HasScope(admin.ScopeWrite) || !found.CanSee("user") || found.CanSee("order") ||
		!found.Valid(time.Now()) || found.Valid(time.Now().Add(2*time.Hour)) {
		t.Errorf("found %+v, want Web-shop with the scopes read and login, for type user, valid for an hour", found)
	}
	if _, err := keys.Create(ctx, admin.Key{Name: "web-SHOP", Scopes: []string{admin.ScopeRead}}); !errors.Is(err, userdb.ErrDuplicate) {
		t.Errorf("a second key with the same name: got %v, want ErrDuplicate", err)
	}
	for _, bad := range []admin.Key{{Name: "x"}, {Name: "x", Scopes: []string{"root"}}} {
		if _, err := keys.Create(ctx, bad); !errors.Is(err, admin.ErrKey) {
			t.Errorf("key %+v: got %v, want ErrKey", bad, err)
		}
	}
	for _, name := range []string{"", "a b", "-x", strings.Repeat("x", 65), "\x1b[2J"} {
		if _, err := keys.Create(ctx, admin.Key{Name: name, Scopes: []string{admin.ScopeRead}}); !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("name %q: got %v, want ErrInvalid", name, err)
		}
	}
	if _, err := keys.Create(ctx, admin.Key{Name: "ns", Namespace: "a//b", Scopes: []string{admin.ScopeRead}}); !errors.Is(err, recordkey.ErrSyntax) {
		t.Errorf("invalid namespace: got %v, want ErrSyntax", err)
	}
	all, err := keys.All(ctx)
	must(t, err)
	if len(all) != 1 || all[0].Name != "Web-shop" {
		t.Errorf("got the keys %+v, want only Web-shop", all)
	}
	must(t, keys.Revoke(ctx, "WEB-shop"))
	if _, err := keys.Find(ctx, admin.Hash(secret)); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("finding a revoked key: got %v, want ErrNotFound", err)
	}
	if err := keys.Revoke(ctx, "web-shop"); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("revoking a key again: got %v, want ErrNotFound", err)
	}
	must(t, admin.CheckWritable(ctx, db))
}

// TestKeyLimit checks that each namespace has its own limit on the number of keys.
func TestKeyLimit(t *testing.T) {
	const most = 10
	defer admin.SetMaxKeys(most)()
	ctx := t.Context()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	must(t, err)
	defer db.Close()
	keys, err := admin.OpenKeys(db)
	must(t, err)
	create := func(name, ns string) error {
		_, err := keys.Create(ctx, admin.Key{Name: name, Namespace: ns, Scopes: []string{admin.ScopeRead}})
		return err
	}
	for i := range most {
		must(t, create(fmt.Sprint("a", i), "a"))
	}
	if err := create("one-more", "a"); !errors.Is(err, admin.ErrTooManyKeys) {
		t.Errorf("one key more than allowed: got %v, want ErrTooManyKeys", err)
	}
	for _, ns := range []string{"", "b", "a/b"} {
		if err := create("other-"+strings.ReplaceAll(ns, "/", "-"), ns); err != nil {
			t.Errorf("a key of namespace %q: got %v, want no error", ns, err)
		}
	}
}

// TestReserved checks that callers cannot open, list, remove, copy or drop the store's own records.
func TestReserved(t *testing.T) {
	ctx := t.Context()
	db, err := userdb.Open(ctx, "memory:", userdb.Options{})
	must(t, err)
	defer db.Close()
	keys, err := admin.OpenKeys(db)
	must(t, err)
	_, err = keys.Create(ctx, admin.Key{Name: "a", Scopes: []string{admin.ScopeRead}})
	must(t, err)
	inside, err := view.Reserved.Sub("x")
	must(t, err)
	for _, ns := range []recordkey.Namespace{view.Reserved, inside} {
		if _, err := db.In(ns); !errors.Is(err, recordkey.ErrSyntax) {
			t.Errorf("In: got %v, want ErrSyntax", err)
		}
		if _, err := userdb.Open(ctx, "memory:", userdb.Options{Namespace: ns}); !errors.Is(err, recordkey.ErrSyntax) {
			t.Errorf("Open: got %v, want ErrSyntax", err)
		}
		if _, err := migrate.DropNamespace(ctx, db, ns); !errors.Is(err, migrate.ErrNamespace) {
			t.Errorf("DropNamespace: got %v, want ErrNamespace", err)
		}
		other, _ := recordkey.Namespace{}.Sub("other")
		_, from := migrate.CopyNamespace(ctx, db, ns, other)
		_, to := migrate.CopyNamespace(ctx, db, other, ns)
		if !errors.Is(from, migrate.ErrNamespace) || !errors.Is(to, migrate.ErrNamespace) {
			t.Errorf("CopyNamespace: got %v and %v, want ErrNamespace", from, to)
		}
	}
	for _, pattern := range []string{"*", "~*", "~~userdb/*"} {
		for key, err := range inspect.Keys(ctx, db, pattern) {
			t.Errorf("Keys(%q) lists %q, %v", pattern, key, err)
		}
		if n, err := inspect.RemoveKeys(ctx, db, pattern); n != 0 || err != nil {
			t.Errorf("RemoveKeys(%q): got %d, %v; want 0", pattern, n, err)
		}
	}
	spaces, err := migrate.Namespaces(ctx, db)
	must(t, err)
	if len(spaces) != 0 {
		t.Errorf("got the namespaces %+v, want none", spaces)
	}
	for p, err := range check.Run(ctx, db, check.Options{}) {
		t.Errorf("the check found %v, %v", p, err)
	}
	if all, err := keys.All(ctx); len(all) != 1 || err != nil {
		t.Errorf("got the keys %v, %v at the end, want one", all, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
