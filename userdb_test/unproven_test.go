package userdb_test

import (
	"encoding/base32"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// selfOptions returns options under which users may have several addresses, an address in a second
// field, and links to accounts elsewhere.
func selfOptions() userdb.Options {
	o := factorOptions()
	fields := o.Schema.Types["user"].Fields
	email := fields["email"]
	email.Many = 5
	fields["email"] = email
	fields["backup"] = schema.Field{Role: schema.RoleSecondary, Kind: "email"}
	fields["phone"] = schema.Field{Role: schema.RoleSecondary}
	fields["name"] = schema.Field{Role: schema.RoleSecondary, Kind: "nickname"}
	fields["contact"] = schema.Field{Kind: "email"}
	fields["links"] = schema.Field{Role: schema.RoleSecondary, Typed: new(false), Many: 5}
	return o
}

// A hijacker has registered the address of another person, and keeps every means of signing in to
// that account.
type hijacker struct {
	g       *loginSite
	session string
	tokens  map[string]string // secrets by purpose
	early   userdb.Entry      // of a login that is under way
}

const victim, attacker = "victim@example.com", "attacker@example.net"

// selfRegister creates the account mallory with the address of the victim, as a visitor does.
func (g *loginSite) selfRegister() *hijacker {
	g.t.Helper()
	ctx := g.t.Context()
	e, err := g.users.Create(ctx, userdb.NewEntry{
		UID: "mallory", Facets: schema.Texts("name", "mallory", "email", victim, "phone", "1234", "contact", attacker), Password: alicePassword, SelfRegistered: true,
	})
	must(g.t, err)
	if !e.Unproven() {
		g.t.Error("the entry is not unproven")
	}
	h := &hijacker{g: g, tokens: map[string]string{}}
	_, h.session, err = g.users.StartSession(ctx, e, userdb.SessionOptions{})
	must(g.t, err)
	for _, tk := range []userdb.Token{{Purpose: "reset"}, {Purpose: "login"}, {Purpose: "change:email", Value: attacker}} {
		h.tokens[tk.Purpose], err = g.users.Issue(ctx, uid("mallory"), tk)
		must(g.t, err)
	}
	h.early, err = g.users.Login(ctx, victim, alicePassword, userdb.Attempt{})
	must(g.t, err)
	return h
}

// wantNothing checks that the hijacker no longer has a way in.
func (h *hijacker) wantNothing(what string) {
	t, ctx := h.g.t, h.g.t.Context()
	t.Helper()
	h.g.wantEnded(what+": the session", h.session)
	for purpose, secret := range h.tokens {
		_, _, err := h.g.users.Peek(ctx, purpose, secret)
		wantErr(t, what+": the token of "+purpose, err, userdb.ErrNotFound)
	}
	_, _, err := h.g.users.StartSession(ctx, h.early, userdb.SessionOptions{})
	wantErr(t, what+": a login under way", err, userdb.ErrConflict)
	for _, identifier := range []string{"mallory", victim} {
		wantErr(t, what+": the password", h.g.logIn(identifier, alicePassword, ""), userdb.ErrLogin)
	}
	e, err := h.g.users.Find(ctx, uid("mallory"))
	if must(t, err); e.Unproven() || !e.Verified("email") {
		t.Errorf("%s: got unproven %v, verified %v; want false, true", what, e.Unproven(), e.Verified("email"))
	}
	if phone, contact, name := e.Text("phone"), e.Text("contact"), e.Text("name"); phone != "" || contact != "" || name != "mallory" {
		t.Errorf("%s: got the phone %q, the contact %q and the name %q; want only the name", what, phone, contact, name)
	}
	_, err = h.g.users.Create(ctx, userdb.NewEntry{UID: "owner", Facets: schema.Texts("phone", "1234")})
	must(t, err)
	must(t, h.g.users.Delete(ctx, uid("owner")))
}

// mailed returns a token that is mailed to the victim.
func (h *hijacker) mailed(purpose string) string {
	h.g.t.Helper()
	secret, address, err := h.g.users.IssueForVisitor(h.g.t.Context(), "email", victim, userdb.Token{Purpose: purpose}, userdb.Attempt{})
	if must(h.g.t, err); address != victim {
		h.g.t.Errorf("the token goes to %q, want %q", address, victim)
	}
	return secret
}

// TestUnprovenGetsNothing checks that a self-registered entry gets nothing that could let somebody
// in before its address is verified.
func TestUnprovenGetsNothing(t *testing.T) {
	eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		h := g.selfRegister()
		_, err := g.users.EnrolTOTP(ctx, h.session, userdb.TOTPOptions{})
		wantField(t, "EnrolTOTP", err, userdb.ErrUnproven, "factor")
		if code := userdb.CodeOf(err); code != userdb.CodeUnproven {
			t.Errorf("the code is %q, want %q", code, userdb.CodeUnproven)
		}
		_, err = g.users.ConfirmTOTP(ctx, h.session, "x", "000000", userdb.SessionOptions{})
		wantErr(t, "ConfirmTOTP", err, userdb.ErrUnproven)
		_, err = g.users.Issue(ctx, uid("mallory"), userdb.Token{Purpose: "add:email", Value: attacker})
		wantField(t, "a token that adds an address", err, userdb.ErrUnproven, "email")
		update := func(what, field string, f func(*userdb.Entry) error) {
			t.Helper()
			_, err := g.users.Update(ctx, uid("mallory"), f)
			wantField(t, what, err, userdb.ErrUnproven, field)
		}
		texts := func(field string, all ...string) func(*userdb.Entry) error {
			return func(e *userdb.Entry) error { e.SetTexts(field, all...); return nil }
		}
		update("a further address", "email", texts("email", victim, attacker))
		update("a further address in front", "email", texts("email", attacker, victim))
		update("an address in another field", "backup", putText("backup", attacker))
		update("a link", "links", putText("links", "abc"))
		update("several links", "links", texts("links", "abc", "def"))
		_, err = g.users.Update(ctx, uid("mallory"), putText("job", "baker"))
		must(t, err)
		_, err = g.users.Update(ctx, uid("mallory"), putText("phone", "5678"))
		must(t, err)
		g.wantWorks(h)

		for what, n := range map[string]userdb.NewEntry{
			"two addresses":      {Values: map[string][]string{"email": {"x@example.com", attacker}}},
			"two address fields": {Facets: schema.Texts("email", "x@example.com", "backup", attacker)},
			"a link":             {Facets: schema.Texts("email", "x@example.com", "links", "abc")},
		} {
			n.SelfRegistered = true
			_, err := g.users.Create(ctx, n)
			wantErr(t, "creating "+what, err, userdb.ErrUnproven)
			n.SelfRegistered = false
			e, err := g.users.Create(ctx, n)
			must(t, err)
			must(t, g.users.Delete(ctx, hints.UID(e.UID())))
		}
		// A factor of another kind is refused with the change that adds it.
		_, declared, r := g.read("mallory")
		_, _, err = declared.Update(r, change.Facets(r), map[string]string{factor.FieldMark: someMark})
		wantErr(t, "the mark of a factor", err, userdb.ErrUnproven)
	})
}

