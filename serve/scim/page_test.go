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

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A reads hook counts the entries that are read.
type reads struct{ atomic.Int64 }

func (n *reads) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if cmd.Name() == "hgetall" {
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

// TestUndated checks that users without a date are listed once, after all others, and that no page
// reads all of them.
func TestUndated(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, schema.User())
		h, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		for i := range 900 {
			fmt.Fprintf(&lines, `{"facets":{"uid":"old%03d","email":"old%d@example.com"}}`+"\n", i, i)
		}
		if r, err := transfer.Import(t.Context(), s.DB, strings.NewReader(lines.String()), transfer.ImportOptions{}); err != nil || r.Created != 900 {
			t.Fatal(r, err)
		}
		users := s.Type(t, "user")
		for i := range 120 {
			if _, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprintf("new%03d", i), Facets: schema.Texts("email", fmt.Sprintf("new%d@example.com", i))}); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Prepare(t.Context(), s.DB, s.NS.Path(), "user"); err != nil {
			t.Fatal(err)
		}
		n := &reads{}
		s.AddHook(n)
		page := func(start, count int) (uids []string, total int, err error) {
			t.Helper()
			w := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("/scim/v2/Users?startIndex=%d&count=%d&attributes=id", start, count), nil)
			if err := h.Serve(w, req, s.DB, s.NS.Path(), "user"); err != nil {
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
		list := func(count int) (all []string) {
			for total := 1; len(all) < total; {
				n.Store(0)
				some, newTotal, err := page(len(all)+1, count)
				if err != nil || len(some) == 0 {
					t.Fatalf("page after %d users: got %q, %v", len(all), some, err)
				}
				if read := n.Load(); read > int64(count+2*undatedStep) {
					t.Errorf("page after %d users: read %d entries for a page of %d, want at most %d", len(all), read, count, count+2*undatedStep)
				}
				all, total = append(all, some...), newTotal
			}
			return all
		}
		for _, count := range []int{200, 70} {
			all := list(count)
			for i, uid := range all[:120] {
				if uid != fmt.Sprintf("new%03d", i) {
					t.Errorf("user %d of the list is %s, want new%03d", i, uid, i)
				}
			}
			slices.Sort(all)
			if all = slices.Compact(all); len(all) != 1020 {
				t.Errorf("got %d users in pages of %d, want 1020", len(all), count)
			}
			if some, total, err := page(1021, 10); len(some) != 0 || total != 1020 || err != nil {
				t.Errorf("page after the last user: got %q, %d, %v; want no users, 1020", some, total, err)
			}
		}

		// A page that lies behind many entries needs several attempts.
		want, _, err := page(901, 20)
		if err != nil {
			t.Fatal(err)
		}
		clear(h.positions)
		defer func(before int) { maxSteps = before }(maxSteps)
		maxSteps = 2
		tries := 0
		for ; tries < 20; tries++ {
			got, _, err := page(901, 20)
			if err == nil {
				if !slices.Equal(got, want) {
					t.Errorf("after %d failed attempts: got %q, want %q", tries, got, want)
				}
				break
			}
			if !errors.Is(err, userdb.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if tries == 0 || tries == 20 {
			t.Errorf("the page came after %d failed attempts, want 1 to 19", tries)
		}
	})
}
