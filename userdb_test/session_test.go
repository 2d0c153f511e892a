package userdb_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// aliceSessions is the key of alice's sessions.
const aliceSessions = "~/session/{user/uid:alice}"

// loginAlice logs alice in.
func (g *loginSite) loginAlice() userdb.Entry {
	g.t.Helper()
	e, err := g.users.Login(g.t.Context(), "alice", alicePassword, userdb.Attempt{})
	must(g.t, err)
	return e
}

// startSession begins a session of alice.
func (g *loginSite) startSession(o userdb.SessionOptions) (userdb.Session, string) {
	g.t.Helper()
	e, err := g.users.Find(g.t.Context(), uid("alice"))
	must(g.t, err)
	s, secret, err := g.users.StartSession(g.t.Context(), e, o)
	must(g.t, err)
	return s, secret
}

// wantSession checks that a secret is valid for a session of alice, and returns the session.
func (g *loginSite) wantSession(why, secret string) userdb.Session {
	g.t.Helper()
	e, s, err := g.users.Session(g.t.Context(), secret)
	if err != nil || e.UID() != "alice" || e.Text("name") != "alice" {
		g.t.Errorf("%s: got %v, %+v, %v; want alice", why, e, s, err)
	}
	return s
}

// wantEnded checks that a secret is refused exactly like one that never existed.
func (g *loginSite) wantEnded(why, secret string) {
	g.t.Helper()
	e, s, err := g.users.Session(g.t.Context(), secret)
	if err != userdb.ErrNotFound || e.UID() != "" || s != (userdb.Session{}) {
		g.t.Errorf("%s: got %v, %+v, %v; want exactly ErrNotFound", why, e, s, err)
	}
}

// listSessions returns the sessions of alice.
func (g *loginSite) listSessions() (all []userdb.Session) {
	g.t.Helper()
	for s, err := range g.users.Sessions(g.t.Context(), uid("alice")) {
		must(g.t, err)
		all = append(all, s)
	}
	return all
}

// TestSessions starts sessions, checks and lists them, and ends them by their IDs and secrets.
func TestSessions(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		begun := g.now
		s, secret, err := g.users.StartSession(ctx, g.loginAlice(), userdb.SessionOptions{Origin: "192.0.2.7", Agent: "A browser; of mine"})
		must(t, err)
		want := userdb.Session{
			ID: s.ID, Started: begun, LastSeen: begun, Verified: begun, Expires: begun.Add(30 * 24 * time.Hour),
			Origin: "192.0.2.7", Agent: "A browser; of mine",
		}
		sameSession(t, "begun", s, want)
		bytes, err := base64.RawURLEncoding.DecodeString(secret)
		if err != nil || len(bytes) != 20+len("alice") || strings.Contains(secret, s.ID) || s.ID == "" {
			t.Errorf("got secret %q and ID %q; want 20 random bytes and the UID in base64, and an ID that is not in the secret", secret, s.ID)
		}
		sameSession(t, "looked up", g.wantSession("at once", secret), want)
		g.advance(time.Minute)
		want.LastSeen = g.now
		sameSession(t, "a minute later", g.wantSession("a minute later", secret), want)
		g.advance(59 * time.Second)
		sameSession(t, "within the minute", g.wantSession("within the minute", secret), want)
		other, second := g.startSession(userdb.SessionOptions{})
		all := g.listSessions()
		if len(all) != 2 || all[0].ID != other.ID || all[1].ID != s.ID {
			t.Fatalf("got sessions %+v, want first the one that was used last", all)
		}
		sameSession(t, "listed", all[1], want)

		must(t, g.users.EndSessionID(ctx, uid("alice"), s.ID))
		g.wantEnded("ended by its ID", secret)
		wantErr(t, "ended twice", g.users.EndSessionID(ctx, uid("alice"), s.ID), userdb.ErrNotFound)
		wantErr(t, "an unknown account", g.users.EndSessionID(ctx, uid("nobody"), s.ID), userdb.ErrNotFound)
		g.wantSession("the other", second)
		must(t, g.users.EndSession(ctx, second))
		must(t, g.users.EndSession(ctx, second))
		must(t, g.users.EndSession(ctx, "made up"))
		g.wantEnded("ended by its secret", second)
		if left := g.listSessions(); len(left) != 0 {
			t.Errorf("sessions are still there: %+v", left)
		}
		for k, r := range g.dump(ctx) {
			if text := k + r.String(); strings.Contains(text, secret) || strings.Contains(text, second) {
				t.Errorf("%s holds a secret", k)
			}
		}
	})
}

func sameSession(t *testing.T, what string, got, want userdb.Session) {
	t.Helper()
	const layout = time.RFC3339
	// A session's times are whole milliseconds, unlike those of the clock.
	text := func(s userdb.Session) string {
		return fmt.Sprint(s.ID, s.Started.UnixMilli(), s.LastSeen.UnixMilli(), s.Verified.UnixMilli(), s.Expires.UnixMilli(), s.Origin, s.Agent)
	}
	if text(got) != text(want) {
		t.Errorf("%s: got %+v, want %+v, begun %s", what, got, want, want.Started.Format(layout))
	}
}

