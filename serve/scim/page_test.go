package scim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A reads hook counts the entries that are read.
type reads struct{ atomic.Int64 }

func (n *reads) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if cmd.Name() == "hgetall" && !strings.Contains(fmt.Sprint(cmd.Args()[1]), "~/schema/") {
			n.Add(1)
		}
	}
}

func (*reads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *reads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { n.count(cmd); return next(ctx, cmd) }
}

func (n *reads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { n.count(cmds...); return next(ctx, cmds) }
}

// A roundTrips hook counts the round trips to the server.
type roundTrips struct{ atomic.Int64 }

func (*roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { n.Add(1); return next(ctx, cmd) }
}

func (n *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { n.Add(1); return next(ctx, cmds) }
}

// A lister requests pages of the users of a site.
type lister struct {
	*testdb.Site
	h *Handler
}

func newLister(t *testing.T, s *testdb.Site) lister {
	t.Helper()
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return lister{s, h}
}

// page returns the UIDs on a page and the number of all users.
func (l lister) page(t *testing.T, start, count int) (uids []string, total int, err error) {
	t.Helper()
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(l.Ctx, "GET", fmt.Sprintf("/scim/v2/Users?startIndex=%d&count=%d&attributes=id", start, count), nil)
	if err := l.h.Serve(w, req, l.DB, l.NS.Path(), "user", noMeter{}); err != nil {
		return nil, 0, err
	}
	var body struct {
		TotalResults, StartIndex, ItemsPerPage int
		Resources                              []struct{ ID string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.StartIndex != start || body.ItemsPerPage != len(body.Resources) {
		t.Fatalf("page from %d: malformed response: %v %.300s", start, err, w.Body)
	}
	for _, r := range body.Resources {
		uids = append(uids, r.ID)
	}
	return uids, body.TotalResults, nil
}

// addUndated imports users without the date on which they were added.
func (l lister) addUndated(t *testing.T, uids ...string) {
	t.Helper()
	var lines strings.Builder
	for _, uid := range uids {
		fmt.Fprintf(&lines, `{"facets":{"uid":%q,"email":"%s@example.com"}}`+"\n", uid, uid)
	}
	if r, err := transfer.Import(l.Ctx, l.DB, strings.NewReader(lines.String()), transfer.ImportOptions{}); err != nil || r.Created != int64(len(uids)) {
		t.Fatalf("importing %d users: got %+v, %v", len(uids), r, err)
	}
}

func (l lister) add(t *testing.T, uid string) {
	t.Helper()
	if _, err := l.Type(t, "user").Create(l.Ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("email", uid+"@example.com")}); err != nil {
		t.Fatal(err)
	}
}

// numbered returns n names.
func numbered(format string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return all
}

// maxRoundTrips is the maximum number of round trips of a page of any size.
const maxRoundTrips = 20

// TestUndated checks that users without the date on which they were added are listed once, before
// all others, and that a page reads only the users on it and takes few round trips.
func TestUndated(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		l := newLister(t, s.Under(t, schema.User()))
		want := slices.Concat(numbered("old%03d", 900), numbered("new%03d", 120))
		l.addUndated(t, want[:600]...)
		for _, uid := range want[900:] {
			l.add(t, uid)
		}
		if err := l.h.Prepare(l.Ctx, l.DB, l.NS.Path(), "user"); err != nil {
			t.Fatal(err)
		}
		l.addUndated(t, want[600:900]...)
		n, trips := &reads{}, &roundTrips{}
		l.AddHook(n)
		l.AddHook(trips)
		for _, count := range []int{maxCount, 70} {
			var all []string
			for total := 1; len(all) < total; {
				n.Store(0)
				trips.Store(0)
				some, newTotal, err := l.page(t, len(all)+1, count)
				if err != nil || len(some) == 0 {
					t.Fatalf("page after %d users: got %q, %v; want at least one user", len(all), some, err)
				}
				if read := n.Load(); read > int64(count) {
					t.Errorf("page after %d users: read %d entries for a page of %d, want at most %d", len(all), read, count, count)
				}
				if n := trips.Load(); n > maxRoundTrips {
					t.Errorf("page of %d after %d users: %d round trips, want at most %d", count, len(all), n, maxRoundTrips)
				}
				all, total = append(all, some...), newTotal
			}
			if !slices.Equal(all, want) {
				t.Errorf("got %d users in pages of %d, want %d: %q", len(all), count, len(want), all)
			}
			if some, total, err := l.page(t, 1021, 10); len(some) != 0 || total != 1020 || err != nil {
				t.Errorf("page after the last user: got %q, %d, %v; want no users, 1020", some, total, err)
			}
		}
		clear(l.h.positions) // as in another process, or after the positions were forgotten
		if got, _, err := l.page(t, 891, 20); err != nil || !slices.Equal(got, want[890:910]) {
			t.Errorf("a page from the middle: got %q, %v; want %q", got, err, want[890:910])
		}
	})
}

