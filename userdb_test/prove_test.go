package userdb_test

import (
	"bytes"
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// factorOptions returns options under which entries may enrol second factors.
func factorOptions() userdb.Options {
	o := loginOptions()
	user := o.Schema.Types["user"]
	user.Factors = true
	o.Schema.Types["user"] = user
	o.Keys = [][]byte{bytes.Repeat([]byte("k"), 32)}
	return o
}

// An app is the authenticator app of alice.
type app struct {
	g      *loginSite
	id     string
	secret []byte
	codes  []string // unused recovery codes
}

// code returns the code that the app shows now.
func (a *app) code() string { return a.codeAt(a.g.clock()) }

func (a *app) codeAt(at time.Time) string { return totp.Code(a.secret, totp.Step(at)) }

// wrong returns a code that the app does not show at any time near now.
func (a *app) wrong() string {
	for n := 0; ; n++ {
		code := fmt.Sprintf("%06d", n)
		near := false
		for d := -5; d <= 5; d++ {
			near = near || a.codeAt(a.g.clock().Add(time.Duration(d)*30*time.Second)) == code
		}
		if !near {
			return code
		}
	}
}

// nextCode advances the clock to the time of the next unused code and returns that code.
func (a *app) nextCode() string {
	a.g.advance(30 * time.Second)
	return a.code()
}

// enrol gives alice an authenticator app, and returns it and the secret of her session of level 2.
func (g *loginSite) enrol() (a *app, secret string) {
	g.t.Helper()
	_, secret = g.startSession(userdb.SessionOptions{})
	return g.enrolIn(secret)
}

// enrolIn does what enrol does, in the session with the given secret. It returns the secret of the
// session that is valid afterwards.
func (g *loginSite) enrolIn(session string) (a *app, secret string) {
	g.t.Helper()
	ctx := g.t.Context()
	e, err := g.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{Name: "my phone", Issuer: "Example"})
	must(g.t, err)
	if want := "otpauth://totp/Example:alice?secret=" + e.Secret + "&issuer=Example"; e.URI != want {
		g.t.Errorf("the URI is %q, want %q", e.URI, want)
	}
	a = &app{g: g, id: e.ID}
	a.secret, err = base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(e.Secret)
	must(g.t, err)
	_, err = g.users.ConfirmTOTP(ctx, session, e.ID, a.wrong(), userdb.SessionOptions{})
	wantErr(g.t, "a wrong code", err, userdb.ErrLogin)
	c, err := g.users.ConfirmTOTP(ctx, session, e.ID, a.code(), userdb.SessionOptions{})
	must(g.t, err)
	a.codes = c.RecoveryCodes
	if c.Secret != "" {
		session = c.Secret
	}
	return a, session
}

// ticket logs alice in with her password, and returns the ticket for the second step.
func (g *loginSite) ticket(origin string) string {
	g.t.Helper()
	_, err := g.users.Login(g.t.Context(), "alice", alicePassword, userdb.Attempt{Origin: origin})
	refused, ok := errors.AsType[*userdb.FactorError](err)
	if !ok {
		g.t.Fatalf("Login: got error %v, want a *FactorError", err)
	}
	return refused.Ticket
}

// prove takes the second step with a new ticket.
func (g *loginSite) prove(p userdb.Proof, origin string) error {
	g.t.Helper()
	_, err := g.users.Prove(g.t.Context(), g.ticket(origin), p, userdb.Attempt{Origin: origin})
	return err
}

