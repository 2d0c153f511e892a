package userdb_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// someMark marks an entry as having a second factor.
const someMark = "recovery/b,totp/a"

// readAlice returns the view, and alice's type and record.
func (g *loginSite) readAlice() (*view.View, *change.Type, store.Record) {
	g.t.Helper()
	return g.read("alice")
}

// read returns the view, and the type and record of a user.
func (g *loginSite) read(uid string) (*view.View, *change.Type, store.Record) {
	g.t.Helper()
	v := view.Of(g.db)
	declared, err := v.Type("user")
	must(g.t, err)
	prk, err := declared.PRK(uid)
	must(g.t, err)
	r, err := v.FindOne(g.t.Context(), store.Lookup{PRK: prk})
	must(g.t, err)
	return v, declared, r
}

// setMark gives alice the mark of a second factor, or removes it if the mark is "".
func (g *loginSite) setMark(mark string) {
	g.t.Helper()
	v, declared, r := g.readAlice()
	own := map[string]string{factor.FieldMark: mark}
	change.EndSessions(own)
	c, _, err := declared.Update(r, change.Facets(r), own)
	must(g.t, err)
	_, err = v.Apply(g.t.Context(), declared, c)
	must(g.t, err)
}

// startLevel starts a session of alice as if she had taken as many steps of a login as level says.
func (g *loginSite) startLevel(level int) (secret string) {
	g.t.Helper()
	v, _, r := g.readAlice()
	text := make([]byte, 20, 25)
	rand.Read(text)
	secret = base64.RawURLEncoding.EncodeToString(append(text, "alice"...))
	id := sha256.Sum256([]byte(secret))
	_, err := v.Engine.StartSession(g.t.Context(), session.Start{
		PRK: r.Key, Seen: r.ForSessions(), FirstEpoch: session.FirstEpoch(store.NewRev()), ID: base64.RawURLEncoding.EncodeToString(id[:]),
		Life: time.Hour, Idle: time.Hour, Level: level, Now: v.StoreTime(),
	})
	must(g.t, err)
	return secret
}

// wantFactor checks that an error asks for alice's second factor, whether it has a ticket, and
// whether it says that a change was made.
func wantFactor(t *testing.T, what string, err error, wantTicket, wantDone bool) {
	t.Helper()
	refused, ok := errors.AsType[*userdb.FactorError](err)
	if !ok || !errors.Is(err, userdb.ErrFactor) || userdb.CodeOf(err) != userdb.CodeFactor {
		t.Errorf("%s: got error %v, want a *FactorError", what, err)
		return
	}
	if fmt.Sprint(refused.Methods) != "[recovery totp]" || (refused.Ticket != "") != wantTicket || refused.Done != wantDone {
		t.Errorf("%s: got methods %q, a ticket %v, done %v; want [recovery totp], %v, %v",
			what, refused.Methods, refused.Ticket != "", refused.Done, wantTicket, wantDone)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", err, err, err, err); wantTicket && strings.Contains(text, refused.Ticket) {
		t.Errorf("%s: the error shows its ticket: %s", what, text)
	}
}

// ways lists every method that returns an entry or a session, and its result for somebody whose
// entry has a second factor and who has taken one step or none.
//
//   - refuses: a *FactorError with a ticket in place of the entry
//   - done: the same without a ticket, since it made a change but is not a step of a login
//   - reads: an entry that the application asked for, which starts no session
//   - creates: a new entry, which has no second factor
//   - second step: the entry or session, if the second step was right
//   - level 2: only the holder of a session of level 2 gets anything, and the level does not rise
var ways = map[string]string{
	"Type.Login": "refuses", "Type.LoginLinked": "refuses", "Type.Redeem": "refuses", "Type.RedeemSession": "refuses",
	"Type.StartSession": "refuses", "Type.ResetPassword": "done",
	"Type.Prove": "second step", "Type.RaiseSession": "second step", "Type.LoginPasskey": "second step", "Type.ResetFactors": "reads",
	"Type.ChangePassword": "level 2", "Type.LinkIdentity": "level 2", "Type.UnlinkIdentity": "level 2",
	"Type.Session": "level 2", "Type.VerifySession": "level 2", "Type.Sessions": "level 2",
	"Type.Find": "reads", "Type.FindExhaustive": "reads", "Type.FindAll": "reads", "Type.All": "reads", "Type.Former": "reads",
	"Type.Peek": "reads", "Type.SetPassword": "reads", "Type.EndSessions": "reads", "Type.Update": "reads", "Type.Save": "reads",
	"Type.Create": "creates", "Type.CreateOnce": "creates", "Type.AcceptInvitation": "creates",
	"DB.Find": "reads",
}