// TestDamagedPage checks that a page beyond many damaged users takes several requests.
func TestDamagedPage(t *testing.T) {
	l := newLister(t, testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), schema.User()))
	if err := l.h.Prepare(l.Ctx, l.DB, l.NS.Path(), "user"); err != nil {
		t.Fatal(err)
	}
	l.addUndated(t, numbered("old%02d", 30)...)
	for _, uid := range numbered("old%02d", 25) {
		l.Do(t, "SET", l.Key("user/uid:"+uid), "x")
	}
	defer func(before int) { maxSteps = before }(maxSteps)
	maxSteps = 2
	tries := 0
	for ; tries < 20; tries++ {
		got, _, err := l.page(t, 1, 5)
		if err == nil {
			if want := []string{"old25", "old26", "old27", "old28", "old29"}; !slices.Equal(got, want) {
				t.Errorf("after %d failed attempts: got %q, want %q", tries, got, want)
			}
			break
		}
		if !errors.Is(err, userdb.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if tries != 2 {
		t.Errorf("the page came after %d failed attempts, want 2", tries)
	}
}

// TestPagesAmongWriters lists imported users while others are added and deleted. Between the pages,
// it adds users with and without a date everywhere in the order, and deletes users of earlier and
// later pages. Every user who stays must be listed exactly once, and each page must take few round
// trips.
func TestPagesAmongWriters(t *testing.T) {
	const users, pageSize = 120_000, 100
	l := newLister(t, testdb.Open(t, testdb.ServerClient(t), testdb.Space(t, ""), schema.User()))
	l.addUndated(t, numbered("u%06d", users)...)
	if err := l.h.Prepare(l.Ctx, l.DB, l.NS.Path(), "user"); err != nil {
		t.Fatal(err)
	}
	n := &roundTrips{}
	l.AddHook(n)
	seen, gone := map[string]int{}, map[string]bool{}
	pages := 0
	for start, total := 1, 1; start <= total; pages++ {
		n.Store(0)
		some, newTotal, err := l.page(t, start, pageSize)
		if err != nil {
			t.Fatalf("page from %d: %v", start, err)
		}
		if trips := n.Load(); trips > maxRoundTrips {
			t.Errorf("page from %d: %d round trips, want at most %d", start, trips, maxRoundTrips)
		}
		for _, uid := range some {
			seen[uid]++
		}
		start, total = start+len(some), newTotal
		if pages%20 != 0 {
			continue
		}
		l.add(t, fmt.Sprintf("dated%04d", pages))
		l.addUndated(t, fmt.Sprintf("a%04d", pages), fmt.Sprintf("u%06dx", users-1-pages), fmt.Sprintf("z%04d", pages))
		for _, at := range []int{pages * pageSize / 2, pages*pageSize + 3*pageSize/2, users - 1 - 7*pages} {
			uid := fmt.Sprintf("u%06d", min(at, users-1))
			if err := l.Type(t, "user").Delete(l.Ctx, hints.UID(uid)); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				t.Fatal(err)
			}
			gone[uid] = true
		}
	}
	for _, uid := range numbered("u%06d", users) {
		if times := seen[uid]; times != 1 && !(gone[uid] && times == 0) {
			t.Errorf("%s was listed %d times, want once, or not at all if it was deleted", uid, times)
		}
	}
	if pages < users/pageSize || len(gone) < 100 {
		t.Errorf("%d pages, and %d users were deleted; want at least %d and 100", pages, len(gone), users/pageSize)
	}
}