// TestTOTP enrols an authenticator app, signs in with it, and removes it.
func TestTOTP(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		_, other := g.startSession(userdb.SessionOptions{})
		read := g.loginAlice()
		a, secret := g.enrol()
		if len(a.codes) != 10 {
			t.Errorf("got %d recovery codes, want 10", len(a.codes))
		}
		g.wantEnded("another session", other)
		if s := g.wantSession("the one that enrolled", secret); s.Level() != 2 {
			t.Errorf("the session after the enrolment has level %d, want 2", s.Level())
		}
		_, _, err := g.users.StartSession(ctx, read, userdb.SessionOptions{})
		wantErr(t, "a login that was under way", err, userdb.ErrConflict)
		factors, err := g.users.Factors(ctx, uid("alice"))
		if must(t, err); len(factors) != 2 || factors[0].ID != a.id || factors[0].Name != "my phone" || factors[0].Method != "totp" ||
			factors[1].Method != "recovery" || factors[1].Left != 10 {
			t.Errorf("the factors are %+v, want the app \"my phone\" and ten recovery codes", factors)
		}

		wantErr(t, "the code that confirmed the enrolment", g.prove(userdb.TOTP(a.code()), ""), userdb.ErrLogin)
		ticket := g.ticket("192.0.2.1")
		for range 2 {
			_, err = g.users.Prove(ctx, ticket, userdb.TOTP(a.wrong()), userdb.Attempt{Origin: "192.0.2.1"})
			wantErr(t, "a wrong code", err, userdb.ErrLogin)
		}
		g.takeEvents()
		code := a.nextCode()
		e, err := g.users.Prove(ctx, ticket, userdb.TOTP(" "+code[:3]+" "+code[3:]), userdb.Attempt{Origin: "192.0.2.1"})
		must(t, err)
		if events := g.takeEvents(); len(events) != 1 || describeEvent(events[0]) != "login user/uid:alice origin:192.0.2.1" {
			t.Errorf("the events are %v, want a login", events)
		}
		s, second, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		if s.Level() != 2 {
			t.Errorf("the session has level %d, want 2", s.Level())
		}
		_, err = g.users.Prove(ctx, ticket, userdb.TOTP(a.nextCode()), userdb.Attempt{})
		wantErr(t, "a ticket that was used", err, userdb.ErrNotFound)
		wantErr(t, "a code that was used", g.prove(userdb.TOTP(code), ""), userdb.ErrLogin)

		_, err = g.users.RemoveFactor(ctx, second, "no such factor", userdb.SessionOptions{})
		wantErr(t, "removing no factor", err, userdb.ErrNotFound)
		c, err := g.users.RemoveFactor(ctx, second, a.id, userdb.SessionOptions{})
		must(t, err)
		g.wantEnded("a session from before the removal", second)
		if s := g.wantSession("after the removal", c.Secret); s.Level() != 1 || len(c.RecoveryCodes) != 0 {
			t.Errorf("after the removal: level %d, codes %q; want 1 and none", s.Level(), c.RecoveryCodes)
		}
		g.loginAlice()
		if factors, err := g.users.Factors(ctx, uid("alice")); err != nil || factors != nil {
			t.Errorf("the factors after the removal are %+v, error %v; want none", factors, err)
		}
		for name := range g.raw.HGetAll(ctx, "~/factor/{user/uid:alice}").Val() {
			if strings.HasPrefix(name, factor.TOTP) || strings.HasPrefix(name, factor.Recovery) {
				t.Errorf("%s is left in the record", name)
			}
		}
	})
}

// TestRecoveryCodes checks that each recovery code is valid once, however it is entered, and that
// new codes replace all of them.
func TestRecoveryCodes(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		a, secret := g.enrol()
		for _, code := range []string{"", "-", strings.Repeat("0", 10), a.codes[0][:9], strings.Repeat(a.codes[0], 20)} {
			wantErr(t, fmt.Sprintf("code %q", code), g.prove(userdb.RecoveryCode(code), ""), userdb.ErrLogin)
		}
		entered := strings.ToUpper(strings.ReplaceAll(a.codes[0], "-", " "))
		must(t, g.prove(userdb.RecoveryCode(strings.ReplaceAll(entered, "0", "O")), "192.0.2.1"))
		wantErr(t, "a used code", g.prove(userdb.RecoveryCode(a.codes[0]), ""), userdb.ErrLogin)
		wantErr(t, "a recovery code entered as the code of an app", g.prove(userdb.TOTP(a.codes[1]), ""), userdb.ErrLogin)
		must(t, g.prove(userdb.RecoveryCode(a.codes[9]), ""))
		factors, err := g.users.Factors(ctx, uid("alice"))
		if must(t, err); factors[1].Left != 8 {
			t.Errorf("%d codes are left, want 8", factors[1].Left)
		}
		codes, err := g.users.ReplaceRecoveryCodes(ctx, secret)
		must(t, err)
		g.wantSession("after new codes", secret)
		wantErr(t, "an old code", g.prove(userdb.RecoveryCode(a.codes[1]), ""), userdb.ErrLogin)
		must(t, g.prove(userdb.RecoveryCode(codes[1]), ""))
		must(t, g.prove(userdb.TOTP(a.nextCode()), ""))
	})
}