// A sessionEnd is a way to end all sessions of alice.
type sessionEnd struct {
	name string
	do   func(ctx context.Context, g *loginSite) error
}

// sessionEnds lists methods, and changes by other programs, that end all sessions. After each of
// them, a login from before it cannot start a session.
var sessionEnds = []sessionEnd{
	{"end all", func(ctx context.Context, g *loginSite) error { return errOf(g.users.EndSessions(ctx, uid("alice"))) }},
	{"set password", func(ctx context.Context, g *loginSite) error {
		return errOf(g.users.SetPassword(ctx, uid("alice"), alicePassword))
	}},
	{"change password", func(ctx context.Context, g *loginSite) error {
		return errOf(g.users.ChangePassword(ctx, uid("alice"), alicePassword, alicePassword+"!", userdb.Attempt{}))
	}},
	{"reset password", func(ctx context.Context, g *loginSite) error {
		_, err := g.users.ResetPassword(ctx, "reset", g.issue(userdb.Token{Purpose: "reset"}), "brand new horse")
		return err
	}},
	{"disable", func(ctx context.Context, g *loginSite) error { return g.users.Disable(ctx, uid("alice")) }},
	{"disable, enable", func(ctx context.Context, g *loginSite) error {
		return errors.Join(g.users.Disable(ctx, uid("alice")), g.users.Enable(ctx, uid("alice")))
	}},
	{"disabled by a program that knows no sessions, enabled", func(ctx context.Context, g *loginSite) error {
		g.storeField("alice", store.FieldDisabled, schema.Date(g.now).Wire())
		return g.users.Enable(ctx, uid("alice"))
	}},
	{"a password set by a program that knows no sessions", func(_ context.Context, g *loginSite) error {
		g.storeField("alice", store.FieldChanged, schema.Date(g.now.Add(time.Hour)).Wire())
		return nil
	}},
	{"delete", func(ctx context.Context, g *loginSite) error { return g.users.Delete(ctx, uid("alice")) }},
	{"delete and create", func(ctx context.Context, g *loginSite) error {
		return errors.Join(g.users.Delete(ctx, uid("alice")), g.create("alice", alicePassword))
	}},
	{"delete and create long after", func(ctx context.Context, g *loginSite) error {
		return errors.Join(g.users.Delete(ctx, uid("alice")), g.raw.Del(ctx, "user/uid:alice").Err(), g.create("alice", ""))
	}},
}

// TestSessionEnds checks that each of sessionEnds ends all sessions, and that none can be started
// from an earlier login.
func TestSessionEnds(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for _, before := range []string{"with sessions", "without sessions"} {
			for _, end := range sessionEnds {
				g.recreateAlice()
				var secrets []string
				stale := []userdb.Entry{g.loginAlice()}
				if before == "with sessions" {
					for range 2 {
						_, secret := g.startSession(userdb.SessionOptions{})
						secrets = append(secrets, secret)
					}
					stale = append(stale, g.loginAlice())
				}
				must(t, end.do(t.Context(), g))
				for _, secret := range secrets {
					g.wantEnded(before+", "+end.name, secret)
				}
				for i, e := range stale {
					_, secret, err := g.users.StartSession(t.Context(), e, userdb.SessionOptions{})
					if !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrNotFound) || secret != "" {
						t.Errorf("%s, %s: starting a session from login %d: got %v, want ErrConflict or ErrNotFound", before, end.name, i, err)
					}
				}
				if strings.HasPrefix(end.name, "a password set by") {
					continue // that program does not delete the record of sessions, which expires
				}
				if left := g.keysUnder("~/session/"); len(left) > 0 {
					t.Errorf("%s, %s: records of sessions are still there: %q", before, end.name, left)
				}
			}
		}
	})
}

// recreateAlice deletes alice and creates her again.
func (g *loginSite) recreateAlice() {
	g.t.Helper()
	if g.storedField("alice", "~isa") != "" {
		must(g.t, g.users.Delete(g.t.Context(), uid("alice")))
	}
	must(g.t, g.raw.Del(g.t.Context(), aliceSessions).Err())
	g.add("alice", alicePassword)
}

