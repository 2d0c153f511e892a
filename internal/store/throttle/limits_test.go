package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/internal/store/throttle"
)

// failUntil makes login attempts that fail, on one account and from all origins, until end. After
// each round it waits as long as required. It returns how many attempts were admitted.
func (b *throttleTest) failUntil(account string, end time.Time, origins ...string) (admitted int) {
	b.t.Helper()
	for b.now.Before(end) {
		wait := time.Duration(0)
		for _, o := range origins {
			as := b.admit(account, o)
			if as.Wait == 0 {
				admitted++
			} else if wait == 0 || as.Wait < wait {
				wait = as.Wait
			}
		}
		b.now = b.now.Add(wait)
	}
	return admitted
}

// TestNoMoreThanAHundredFailures checks that an attacker who can use every origin of the owner
// fails at most a hundred times in a window.
func TestNoMoreThanAHundredFailures(t *testing.T) {
	eachThrottler(t, func(t *testing.T, e throttler, raw redis.UniversalClient) {
		b := newThrottleTest(t, e, raw, "hundred")
		homes := []string{"home", "work", "phone", "train", "cafe"}
		for _, o := range homes {
			b.logIn("alice", o)
		}
		if got := b.failUntil("alice", b.now.Add(throttle.Window), append(homes, "", "evil")...); got != 100 {
			t.Errorf("%d failures were admitted in a window, want 100", got)
		}
	})
}

// TestDelaysGrow checks the waits of an attacker who does not stop.
func TestDelaysGrow(t *testing.T) {
	eachThrottler(t, func(t *testing.T, e throttler, raw redis.UniversalClient) {
		b := newThrottleTest(t, e, raw, "delays")
		var got []string
		for len(got) < 61 {
			if as := b.admit("alice", ""); as.Wait > 0 {
				got[len(got)-1] = as.Wait.String()
				b.now = b.now.Add(as.Wait)
			} else {
				got = append(got, "0")
			}
		}
		want := strings.Fields("0 0 0 0 0 0 0 0 0 1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 8m32s")
		for len(want) < 59 {
			want = append(want, "15m0s")
		}
		// Nine attempts cause no wait, the next ten cause doubling waits, and all others 15 minutes
		// each. The last wait is the rest of the day.
		want = append(want, (24*time.Hour - 1023*time.Second - 40*15*time.Minute).String(), "0")
		if !slices.Equal(got, want) {
			t.Errorf("waits:\ngot  %v\nwant %v", got, want)
		}
	})
}

// TestStrangersCannotLockTheOwnerOut checks that a familiar origin can log in, whatever strangers
// do and however long they do it.
func TestStrangersCannotLockTheOwnerOut(t *testing.T) {
	days := 30
	if testing.Short() {
		days = 10
	}
	eachThrottler(t, func(t *testing.T, e throttler, raw redis.UniversalClient) {
		b := newThrottleTest(t, e, raw, "lock")
		b.logIn("alice", "home")
		for range days {
			b.failUntil("alice", b.now.Add(25*time.Hour), "", "evil", "worse")
			for range throttle.FamiliarMax - 1 {
				if as := b.admit("alice", "home"); as.Wait > 0 {
					t.Fatalf("the owner must wait for %v, want no wait", as.Wait)
				}
			}
			if !b.logIn("alice", "home") {
				t.Fatal("the owner cannot log in")
			}
		}
	})
}

// TestOneOriginOverAllAccounts checks that an origin that tries one password on every account is
// delayed, but not at the account that it logged in to before.
func TestOneOriginOverAllAccounts(t *testing.T) {
	eachThrottler(t, func(t *testing.T, e throttler, raw redis.UniversalClient) {
		b := newThrottleTest(t, e, raw, "spray")
		b.logIn("own", "here")
		n := 0
		for ; n < 100 && b.admit(fmt.Sprint("victim", n), "here").Wait == 0; n++ {
		}
		if n != throttle.OriginFree {
			t.Errorf("an origin reached %d accounts, want %d", n, throttle.OriginFree)
		}
		if !b.logIn("own", "here") {
			t.Error("the origin cannot log in to the account that it logged in to before")
		}
		if as := b.admit("another", "here"); as.Wait != time.Second {
			t.Errorf("after its successful login the origin must wait for %v, want 1s: a successful login takes back only the failure that was counted when it began", as.Wait)
		}
		if as := b.admit("another", "there"); as.Wait > 0 {
			t.Errorf("another origin must wait for %v, want no wait", as.Wait)
		}
	})
}

// TestCountingIsExact checks that as many attempts are admitted as the limits allow, even if all of
// them are made at the same time. A cluster counts an attempt in two records. If only one of them
// admits it, that count is taken back, but until then it can make another attempt be refused. So of
// simultaneous attempts a cluster may refuse more than one server does; later attempts are then
// admitted instead.
func TestCountingIsExact(t *testing.T) {
	eachThrottler(t, func(t *testing.T, e throttler, raw redis.UniversalClient) {
		b := newThrottleTest(t, e, raw, "exact")
		b.logIn("alice", "home")
		limit, total := throttle.FamiliarMax+throttle.StrangerFree, 0
		for _, origin := range []string{"home", "evil", ""} {
			total += b.admitAll("alice", origin, 500)
			if total > limit {
				t.Errorf("after 500 attempts from %q, %d in all were admitted, want at most %d", origin, total, limit)
			}
		}
		if total < limit {
			t.Errorf("of 1500 attempts %d were admitted, want %d", total, limit)
		}
	})
}

// admitAll makes n attempts at the same time and returns how many were admitted.
func (b *throttleTest) admitAll(account, origin string, n int) (admitted int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			as, err := b.e.Admit(context.Background(), b.attempt(account, origin))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.t.Errorf("admit: %v", err)
			} else if as.Wait == 0 {
				admitted++
			}
		})
	}
	wg.Wait()
	return admitted
}

// TestDamagedCounters checks that Admit returns an error for a record of another Redis type, and
// does not change it.
func TestDamagedCounters(t *testing.T) {
	eachThrottler(t, func(t *testing.T, e throttler, raw redis.UniversalClient) {
		b := newThrottleTest(t, e, raw, "damaged")
		key := countersKey(t, "damaged", "alice").String()
		if err := raw.Set(t.Context(), key, "text", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if as, err := e.Admit(t.Context(), b.attempt("alice", "")); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("got %+v, %v, want ErrCorrupt", as, err)
		}
		if got := raw.Get(t.Context(), key).Val(); got != "text" {
			t.Errorf("the record is now %q, want \"text\"", got)
		}
	})
}

// TestFullServerAdmitsNobody checks that Admit fails on a full server, which cannot count, and that
// the counters do not change.
func TestFullServerAdmitsNobody(t *testing.T) {
	s := redistest.Start(t)
	c := s.Client()
	b := newThrottleTest(t, single.New(c, single.Options{}), c, "full")
	b.logIn("alice", "home")
	for range 5 {
		b.admit("alice", "evil")
	}
	before := c.HGetAll(t.Context(), countersKey(t, "full", "alice").String()).Val()
	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := b.e.Admit(t.Context(), b.attempt("alice", "evil"))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("got %v, want ErrUnavailable with OOM", err)
	}
	if after := c.HGetAll(t.Context(), countersKey(t, "full", "alice").String()).Val(); fmt.Sprint(after) != fmt.Sprint(before) || len(after) == 0 {
		t.Errorf("the counters are %v, want %v as before", after, before)
	}
}