// TestOneCodeOneLogin checks that only one of many callers succeeds if they have the same code and
// several tickets, or the same ticket and different codes.
func TestOneCodeOneLogin(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		a, _ := g.enrol()
		race := func(what string, tickets []string, proof func(i int) userdb.Proof) {
			t.Helper()
			var wg sync.WaitGroup
			errs := make([]error, len(tickets))
			for i, ticket := range tickets {
				wg.Go(func() { _, errs[i] = g.users.Prove(t.Context(), ticket, proof(i), userdb.Attempt{}) })
			}
			wg.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				} else if !errors.Is(err, userdb.ErrLogin) && !errors.Is(err, userdb.ErrNotFound) {
					t.Errorf("%s: got error %v, want none, ErrLogin or ErrNotFound", what, err)
				}
			}
			if won != 1 {
				t.Errorf("%s: %d logins succeeded, want 1", what, won)
			}
		}
		var tickets []string
		for i := range 20 {
			if i < factor.MaxTickets {
				tickets = append(tickets, g.ticket(""))
			} else {
				tickets = append(tickets, tickets[i-factor.MaxTickets])
			}
		}
		code := a.nextCode()
		race("one code of an app", tickets, func(int) userdb.Proof { return userdb.TOTP(code) })
		for i := range tickets {
			if i < factor.MaxTickets {
				tickets[i] = g.ticket("")
			} else {
				tickets[i] = tickets[i-factor.MaxTickets]
			}
		}
		race("one recovery code", tickets, func(int) userdb.Proof { return userdb.RecoveryCode(a.codes[0]) })
		tickets = tickets[:factor.MaxTries]
		ticket := g.ticket("")
		for i := range tickets {
			tickets[i] = ticket
		}
		race("one ticket", tickets, func(i int) userdb.Proof { return userdb.RecoveryCode(a.codes[1+i]) })
	})
}

// TestGuessedCodes checks that at most five codes can be guessed with one ticket and twenty with
// all tickets, and that strangers cannot lock out the owner.
func TestGuessedCodes(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		a, _ := g.enrol()
		must(t, g.prove(userdb.TOTP(a.nextCode()), "192.0.2.1")) // from home
		g.takeEvents()
		judged, refused := 0, 0
		for judged+refused < 40 {
			origin := fmt.Sprintf("198.51.100.%d", judged)
			ticket := g.ticket(origin)
			for try := range factor.MaxTries + 1 {
				_, err := g.users.Prove(ctx, ticket, userdb.TOTP(a.wrong()), userdb.Attempt{Origin: origin})
				switch {
				case errors.Is(err, userdb.ErrTooManyAttempts):
					refused++
				case errors.Is(err, userdb.ErrLogin) && try < factor.MaxTries:
					judged++
				case try < factor.MaxTries || !errors.Is(err, userdb.ErrNotFound):
					t.Fatalf("attempt %d with a ticket: got error %v, want ErrLogin, or ErrNotFound after %d attempts", try+1, err, factor.MaxTries)
				}
			}
		}
		if judged != factor.MaxGuesses {
			t.Errorf("%d guesses were judged, want %d", judged, factor.MaxGuesses)
		}
		locks := 0
		for _, e := range g.takeEvents() {
			if e.Kind == userdb.EventFactorLock {
				locks++
			}
		}
		if locks != 1 {
			t.Errorf("%d events say that no more codes are judged, want 1", locks)
		}
		wantErr(t, "the right code from elsewhere", g.prove(userdb.TOTP(a.nextCode()), "203.0.113.1"), userdb.ErrTooManyAttempts)
		must(t, g.prove(userdb.TOTP(a.nextCode()), "192.0.2.1"))
		must(t, g.prove(userdb.RecoveryCode(a.codes[0]), "203.0.113.1"))
		must(t, g.prove(userdb.TOTP(a.nextCode()), "203.0.113.1")) // now this origin is familiar
		_, err := g.users.ResetPassword(ctx, "reset", g.issue(userdb.Token{Purpose: "reset"}), alicePassword)
		wantErr(t, "ResetPassword", err, userdb.ErrFactor)
		wantErr(t, "from elsewhere, after a reset", g.prove(userdb.TOTP(a.nextCode()), "203.0.113.77"), userdb.ErrTooManyAttempts)
		g.advance(factor.GuessWindow)
		must(t, g.prove(userdb.TOTP(a.nextCode()), "203.0.113.77"))
	})
}