// TestSessionFromReturnedEntry checks that a session can be started with the entry that a method
// returned, even if the method ended all sessions.
func TestSessionFromReturnedEntry(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		begin := func(what string, e userdb.Entry, err error) {
			t.Helper()
			must(t, err)
			_, secret, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
			if err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			g.wantSession(what, secret)
		}
		e, err := g.users.SetPassword(ctx, uid("alice"), alicePassword)
		begin("set", e, err)
		e, err = g.users.ChangePassword(ctx, uid("alice"), alicePassword, "brand new horse", userdb.Attempt{})
		begin("change", e, err)
		e, err = g.users.EndSessions(ctx, uid("alice"))
		begin("end all", e, err)
		e, err = g.users.ResetPassword(ctx, "reset", g.issue(userdb.Token{Purpose: "reset"}), alicePassword)
		begin("reset", e, err)
		for _, made := range []string{"created again", "created again and changed"} {
			must(t, g.users.Delete(ctx, uid("alice")))
			e, err = g.users.Create(ctx, userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", "alice")})
			if made == "created again and changed" {
				must(t, err)
				e.Put("job", schema.Text("cook"))
				e, err = g.users.Save(ctx, e)
			}
			begin(made, e, err)
		}
		// Other changes end no session. A session can be started from a login even if a few of them
		// were made after the login.
		_, secret := g.startSession(userdb.SessionOptions{})
		g.add("bob", "battery staple bob")
		bob, err := g.users.Login(ctx, "bob", "battery staple bob", userdb.Attempt{})
		must(t, err)
		for _, name := range []string{"alice", "bob"} {
			for i := range 3 {
				_, err := g.users.Update(ctx, uid(name), putText("job", fmt.Sprint(i)))
				must(t, err)
			}
		}
		must(t, g.users.Enable(ctx, uid("alice")))
		g.wantSession("other changes", secret)
		_, _, err = g.users.StartSession(ctx, bob, userdb.SessionOptions{})
		must(t, err)
	})
}

// TestSessionTimes checks that a session ends when it was not used for its idle time, or when its
// lifetime is over, and that the record of the sessions expires. It also checks the limits of the
// options.
func TestSessionTimes(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		_, idle := g.startSession(userdb.SessionOptions{IdleTimeout: 10 * time.Minute})
		for range 20 { // use keeps the session alive
			g.advance(9 * time.Minute)
			g.wantSession("seen", idle)
		}
		g.advance(10 * time.Minute)
		g.wantEnded("idle", idle)
		_, short := g.startSession(userdb.SessionOptions{Lifetime: time.Hour, IdleTimeout: time.Hour})
		for range 59 {
			g.advance(time.Minute)
			g.wantSession("young", short)
		}
		g.advance(time.Minute)
		g.wantEnded("old", short)
		if left := g.listSessions(); len(left) > 0 {
			t.Errorf("expired sessions are listed: %+v", left)
		}
		ttl, err := g.raw.PTTL(t.Context(), aliceSessions).Result()
		if err != nil || ttl > time.Hour || ttl < 0 {
			t.Errorf("the record lives for %v, %v; want at most an hour", ttl, err)
		}
		for _, tt := range []struct {
			field string
			o     userdb.SessionOptions
		}{
			{"life", userdb.SessionOptions{Lifetime: -1}},
			{"life", userdb.SessionOptions{Lifetime: 401 * 24 * time.Hour}},
			{"idle", userdb.SessionOptions{IdleTimeout: time.Minute}},
			{"idle", userdb.SessionOptions{IdleTimeout: -time.Hour}},
		} {
			_, _, err := g.users.StartSession(t.Context(), g.loginAlice(), tt.o)
			wantField(t, fmt.Sprintf("%+v", tt.o), err, userdb.ErrInvalid, tt.field)
		}
		s, _ := g.startSession(userdb.SessionOptions{Origin: strings.Repeat("ö", 200), Agent: "\xff\x00 " + strings.Repeat("x", 10_000)})
		if len(s.Origin) != 256 || len(s.Agent) > 256 || !strings.HasPrefix(s.Agent, "\ufffd\x00 x") {
			t.Errorf("got origin %q and agent %q, want valid UTF-8 of at most 256 bytes", s.Origin, s.Agent)
		}
		_, _, err = g.users.StartSession(t.Context(), userdb.Entry{}, userdb.SessionOptions{})
		wantErr(t, "a session of the zero Entry", err, userdb.ErrInvalid)
	})
}

// TestEndedSessionsIfClockGoesBack ends sessions that have already expired, and then sets the clock
// back. The sessions must stay ended.
func TestEndedSessionsIfClockGoesBack(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for name, end := range map[string]func(s userdb.Session, secret string) error{
			"by its secret": func(_ userdb.Session, secret string) error { return g.users.EndSession(t.Context(), secret) },
			"by its ID": func(s userdb.Session, _ string) error {
				wantErr(t, "an expired session", g.users.EndSessionID(t.Context(), uid("alice"), s.ID), userdb.ErrNotFound)
				return nil
			},
		} {
			s, secret := g.startSession(userdb.SessionOptions{Lifetime: time.Hour})
			g.advance(2 * time.Hour)
			must(t, end(s, secret))
			g.advance(-2 * time.Hour)
			g.wantEnded(name, secret)
		}
	})
}

// TestSessionLimit checks that an account has at most 100 sessions, and that a new one replaces the
// oldest.
func TestSessionLimit(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(cheapWrites)
		var secrets []string
		for range 103 {
			_, secret := g.startSession(userdb.SessionOptions{})
			secrets = append(secrets, secret)
			g.advance(time.Millisecond)
		}
		for i, secret := range secrets {
			if i < 3 {
				g.wantEnded("one of the oldest", secret)
			} else {
				g.wantSession(fmt.Sprint(i), secret)
			}
		}
		if n := len(g.listSessions()); n != 100 {
			t.Errorf("got %d sessions, want 100", n)
		}
	})
}

