package userdb_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestSecretsOfOthers checks that somebody who can write to Redis gains nothing by storing the
// secret of their own factor in the record of another account.
func TestSecretsOfOthers(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		a, _ := g.enrol()
		e, err := g.users.Create(ctx, userdb.NewEntry{UID: "bob", Facets: schema.Texts("name", "bob"), Password: alicePassword})
		must(t, err)
		_, session, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		enrolment, err := g.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{})
		must(t, err)
		b := &app{g: g, id: enrolment.ID, secret: decodeSecret(t, enrolment.Secret)}
		_, err = g.users.ConfirmTOTP(ctx, session, b.id, b.code(), userdb.SessionOptions{})
		must(t, err)

		const alices, bobs = "~/factor/{user/uid:alice}", "~/factor/{user/uid:bob}"
		aName, bName := factor.TOTP+"/"+a.id, factor.TOTP+"/"+b.id
		original, mark := g.raw.HGet(ctx, alices, aName).Val(), g.storedField("alice", factor.FieldMark)
		foreign := g.raw.HGet(ctx, bobs, bName).Val()
		must(t, g.raw.HSet(ctx, alices, aName, foreign).Err())
		wantErr(t, "the secret of another account", g.prove(userdb.TOTP(b.nextCode()), ""), userdb.ErrCorrupt)
		must(t, g.raw.HSet(ctx, alices, bName, foreign, aName, original).Err())
		g.storeField("alice", factor.FieldMark, bName)
		wantErr(t, "the factor of another account", g.prove(userdb.TOTP(b.nextCode()), ""), userdb.ErrCorrupt)
		// A factor that is in the record but not in the mark does not count either.
		g.storeField("alice", factor.FieldMark, mark)
		wantErr(t, "a factor that the entry does not list", g.prove(userdb.TOTP(b.nextCode()), ""), userdb.ErrLogin)
		must(t, g.raw.HDel(ctx, alices, bName).Err())
		must(t, g.prove(userdb.TOTP(a.nextCode()), ""))
	})
}

// TestTicketsElsewhere checks that a ticket is useless in another type and in another namespace,
// even for an account with the same UID, password and factor.
func TestTicketsElsewhere(t *testing.T) {
	o := factorOptions()
	o.Schema.Types["staff"] = o.Schema.Types["user"]
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		g := newLoginSite(s, o)
		g.add("alice", alicePassword)
		a, _ := g.enrol()
		ticket := g.ticket("")
		c := g.in(space(t, "other"))
		c.add("alice", alicePassword)
		other, _ := c.enrol()
		_, err := c.users.Prove(ctx, ticket, userdb.TOTP(other.nextCode()), userdb.Attempt{})
		wantErr(t, "in another namespace", err, userdb.ErrNotFound)
		staff := typeOf(t, g.db, "staff")
		_, err = staff.Create(ctx, userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", "alice"), Password: alicePassword})
		must(t, err)
		_, err = staff.Prove(ctx, ticket, userdb.TOTP(a.nextCode()), userdb.Attempt{})
		wantErr(t, "in another type", err, userdb.ErrNotFound)
		_, err = g.users.Prove(ctx, ticket, userdb.TOTP(a.nextCode()), userdb.Attempt{})
		must(t, err)
	})
}

// TestClocksApart checks that codes are compared with the clock of the store. The program's clock
// may be an hour wrong. If the store's clock is wrong, recovery codes must still work.
func TestClocksApart(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		a, _ := g.enrol()
		phone := g.clock()
		for _, off := range []time.Duration{time.Hour, -time.Hour} {
			g.advance(off)
			wantErr(t, "the store's clock is "+off.String()+" off", g.prove(userdb.TOTP(a.codeAt(phone.Add(time.Minute))), ""), userdb.ErrLogin)
			must(t, g.prove(userdb.RecoveryCode(a.codes[int(off.Hours()+1)]), ""))
			g.advance(-off)
		}
		for _, off := range []time.Duration{time.Hour, -time.Hour} {
			var err error
			g.db, err = view.Reconfigure(g.db, func(c *view.Config) {
				c.Clock, c.OwnClock = nil, func() time.Time { return time.Now().Add(off) }
			})
			must(t, err)
			g.users = typeOf(t, g.db, "user")
			code := a.codeAt(time.Now().Add(off))
			wantErr(t, "a code of the program's time", g.prove(userdb.TOTP(code), ""), userdb.ErrLogin)
		}
		// The enrolment has used the current code.
		must(t, g.prove(userdb.TOTP(a.codeAt(time.Now().Add(30*time.Second))), ""))
	})
}

// TestCodesAfterWrongClock checks that somebody who used up the guesses while the store's clock was
// a year ahead does not keep the owner out for that year.
func TestCodesAfterWrongClock(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		a, _ := g.enrol()
		phone := g.clock()
		const year = 365 * 24 * time.Hour
		g.advance(year)
		for range 20 {
			wantErr(t, "a wrong code", g.prove(userdb.TOTP("0"), ""), userdb.ErrLogin)
		}
		wantErr(t, "one more wrong code", g.prove(userdb.TOTP("0"), ""), userdb.ErrTooManyAttempts)
		g.advance(-year)
		must(t, g.prove(userdb.TOTP(a.codeAt(phone.Add(30*time.Second))), ""))
	})
}