// TestWhoChangesFactors checks that only a recently verified session can change factors, and only
// one of level 2 if the entry has a factor.
func TestWhoChangesFactors(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		try := func(what, session, id string, want error) {
			t.Helper()
			_, err := g.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{})
			wantErr(t, what+": EnrolTOTP", err, want)
			_, err = g.users.ConfirmTOTP(ctx, session, id, "000000", userdb.SessionOptions{})
			wantErr(t, what+": ConfirmTOTP", err, want)
			_, err = g.users.RemoveFactor(ctx, session, id, userdb.SessionOptions{})
			wantErr(t, what+": RemoveFactor", err, want)
			_, err = g.users.ReplaceRecoveryCodes(ctx, session)
			wantErr(t, what+": ReplaceRecoveryCodes", err, want)
		}
		_, early := g.startSession(userdb.SessionOptions{})
		try("no session", "nonsense", "x", userdb.ErrNotFound)
		g.advance(10*time.Minute + time.Second)
		try("without a factor, after ten minutes", early, "x", userdb.ErrNotVerified)
		_, _, err := g.users.VerifySession(ctx, early, alicePassword, userdb.Attempt{})
		must(t, err)
		a, secret := g.enrolIn(early)
		try("after the first factor", early, a.id, userdb.ErrNotFound)
		g.advance(10*time.Minute + time.Second)
		try("after ten minutes", secret, a.id, userdb.ErrNotVerified)
		_, _, _, err = g.users.RaiseSession(ctx, secret, userdb.TOTP(a.code()), userdb.SessionOptions{})
		wantErr(t, "RaiseSession without a password", err, userdb.ErrNotVerified)
		_, _, err = g.users.VerifySession(ctx, secret, alicePassword, userdb.Attempt{})
		must(t, err)
		try("a password alone", secret, a.id, userdb.ErrNotVerified)
		_, _, _, err = g.users.RaiseSession(ctx, secret, userdb.TOTP(a.wrong()), userdb.SessionOptions{})
		wantErr(t, "RaiseSession with a wrong code", err, userdb.ErrLogin)
		e, s, raised, err := g.users.RaiseSession(ctx, secret, userdb.TOTP(a.nextCode()), userdb.SessionOptions{Agent: "b"})
		must(t, err)
		if e.UID() != "alice" || s.Level() != 2 || s.Agent != "b" || raised == secret {
			t.Errorf("RaiseSession returned %+v of %v, want a new session of alice, of level 2, with agent b", s, e)
		}
		g.wantEnded("the session that was raised", secret)
		g.wantSession("raised", raised)
		b, same := g.enrolIn(raised) // a second app
		if same != raised || b.codes != nil {
			t.Errorf("the second app changed the session, or gave the recovery codes %q, want neither", b.codes)
		}
		must(t, g.prove(userdb.TOTP(a.nextCode()), ""))
		must(t, g.prove(userdb.TOTP(b.nextCode()), ""))
		c, err := g.users.RemoveFactor(ctx, raised, a.id, userdb.SessionOptions{})
		must(t, err)
		if s := g.wantSession("after one of two was removed", c.Secret); s.Level() != 2 {
			t.Errorf("the session has level %d, want 2", s.Level())
		}
		wantErr(t, "the app that was removed", g.prove(userdb.TOTP(a.nextCode()), ""), userdb.ErrLogin)
		must(t, g.prove(userdb.TOTP(b.nextCode()), ""))
		_, err = g.users.ResetFactors(ctx, uid("alice"))
		must(t, err)
		g.wantEnded("after ResetFactors", c.Secret)
		g.loginAlice()
	})
}

