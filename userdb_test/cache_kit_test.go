package userdb_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
)

// A hotSite is a store that is read through a cache, and through a proxy that can keep the server's
// word of changes back; others go straight to the server.
type hotSite struct {
	*site
	proxy    *redistest.Proxy
	db       *userdb.DB
	users    *userdb.Type
	othersDB *userdb.DB
	others   *userdb.Type
}

func startHot(t *testing.T, o userdb.Options) *hotSite {
	t.Helper()
	s, proxy := startProxied(t)
	o.Cache = 100
	db := s.open(o)
	others, err := userdb.Open(t.Context(), s.server.URL(), userdb.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, others.Close()) })
	return &hotSite{s, proxy, db, typeOf(t, db, "user"), others, typeOf(t, others, "user")}
}

// startDeaf is a store whose copies nothing but its own deeds make go.
func startDeaf(t *testing.T) *hotSite {
	t.Helper()
	h := startHot(t, userdb.Options{CacheAge: time.Hour})
	h.proxy.LosePushes(true)
	return h
}

// warm reads an entry until it is copied.
func (h *hotSite) warm(uids ...string) {
	h.t.Helper()
	for _, u := range uids {
		h.find(u)
		if n := h.asked(func() { h.find(u) }); n != 0 {
			h.t.Fatalf("%s: %d commands for an entry that was read before", u, n)
		}
	}
}

// find is what Find shows of an entry: "" for none.
func (h *hotSite) find(u string) string {
	h.t.Helper()
	e, err := h.users.Find(h.t.Context(), uid(u))
	if err != nil {
		wantErr(h.t, u, err, userdb.ErrNotFound)
		return ""
	}
	return e.String()
}

// fresh is the same past the cache.
func (h *hotSite) fresh(u string) string {
	h.t.Helper()
	for e, err := range h.users.FindAll(h.t.Context(), uid(u)) {
		if err == nil {
			return e.String()
		}
		wantErr(h.t, u, err, userdb.ErrNotFound)
	}
	return ""
}

// asked counts the commands that a server carries out while do runs.
func (h *hotSite) asked(do func()) int {
	h.t.Helper()
	before := h.commands()
	do()
	return h.commands() - before
}

// commands is how many the server has carried out, but for those that look and greet.
func (h *hotSite) commands() (n int) {
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
