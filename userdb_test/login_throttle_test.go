package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/userdb"
)

// freeFailures is the number of wrong passwords before the first wait. ownFailures is the number of
// wrong passwords that an origin with an earlier login may try in addition.
const (
	freeFailures = 10
	ownFailures  = 8
)

// guessConcurrently tries n wrong passwords at the same time. It returns how many were checked and
// how many were told to wait. A guess that finds the queue full does not count and is repeated.
func (g *loginSite) guessConcurrently(n int, identifier, origin string) (checked, waiting int) {
	g.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			wait, err := waitOf(g.logIn(identifier, wrongPassword, origin))
			for isBusy(err) {
				time.Sleep(time.Millisecond)
				wait, err = waitOf(g.logIn(identifier, wrongPassword, origin))
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case wait > 0:
				waiting++
			case errors.Is(err, userdb.ErrLogin):
				checked++
			default:
				g.t.Errorf("a concurrent guess: %v", err)
			}
		})
	}
	wg.Wait()
	return checked, waiting
}

// isBusy reports whether a call was refused because the queue for the workers was full.
func isBusy(err error) bool {
	_, ok := errors.AsType[*userdb.BusyError](err)
	return ok
}

// TestParallelGuesses makes 500 guesses at the same time. No more of them may be checked than if
// they came one after the other.
func TestParallelGuesses(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		must(t, g.logIn("alice", alicePassword, "home"))
		for _, tt := range []struct {
			identifier, origin string
			want               int
		}{
			{"alice", "home", ownFailures + freeFailures},
			{"alice", "", 0},
			{"nobody", "evil", freeFailures},
			{"nobody@example.com", "", freeFailures},
		} {
			var checked, waiting int
			own, other := g.countHashes(func() { checked, waiting = g.guessConcurrently(500, tt.identifier, tt.origin) })
			if checked > tt.want || own != uint64(checked) || other != 0 || waiting != 500-checked {
				t.Errorf("%s from %q: %d were checked with %d and %d hashes, %d had to wait; want %d at most",
					tt.identifier, tt.origin, checked, own, other, waiting, tt.want)
			}
			if checked < tt.want && g.has(oneScript) {
				t.Errorf("%s from %q: %d were checked, want %d", tt.identifier, tt.origin, checked, tt.want)
			}
		}
	})
}

// TestHundredGuessesADay checks that at most 100 guesses a day are checked for one account, over
// all its identifiers and all origins that the owner uses.
func TestHundredGuessesADay(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		homes := []string{"home", "work", "phone", "train", "cafe"}
		for _, o := range homes {
			must(t, g.logIn("alice", alicePassword, o))
		}
		begin, checked := g.clock(), 0
		for _, o := range homes {
			g.failLogins(ownFailures, "alice@example.com", o)
			checked += ownFailures
		}
		checked += g.exhaust("alice", "evil")
		wait, _ := waitOf(g.logIn("alice@example.com", alicePassword, "elsewhere"))
		if checked != 100 || wait == 0 {
			t.Errorf("%d wrong passwords were checked, want 100; the right one has to wait for %v", checked, wait)
		}
		if end := g.clock().Add(wait).Sub(begin); end > 25*time.Hour {
			t.Errorf("the window ends after %v, want at most 25 hours", end)
		}
		g.advance(wait)
		must(t, g.logIn("alice", alicePassword, "elsewhere"))
	})
}

// TestStrangerCannotLockOwnerOut checks that the owner can always log in from a familiar origin,
// however long a stranger guesses.
func TestStrangerCannotLockOwnerOut(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		must(t, g.logIn("alice", alicePassword, "home"))
		for range 4 {
			g.exhaust("alice", "evil")
			g.failLogins(ownFailures-1, "alice", "home")
			must(t, g.logIn("alice", alicePassword, "home"))
			wait, _ := waitOf(g.logIn("alice", alicePassword, "another home"))
			if wait == 0 {
				t.Error("an attempt from another origin did not have to wait, although the account is exhausted")
			}
			g.advance(wait)
		}
	})
}