// TestTicketsEnd checks that only tickets are accepted as tickets, that a ticket expires after
// factor.TicketLife, and that it ends with the sessions of its entry.
func TestTicketsEnd(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		a, secret := g.enrol()
		prove := func(what, ticket string, want error) {
			t.Helper()
			_, err := g.users.Prove(ctx, ticket, userdb.TOTP(a.nextCode()), userdb.Attempt{})
			wantErr(t, what, err, want)
		}
		for _, ticket := range []string{"", "x", secret, strings.Repeat("a", 1000)} {
			prove(fmt.Sprintf("ticket %.20q", ticket), ticket, userdb.ErrNotFound)
		}
		late := g.ticket("")
		g.advance(factor.TicketLife)
		prove("an old ticket", late, userdb.ErrNotFound)
		for what, end := range map[string]func() error{
			"EndSessions": func() error { return errOf(g.users.EndSessions(ctx, uid("alice"))) },
			"SetPassword": func() error { return errOf(g.users.SetPassword(ctx, uid("alice"), alicePassword)) },
			"Disable": func() error {
				return errors.Join(g.users.Disable(ctx, uid("alice")), g.users.Enable(ctx, uid("alice")))
			},
		} {
			ticket := g.ticket("")
			must(t, end())
			prove("a ticket from before "+what, ticket, userdb.ErrNotFound)
		}
		ticket := g.ticket("")
		must(t, g.users.Disable(ctx, uid("alice")))
		prove("disabled", ticket, userdb.ErrNotFound)
		must(t, g.users.Delete(ctx, uid("alice")))
		prove("deleted", ticket, userdb.ErrNotFound)
		g.add("alice", alicePassword)
		prove("created again", ticket, userdb.ErrNotFound)
	})
}

// TestRotateKeysWhileServerLoses checks that no secret needs the old key after a rotation, although
// the server restarted during the rotation and lost what it had not saved.
func TestRotateKeysWhileServerLoses(t *testing.T) {
	server := redistest.Start(t)
	o := factorOptions()
	o.Keys = [][]byte{bytes.Repeat([]byte("a"), 32)}
	g := newLoginSite(newSite(t, server.URL(), map[trait]string{}), o)
	g.add("alice", alicePassword)
	g.enrol()
	scanned := false
	l := &testdb.Losing{
		T: t, Server: server, Keep: func(redis.Cmder) bool { return true },
		Lose: func(cmd redis.Cmder) bool { // before the first command that follows the listing
			scanned = scanned || cmd.Name() == "scan"
			return scanned && slices.Contains(cmd.Args(), any("~/probe/1"))
		},
	}
	client := server.Client()
	o.Keys = append([][]byte{bytes.Repeat([]byte("b"), 32)}, o.Keys...)
	db, err := redisdb.New(t.Context(), client, o)
	must(t, err)
	client.AddHook(l)
	_, err = typeOf(t, db, "user").RotateKeys(t.Context())
	if must(t, err); !l.Lost.Load() {
		t.Fatal("the server did not restart")
	}
	o.Keys = o.Keys[:1]
	n, err := newLoginSite(g.site, o).users.RotateKeys(t.Context())
	if err != nil || n != 0 {
		t.Errorf("with the new key alone: %d secrets were rotated, %v; want none, and no error", n, err)
	}
}