// TestEndedSessionRecords starts and ends many sessions. The account must keep at most about 100
// records of ended ones.
func TestEndedSessionRecords(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(cheapWrites)
		_, kept := g.startSession(userdb.SessionOptions{})
		var secrets []string
		for range 150 {
			g.advance(time.Millisecond)
			_, secret := g.startSession(userdb.SessionOptions{})
			must(t, g.users.EndSession(t.Context(), secret))
			secrets = append(secrets, secret)
		}
		if n := g.raw.HLen(t.Context(), aliceSessions).Val(); n < 100 || n > 102 {
			t.Errorf("the account keeps %d records of sessions, want 100 to 102", n)
		}
		for _, secret := range secrets {
			g.wantEnded("ended", secret)
		}
		g.wantSession("the session that was not ended", kept)
	})
}

// TestVerifySession checks that VerifySession stores the time at which the password was entered
// again.
func TestVerifySession(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		_, secret := g.startSession(userdb.SessionOptions{})
		g.advance(time.Hour)
		_, _, err := g.users.VerifySession(ctx, secret, wrongPassword, userdb.Attempt{})
		wantErr(t, "wrong", err, userdb.ErrLogin)
		if s := g.wantSession("still", secret); s.Verified.Equal(s.LastSeen) {
			t.Error("a wrong password counts as verification")
		}
		_, s, err := g.users.VerifySession(ctx, secret, alicePassword, userdb.Attempt{})
		if err != nil || s.Verified.UnixMilli() != g.now.UnixMilli() || !g.wantSession("verified", secret).Verified.Equal(s.Verified) {
			t.Errorf("VerifySession returned %+v, %v; want verified at %v", s, err, g.now)
		}
		must(t, g.users.EndSession(ctx, secret))
		_, _, err = g.users.VerifySession(ctx, secret, alicePassword, userdb.Attempt{})
		wantErr(t, "ended", err, userdb.ErrNotFound)
		_, _, err = g.users.VerifySession(ctx, "made up", alicePassword, userdb.Attempt{})
		wantErr(t, "made up", err, userdb.ErrNotFound)
	})
}

// TestRedeemSession checks that RedeemSession spends the token and starts a session, or does
// neither.
func TestRedeemSession(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		link := g.issue(userdb.Token{Purpose: "sign in"})
		e, s, secret, err := g.users.RedeemSession(ctx, "sign in", link, userdb.SessionOptions{Agent: "mine"})
		if err != nil || e.UID() != "alice" || s.Agent != "mine" {
			t.Fatalf("RedeemSession returned %v, %+v, %v; want alice", e, s, err)
		}
		g.wantSession("with a link", secret)
		g.wantVoid("a second time", "sign in", link)
		refused := func(why string, want error) {
			t.Helper()
			_, _, secret, err := g.users.RedeemSession(ctx, "sign in", link, userdb.SessionOptions{})
			g.tap.set(nil)
			if !errors.Is(err, want) || secret != "" || len(g.listSessions()) != 1 {
				t.Errorf("%s: got secret %q, %v and %d sessions; want no secret, %v and one session",
					why, secret, err, len(g.listSessions()), want)
			}
		}
		refused("spent", userdb.ErrNotFound)
		link = g.issue(userdb.Token{Purpose: "sign in"})
		g.refuse("user/uid:alice")
		refused("a server that refuses writes", userdb.ErrUnavailable)
		_, _, secret, err = g.users.RedeemSession(ctx, "sign in", link, userdb.SessionOptions{})
		must(t, err)
		g.wantSession("after the refusals", secret)
	})
}

// TestRedeemSessionOnce redeems a token many times at once, for an entry that has as many sessions
// as it may have. Only one session may start, so that only the oldest of the others ends.
func TestRedeemSessionOnce(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		g.needs(cheapWrites)
		var secrets []string
		for range 100 {
			_, secret := g.startSession(userdb.SessionOptions{})
			secrets = append(secrets, secret)
			g.advance(time.Millisecond)
		}
		link := g.issue(userdb.Token{Purpose: "sign in"})
		var begun, redeemed atomic.Int64
		g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			for _, cmd := range cmds {
				if args := cmd.Args(); len(args) > 4 && argument(args[3]) == aliceSessions && argument(args[4]) == "begin" {
					begun.Add(1)
				}
			}
			return send()
		})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				err := errOf4(g.users.RedeemSession(t.Context(), "sign in", link, userdb.SessionOptions{}))
				if err == nil {
					redeemed.Add(1)
				} else if !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("a concurrent call: %v", err)
				}
			})
		}
		all.Wait()
		g.tap.set(nil)
		if begun.Load() != 1 || redeemed.Load() != 1 {
			t.Errorf("%d sessions began and %d calls succeeded, want one", begun.Load(), redeemed.Load())
		}
		g.wantEnded("the oldest", secrets[0])
		for _, secret := range secrets[1:] {
			g.wantSession("one of the others", secret)
		}
	})
}