// TestFactorOriginsAfterWrongClock checks that origins which signed in while the store's clock was
// a month ahead do not displace those that sign in after it has been set right.
func TestFactorOriginsAfterWrongClock(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		const record = "~/factor/{user/uid:alice}"
		keys := g.passkeys()
		a, session := g.enrol()
		d := newDevice()
		g.register(keys, d, session)
		byPasskey := func(origin string) {
			c, err := keys.Begin()
			must(t, err)
			p, err := keys.Proof(c.State, d.get(t, c))
			must(t, err)
			_, err = g.users.LoginPasskey(t.Context(), p, userdb.Attempt{Origin: origin})
			must(t, err)
		}
		byCode := func(origin string) {
			must(t, g.prove(userdb.RecoveryCode(a.codes[0]), origin))
			a.codes = a.codes[1:]
		}
		for what, signIn := range map[string]func(string){"a passkey": byPasskey, "a code": byCode} {
			ahead := g.clock().Add(30 * 24 * time.Hour).UnixMilli()
			for i := range 10 {
				must(t, g.raw.HSet(t.Context(), record, fmt.Sprint("origin/ahead", i), ahead).Err())
			}
			signIn(what + " 1")
			signIn(what + " 2")
			all, err := g.raw.HGetAll(t.Context(), record).Result()
			must(t, err)
			now, n := fmt.Sprint(g.clock().UnixMilli()), 0
			for name, at := range all {
				if strings.HasPrefix(name, "origin/") && at == now {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%s: %d of the last two origins are known, want 2", what, n)
			}
			g.advance(time.Minute)
		}
	})
}

// TestSessionsAfterWrongClock checks that sessions which began while the store's clock was a month
// ahead do not displace those that begin after it has been set right.
func TestSessionsAfterWrongClock(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		start := func() string {
			_, secret := g.startSession(userdb.SessionOptions{Lifetime: 365 * 24 * time.Hour})
			return secret
		}
		g.advance(30 * 24 * time.Hour)
		for range 100 {
			start()
		}
		g.advance(-30 * 24 * time.Hour)
		first := start()
		start()
		_, _, err := g.users.Session(t.Context(), first)
		must(t, err)
	})
}

// TestVerifiedAfterWrongClock checks that a session in which the owner was verified while the
// store's clock was an hour ahead does not count as just verified for that hour. After a failover,
// the clock may be some seconds behind.
func TestVerifiedAfterWrongClock(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		_, secret := g.startSession(userdb.SessionOptions{})
		for _, tt := range []struct {
			ahead time.Duration
			want  error
		}{{10 * time.Second, nil}, {time.Hour, userdb.ErrNotVerified}} {
			g.advance(tt.ahead)
			_, _, err := g.users.VerifySession(t.Context(), secret, alicePassword, userdb.Attempt{})
			must(t, err)
			g.advance(-tt.ahead)
			_, err = g.users.EnrolTOTP(t.Context(), secret, userdb.TOTPOptions{})
			wantErr(t, "after the clock was "+tt.ahead.String()+" ahead", err, tt.want)
		}
		_, _, err := g.users.VerifySession(t.Context(), secret, alicePassword, userdb.Attempt{})
		must(t, err)
		_, s, err := g.users.Session(t.Context(), secret)
		if must(t, err); s.LastSeen.Sub(s.Verified) > time.Minute {
			t.Errorf("verified at %v, but last seen at %v: this would count as verified long ago", s.Verified, s.LastSeen)
		}
		_, err = g.users.EnrolTOTP(t.Context(), secret, userdb.TOTPOptions{})
		must(t, err)
	})
}

// TestRotationDuringLogins keeps encrypting the secrets with two keys in turn while somebody signs
// in twenty times. Each login must succeed.
func TestRotationDuringLogins(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		if !s.has(manyClients) {
			t.Skip("another program cannot open this store")
		}
		open := func(letters ...string) *loginSite {
			o := factorOptions()
			o.Keys = nil
			for _, l := range letters {
				o.Keys = append(o.Keys, bytes.Repeat([]byte(l), 32))
			}
			return newLoginSite(s, o)
		}
		g := open("a", "b")
		g.add("alice", alicePassword)
		a, _ := g.enrol()
		other := open("b", "a")
		var stop atomic.Bool
		var rotated atomic.Int64
		var group sync.WaitGroup
		for _, with := range []*loginSite{g, other} {
			group.Go(func() {
				for !stop.Load() {
					n, err := with.users.RotateKeys(t.Context())
					if err != nil && !errors.Is(err, userdb.ErrConflict) {
						t.Errorf("RotateKeys: %v", err)
					}
					rotated.Add(int64(n))
				}
			})
		}
		for i := range 20 {
			code := a.nextCode()
			if err := g.prove(userdb.TOTP(code), ""); err != nil {
				t.Errorf("login %d: %v", i, err)
			}
			wantErr(t, "the same code again", g.prove(userdb.TOTP(code), ""), userdb.ErrLogin)
		}
		stop.Store(true)
		group.Wait()
		if rotated.Load() == 0 {
			t.Error("nothing was rotated meanwhile")
		}
	})
}