// TestRotateKeys checks that secrets move to the first key, that a secret is useless without its
// key, and that damaged secrets and entries do not stop the rotation of others.
func TestRotateKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		if !s.has(manyClients) {
			t.Skip("another program cannot open this store")
		}
		ctx := t.Context()
		open := func(letters ...string) *loginSite {
			o := factorOptions()
			o.Keys = nil
			for _, l := range letters {
				o.Keys = append(o.Keys, bytes.Repeat([]byte(l), 32))
			}
			return newLoginSite(s, o)
		}
		g := open("a")
		g.add("alice", alicePassword)
		a, secret := g.enrol()
		with := func(letters ...string) error {
			t.Helper()
			other := open(letters...)
			other.now = g.clock()
			other.advance(30 * time.Second)
			g.now = other.clock()
			a.g = other
			return other.prove(userdb.TOTP(a.code()), "")
		}
		wantErr(t, "without a key", with(), userdb.ErrCorrupt)
		wantErr(t, "with another key", with("b"), userdb.ErrCorrupt)
		must(t, with("b", "a"))
		_, err := open().users.EnrolTOTP(ctx, secret, userdb.TOTPOptions{})
		wantErr(t, "EnrolTOTP without a key", err, userdb.ErrInvalid)
		n, err := open("b", "a").users.RotateKeys(ctx)
		if must(t, err); n != 2 {
			t.Errorf("%d secrets were rotated, want 2", n)
		}
		n, err = open("b", "a").users.RotateKeys(ctx)
		if must(t, err); n != 0 {
			t.Errorf("%d secrets were rotated again, want none", n)
		}
		wantErr(t, "the old key alone", with("a"), userdb.ErrCorrupt)
		must(t, with("b"))

		// A secret that cannot be decrypted does not stop the rotation of the entry's other
		// secrets.
		e, err := g.users.Find(ctx, uid("alice"))
		must(t, err)
		record, err := factor.Key(e.Key())
		must(t, err)
		for name, value := range g.raw.HGetAll(ctx, record.String()).Val() {
			if strings.HasPrefix(name, factor.Recovery+"/") {
				words := strings.Split(value, " ")
				words[len(words)-1] = strings.Repeat("A", len(words[len(words)-1]))
				must(t, g.raw.HSet(ctx, record.String(), name, strings.Join(words, " ")).Err())
			}
		}
		n, err = open("c", "b").users.RotateKeys(ctx)
		if wantErr(t, "a damaged secret", err, userdb.ErrCorrupt); n != 1 {
			t.Errorf("%d secrets were rotated beside a damaged one, want 1", n)
		}

		// Entries that cannot be read do not stop it either.
		for i := range 20 {
			damaged := e.Key().String() + strconv.Itoa(i)
			must(t, g.raw.HSet(ctx, damaged, "~isa", "another type").Err())
			defer g.raw.Del(ctx, damaged)
		}
		n, err = open("d", "c").users.RotateKeys(ctx)
		if wantErr(t, "damaged entries", err, userdb.ErrCorrupt); n != 1 {
			t.Errorf("%d secrets were rotated beside damaged entries, want 1", n)
		}
	})
}

// TestFactorsNeedSchema checks that no factor can be enrolled if the stored schema does not allow
// factors: other programs may not know about them.
func TestFactorsNeedSchema(t *testing.T) {
	o := factorOptions()
	o.Schema = plainUser()
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		_, secret := g.startSession(userdb.SessionOptions{})
		_, err := g.users.EnrolTOTP(t.Context(), secret, userdb.TOTPOptions{})
		wantErr(t, "EnrolTOTP", err, userdb.ErrInvalid)
	})
}