// decodeSecret returns the secret of an authenticator app.
func decodeSecret(t *testing.T, text string) []byte {
	t.Helper()
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(text)
	must(t, err)
	return secret
}

// wantWorks checks that the session and the password of the hijacker are still valid.
func (g *loginSite) wantWorks(h *hijacker) {
	g.t.Helper()
	if _, _, err := g.users.Session(g.t.Context(), h.session); err != nil {
		g.t.Errorf("the session: %v", err)
	}
	must(g.t, g.logIn("mallory", alicePassword, ""))
}

// TestUnprovenEnds checks, for each way to verify the address of a self-registered entry, that
// afterwards only the person who verified it has the entry.
func TestUnprovenEnds(t *testing.T) {
	ways := map[string]func(g *loginSite, h *hijacker) (userdb.Entry, error){
		"Redeem": func(g *loginSite, h *hijacker) (e userdb.Entry, err error) {
			e, _, err = g.users.Redeem(g.t.Context(), "verify", h.mailed("verify"))
			return e, err
		},
		"Redeem in a session of another entry": func(g *loginSite, h *hijacker) (e userdb.Entry, err error) {
			_, secret := g.startSession(userdb.SessionOptions{}) // of alice
			e, _, err = g.users.Redeem(g.t.Context(), "verify", h.mailed("verify"), userdb.InSession(secret))
			return e, err
		},
		"Redeem in a session that ended": func(g *loginSite, h *hijacker) (e userdb.Entry, err error) {
			must(g.t, g.users.EndSession(g.t.Context(), h.session))
			e, _, err = g.users.Redeem(g.t.Context(), "verify", h.mailed("verify"), userdb.InSession(h.session))
			return e, err
		},
		"change:email": func(g *loginSite, h *hijacker) (e userdb.Entry, err error) {
			secret, err := g.users.Issue(g.t.Context(), uid("mallory"), userdb.Token{Purpose: "change:email", Value: victim})
			must(g.t, err)
			e, _, err = g.users.Redeem(g.t.Context(), "change:email", secret)
			return e, err
		},
		"add:email of the address itself": func(g *loginSite, h *hijacker) (e userdb.Entry, err error) {
			secret, err := g.users.Issue(g.t.Context(), uid("mallory"), userdb.Token{Purpose: "add:email", Value: victim})
			must(g.t, err)
			e, _, err = g.users.Redeem(g.t.Context(), "add:email", secret)
			return e, err
		},
		"ResetPassword": func(g *loginSite, h *hijacker) (userdb.Entry, error) {
			return g.users.ResetPassword(g.t.Context(), "reset", h.mailed("reset"), newPassword)
		},
	}
	for name, verify := range ways {
		t.Run(name, func(t *testing.T) {
			eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
				ctx := t.Context()
				h := g.selfRegister()
				e, err := verify(g, h)
				must(t, err)
				h.wantNothing(name)
				_, session, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
				must(t, err)
				// From now on the entry is like any other.
				enrolment, err := g.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{})
				must(t, err)
				a := &app{g: g, id: enrolment.ID, secret: decodeSecret(t, enrolment.Secret)}
				_, err = g.users.ConfirmTOTP(ctx, session, a.id, a.code(), userdb.SessionOptions{})
				must(t, err)
				_, err = g.users.Update(ctx, uid("mallory"), putText("links", "abc"))
				must(t, err)
				if name == "ResetPassword" {
					wantErr(t, "the new password", g.logIn("mallory", newPassword, ""), userdb.ErrFactor)
				}
			})
		})
	}
	t.Run("RedeemSession", func(t *testing.T) {
		eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
			h := g.selfRegister()
			_, _, session, err := g.users.RedeemSession(t.Context(), "login", h.mailed("login"), userdb.SessionOptions{})
			must(t, err)
			h.wantNothing("RedeemSession")
			if e, _, err := g.users.Session(t.Context(), session); err != nil || e.UID() != "mallory" {
				t.Errorf("the new session is of %v, error %v; want mallory", e, err)
			}
		})
	})
}