// TestNewPasswordEndsWaits checks that setting a new password ends all waits of an account, and
// that redeeming a token does not.
func TestNewPasswordEndsWaits(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.exhaust("alice", "")
		secret, err := g.users.Issue(t.Context(), uid("alice"), userdb.Token{Purpose: "reset"})
		must(t, err)
		e, _, err := g.users.Redeem(t.Context(), "reset", secret)
		must(t, err)
		if wait, _ := waitOf(g.logIn("alice", alicePassword, "")); wait == 0 {
			t.Error("redeeming a token ended the wait")
		}
		must(t, errOf(g.users.SetPassword(t.Context(), uid(e.UID()), "brand new horse")))
		must(t, g.logIn("alice", "brand new horse", ""))
	})
}

// TestOneOriginManyAccounts tries a password on many accounts from one origin. After 30 failures
// the origin must be told to wait, whatever account it tries.
func TestOneOriginManyAccounts(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		var waits []time.Duration
		for i := range 32 {
			wait, _ := waitOf(g.logIn(fmt.Sprint("user", i), wrongPassword, "evil"))
			waits = append(waits, wait)
		}
		if i := slices.IndexFunc(waits, func(d time.Duration) bool { return d > 0 }); i != 30 {
			t.Errorf("the first wait came after %d failures, want 30: %v", i, waits)
		}
		must(t, g.logIn("alice", alicePassword, "good"))
		wait, _ := waitOf(g.logIn("alice", alicePassword, "evil"))
		if wait == 0 {
			t.Error("the origin did not have to wait for another account")
		}
		g.advance(time.Hour)
		must(t, g.logIn("alice", alicePassword, "evil"))
	})
}

// TestThrottleRevealsNothing checks that random sequences of guesses get the same answers for an
// account as for an identifier that nobody has.
func TestThrottleRevealsNothing(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		rounds := 12
		if !g.has(cheapWrites) {
			rounds = 3
		}
		for round := range rounds {
			known, unknown := fmt.Sprint("known", round), fmt.Sprint("unknown", round)
			g.add(known, alicePassword)
			var seen [2]string
			begin := g.clock()
			for i, who := range []string{known, unknown} {
				g.advance(begin.Sub(g.clock()))
				seen[i] = g.guessAtRandom(who, who+" ", rand.New(rand.NewPCG(7, uint64(round))))
			}
			if seen[0] != seen[1] {
				t.Errorf("round %d: got different answers:\nknown   %s\nunknown %s", round, seen[0], seen[1])
			}
		}
	})
}

// guessAtRandom makes random guesses at one identifier, in several spellings, and returns the
// answers. Each identifier has its own origins, so that they begin without failures.
func (g *loginSite) guessAtRandom(who, origin string, r *rand.Rand) string {
	g.t.Helper()
	var seen []string
	for range 80 {
		spelling := []string{who, strings.ToUpper(who), " " + who + " ", who}[r.IntN(4)]
		from := []string{"", origin + "1", origin + "2"}[r.IntN(3)]
		err := g.logIn(spelling, wrongPassword, from)
		seen = append(seen, err.Error())
		wait, _ := waitOf(err)
		g.advance([]time.Duration{0, 0, wait, wait / 2, time.Minute}[r.IntN(5)])
	}
	return strings.Join(seen, "; ")
}

// TestCountersExpire checks that counters have a time to live, and that an entry's counters are
// deleted with it.
func TestCountersExpire(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		must(t, g.logIn("alice", alicePassword, "home"))
		g.failLogins(2, "alice", "evil")
		g.failLogins(2, "stranger", "evil")
		counters := g.keysUnder("~/throttle/")
		if len(counters) != 4 {
			t.Fatalf("counters: %q, want those of alice, stranger, evil and, for a minute, home", counters)
		}
		for _, k := range counters {
			life, err := g.raw.PTTL(t.Context(), k).Result()
			must(t, err)
			if maxLife := 90*24*time.Hour + time.Minute; life <= 0 || life > maxLife {
				t.Errorf("%s lives for %v, want up to %v", k, life, maxLife)
			}
			if strings.Contains(k, "stranger") || strings.Contains(k, "evil") || strings.Contains(k, "home") {
				t.Errorf("the key %s contains an identifier or an origin", k)
			}
		}
		must(t, g.users.Delete(t.Context(), uid("alice")))
		if left := g.keysUnder("~/throttle/user/uid/"); len(left) > 0 {
			t.Errorf("counters are still there after the delete: %q", left)
		}
	})
}