// TestConfirmTwice confirms an authenticator app by two calls at the same time, as a double click
// does. One of them must fail, and must not change the factors that the other one enrolled.
func TestConfirmTwice(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		_, session := g.startSession(userdb.SessionOptions{})
		e, err := g.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{})
		must(t, err)
		a := &app{g: g, id: e.ID}
		a.secret, err = base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(e.Secret)
		must(t, err)
		var first userdb.FactorChange
		confirm := func() (err error) {
			first, err = g.users.ConfirmTOTP(ctx, session, e.ID, a.code(), userdb.SessionOptions{})
			return err
		}
		g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if strings.Contains(wordsOf(cmds[0]), " confirm ") { // the other call is faster
				g.tap.set(nil)
				must(t, confirm())
			}
			return send()
		})
		_, err = g.users.ConfirmTOTP(ctx, session, e.ID, a.code(), userdb.SessionOptions{})
		wantErr(t, "confirming the same enrolment again", err, userdb.ErrNotFound)
		must(t, g.prove(userdb.TOTP(a.nextCode()), ""))
		must(t, g.prove(userdb.RecoveryCode(first.RecoveryCodes[0]), ""))
	})
}

// TestFactorsStay checks that other changes of an entry keep its second factor and its password.
func TestFactorsStay(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		a, _ := g.enrol()
		for what, change := range map[string]func() error{
			"Update": func() error { return errOf(g.users.Update(ctx, uid("alice"), putText("job", "baker"))) },
			"Save": func() error {
				e, err := g.users.Find(ctx, uid("alice"))
				must(t, err)
				e.Put("job", schema.Text("cook"))
				return errOf(g.users.Save(ctx, e))
			},
			"Tags.Add":    func() error { return errOf(g.users.Tags(uid("alice")).Add(ctx, "x")) },
			"EndSessions": func() error { return errOf(g.users.EndSessions(ctx, uid("alice"))) },
			"Disable and Enable": func() error {
				return errors.Join(g.users.Disable(ctx, uid("alice")), g.users.Enable(ctx, uid("alice")))
			},
		} {
			must(t, change())
			if err := g.prove(userdb.TOTP(a.nextCode()), ""); err != nil {
				t.Errorf("after %s: %v", what, err)
			}
		}
	})
}

// TestFactorSecrets checks that no secret is stored, logged or printed in clear text.
func TestFactorSecrets(t *testing.T) {
	eachLoginSite(t, factorOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		_, first := g.startSession(userdb.SessionOptions{})
		e, err := g.users.EnrolTOTP(ctx, first, userdb.TOTPOptions{})
		must(t, err)
		raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(e.Secret)
		must(t, err)
		a := &app{g: g, id: e.ID, secret: raw}
		c, err := g.users.ConfirmTOTP(ctx, first, e.ID, a.code(), userdb.SessionOptions{})
		must(t, err)
		ticket := g.ticket("192.0.2.1")
		const entered = "an entered code" // digits would also appear in some times
		shown := fmt.Sprintf("%v %+v %#v %s %v %+v %#v", e, e, e, e, c, c, c) + fmt.Sprintf("%v %+v", userdb.TOTP(entered), userdb.RecoveryCode(entered)) + g.log()
		var log bytes.Buffer
		_, err = g.users.Login(ctx, "alice", alicePassword, userdb.Attempt{})
		slog.New(slog.NewJSONHandler(&log, nil)).Info("all", "enrolment", e, "change", c, "error", err)
		shown += log.String()
		refused, _ := errors.AsType[*userdb.FactorError](err)
		for _, key := range g.keys(ctx) {
			shown += fmt.Sprint(g.raw.HGetAll(ctx, key).Val(), g.raw.XRange(ctx, key, "-", "+").Val())
		}
		for _, secret := range append([]string{e.Secret, string(raw), c.Secret, ticket, refused.Ticket, entered}, c.RecoveryCodes...) {
			if secret != "" && strings.Contains(shown, secret) {
				t.Errorf("the secret %q is shown or stored", secret)
			}
		}
	})
}