// TestFactorWays checks that ways lists all methods that return an entry or a session.
func TestFactorWays(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[*userdb.Type](), reflect.TypeFor[*userdb.DB]()} {
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			returns := false
			for j := range m.Type.NumOut() {
				out := m.Type.Out(j).String()
				returns = returns || strings.Contains(out, "userdb.Entry") || strings.Contains(out, "userdb.Session")
			}
			name := typ.Elem().Name() + "." + m.Name
			if _, listed := ways[name]; listed != returns {
				t.Errorf("%s returns an entry or a session: %v; ways lists it: %v", name, returns, listed)
			}
		}
	}
}

// TestFactorRefuses checks that, if an entry has a second factor, no way to sign in gives an entry
// or a session after only one step.
func TestFactorRefuses(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		hash := g.storedField("alice", "password")
		_, early := g.startSession(userdb.SessionOptions{})
		read := g.loginAlice()
		g.setMark(someMark)
		if g.storedField("alice", "password") != factor.HashMarker || g.storedField("alice", factor.FieldHash) != hash {
			t.Error("the password hash lies where earlier versions accept it")
		}
		g.wantEnded("a session from before the second factor", early)
		if _, _, err := g.users.StartSession(ctx, read, userdb.SessionOptions{}); !errors.Is(err, userdb.ErrConflict) {
			t.Errorf("a login that was under way: got error %v, want ErrConflict", err)
		}
		wantErr(t, "a wrong password", g.logIn("alice", wrongPassword, ""), userdb.ErrLogin)

		e, err := g.users.Login(ctx, "alice", alicePassword, userdb.Attempt{Origin: "192.0.2.1"})
		wantFactor(t, "Login", err, true, false)
		wantNoEntry(t, "Login", e)
		e, err = g.users.ChangePassword(ctx, uid("alice"), alicePassword, "another horse", userdb.Attempt{})
		wantFactor(t, "ChangePassword", err, true, false)
		wantNoEntry(t, "ChangePassword", e)
		e, tk, err := g.users.Redeem(ctx, "link", g.issue(userdb.Token{Purpose: "link", Value: "v"}))
		wantFactor(t, "Redeem", err, true, true)
		wantNoEntry(t, "Redeem", e)
		if tk.Value != "v" {
			t.Errorf("Redeem returned the token %+v, want the value v", tk)
		}
		e, s, secret, err := g.users.RedeemSession(ctx, "link", g.issue(userdb.Token{Purpose: "link"}), userdb.SessionOptions{})
		wantFactor(t, "RedeemSession", err, true, true)
		wantNoEntry(t, "RedeemSession", e)
		if s != (userdb.Session{}) || secret != "" {
			t.Errorf("RedeemSession started %+v, want no session", s)
		}
		wantFactor(t, "Login after all of these", g.logIn("alice", alicePassword, ""), true, false)
		e, err = g.users.ResetPassword(ctx, "link", g.issue(userdb.Token{Purpose: "link"}), "another horse")
		wantFactor(t, "ResetPassword", err, false, true)
		wantNoEntry(t, "ResetPassword", e)
		wantErr(t, "the old password", g.logIn("alice", alicePassword, ""), userdb.ErrLogin)
		wantFactor(t, "the new password", g.logIn("alice", "another horse", ""), true, false)
		if g.storedField("alice", "password") != factor.HashMarker {
			t.Error("the new password hash lies where earlier versions accept it")
		}
		if n := g.raw.HLen(ctx, aliceSessions).Val(); n > 1 { // the early one may still be there
			t.Errorf("%d sessions are stored, want at most 1", n)
		}
		if _, err = g.users.Create(ctx, userdb.NewEntry{UID: "bob", Facets: schema.Texts("name", "bob")}); err != nil {
			t.Error(err)
		}
		must(t, g.users.Delete(ctx, uid("alice")))
		if n := g.raw.Exists(ctx, "~/factor/{user/uid:alice}").Val(); n != 0 {
			t.Error("the tickets outlive their entry")
		}
	})
}