// TestUnprovenInSession checks that the person who registered an account keeps their password and
// session if they also read the mail.
func TestUnprovenInSession(t *testing.T) {
	eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		h := g.selfRegister()
		e, _, err := g.users.Redeem(ctx, "verify", h.mailed("verify"), userdb.InSession(h.session))
		if must(t, err); e.Unproven() || !e.Verified("email") {
			t.Errorf("got unproven %v, verified %v; want false, true", e.Unproven(), e.Verified("email"))
		}
		g.wantWorks(h)
		if phone := e.Text("phone"); phone != "1234" {
			t.Errorf("got the phone %q, want 1234", phone)
		}
		_, err = g.users.EnrolTOTP(ctx, h.session, userdb.TOTPOptions{})
		must(t, err)
	})
}

// TestUnprovenRequired checks that no secrets are sent to a required value that a stranger may have
// entered, after the owner of the address has taken over the entry.
func TestUnprovenRequired(t *testing.T) {
	o := selfOptions()
	o.Schema.Types["user"].Fields["phone"] = schema.Field{Role: schema.RoleSecondary, Required: true}
	eachStore(t, func(t *testing.T, s *site) {
		g, ctx := newLoginSite(s, o), t.Context()
		h := g.selfRegister()
		_, err := g.users.ResetPassword(ctx, "reset", h.mailed("reset"), newPassword)
		must(t, err)
		_, _, err = g.users.IssueFor(ctx, uid("mallory"), "phone", userdb.Token{Purpose: "sms"})
		wantErr(t, "a token sent to the phone", err, userdb.ErrInvalid)
		_, _, err = g.users.IssueForVisitor(ctx, "phone", "1234", userdb.Token{Purpose: "sms"}, userdb.Attempt{})
		wantErr(t, "a token that a visitor asks for", err, userdb.ErrNotFound)
		must(t, g.logIn("1234", newPassword, ""))

		secret, err := g.users.Issue(ctx, uid("mallory"), userdb.Token{Purpose: "change:phone", Value: "1234"})
		must(t, err)
		_, _, err = g.users.Redeem(ctx, "change:phone", secret)
		must(t, err)
		_, _, err = g.users.IssueFor(ctx, uid("mallory"), "phone", userdb.Token{Purpose: "sms"})
		must(t, err)
	})
}

