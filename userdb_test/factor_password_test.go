package userdb_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/userdb"
)

const newPassword = "another horse battery"

// changePassword changes alice's password in a session, which may be "".
func (g *loginSite) changePassword(old, session string) (userdb.Entry, error) {
	return g.users.ChangePassword(g.t.Context(), uid("alice"), old, newPassword, userdb.Attempt{Session: session})
}

// TestChangePasswordWithFactor checks that an entry with a second factor changes its password in a
// session that was verified with both steps within ten minutes, and in no other.
func TestChangePasswordWithFactor(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.add("bob", alicePassword)
		bob, err := g.users.Login(ctx, "bob", alicePassword, userdb.Attempt{})
		must(t, err)
		_, bobs, err := g.users.StartSession(ctx, bob, userdb.SessionOptions{Level: 2})
		must(t, err)
		_, early := g.startSession(userdb.SessionOptions{})
		a, secret := g.enrol()
		refused := func(what, old, session string, want error) {
			t.Helper()
			e, err := g.changePassword(old, session)
			wantErr(t, what, err, want)
			wantNoEntry(t, what, e)
		}
		refused("no session", alicePassword, "", userdb.ErrFactor)
		refused("nonsense", alicePassword, "nonsense", userdb.ErrNotFound)
		refused("a session of another entry", alicePassword, bobs, userdb.ErrNotFound)
		refused("a session from before the factor", alicePassword, early, userdb.ErrNotFound)
		refused("a session of level 1", alicePassword, g.startLevel(1), userdb.ErrNotFound)
		refused("a wrong password", wrongPassword, secret, userdb.ErrLogin)
		g.advance(10*time.Minute + time.Second)
		refused("after ten minutes", alicePassword, secret, userdb.ErrNotVerified)
		_, _, err = g.users.VerifySession(ctx, secret, alicePassword, userdb.Attempt{})
		must(t, err)
		refused("a password alone", alicePassword, secret, userdb.ErrNotVerified)
		_, before, raised, err := g.users.RaiseSession(ctx, secret, userdb.TOTP(a.nextCode()), userdb.SessionOptions{})
		must(t, err)
		g.advance(9 * time.Minute)

		other, token, ticket := g.startLevel(2), g.issue(userdb.Token{Purpose: "x"}), g.ticket("")
		e, err := g.changePassword(alicePassword, raised)
		must(t, err)
		g.wantEnded("the session that changed the password", raised)
		g.wantEnded("another session", other)
		_, _, err = g.users.Peek(ctx, "x", token)
		wantErr(t, "a token", err, userdb.ErrNotFound)
		_, err = g.users.Prove(ctx, ticket, userdb.TOTP(a.nextCode()), userdb.Attempt{})
		wantErr(t, "a ticket", err, userdb.ErrNotFound)
		s, next, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		if g.wantSession("after the change", next); s.Level() != 2 {
			t.Errorf("the session after the change has level %d, want 2", s.Level())
		}
		if !s.VerifiedLevel2.Equal(before.VerifiedLevel2) || s.Verified.Sub(before.Verified) < 9*time.Minute {
			t.Errorf("got the session %+v, before the change %+v; want level 1 verified anew, and level 2 as before", s, before)
		}
		wantErr(t, "the old password", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
		wantErr(t, "the new password", g.logIn("alice", newPassword, ""), userdb.ErrFactor)
		if g.storedField("alice", "password") != factor.HashMarker {
			t.Error("the new password hash lies where earlier versions accept it")
		}
		shown := fmt.Sprintf("%v %+v %#v", userdb.Attempt{Session: next}, userdb.Attempt{Session: next}, userdb.Attempt{Session: next})
		if strings.Contains(shown+g.log(), next) || strings.Contains(g.log(), raised) {
			t.Error("the secret of a session is shown or logged")
		}
	})
}

// TestChangePasswordOvertaken makes another change, which ends the session, at each moment at which
// ChangePassword reads the clock. If the other change comes before that of the password,
// ChangePassword must fail. ResetFactors is an exception if it comes before the old password is
// checked: an entry without a factor needs no session.
func TestChangePasswordOvertaken(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		for what, change := range map[string]func() error{
			"EndSessions":  func() error { return errOf(g.users.EndSessions(ctx, uid("alice"))) },
			"SetPassword":  func() error { return errOf(g.users.SetPassword(ctx, uid("alice"), alicePassword)) },
			"ResetFactors": func() error { return errOf(g.users.ResetFactors(ctx, uid("alice"))) },
			"Disable":      func() error { return g.users.Disable(ctx, uid("alice")) },
		} {
			for moment := int64(1); ; moment++ {
				must(t, g.users.Enable(ctx, uid("alice")))
				_, err := g.users.ResetFactors(ctx, uid("alice"))
				must(t, err)
				_, err = g.users.SetPassword(ctx, uid("alice"), alicePassword)
				must(t, err)
				g.advance(time.Minute)
				_, secret := g.enrol()
				before := g.storedField("alice", factor.FieldHash)
				var reads atomic.Int64
				overtook := false
				g.onClock = func() {
					if reads.Add(1) == moment {
						overtook = g.storedField("alice", factor.FieldHash) == before
						must(t, change())
					}
				}
				e, err := g.changePassword(alicePassword, secret)
				g.mu.Lock()
				g.onClock = nil
				g.mu.Unlock()
				if reads.Load() < moment {
					break
				}
				if overtook && err == nil {
					if s, _, startErr := g.users.StartSession(ctx, e, userdb.SessionOptions{}); what != "ResetFactors" || startErr != nil || s.Level() != 1 {
						t.Errorf("%s came first at moment %d, and the password was changed, want an error", what, moment)
					}
				}
				if err != nil && !overtook || err != nil && !errors.Is(err, userdb.ErrConflict) &&
					!errors.Is(err, userdb.ErrLogin) && !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("%s at moment %d, before the password was changed: %v: got error %v; want none afterwards, "+
						"and before that ErrConflict, ErrLogin or ErrNotFound", what, moment, overtook, err)
				}
			}
		}
	})
}

// TestRemovalRenewsNothing checks that the session after the removal of a factor keeps the
// verification time of the session before.
func TestRemovalRenewsNothing(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		a, secret := g.enrol()
		_, before, err := g.users.Session(ctx, secret)
		must(t, err)
		g.advance(9 * time.Minute)
		c, err := g.users.RemoveFactor(ctx, secret, a.id, userdb.SessionOptions{})
		must(t, err)
		if !c.Session.Verified.Equal(before.Verified) || c.Session.Level() != 1 {
			t.Errorf("the session after the removal is %+v, want level 1, verified as before: %+v", c.Session, before)
		}
		g.advance(61 * time.Second)
		_, err = g.users.EnrolTOTP(ctx, c.Secret, userdb.TOTPOptions{})
		wantErr(t, "enrolling after ten minutes", err, userdb.ErrNotVerified)
	})
}
