package userdb_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/userdb"
)

// tokenMethods lists methods that spend tokens. Each gets a token of purpose reset, and one that
// changes the address.
var tokenMethods = []struct {
	name string
	do   func(ctx context.Context, g *loginSite, reset, change string) error
}{
	{"redeem", func(ctx context.Context, g *loginSite, reset, _ string) error {
		_, _, err := g.users.Redeem(ctx, "reset", reset)
		return err
	}},
	{"reset", func(ctx context.Context, g *loginSite, reset, _ string) error {
		_, err := g.users.ResetPassword(ctx, "reset", reset, resetPassword)
		return err
	}},
	{"change", func(ctx context.Context, g *loginSite, _, change string) error {
		_, _, err := g.users.Redeem(ctx, "change:email", change)
		return err
	}},
}

// TestLostRedeems loses requests and replies of tokenMethods. A command that is sent again must
// succeed even if the first attempt already spent the token, and no token may be spent twice (I7).
func TestLostRedeems(t *testing.T) {
	for _, v := range tokenMethods {
		t.Run(v.name, func(t *testing.T) {
			eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
				for _, loss := range losses {
					if loss.times > 2 {
						continue
					}
					must(t, g.users.Delete(t.Context(), uid("alice")))
					g.add("alice", alicePassword)
					reset, change := g.issue(userdb.Token{Purpose: "reset"}), g.issue(userdb.Token{Purpose: "change:email", Value: "new@example.com"})
					lost := 0
					g.tap.lose(loss.times, loss.done, loss.err, func(int) { lost++ })
					err := v.do(t.Context(), g, reset, change)
					g.tap.set(nil)
					if err != nil || lost != loss.times {
						t.Errorf("%s: got %v after %d losses, want success after %d", loss.name, err, lost, loss.times)
					}
					wantErr(t, "the same token again", v.do(t.Context(), g, reset, change), userdb.ErrNotFound)
				}
			})
		})
	}
}

// TestNoReplyToRedeem loses every reply. The call must report an unknown outcome, and not that the
// token is invalid. If the server refuses the commands, the call must report that the store is
// unavailable.
func TestNoReplyToRedeem(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(oneScript)
		for _, v := range tokenMethods {
			must(t, g.users.Delete(t.Context(), uid("alice")))
			g.add("alice", alicePassword)
			reset, change := g.issue(userdb.Token{Purpose: "reset"}), g.issue(userdb.Token{Purpose: "change:email", Value: "new@example.com"})
			ctx, cancel := context.WithCancel(t.Context())
			g.tap.lose(1000, true, io.EOF, func(n int) {
				if n == 2 {
					cancel()
				}
			})
			err := v.do(ctx, g, reset, change)
			g.tap.set(nil)
			cancel()
			wantErr(t, v.name, err, userdb.ErrOutcomeUnknown)
			g.refuse("user/uid:alice")
			wantErr(t, v.name+", refused", v.do(t.Context(), g, g.issueUntapped(), change), userdb.ErrUnavailable)
			g.tap.set(nil)
		}
	})
}

// issueUntapped removes the function of the tap while it issues a token.
func (g *loginSite) issueUntapped() string {
	g.t.Helper()
	var refusing passage
	if p := g.tap.pass.Load(); p != nil {
		refusing = *p
	}
	g.tap.set(nil)
	defer g.tap.set(refusing)
	return g.issue(userdb.Token{Purpose: "reset"})
}

// racingMethods lists methods that may run between any two commands of a method that spends a
// token.
var racingMethods = []struct {
	name string
	do   func(ctx context.Context, g *loginSite, reset, change string) error
}{
	{"disable", func(ctx context.Context, g *loginSite, _, _ string) error { return g.users.Disable(ctx, uid("alice")) }},
	{"set password", func(ctx context.Context, g *loginSite, _, _ string) error {
		return errOf(g.users.SetPassword(ctx, uid("alice"), "the owner's own"))
	}},
	{"delete", func(ctx context.Context, g *loginSite, _, _ string) error { return g.users.Delete(ctx, uid("alice")) }},
	{"redeem", tokenMethods[0].do},
	{"reset", func(ctx context.Context, g *loginSite, reset, _ string) error {
		_, err := g.users.ResetPassword(ctx, "reset", reset, "the other's")
		return err
	}},
	{"change", tokenMethods[2].do},
	{"newer change", func(ctx context.Context, g *loginSite, _, _ string) error {
		_, _, err := g.users.Redeem(ctx, "change:email", g.issue(userdb.Token{Purpose: "change:email", Value: "newer@example.com"}))
		return err
	}},
	{"update", func(ctx context.Context, g *loginSite, _, _ string) error {
		_, err := g.users.Update(ctx, uid("alice"), putText("name", "Alicia"))
		return err
	}},
}