// TestUncountedIsUnchecked checks that no password is hashed if the attempt cannot be counted, and
// that a login with the right password succeeds even if the count cannot be undone.
func TestUncountedIsUnchecked(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		must(t, g.logIn("alice", alicePassword, ""))
		g.refuse("admit")
		own, other := g.countHashes(func() {
			wantErr(t, "login", g.logIn("alice", alicePassword, ""), userdb.ErrUnavailable, "counting attempts", "refused by the test")
		})
		if own != 0 || other != 0 {
			t.Errorf("%d and %d hashes were computed although nothing was counted", own, other)
		}
		g.refuse("forgive")
		must(t, g.logIn("alice", alicePassword, ""))
		if !strings.Contains(g.log(), "a successful login stays counted as a failure") {
			t.Errorf("the log does not say that the login stays counted:\n%s", g.log())
		}
	})
}

// TestLostCount loses replies to the command that counts an attempt. The command must be sent again
// without being counted twice. If no reply ever comes, the attempt must stay counted.
func TestLostCount(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		must(t, g.logIn("alice", alicePassword, ""))
		lose := 0
		g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if !strings.Contains(wordsOf(cmds[0]), "admit") {
				return send()
			}
			if err := send(); err != nil || lose == 0 {
				return err
			}
			lose--
			err := errors.New("the connection is gone")
			cmds[0].SetErr(err)
			return err
		})
		for range 2 * freeFailures {
			lose = 2
			must(t, g.logIn("alice", alicePassword, ""))
		}
		lose = 1 << 20
		for range freeFailures {
			wantErr(t, "login", g.logIn("alice", alicePassword, ""), userdb.ErrUnavailable)
		}
		g.tap.set(nil)
		if wait, err := waitOf(g.logIn("alice", alicePassword, "")); wait != time.Second {
			t.Errorf("after %d attempts whose replies were lost: %v; want a wait of one second", freeFailures, err)
		}
	})
}

// TestServerClock checks that the store uses the server's clock if the test sets none, and that the
// first wait after freeFailures failures is at most a second. On a slow machine that wait may be
// over before the next guess; each such failure doubles the limit.
func TestServerClock(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.useClock(nil)
		g.advance(1000 * time.Hour)
		for failures := range 20 {
			wait, err := waitOf(g.logIn("alice", wrongPassword, ""))
			if wait == 0 {
				continue
			}
			maxWait := time.Second << max(failures-freeFailures, 0)
			if failures < freeFailures || wait > maxWait || failures == freeFailures && err.Error() != "too many attempts: wait 1s" {
				t.Errorf("after %d failures: %v, want a wait of up to %v", failures, err, maxWait)
			}
			return
		}
		t.Error("no guess had to wait")
	})
}

// TestOriginsAfterWrongClock checks that origins which logged in while the server's clock was a
// month ahead do not displace those that log in after it has been set right.
func TestOriginsAfterWrongClock(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.advance(30 * 24 * time.Hour)
		for i := range 40 {
			must(t, g.logIn("alice", alicePassword, fmt.Sprintf("198.51.100.%d", i)))
		}
		g.advance(-30 * 24 * time.Hour)
		for _, origin := range []string{"192.0.2.1", "192.0.2.2"} {
			must(t, g.logIn("alice", alicePassword, origin))
		}
		g.exhaust("alice", "")
		for _, origin := range []string{"192.0.2.1", "192.0.2.2"} {
			must(t, g.logIn("alice", alicePassword, origin))
		}
	})
}

// TestClockWasAhead checks that nobody waits long after a server's clock that was a month ahead has
// been set right, whether the account or the origin had failed logins.
func TestClockWasAhead(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.add("bob", alicePassword)
		g.advance(30 * 24 * time.Hour)
		g.exhaust("alice", "")
		for i := range 40 {
			_ = g.logIn(fmt.Sprint("nobody", i), wrongPassword, "192.0.2.1")
		}
		for who, origin := range map[string]string{"alice": "", "bob": "192.0.2.1"} {
			if wait, err := waitOf(g.logIn(who, alicePassword, origin)); wait == 0 {
				t.Fatalf("%s from %q: got error %v, want a wait", who, origin, err)
			}
		}
		g.advance(-30 * 24 * time.Hour)
		must(t, g.logIn("alice", alicePassword, ""))
		must(t, g.logIn("bob", alicePassword, "192.0.2.1"))
	})
}