func wantNoEntry(t *testing.T, what string, e userdb.Entry) {
	t.Helper()
	if e.Key().IsValid() {
		t.Errorf("%s returned %v, want no entry", what, e)
	}
}

// TestFactorReads checks that entries which the application reads start no session, and do not hold
// the password hash.
func TestFactorReads(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		g.setMark(someMark)
		link := g.issue(userdb.Token{Purpose: "link"})
		_, _, alice := g.readAlice()
		key := alice.Key
		for name, read := range map[string]func() (userdb.Entry, error){
			"Find":           func() (userdb.Entry, error) { return g.users.Find(ctx, hints.Any("alice")) },
			"FindExhaustive": func() (userdb.Entry, error) { return g.users.FindExhaustive(ctx, hints.Field("name", "alice")) },
			"DB.Find":        func() (userdb.Entry, error) { return g.db.Find(ctx, hints.Key(key)) },
			"FindAll": func() (found userdb.Entry, err error) {
				for found, err = range g.users.FindAll(ctx, uid("alice")) {
				}
				return found, err
			},
			"All": func() (found userdb.Entry, err error) {
				for found, err = range g.users.All(ctx, userdb.Query{}) {
				}
				return found, err
			},
			"Peek": func() (userdb.Entry, error) {
				e, _, err := g.users.Peek(ctx, "link", link)
				return e, err
			},
			"Update": func() (userdb.Entry, error) {
				return g.users.Update(ctx, uid("alice"), func(e *userdb.Entry) error {
					e.Put("job", schema.Text("baker"))
					return nil
				})
			},
			"Save": func() (userdb.Entry, error) {
				e, err := g.users.Find(ctx, uid("alice"))
				must(t, err)
				e.Put("job", schema.Text("cook"))
				return g.users.Save(ctx, e)
			},
			"EndSessions": func() (userdb.Entry, error) { return g.users.EndSessions(ctx, uid("alice")) },
		} {
			e, err := read()
			if err != nil || e.UID() != "alice" || fmt.Sprint(e.FactorMethods()) != "[recovery totp]" {
				t.Errorf("%s returned %v with methods %q, error %v; want alice, recovery and totp", name, e, e.FactorMethods(), err)
				continue
			}
			if text := fmt.Sprintf("%+v %#v %v", e, e.Flat(), e.Facets()); strings.Contains(text, "$2") || strings.Contains(text, factor.HashMarker) {
				t.Errorf("%s shows the password hash: %s", name, text)
			}
			_, secret, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
			wantFactor(t, "StartSession after "+name, err, true, false)
			if secret != "" {
				t.Errorf("StartSession after %s returned a secret", name)
			}
		}
		e, err := g.users.SetPassword(ctx, uid("alice"), "another horse")
		must(t, err)
		_, _, err = g.users.StartSession(ctx, e, userdb.SessionOptions{})
		wantFactor(t, "StartSession after SetPassword", err, true, false)
		g.setMark("") // or check would report that the factor is missing
	})
}