// TestTokenRaces runs another method before and after every command of a method that spends a
// token. A token that the other method ended must have no effect, and of two methods that spend the
// same token at most one may succeed.
func TestTokenRaces(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(interleaves)
		moments := 0
		for _, v := range tokenMethods {
			for _, o := range racingMethods {
				for at := 0; ; at++ {
					// At most three tokens an hour are issued for one address.
					g.advance(time.Hour + time.Second)
					if !g.raceAt(v.name+" | "+o.name, at, v.do, o.do) {
						break
					}
					moments++
				}
			}
		}
		if moments < 100 {
			t.Errorf("other methods ran at %d moments, want at least 100", moments)
		}
	})
}

// raceAt runs do, a method that spends a token, and runs other at one moment of it. Moments are
// counted from 0: two for each command of do, before and after it. raceAt returns false if do ended
// before that moment.
func (g *loginSite) raceAt(name string, at int, do, other func(ctx context.Context, g *loginSite, reset, change string) error) bool {
	g.t.Helper()
	ctx := g.t.Context()
	if g.storedField("alice", "~isa") != "" {
		must(g.t, g.users.Delete(ctx, uid("alice")))
	}
	g.add("alice", alicePassword)
	reset, change := g.issue(userdb.Token{Purpose: "reset"}), g.issue(userdb.Token{Purpose: "change:email", Value: "new@example.com"})
	moment := 0
	var theirs error
	ran := false
	atMoment := func() {
		if moment++; moment-1 == at && !ran {
			ran = true
			p := *g.tap.pass.Load()
			g.tap.set(nil)
			theirs = other(ctx, g, reset, change)
			g.tap.set(p)
		}
	}
	var mu sync.Mutex // serializes commands that a cluster gets at the same time
	g.tap.set(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		mu.Lock()
		defer mu.Unlock()
		atMoment()
		err := send()
		atMoment()
		return err
	})
	ours := do(ctx, g, reset, change)
	g.tap.set(nil)
	if !ran {
		return false
	}
	if problem := g.raceProblem(name, ours, theirs); problem != "" {
		g.t.Errorf("%s, at %d: %s (%v, %v)", name, at, problem, ours, theirs)
	}
	return true
}

// raceProblem returns the problem after two methods ran at the same time, or "" if there is none.
func (g *loginSite) raceProblem(name string, ours, theirs error) string {
	method, other, _ := strings.Cut(name, " | ")
	for _, err := range []error{ours, theirs} {
		if err != nil && !errors.Is(err, userdb.ErrNotFound) {
			return "an unexpected error"
		}
	}
	email, both := g.storedField("alice", "email"), ours == nil && theirs == nil
	same := method == other || method != "change" && (other == "redeem" || other == "reset")
	switch {
	case same && both:
		return "both succeeded"
	case other == "newer change" && theirs == nil && email != "newer@example.com":
		return "the address is " + email
	case other == "set password" && g.logIn("alice", "the owner's own", "") != nil:
		return "the owner's password does not log in"
	case other == "disable" && g.storedField("alice", "~disabled") == "":
		return "the entry is not disabled"
	case (other == "disable" || other == "set password" || other == "delete") && len(g.keysUnder("~/token/")) > 0:
		return "there are still tokens"
	case other == "delete" && g.storedField("alice", "~isa") != "":
		return "the entry is not deleted"
	}
	return ""
}

// TestIssueDuringDisable issues tokens while another caller disables the entry. None of them may be
// valid afterwards.
func TestIssueDuringDisable(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		secrets := make([]string, 8)
		var wg sync.WaitGroup
		for i := range secrets {
			wg.Go(func() {
				var err error
				secrets[i], err = g.users.Issue(t.Context(), uid("alice"), userdb.Token{Purpose: "reset"})
				if err != nil && !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("issue: %v", err)
				}
			})
		}
		wg.Go(func() { must(t, g.users.Disable(t.Context(), uid("alice"))) })
		wg.Wait()
		must(t, g.users.Enable(t.Context(), uid("alice")))
		for _, secret := range secrets {
			g.wantVoid("a token from before the disable", "reset", secret)
		}
	})
}
