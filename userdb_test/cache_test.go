package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// TestCacheSendsNoCommands checks that reading cached entries sends no commands to the server, but
// that each read of an absent entry and each read that bypasses the cache sends one.
func TestCacheSendsNoCommands(t *testing.T) {
	h := startCached(t, userdb.Options{CacheMaxAge: time.Hour})
	e := add(t, h.users, "u", "name", "Ann")
	h.warm("u")
	for what, find := range map[string]func() (userdb.Entry, error){
		"UID":                 func() (userdb.Entry, error) { return h.users.Find(t.Context(), uid("u")) },
		"key":                 func() (userdb.Entry, error) { return h.users.Find(t.Context(), hints.Key(e.Key())) },
		"key, without a Type": func() (userdb.Entry, error) { return h.db.Find(t.Context(), hints.Key(e.Key())) },
	} {
		n := h.commandsDuring(func() {
			for _, err := range runConcurrently(100, func(int) error {
				got, err := find()
				if err == nil && got.String() != e.String() {
					err = fmt.Errorf("found %v, want %v", got, e)
				}
				return err
			}) {
				must(t, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %d commands, want none", what, n)
		}
	}
	for what, c := range map[string]struct {
		do   func()
		want int
	}{
		"an absent entry, twice": {func() { h.find("nobody"); h.find("nobody") }, 2},
		"bypassing the cache":    {func() { h.findUncached("u") }, 1},
	} {
		if n := h.commandsDuring(c.do); n != c.want {
			t.Errorf("%s: %d commands, want %d", what, n, c.want)
		}
	}
}

// TestCacheFollowsOthers changes entries through clients other than that of the cache. Readers must
// soon see each change.
func TestCacheFollowsOthers(t *testing.T) {
	h := startCached(t, userdb.Options{CacheMaxAge: time.Hour})
	for what, change := range map[string]func() error{
		"update":  func() error { return rename(t, h.otherUsers, "u", "Ben") },
		"disable": func() error { return h.otherUsers.Disable(t.Context(), uid("u")) },
		"delete":  func() error { return h.otherUsers.Delete(t.Context(), uid("u")) },
		"field written directly in Redis": func() error {
			return h.raw.HSet(t.Context(), "user/uid:u", "job", "cook").Err()
		},
		"records removed directly in Redis": func() error {
			indexes := []string{"~/order/user/added", "~/order/user/email", "~/order/user/name"}
			return h.raw.Del(t.Context(), append(indexes, "user/uid:u", "user/name:ann/~prk")...).Err()
		},
		"flush": func() error { return h.raw.FlushAll(t.Context()).Err() },
	} {
		must(t, h.raw.FlushAll(t.Context()).Err())
		add(t, h.users, "u", "name", "Ann")
		before := h.find("u")
		must(t, change())
		eventually(t, what, func() bool { return h.find("u") != before })
		if got, want := h.find("u"), h.findUncached("u"); got != want {
			t.Errorf("%s: found %s in the cache, %s without it", what, got, want)
		}
	}
}

func rename(t *testing.T, users *userdb.Type, u, name string) error {
	_, err := users.Update(t.Context(), uid(u), putText("name", name))
	return err
}

// ownWrites lists ways to change the entry u through the store that holds a cached copy of it.
var ownWrites = map[string]func(t *testing.T, h *cachedSite) error{
	"update": func(t *testing.T, h *cachedSite) error { return rename(t, h.users, "u", "Ben") },
	"save": func(t *testing.T, h *cachedSite) error {
		e, err := h.users.Find(t.Context(), uid("u"))
		must(t, err)
		e.Put("name", schema.Text("Ben"))
		_, err = h.users.Save(t.Context(), e)
		return err
	},
	"save with a conflict": func(t *testing.T, h *cachedSite) error {
		e, err := h.users.Find(t.Context(), uid("u"))
		must(t, err)
		must(t, rename(t, h.otherUsers, "u", "Ben"))
		e.Put("name", schema.Text("Cleo"))
		_, err = h.users.Save(t.Context(), e)
		wantErr(t, "saving a stale copy", err, userdb.ErrConflict)
		return nil
	},
	"delete": func(t *testing.T, h *cachedSite) error { return h.users.Delete(t.Context(), uid("u")) },
	"delete and create": func(t *testing.T, h *cachedSite) error {
		must(t, h.users.Delete(t.Context(), uid("u")))
		add(t, h.users, "u", "name", "Dan")
		return nil
	},
	"set password": func(t *testing.T, h *cachedSite) error {
		return errOf(h.users.SetPassword(t.Context(), uid("u"), otherPassword))
	},
	"disable": func(t *testing.T, h *cachedSite) error { return h.users.Disable(t.Context(), uid("u")) },
	"redeem": func(t *testing.T, h *cachedSite) error {
		secret, err := h.users.Issue(t.Context(), uid("u"), userdb.Token{Purpose: "change:email", Value: "u@example.com"})
		must(t, err)
		h.warm("u")
		_, _, err = h.users.Redeem(t.Context(), "change:email", secret)
		return err
	},
	"import": importU,
	"import over a tombstone": func(t *testing.T, h *cachedSite) error {
		must(t, h.otherUsers.Delete(t.Context(), uid("u")))
		return importU(t, h)
	},
	"import over nothing": func(t *testing.T, h *cachedSite) error {
		must(t, h.raw.Del(t.Context(), "user/uid:u", "user/name:ann/~prk", "~/order/user/added", "~/order/user/email", "~/order/user/name").Err())
		return importU(t, h)
	},
	"remove keys": func(t *testing.T, h *cachedSite) error {
		_, err := inspect.RemoveKeys(t.Context(), h.db, "user/uid:u")
		return err
	},
	"repair": func(t *testing.T, h *cachedSite) error {
		must(t, h.raw.HSet(t.Context(), "user/uid:u", "uid", "v").Err())
		for _, err := range check.Run(t.Context(), h.db, check.Options{Repair: true}) {
			must(t, err)
		}
		return nil
	},
}

// importU imports the entry u with the name Eve, over the existing entry if there is one.
func importU(t *testing.T, h *cachedSite) error {
	lines := strings.NewReader(`{"type":"user","facets":{"uid":"u","name":"Eve"}}`)
	r, err := transfer.Import(t.Context(), h.db, lines, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate})
	if r.Refused > 0 {
		t.Errorf("the import reports %+v, want nothing refused", r)
	}
	return err
}

// TestCacheShowsOwnWrites checks that a store sees its own writes at once, even if no invalidation
// message arrives.
func TestCacheShowsOwnWrites(t *testing.T) {
	for what, write := range ownWrites {
		t.Run(what, func(t *testing.T) {
			h := startWithoutInvalidations(t)
			h.createAnn()
			h.warm("u")
			before := h.find("u")
			must(t, write(t, h))
			if got, want := h.find("u"), h.findUncached("u"); got != want || got == before {
				t.Errorf("found %s in the cache, %s without it; before the write it was %s", got, want, before)
			}
		})
	}
}

// TestCacheShowsOwnNamespaceChanges checks that a store also sees its own writes at once if it
// copies or drops a namespace.
func TestCacheShowsOwnNamespaceChanges(t *testing.T) {
	h := startWithoutInvalidations(t)
	a, b := parseNamespace(t, "a"), parseNamespace(t, "b")
	find := func(ns recordkey.Namespace) string {
		db, err := h.db.In(ns)
		must(t, err)
		e, err := typeOf(t, db, "user").Find(t.Context(), uid("u"))
		if err != nil {
			wantErr(t, ns.Path(), err, userdb.ErrNotFound)
		}
		return e.Text("name")
	}
	for ns, name := range map[recordkey.Namespace]string{a: "Ann", b: "Ben"} {
		db, err := h.db.In(ns)
		must(t, err)
		add(t, typeOf(t, db, "user"), "u", "name", name)
	}
	if got := find(a) + find(b); got != "AnnBen" {
		t.Errorf("found %q, want AnnBen", got)
	}
	_, err := migrate.DropNamespace(t.Context(), h.otherDB, b)
	must(t, err)
	if got := find(b); got != "Ben" {
		t.Errorf("found %q, want the stale copy Ben", got)
	}
	_, err = migrate.CopyNamespace(t.Context(), h.db, a, b)
	must(t, err)
	if got := find(b); got != "Ann" {
		t.Errorf("found %q in the copied namespace, want Ann", got)
	}
	_, err = migrate.DropNamespace(t.Context(), h.db, b)
	must(t, err)
	if got := find(b); got != "" {
		t.Errorf("found %q in a dropped namespace, want nothing", got)
	}
}

// TestCacheShowsOwnWritesConcurrently writes and reads one entry from many goroutines. A writer
// must never find a value from before its last write, even while replies to earlier reads are still
// on the way.
func TestCacheShowsOwnWritesConcurrently(t *testing.T) {
	h := startCached(t, userdb.Options{CacheMaxAge: time.Hour, Schema: wideSchema(schema.FoldCasefold)})
	add(t, h.users, "u", "name", "Ann")
	const writers, readers, rounds = 3, 6, 60
	var writing, reads atomic.Int32
	writing.Store(writers)
	for _, err := range runConcurrently(writers+readers, func(i int) error {
		if i >= writers {
			for writing.Load() > 0 {
				if _, err := h.users.Find(t.Context(), uid("u")); err != nil {
					return err
				}
				// This command lets the writers run.
				if _, err := h.otherUsers.Exists(t.Context(), uid("u")); err != nil {
					return err
				}
				reads.Add(1)
			}
			return nil
		}
		defer writing.Add(-1)
		return h.countUp("job"+itoa(i), rounds)
	}) {
		must(t, err)
	}
	t.Logf("%d reads during %d writes", reads.Load(), writers*rounds)
}

// countUp writes increasing numbers to a field, and reads the field after each write.
func (h *cachedSite) countUp(field string, rounds int) error {
	for n := range rounds {
		_, err := h.users.Update(h.t.Context(), uid("u"), putText(field, itoa(n)))
		if err != nil {
			return err
		}
		for range 3 {
			e, err := h.users.Find(h.t.Context(), uid("u"))
			if err != nil {
				return err
			}
			if got := e.Text(field); got != itoa(n) {
				return fmt.Errorf("%s: found %q, want %d, which was written before", field, got, n)
			}
		}
	}
	return nil
}

// TestCacheNotUsedForDecisions changes an entry that a store has cached, and withholds the
// invalidation message. Methods that make decisions must not use the stale copy, and must leave it
// in the cache.
func TestCacheNotUsedForDecisions(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(ctx context.Context, users *userdb.Type) error
		method func(t *testing.T, h *cachedSite, secret string) error
		want   error
	}{
		{"login", disable, func(t *testing.T, h *cachedSite, _ string) error {
			_, err := h.users.Login(t.Context(), "ann", clearPassword, userdb.Attempt{})
			return err
		}, userdb.ErrLogin},
		{"change password", disable, func(t *testing.T, h *cachedSite, _ string) error {
			return errOf(h.users.ChangePassword(t.Context(), uid("u"), clearPassword, otherPassword, userdb.Attempt{}))
		}, userdb.ErrLogin},
		{"redeem", disable, func(t *testing.T, h *cachedSite, secret string) error {
			_, _, err := h.users.Redeem(t.Context(), "reset", secret)
			return err
		}, userdb.ErrNotFound},
		{"login with the old password", setPassword, func(t *testing.T, h *cachedSite, _ string) error {
			_, err := h.users.Login(t.Context(), "ann", clearPassword, userdb.Attempt{})
			return err
		}, userdb.ErrLogin},
		{"add a tag", remove, func(t *testing.T, h *cachedSite, _ string) error {
			_, err := h.users.Tags(uid("u")).Add(t.Context(), "cook")
			return err
		}, userdb.ErrNotFound},
		{"exists", remove, func(t *testing.T, h *cachedSite, _ string) error {
			exists, err := h.users.Exists(t.Context(), uid("u"))
			if exists || err != nil {
				return fmt.Errorf("exists: %v, %w", exists, err)
			}
			return userdb.ErrNotFound
		}, userdb.ErrNotFound},
		{"find by name", remove, func(t *testing.T, h *cachedSite, _ string) error {
			_, err := h.users.Find(t.Context(), hints.Any("ann"))
			return err
		}, userdb.ErrNotFound},
	} {
		t.Run(c.what, func(t *testing.T) {
			h := startWithoutInvalidations(t)
			h.createAnn()
			secret, err := h.users.Issue(t.Context(), uid("u"), userdb.Token{Purpose: "reset"})
			must(t, err)
			h.warm("u")
			_, err = h.users.Login(t.Context(), "ann", clearPassword, userdb.Attempt{})
			must(t, err) // the copy holds no password hash, so the login did not use it
			h.warm("u")
			before := h.find("u")
			must(t, c.change(t.Context(), h.otherUsers))
			wantErr(t, c.what, c.method(t, h, secret), c.want)
			if h.find("u") != before {
				t.Error("the stale copy is gone")
			}
		})
	}
}

func disable(ctx context.Context, users *userdb.Type) error { return users.Disable(ctx, uid("u")) }
func remove(ctx context.Context, users *userdb.Type) error  { return users.Delete(ctx, uid("u")) }
func setPassword(ctx context.Context, users *userdb.Type) error {
	return errOf(users.SetPassword(ctx, uid("u"), otherPassword))
}

// TestCacheCausesNoConflict checks that an update ignores a stale copy, and so succeeds at the
// first attempt.
func TestCacheCausesNoConflict(t *testing.T) {
	h := startWithoutInvalidations(t)
	add(t, h.users, "u", "name", "Ann")
	for n := range 5 {
		h.warm("u")
		must(t, rename(t, h.otherUsers, "u", "Ann "+itoa(n)))
		if e, err := h.users.Find(t.Context(), uid("u")); err != nil || e.Text("name") == "Ann "+itoa(n) {
			t.Errorf("%d: found %v, %v, want the stale copy", n, e, err)
		}
		attempts := 0
		e, err := h.users.Update(t.Context(), uid("u"), func(e *userdb.Entry) error {
			attempts++
			e.Put("job", schema.Text(itoa(n)))
			return nil
		})
		if err != nil || attempts != 1 || e.Text("name") != "Ann "+itoa(n) {
			t.Errorf("%d: got %v, %v after %d attempts, want 1 attempt", n, e, err, attempts)
		}
	}
}

// TestCacheConnectionBreaks cuts the connections that carry invalidation messages. Copies must be
// dropped with their connection, so that readers see changes whose messages were lost.
func TestCacheConnectionBreaks(t *testing.T) {
	h := startCached(t, userdb.Options{CacheMaxAge: time.Hour})
	add(t, h.users, "u", "name", "Ann")
	for n := range 5 {
		eventually(t, "the entry is cached", func() bool { h.find("u"); return h.commandsDuring(func() { h.find("u") }) == 0 })
		before := h.find("u")
		h.proxy.CutAll()
		must(t, rename(t, h.otherUsers, "u", "Ann "+itoa(n)))
		eventually(t, "a change made while the connection was cut is seen", func() bool {
			e, err := h.users.Find(t.Context(), uid("u"))
			return err == nil && e.String() != before
		})
	}
}

// TestCacheWithoutServer checks that copies are not used after the server is gone.
func TestCacheWithoutServer(t *testing.T) {
	s := startServer(t)
	db := s.open(userdb.Options{CacheSize: 100, CacheMaxAge: time.Hour})
	users := typeOf(t, db, "user")
	add(t, users, "u", "name", "Ann")
	find := func() error { _, err := users.Find(t.Context(), uid("u")); return err }
	must(t, find())
	s.server.Kill()
	eventually(t, "the store is unavailable", func() bool { return errors.Is(find(), userdb.ErrUnavailable) })
	s.server.Restart() // without its records
	wantErr(t, "after the restart", find(), userdb.ErrNotFound)
}

// TestCacheAge checks that a copy expires after CacheMaxAge if its invalidation message is lost.
func TestCacheAge(t *testing.T) {
	h := startCached(t, userdb.Options{CacheMaxAge: 50 * time.Millisecond})
	h.proxy.LosePushes(true)
	add(t, h.users, "u", "name", "Ann")
	before := h.find("u")
	must(t, rename(t, h.otherUsers, "u", "Ben"))
	eventually(t, "the change is seen", func() bool { return h.find("u") != before })
}

// TestCacheRefused opens stores that cannot be cached. The error must say why.
func TestCacheRefused(t *testing.T) {
	plain := redistest.Start(t, redistest.Config("user guest on >guest ~* &* +@all -client|tracking"))
	old := redistest.Start(t, redistest.Config(`rename-command HELLO ""`))
	for _, c := range []struct {
		what, url string
		kind      error
		words     string
	}{
		{"another database", "redis://" + plain.Addr() + "/1", userdb.ErrCache, "database 0"},
		{"no tracking", "redis://guest:guest@" + plain.Addr() + "/0", userdb.ErrCache, "CLIENT TRACKING"},
		{"no RESP3", old.URL(), userdb.ErrCache, "RESP3"},
		{"Sentinels", "redis+sentinel://127.0.0.1:1?master_name=m", userdb.ErrCache, "Sentinels"},
		{"a cluster", "redis+cluster://127.0.0.1:1", userdb.ErrCache, "cluster"},
		{"no server", "redis://127.0.0.1:1?max_retries=-1", userdb.ErrUnavailable, "refused"},
	} {
		db, err := userdb.Open(t.Context(), c.url, userdb.Options{CacheSize: 100})
		wantErr(t, c.what, err, c.kind, c.words)
		if err == nil {
			must(t, db.Close())
		}
	}
	_, err := redisdb.New(t.Context(), plain.Client(), userdb.Options{CacheSize: 100})
	wantErr(t, "a client of the caller", err, userdb.ErrCache, "URL")
	caching := redis.NewClient(&redis.Options{Addr: plain.Addr(), ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
	defer caching.Close()
	_, err = redisdb.New(t.Context(), caching, userdb.Options{})
	wantErr(t, "a caching client", err, userdb.ErrUnsuitable, "Options.Cache")
}

// TestCacheEmbedded checks that CacheSize has no effect on an embedded store.
func TestCacheEmbedded(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{CacheSize: 100})
	must(t, err)
	users := typeOf(t, db, "user")
	add(t, users, "u", "name", "Ann")
	must(t, rename(t, users, "u", "Ben"))
	e, err := users.Find(t.Context(), uid("u"))
	if err != nil || e.Text("name") != "Ben" {
		t.Errorf("found %v, %v; want the name Ben", e, err)
	}
	must(t, db.Close())
}