// TestUnprovenRepeated checks that somebody who repeats the request that made an account does not
// get in after the owner of the address has verified it.
func TestUnprovenRepeated(t *testing.T) {
	eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		n := userdb.NewEntry{Facets: schema.Texts("email", victim), Password: alicePassword, SelfRegistered: true}
		_, err := g.users.CreateOnce(ctx, "a", n)
		must(t, err)
		for range 2 { // the second time, the entry has a session
			e, err := g.users.CreateOnce(ctx, "a", n)
			must(t, err)
			_, _, err = g.users.StartSession(ctx, e, userdb.SessionOptions{})
			must(t, err)
		}
		h := &hijacker{g: g}
		_, err = g.users.ResetPassword(ctx, "reset", h.mailed("reset"), newPassword)
		must(t, err)
		e, err := g.users.CreateOnce(ctx, "a", n)
		must(t, err)
		_, _, err = g.users.StartSession(ctx, e, userdb.SessionOptions{})
		wantErr(t, "a session of a repeated request", err, userdb.ErrConflict)
	})
}

// TestUnprovenTagEvents checks that, when a self-registered entry gives up its address, histories
// and events mention its tags only if it had some.
func TestUnprovenTagEvents(t *testing.T) {
	o := selfOptions()
	o.History = true
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		for name, tags := range map[string][]string{"with": {"admin"}, "without": nil} {
			_, err := g.users.Create(ctx, userdb.NewEntry{UID: name, Facets: schema.Texts("email", name+"@example.com"), Tags: tags, SelfRegistered: true})
			must(t, err)
			g.events = nil
			_, err = g.users.Update(ctx, uid(name), putText("email", "other-"+name+"@example.com"))
			must(t, err)
			all, err := g.users.History(ctx, uid(name))
			must(t, err)
			recorded := slices.ContainsFunc(all, func(e userdb.HistoryEvent) bool { return e.Kind == userdb.EventTags })
			emitted := slices.ContainsFunc(g.events, func(e userdb.Event) bool { return slices.Contains(e.Fields, "tags") })
			if want := tags != nil; recorded != want || emitted != want {
				t.Errorf("%s tags: in the history %v, in an event %v; want %v for both", name, recorded, emitted, want)
			}
		}
	})
}

// TestUnprovenStays checks that an entry stays unproven if a token is redeemed that was not sent to
// its address, or if its password changes.
func TestUnprovenStays(t *testing.T) {
	eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		h := g.selfRegister()
		_, _, err := g.users.Redeem(ctx, "login", h.tokens["login"])
		must(t, err)
		secret, _, err := g.users.IssueFor(ctx, uid("mallory"), "phone", userdb.Token{Purpose: "sms"})
		must(t, err)
		_, _, err = g.users.Redeem(ctx, "sms", secret, userdb.InSession(h.session))
		must(t, err)
		_, err = g.users.ChangePassword(ctx, uid("mallory"), alicePassword, newPassword, userdb.Attempt{})
		must(t, err)
		secret, err = g.users.Issue(ctx, uid("mallory"), userdb.Token{Purpose: "reset"})
		must(t, err)
		_, err = g.users.ResetPassword(ctx, "reset", secret, alicePassword)
		must(t, err)
		e, err := g.users.Find(ctx, uid("mallory"))
		if must(t, err); !e.Unproven() {
			t.Error("something other than the mail to the address proved that somebody owns it")
		}
		wantErr(t, "a link of an unproven entry", errOf(g.users.Update(ctx, uid("mallory"), putText("links", "abc"))), userdb.ErrUnproven)
	})
}