// TestFactorSessions checks that an entry with a second factor has only sessions of level 2, and
// that a password does not renew that level.
func TestFactorSessions(t *testing.T) {
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		if s := g.wantSession("without a factor", g.startLevel(1)); s.Level() != 1 || !s.VerifiedAt(2).IsZero() {
			t.Errorf("got level %d, verified with two steps at %v; want level 1, never", s.Level(), s.VerifiedAt(2))
		}
		g.setMark(someMark)
		one, two := g.startLevel(1), g.startLevel(2)
		g.wantEnded("of level 1", one)
		if _, _, err := g.users.VerifySession(ctx, one, alicePassword, userdb.Attempt{}); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("VerifySession on level 1: got error %v, want ErrNotFound", err)
		}
		begun := g.wantSession("of level 2", two)
		if begun.Level() != 2 || begun.VerifiedAt(2).IsZero() || begun.VerifiedAt(3) != (time.Time{}) {
			t.Errorf("got level %d, verified with two steps at %v; want level 2 and a time", begun.Level(), begun.VerifiedAt(2))
		}
		g.advance(time.Minute)
		_, s, err := g.users.VerifySession(ctx, two, alicePassword, userdb.Attempt{})
		must(t, err)
		if s.Level() != 2 || !s.VerifiedAt(2).Equal(begun.VerifiedAt(2)) || !s.VerifiedAt(1).After(begun.VerifiedAt(1)) {
			t.Errorf("a password renewed more than level 1: before %+v, now %+v", begun, s)
		}
		listed := 0
		for s, err := range g.users.Sessions(ctx, uid("alice")) {
			must(t, err)
			if listed++; s.Level() != 2 {
				t.Errorf("Sessions lists %+v, want only level 2", s)
			}
		}
		if listed != 1 {
			t.Errorf("Sessions lists %d sessions, want 1", listed)
		}
		g.setMark("")
		g.wantEnded("after the factor was removed", two)
		if g.storedField("alice", factor.FieldHash) != "" || !strings.HasPrefix(g.storedField("alice", "password"), "$2") {
			t.Error("the password hash is not back in its facet")
		}
		g.loginAlice()
	})
}

// TestFactorMarks checks that an entry with any mark, even a damaged one, asks for a second factor,
// whichever field holds the hash, and that no verifier accepts the marker in the facet as a hash.
func TestFactorMarks(t *testing.T) {
	h, err := password.New(password.Options{Cost: 4})
	must(t, err)
	for name, verify := range map[string]func(hash, pw string) (password.Result, error){
		"Verify": h.Verify, "VerifyImported": h.VerifyImported, "VerifyOriginal": h.VerifyOriginal,
	} {
		for _, pw := range []string{"", factor.HashMarker, alicePassword} {
			if r, _ := verify(factor.HashMarker, pw); r.OK {
				t.Errorf("%s accepts %q", name, pw)
			}
		}
	}
	eachLoginSite(t, loginOptions(), func(t *testing.T, g *loginSite) {
		plain := g.storedField("alice", "password")
		g.setMark(someMark)
		for _, damage := range []string{"", "g", "totp/", " ", "fax/a", "totp"} {
			g.storeField("alice", factor.FieldMark, damage)
			if err := g.logIn("alice", alicePassword, ""); !errors.Is(err, userdb.ErrFactor) {
				t.Errorf("mark %q: got error %v, want ErrFactor", damage, err)
			}
		}
		g.storeField("alice", factor.FieldMark, someMark)
		// An earlier version that sets a password writes the hash into the facet.
		g.storeField("alice", "password", plain)
		wantFactor(t, "hash in the facet", g.logIn("alice", alicePassword, ""), true, false)
		_, err := g.users.EndSessions(t.Context(), uid("alice"))
		must(t, err)
		if g.storedField("alice", "password") != factor.HashMarker || g.storedField("alice", factor.FieldHash) != plain {
			t.Error("the next change does not put the hash where it belongs")
		}
		wantFactor(t, "after the next change", g.logIn("alice", alicePassword, ""), true, false)
		g.setMark("") // or check would report that the factor is missing
	})
}
