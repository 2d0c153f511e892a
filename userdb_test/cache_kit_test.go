package userdb_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A cachedSite is a store that is read through a cache, and through a proxy that can withhold the
// server's invalidation messages. otherDB and otherUsers are the same store as another program sees
// it: connected to the server directly, without a cache.
type cachedSite struct {
	*site
	proxy      *redistest.Proxy
	db         *userdb.DB
	users      *userdb.Type
	otherDB    *userdb.DB
	otherUsers *userdb.Type
}

func startCached(t *testing.T, o userdb.Options) *cachedSite {
	t.Helper()
	s, proxy := startProxied(t)
	o.CacheSize = 100
	db := s.open(o)
	otherDB, err := userdb.Open(t.Context(), s.server.URL(), userdb.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, otherDB.Close()) })
	return &cachedSite{s, proxy, db, typeOf(t, db, "user"), otherDB, typeOf(t, otherDB, "user")}
}

// startWithoutInvalidations starts a cachedSite that receives no invalidation messages, so that
// only its own writes drop cached copies.
func startWithoutInvalidations(t *testing.T) *cachedSite {
	t.Helper()
	h := startCached(t, userdb.Options{CacheMaxAge: time.Hour})
	h.proxy.LosePushes(true)
	return h
}

// createAnn creates the entry u, which has the name Ann and a password.
func (h *cachedSite) createAnn() {
	h.t.Helper()
	_, err := h.users.Create(h.t.Context(), userdb.NewEntry{
		UID: "u", Facets: schema.Texts("name", "Ann"), Password: clearPassword,
	})
	must(h.t, err)
}

// warm reads entries into the cache and checks that they can be read from there.
func (h *cachedSite) warm(uids ...string) {
	h.t.Helper()
	for _, u := range uids {
		h.find(u)
		if n := h.commandsDuring(func() { h.find(u) }); n != 0 {
			h.t.Fatalf("%s: reading it again took %d commands, want none", u, n)
		}
	}
}

// find returns the text of the entry that Find returns, or "" if there is none.
func (h *cachedSite) find(u string) string {
	h.t.Helper()
	e, err := h.users.Find(h.t.Context(), uid(u))
	if err != nil {
		wantErr(h.t, u, err, userdb.ErrNotFound)
		return ""
	}
	return e.String()
}

// findUncached returns the same as find, but bypasses the cache.
func (h *cachedSite) findUncached(u string) string {
	h.t.Helper()
	for e, err := range h.users.FindAll(h.t.Context(), uid(u)) {
		if err == nil {
			return e.String()
		}
		wantErr(h.t, u, err, userdb.ErrNotFound)
	}
	return ""
}

// commandsDuring returns the number of commands that the server executes while do runs.
func (h *cachedSite) commandsDuring(do func()) int {
	h.t.Helper()
	before := h.commandCount()
	do()
	return h.commandCount() - before
}

// commandCount returns the number of commands that the server has executed since it started. It
// leaves out INFO and the commands by which clients connect.
func (h *cachedSite) commandCount() (n int) {
	h.t.Helper()
	info, err := h.raw.Info(h.t.Context(), "commandstats").Result()
	must(h.t, err)
	for line := range strings.Lines(info) {
		name, counts, ok := strings.Cut(line, ":calls=")
		if !ok || name == "cmdstat_info" || name == "cmdstat_hello" || strings.HasPrefix(name, "cmdstat_client") {
			continue
		}
		calls, _, _ := strings.Cut(counts, ",")
		count, err := strconv.Atoi(calls)
		must(h.t, err)
		n += count
	}
	return n
}