// TestRedeemSessionWithoutSession makes the start of the session fail after the token was redeemed.
// The error must say that the outcome is unknown, and the token must be spent.
func TestRedeemSessionWithoutSession(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for cause, fail := range map[error]func(cancel func()) error{
			context.Canceled:      func(cancel func()) error { cancel(); return context.Canceled },
			userdb.ErrUnavailable: func(func()) error { return serverAnswer("OOM refused by the test") },
		} {
			link := g.issue(userdb.Token{Purpose: "sign in"})
			ctx, cancel := context.WithCancel(t.Context())
			g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if !strings.Contains(wordsOf(cmds[0]), aliceSessions) {
					return send()
				}
				err := fail(cancel)
				cmds[0].SetErr(err)
				return err
			})
			_, _, secret, err := g.users.RedeemSession(ctx, "sign in", link, userdb.SessionOptions{})
			g.tap.set(nil)
			cancel()
			if !errors.Is(err, cause) || secret != "" || !errors.Is(err, userdb.ErrOutcomeUnknown) {
				t.Errorf("%v: got secret %q and error %v; want no secret, and ErrOutcomeUnknown with the cause", cause, secret, err)
			}
			if n := len(g.listSessions()); n != 0 {
				t.Errorf("%v: got %d sessions, want none", cause, n)
			}
			g.wantVoid(cause.Error(), "sign in", link)
		}
	})
}

// errOf4 returns the last of the four results of a call.
func errOf4[T, U, V any](_ T, _ U, _ V, err error) error { return err }

// TestSessionRoundTrips checks that finding a session takes one round trip.
func TestSessionRoundTrips(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		_, secret := g.startSession(userdb.SessionOptions{})
		g.wantSession("loading the scripts", secret)
		trips := 0
		g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			trips++
			return send()
		})
		g.wantSession("counted", secret)
		g.tap.set(nil)
		if trips != 1 {
			t.Errorf("finding a session took %d round trips, want 1", trips)
		}
	})
}

// TestSessionRetries checks that a lookup that gets no reply is sent again, but no more often than
// the end of a session.
func TestSessionRetries(t *testing.T) {
	s, proxy := startProxied(t)
	g := newLoginSite(s, loginOptions())
	g.add("alice", alicePassword)
	_, secret := g.startSession(userdb.SessionOptions{})
	tries := func(want error, do func() error) int {
		before := proxy.Cuts()
		proxy.CutRequests(-1, aliceSessions)
		defer proxy.Pass()
		wantErr(t, "without a reply", do(), want)
		return proxy.Cuts() - before
	}
	ended := tries(userdb.ErrOutcomeUnknown, func() error { return g.users.EndSession(t.Context(), secret) })
	asked := tries(userdb.ErrUnavailable, func() error { _, _, err := g.users.Session(t.Context(), secret); return err })
	if asked > ended || asked < 2 {
		t.Errorf("a lookup was sent %d times, want 2 to %d, as often as an end", asked, ended)
	}
	g.wantSession("after the failures", secret)
}

// TestConcurrentSessionsWithoutReply makes concurrent lookups, which share round trips, while
// requests are lost. Lost requests must be sent again. If no reply ever comes, the lookups must
// report that, and not that the session has ended.
func TestConcurrentSessionsWithoutReply(t *testing.T) {
	s, proxy := startProxied(t)
	g := newLoginSite(s, loginOptions())
	g.add("alice", alicePassword)
	_, secret := g.startSession(userdb.SessionOptions{})
	lookUpMany := func(want error) {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if _, _, err := g.users.Session(t.Context(), secret); !errors.Is(err, want) {
					t.Errorf("a concurrent lookup: got %v, want %v", err, want)
				}
			})
		}
		all.Wait()
	}
	lookUpMany(nil)
	proxy.CutRequests(12, aliceSessions) // all requests of single callers, and some that are shared
	lookUpMany(nil)
	proxy.CutRequests(-1, aliceSessions)
	lookUpMany(userdb.ErrUnavailable)
	proxy.Pass()
	g.wantSession("after the failures", secret)
}

// TestSessionRecords checks that a malformed session is not valid, and that a record of another
// Redis type is replaced.
func TestSessionRecords(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		s, secret := g.startSession(userdb.SessionOptions{})
		member, err := g.raw.HGet(ctx, aliceSessions, s.ID).Result()
		must(t, err)
		for _, text := range []string{
			"", "x", strings.Replace(member, " ", "  ", 1), "-1" + member, member + " ", member[:len(member)-4], strings.Replace(member, "/", "", 1),
			"99999999999999999999999 " + member, strings.Repeat("9", 400) + member, "nan" + member, member + "\n",
		} {
			must(t, g.raw.HSet(ctx, aliceSessions, s.ID, text).Err())
			g.wantEnded(fmt.Sprintf("%q", text), secret)
		}
		must(t, g.raw.Del(ctx, aliceSessions).Err())
		must(t, g.raw.Set(ctx, aliceSessions, "no hash", 0).Err())
		g.wantEnded("a session in a record of another type", secret)
		must(t, g.users.EndSession(ctx, secret))
		if left := g.listSessions(); len(left) > 0 {
			t.Errorf("a record of another type lists sessions: %+v", left)
		}
		_, secret = g.startSession(userdb.SessionOptions{})
		g.wantSession("a session that replaced the record", secret)
	})
}

