package userdb_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
)

// TestAdmit checks that Admit admits exactly as many uses as a limit allows, even if many callers
// come at the same time, and that names, keys and windows have separate counters. It also checks
// that the server removes each counter when its window ends, and that a window ends by its clock.
func TestAdmit(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		users := s.Type(t, "user")
		l := userdb.Limit{Name: "comments", Max: 5, Window: time.Hour}
		admitted := func(l userdb.Limit, key string) int {
			t.Helper()
			var n atomic.Int32
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					err := users.Admit(t.Context(), l, key)
					wait, throttled := errors.AsType[*userdb.WaitError](err)
					switch {
					case err == nil:
						n.Add(1)
					case !throttled || !errors.Is(err, userdb.ErrTooManyAttempts) || wait.Wait <= 0 || wait.Wait > l.Window:
						t.Errorf("%s of %s: got %v, want a *WaitError with a time within the window", l.Name, key, err)
					}
				})
			}
			all.Wait()
			return int(n.Load())
		}
		for _, tt := range []struct {
			limit userdb.Limit
			key   string
			want  int
		}{
			{l, "ann", 5},
			{l, "ann", 0},
			{l, "bob", 5},
			{userdb.Limit{Name: "votes", Max: 7, Window: time.Hour}, "ann", 7},
		} {
			if got := admitted(tt.limit, tt.key); got != tt.want {
				t.Errorf("%s of %s: admitted %d, want %d", tt.limit.Name, tt.key, got, tt.want)
			}
		}
		counters := admitCounters(t, s)
		if len(counters) != 3 {
			t.Fatalf("got the counters %v, want three", counters)
		}
		for key := range counters {
			wantLife(t, s, key, time.Hour)
			// By the server's clock the window ended a millisecond ago.
			now, err := s.Raw.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Raw.Set(t.Context(), key, fmt.Sprintf("7 %d", now.UnixMilli()-1), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if got := admitted(l, "ann"); got != 5 {
			t.Errorf("after the end of the window, admitted %d, want 5", got)
		}

		now := time.Now()
		s.Edit(t, func(c *view.Config) { c.Clock = func() time.Time { return now } })
		users = s.Type(t, "user")
		for _, window := range []string{"first", "next"} {
			if got := admitted(userdb.Limit{Name: "short", Max: 3, Window: time.Minute}, "ann"); got != 3 {
				t.Errorf("in the %s window, admitted %d, want 3", window, got)
			}
			for key := range admitCounters(t, s) {
				if _, before := counters[key]; !before {
					wantLife(t, s, key, time.Minute)
				}
			}
			now = now.Add(time.Minute + time.Millisecond)
		}
	})
}

// admitCounters returns the keys of the counters of Admit.
func admitCounters(t *testing.T, s *testdb.Site) map[string]bool {
	t.Helper()
	all, err := s.Raw.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	counters := map[string]bool{}
	for _, key := range all {
		if strings.HasPrefix(key, s.Key("~/visits/user/use/")) {
			counters[key] = true
		}
	}
	return counters
}

// wantLife checks that the server removes a record within a time.
func wantLife(t *testing.T, s *testdb.Site, key string, most time.Duration) {
	t.Helper()
	if life, err := s.Raw.PTTL(t.Context(), key).Result(); err != nil || life <= 0 || life > most {
		t.Errorf("%s lives for %v, %v; want up to %v", key, life, err, most)
	}
}

// TestAdmitRefusesBadLimits checks that Admit refuses limits and keys outside their ranges.
func TestAdmitRefusesBadLimits(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testdb.DefaultSchema())
	users := s.Type(t, "user")
	for _, tt := range []struct {
		limit userdb.Limit
		key   string
	}{
		{userdb.Limit{Max: 1, Window: time.Hour}, "ann"},
		{userdb.Limit{Name: strings.Repeat("x", 257), Max: 1, Window: time.Hour}, "ann"},
		{userdb.Limit{Name: "x", Window: time.Hour}, "ann"},
		{userdb.Limit{Name: "x", Max: 100_001, Window: time.Hour}, "ann"},
		{userdb.Limit{Name: "x", Max: 1}, "ann"},
		{userdb.Limit{Name: "x", Max: 1, Window: 31 * 24 * time.Hour}, "ann"},
		{userdb.Limit{Name: "x", Max: 1, Window: time.Hour}, ""},
		{userdb.Limit{Name: "x", Max: 1, Window: time.Hour}, strings.Repeat("x", 4097)},
	} {
		if err := users.Admit(t.Context(), tt.limit, tt.key); !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("%.50v of the key %.10q: got %v, want ErrInvalid", tt.limit, tt.key, err)
		}
	}
}