// TestUnprovenLosesTags checks that a self-registered entry loses its tags when it gives up its
// address, because they may have been given to the owner of that address.
func TestUnprovenLosesTags(t *testing.T) {
	const other = "Victim@Example.com" // another spelling of the victim's address
	put := func(field, value string) func(g *loginSite) error {
		return func(g *loginSite) error {
			return errOf(g.users.Update(g.t.Context(), uid("mallory"), putText(field, value)))
		}
	}
	cases := []struct {
		name   string
		before func(g *loginSite) // what happens to the entry first
		change func(g *loginSite) error
		want   []string
	}{
		{"another address", nil, put("email", attacker), nil},
		{"a token of another address", nil, func(g *loginSite) error {
			secret, err := g.users.Issue(g.t.Context(), uid("mallory"), userdb.Token{Purpose: "change:email", Value: attacker})
			must(g.t, err)
			_, _, err = g.users.Redeem(g.t.Context(), "change:email", secret)
			return err
		}, nil},
		{"no address", nil, func(g *loginSite) error {
			return errOf(g.users.Update(g.t.Context(), uid("mallory"), func(e *userdb.Entry) error { e.Drop("email"); return nil }))
		}, nil},
		{"an address in another field", nil, func(g *loginSite) error {
			return errOf(g.users.Update(g.t.Context(), uid("mallory"), func(e *userdb.Entry) error {
				e.Drop("email")
				e.Put("backup", schema.Text(attacker))
				return nil
			}))
		}, nil},
		{"another address and tags", nil, func(g *loginSite) error {
			return errOf(g.users.Update(g.t.Context(), uid("mallory"), func(e *userdb.Entry) error {
				e.Put("email", schema.Text(attacker))
				e.SetMembers("tags", "guest")
				return nil
			}))
		}, []string{"guest"}},
		{"another spelling", nil, put("email", other), []string{"admin"}},
		{"another name", nil, put("name", "other"), []string{"admin"}},
		{"after the address was verified", func(g *loginSite) {
			secret, _, err := g.users.IssueFor(g.t.Context(), uid("mallory"), "email", userdb.Token{Purpose: "verify"})
			must(g.t, err)
			must(g.t, errOf3(g.users.Redeem(g.t.Context(), "verify", secret)))
		}, put("email", attacker), []string{"admin"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
				_, err := g.users.Create(t.Context(), userdb.NewEntry{
					UID: "mallory", Facets: schema.Texts("name", "mallory", "email", victim), Tags: []string{"admin"}, SelfRegistered: true,
				})
				must(t, err)
				if c.before != nil {
					c.before(g)
				}
				must(t, c.change(g))
				tags, err := g.users.Tags(uid("mallory")).Members(t.Context())
				if must(t, err); !slices.Equal(tags, c.want) {
					t.Errorf("got the tags %q, want %q", tags, c.want)
				}
			})
		})
	}
}

// TestSelfRegisteredOnce checks that a repeated request creates only one unproven entry, that the
// same request without SelfRegistered counts as another, and that the entry of an invitation is
// never unproven.
func TestSelfRegisteredOnce(t *testing.T) {
	eachLoginSite(t, selfOptions(), func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		n := userdb.NewEntry{Facets: schema.Texts("email", victim), SelfRegistered: true}
		for range 2 {
			e, err := g.users.CreateOnce(ctx, "a", n)
			if must(t, err); !e.Unproven() {
				t.Error("the entry is not unproven")
			}
		}
		n.SelfRegistered = false
		wantErr(t, "another request", errOf(g.users.CreateOnce(ctx, "a", n)), userdb.ErrInvalid)
		i, err := g.users.Invite(ctx, "email", "new@example.com", userdb.Token{}, userdb.Attempt{})
		must(t, err)
		e, err := g.users.AcceptInvitation(ctx, i.Secret, userdb.NewEntry{SelfRegistered: true})
		if must(t, err); e.Unproven() {
			t.Error("an entry of an invitation is unproven")
		}
	})
}