// TestSessionsOfOthers checks that a secret is valid only if it is unchanged, and only for its own
// entry.
func TestSessionsOfOthers(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.add("bob", "battery staple bob")
		mine, secret := g.startSession(userdb.SessionOptions{})
		wantErr(t, "a session of another account", g.users.EndSessionID(ctx, uid("bob"), mine.ID), userdb.ErrNotFound)
		forged := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", 20) + "alice"))
		g.wantEnded("forged", forged)
		bytes, _ := base64.RawURLEncoding.DecodeString(secret)
		g.wantEnded("with the UID of bob", base64.RawURLEncoding.EncodeToString(append(slices.Clone(bytes[:20]), "bob"...)))
		g.wantEnded("with a line end", secret+"\n")
		_, _, err := g.users.Redeem(ctx, "", secret)
		wantErr(t, "as a token", err, userdb.ErrNotFound)
		g.wantEnded("the secret of a token", g.issue(userdb.Token{Purpose: "reset"}))
		g.wantSession("after these attempts", secret)
	})
}

// TestSessionsWhileWritesAreRefused checks that sessions can be found while the server refuses
// writes, and that none can be started.
func TestSessionsWhileWritesAreRefused(t *testing.T) {
	for _, r := range refusals {
		if r.reads {
			continue
		}
		t.Run(r.prefix, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, redistest.Config(r.config...))
			g := newLoginSite(s, loginOptions())
			g.add("alice", alicePassword)
			admin := s.raw.(*redis.Client).Conn()
			defer admin.Close()
			_, secret := g.startSession(userdb.SessionOptions{})
			_, idle := g.startSession(userdb.SessionOptions{IdleTimeout: 10 * time.Minute})
			e := g.find("alice")
			g.advance(2 * time.Minute) // so that the next lookup stores when the session was seen
			r.begin(s, admin)
			g.wantSession("refused", secret)
			g.advance(8 * time.Minute)
			g.wantEnded("idle", idle)
			_, _, err := g.users.StartSession(t.Context(), e, userdb.SessionOptions{})
			r.end(s, admin)
			r.wantRefused(t, "begin", err)
			g.wantSession("after the failures", secret)
			if n := len(g.listSessions()); n != 1 {
				t.Errorf("got %d sessions, want 1", n)
			}
		})
	}
}

// TestSessionsInUnwritableFile checks that sessions can be found while the file of a store cannot
// be written, and that none can be started.
func TestSessionsInUnwritableFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "db")
	g := newLoginSite(embeddedSite(t, "file:"+file), loginOptions())
	g.add("alice", alicePassword)
	_, secret := g.startSession(userdb.SessionOptions{})
	e := g.find("alice")
	g.advance(2 * time.Minute) // so that the next lookup stores when the session was seen
	// The store does not write to a file that is not in its place.
	must(t, os.Rename(file, file+".away"))
	g.wantSession("refused", secret)
	_, _, err := g.users.StartSession(t.Context(), e, userdb.SessionOptions{})
	wantErr(t, "begin", err, userdb.ErrUnavailable)
	must(t, os.Rename(file+".away", file))
	g.wantSession("after the failures", secret)
	if n := len(g.listSessions()); n != 1 {
		t.Errorf("got %d sessions, want 1", n)
	}
}

func (g *loginSite) find(name string) userdb.Entry {
	g.t.Helper()
	e, err := g.users.Find(g.t.Context(), uid(name))
	must(g.t, err)
	return e
}

// An accountSet holds accounts whose sessions are looked up while they end.
type accountSet struct {
	users        *userdb.Type
	secrets      [][]string      // by account
	acknowledged [][]atomic.Bool // by account and session: a call that ended it has returned
	ending       []atomic.Bool   // by account: a call that ends its sessions has begun
}

// newAccountSet creates accounts with ten sessions each.
func newAccountSet(t *testing.T, users *userdb.Type, accounts int) *accountSet {
	t.Helper()
	c := &accountSet{
		users: users, secrets: make([][]string, accounts),
		acknowledged: make([][]atomic.Bool, accounts), ending: make([]atomic.Bool, accounts),
	}
	var group errgroup.Group
	group.SetLimit(32)
	for i := range accounts {
		c.acknowledged[i] = make([]atomic.Bool, 10)
		group.Go(func() error {
			e, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprint("c", i), Facets: schema.Texts("name", fmt.Sprint("c", i))})
			for range c.acknowledged[i] {
				var secret string
				if err == nil {
					_, secret, err = users.StartSession(t.Context(), e, userdb.SessionOptions{Agent: "a browser"})
				}
				c.secrets[i] = append(c.secrets[i], secret)
			}
			return err
		})
	}
	must(t, group.Wait())
	return c
}

// lookUp looks up one session, and returns an error if the answer is wrong.
func (c *accountSet) lookUp(ctx context.Context, i, j int) error {
	over, begun := c.acknowledged[i][j].Load(), c.ending[i].Load()
	e, _, err := c.users.Session(ctx, c.secrets[i][j])
	switch {
	case err == nil && over:
		return fmt.Errorf("session %d of account %d is valid after its end", j, i)
	case err == nil && e.UID() != fmt.Sprint("c", i):
		return fmt.Errorf("session %d of account %d belongs to %s", j, i, e.UID())
	case errors.Is(err, userdb.ErrNotFound) && !begun && !c.ending[i].Load():
		return fmt.Errorf("session %d of account %d is not valid, although nobody ended it", j, i)
	case errors.Is(err, userdb.ErrNotFound):
		return nil
	}
	return err
}

// end ends sessions of an account, in one of four ways.
func (c *accountSet) end(ctx context.Context, i int) (err error) {
	c.ending[i].Store(true)
	h, ended := uid(fmt.Sprint("c", i)), len(c.acknowledged[i])
	switch i % 4 {
	case 0:
		_, err = c.users.EndSessions(ctx, h)
	case 1:
		err = c.users.Disable(ctx, h)
	case 2:
		err, ended = c.users.EndSession(ctx, c.secrets[i][0]), 1
	case 3:
		err = c.users.Delete(ctx, h)
	}
	for j := range ended {
		if err == nil {
			c.acknowledged[i][j].Store(true)
		}
	}
	return err
}

// run looks up random sessions while it ends them and calls meanwhile.
func (c *accountSet) run(t *testing.T, meanwhile func()) {
	t.Helper()
	var askers, enders errgroup.Group
	stop := make(chan struct{})
	var asked atomic.Int64
	for a := range 16 {
		askers.Go(func() error {
			rnd := rand.New(rand.NewPCG(uint64(a), 1))
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if err := c.lookUp(t.Context(), rnd.IntN(len(c.acknowledged)), rnd.IntN(10)); err != nil {
					return err
				}
				asked.Add(1)
			}
		})
	}
	for e := range 4 {
		enders.Go(func() error {
			for i := e; i < len(c.acknowledged); i += 4 {
				if err := c.end(t.Context(), i); err != nil {
					return fmt.Errorf("ending the sessions of account %d: %w", i, err)
				}
			}
			return nil
		})
	}
	meanwhile()
	must(t, enders.Wait())
	close(stop)
	must(t, askers.Wait())
	for i := range c.secrets {
		for j := range c.secrets[i] {
			must(t, c.lookUp(t.Context(), i, j))
		}
	}
	t.Logf("%d lookups meanwhile", asked.Load())
}

// TestManySessions looks up the sessions of many accounts, ten each, while they end.
func TestManySessions(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(cheapWrites)
		accounts := 1000
		if !s.has(manyClients) {
			accounts = 50 // an embedded store is slower: it interprets the scripts
		}
		newAccountSet(t, s.users(), accounts).run(t, func() {})
	})
}

// TestManySessionsInMovingSlots looks up sessions while they end and their slots move to other
// nodes.
func TestManySessionsInMovingSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	newAccountSet(t, typeOf(t, db, "user"), 1000).run(t, func() {
		reshard(t, c, 200, "user/uid:c500", "user/uid:c501", "user/uid:c998", "user/uid:c999")
	})
	wantRepairable(t, db, noExcuse)
}

// TestLostSessionReplies loses requests and replies of the session methods. A session must start
// once, and must end.
func TestLostSessionReplies(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		for _, done := range []bool{true, false} {
			for lost := range 4 { // index of the lost command among those of a call
				withLoss := func(do func() error) {
					t.Helper()
					n := 0
					g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
						// The client itself repeats commands that only read.
						if !strings.HasPrefix(cmds[0].Name(), "eval") {
							return send()
						}
						if n++; n-1 != lost {
							return send()
						}
						if done {
							if err := send(); redis.HasErrorPrefix(err, "NOSCRIPT") {
								return err
							}
						}
						for _, cmd := range cmds {
							cmd.SetErr(io.EOF)
						}
						return io.EOF
					})
					must(t, do())
					g.tap.set(nil)
				}
				g.recreateAlice()
				e := g.loginAlice()
				var secret string
				withLoss(func() (err error) {
					_, secret, err = g.users.StartSession(ctx, e, userdb.SessionOptions{})
					return err
				})
				withLoss(func() error { _, _, err := g.users.Session(ctx, secret); return err })
				if n := len(g.listSessions()); n != 1 {
					t.Errorf("command %d lost, carried out %v: got %d sessions, want 1", lost, done, n)
				}
				withLoss(func() error { return g.users.EndSession(ctx, secret) })
				g.wantEnded("after a lost answer", secret)
				s, secret := g.startSession(userdb.SessionOptions{})
				withLoss(func() error { return g.users.EndSessionID(ctx, uid("alice"), s.ID) })
				g.wantEnded("by its ID, after a lost answer", secret)
				wantErr(t, "ended again", g.users.EndSessionID(ctx, uid("alice"), s.ID), userdb.ErrNotFound)
				_, secret = g.startSession(userdb.SessionOptions{})
				withLoss(func() error { return errOf(g.users.EndSessions(ctx, uid("alice"))) })
				g.wantEnded("the end of all, after a lost answer", secret)
			}
		}
	})
}

// TestNoSessionReply loses every reply to a write. The call must report an unknown outcome, and not
// that nothing was written.
func TestNoSessionReply(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		var s userdb.Session
		var secret string
		methods := []struct {
			name, word string // word is an argument of the commands whose replies are lost
			do         func(ctx context.Context) error
		}{
			{"start", "begin", func(ctx context.Context) error {
				_, _, err := g.users.StartSession(ctx, g.find("alice"), userdb.SessionOptions{})
				return err
			}},
			{"end", "end", func(ctx context.Context) error { return g.users.EndSession(ctx, secret) }},
			{"end by ID", "end", func(ctx context.Context) error { return g.users.EndSessionID(ctx, uid("alice"), s.ID) }},
			{"verify", "verify", func(ctx context.Context) error {
				_, _, err := g.users.VerifySession(ctx, secret, alicePassword, userdb.Attempt{})
				return err
			}},
			{"invite", "invite+.email", func(ctx context.Context) error {
				_, err := g.users.Invite(ctx, "email", "bob@example.com", userdb.Token{Purpose: "join"}, userdb.Attempt{})
				return err
			}},
			{"reset the throttle", "reset", func(ctx context.Context) error { return g.users.ResetThrottle(ctx, uid("alice")) }},
		}
		for _, v := range methods {
			s, secret = g.startSession(userdb.SessionOptions{})
			ctx, cancel := context.WithCancel(t.Context())
			lost := 0
			g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if !slices.ContainsFunc(cmds[0].Args(), func(arg any) bool { return argument(arg) == v.word }) {
					return send()
				}
				if err := send(); redis.HasErrorPrefix(err, "NOSCRIPT") {
					return err
				}
				if lost++; lost == 2 {
					cancel()
				}
				cmds[0].SetErr(io.EOF)
				return io.EOF
			})
			err := v.do(ctx)
			g.tap.set(nil)
			cancel()
			wantErr(t, v.name, err, userdb.ErrOutcomeUnknown)
			if errors.Is(err, userdb.ErrUnavailable) || lost == 0 {
				t.Errorf("%s: got %v after %d lost replies, want only ErrOutcomeUnknown", v.name, err, lost)
			}
		}
	})
}

// TestRepeatedSessionCommands repeats the commands that started a session after the session has
// ended. The session must stay ended.
func TestRepeatedSessionCommands(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		for _, first := range []bool{true, false} {
			for _, end := range append(sessionEnds, sessionEnd{"end one", nil}) {
				g.recreateAlice()
				if !first {
					g.startSession(userdb.SessionOptions{})
				}
				var sent [][]any
				g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
					for _, cmd := range cmds {
						if strings.HasPrefix(cmd.Name(), "eval") {
							var args []any
							for _, arg := range cmd.Args() {
								if p, ok := arg.(*string); ok {
									arg = *p
								}
								args = append(args, arg)
							}
							sent = append(sent, args)
						}
					}
					return send()
				})
				_, secret := g.startSession(userdb.SessionOptions{})
				g.tap.set(nil)
				if end.do == nil {
					must(t, g.users.EndSession(t.Context(), secret))
				} else {
					must(t, end.do(t.Context(), g))
				}
				for _, args := range sent {
					if err := g.raw.Do(t.Context(), args...).Err(); err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
						t.Fatal(err)
					}
				}
				if len(sent) < 2 {
					t.Fatalf("%d scripts were sent, want at least 2", len(sent))
				}
				g.wantEnded(end.name, secret)
			}
		}
	})
}

// TestTimeOfSessions checks that only some checks of sessions ask a single server for its time, but
// that all of them ask the nodes of a cluster or an embedded store.
func TestTimeOfSessions(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{}), "user")
		e, err := users.Create(t.Context(), userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "ann")})
		must(t, err)
		_, secret, err := users.StartSession(t.Context(), e, userdb.SessionOptions{})
		must(t, err)
		var asked atomic.Int64
		s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			for _, cmd := range cmds {
				if words := strings.ToLower(wordsOf(cmd)); words == "time" || strings.HasPrefix(words, "eval return redis.call('time')") {
					asked.Add(1)
				}
			}
			return send()
		})
		defer s.tap.set(nil)
		const checks = 20
		for range checks {
			_, _, err := users.Session(t.Context(), secret)
			must(t, err)
		}
		isServer := s.has(oneScript) && s.has(manyClients)
		if n := asked.Load(); n == 0 || isServer != (n < checks) {
			t.Errorf("%d checks ask for the time %d times, on one server: %v; want fewer times only on one server", checks, n, isServer)
		}
	})
}
