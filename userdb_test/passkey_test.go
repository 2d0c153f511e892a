package userdb_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// passkeyOptions returns options under which entries may have passkeys.
func passkeyOptions() userdb.Options {
	o := factorOptions()
	o.Schema.Types["user"].Fields["passkeys"] = schema.Field{Role: schema.RoleSecondary, Many: 8, Typed: new(false)}
	o.Schema.Types["user"].Fields["links"] = schema.Field{Role: schema.RoleSecondary, Many: 3, Typed: new(false)}
	return o
}

const (
	rpID     = "example.com"
	rpOrigin = "https://login.example.com"
)

// passkeys returns the Passkeys of the users.
func (g *loginSite) passkeys() *passkey.Passkeys {
	g.t.Helper()
	keys, err := passkey.New(g.db, "user", passkey.Config{RPID: rpID, Origins: []string{rpOrigin}, Name: "Example"})
	must(g.t, err)
	return keys
}

// A device is an authenticator with one passkey, and the browser that it is used with.
type device struct {
	rp   virtualwebauthn.RelyingParty
	auth virtualwebauthn.Authenticator
	cred virtualwebauthn.Credential
}

// newCredential returns a credential whose public key has two coordinates of 32 bytes each. In one
// of 128 keys, virtualwebauthn omits the leading zero of a coordinate, and then no signature is
// valid.
func newCredential() virtualwebauthn.Credential {
	const keyBytes = 77 // of a COSE key on the curve P-256
	for {
		if c := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2); len(c.Key.AttestationData()) == keyBytes {
			return c
		}
	}
}

func newDevice() *device {
	return &device{
		rp:   virtualwebauthn.RelyingParty{ID: rpID, Name: "Example", Origin: rpOrigin},
		auth: virtualwebauthn.NewAuthenticator(), cred: newCredential(),
	}
}

// create answers a challenge for a new passkey.
func (d *device) create(t *testing.T, c passkey.Challenge) []byte {
	t.Helper()
	o, err := virtualwebauthn.ParseAttestationOptions(string(c.Options))
	must(t, err)
	var wire struct {
		PublicKey struct {
			User struct{ ID string }
		}
	}
	must(t, json.Unmarshal(c.Options, &wire))
	d.auth.Options.UserHandle, err = base64.RawURLEncoding.DecodeString(wire.PublicKey.User.ID)
	must(t, err)
	return []byte(virtualwebauthn.CreateAttestationResponse(d.rp, d.auth, d.cred, *o))
}

// get answers a challenge with the passkey.
func (d *device) get(t *testing.T, c passkey.Challenge) []byte {
	t.Helper()
	o, err := virtualwebauthn.ParseAssertionOptions(string(c.Options))
	must(t, err)
	return []byte(virtualwebauthn.CreateAssertionResponse(d.rp, d.auth, d.cred, *o))
}

// getCrossOrigin answers a challenge as get does, but from a frame in a page of another site.
func (d *device) getCrossOrigin(t *testing.T, c passkey.Challenge) []byte {
	t.Helper()
	o, err := virtualwebauthn.ParseAssertionOptions(string(c.Options))
	must(t, err)
	client, err := json.Marshal(map[string]any{
		"type": "webauthn.get", "challenge": base64.RawURLEncoding.EncodeToString(o.Challenge), "origin": d.rp.Origin, "crossOrigin": true,
	})
	must(t, err)
	rp, clientHash := sha256.Sum256([]byte(d.rp.ID)), sha256.Sum256(client)
	data := binary.BigEndian.AppendUint32(append(rp[:], 0x05), d.cred.Counter)
	digest := sha256.Sum256(append(slices.Clone(data), clientHash[:]...))
	signature, err := d.cred.Key.Sign(digest[:])
	must(t, err)
	text := base64.RawURLEncoding.EncodeToString
	answer, err := json.Marshal(map[string]any{
		"type": "public-key", "id": text(d.cred.ID), "rawId": text(d.cred.ID), "response": map[string]string{
			"authenticatorData": text(data), "clientDataJSON": text(client), "signature": text(signature),
			"userHandle": text(d.auth.Options.UserHandle),
		},
	})
	must(t, err)
	return answer
}

// register gives the owner of a session a passkey, and returns the change and the secret of the
// session that is then valid.
func (g *loginSite) register(keys *passkey.Passkeys, d *device, session string) (userdb.FactorChange, string) {
	g.t.Helper()
	c, err := keys.BeginRegistration(g.t.Context(), session, passkey.Registration{Account: "alice@example.com"})
	must(g.t, err)
	done, err := keys.Register(g.t.Context(), session, c.State, d.create(g.t, c), "my key", userdb.SessionOptions{})
	must(g.t, err)
	if done.Secret != "" {
		session = done.Secret
	}
	return done, session
}

// enrolDevice gives alice a passkey, and returns it and the secret of her session.
func (g *loginSite) enrolDevice(keys *passkey.Passkeys) (d *device, session string) {
	g.t.Helper()
	_, session = g.startSession(userdb.SessionOptions{})
	d = newDevice()
	_, session = g.register(keys, d, session)
	return d, session
}

// loginPasskey signs in with a passkey alone.
func (g *loginSite) loginPasskey(keys *passkey.Passkeys, d *device) (userdb.Entry, error) {
	g.t.Helper()
	c, err := keys.Begin()
	must(g.t, err)
	return g.answer(keys, c.State, d.get(g.t, c))
}

// answer signs in with the answer of a passkey.
func (g *loginSite) answer(keys *passkey.Passkeys, state string, answer []byte) (userdb.Entry, error) {
	g.t.Helper()
	p, err := keys.Proof(state, answer)
	if err != nil {
		return userdb.Entry{}, err
	}
	return g.users.LoginPasskey(g.t.Context(), p, userdb.Attempt{Origin: "192.0.2.1"})
}

// digestOf returns the value by which the entry with a passkey is found.
func digestOf(d *device) string {
	return fmt.Sprintf("%x", sha256.Sum256(append([]byte(rpID+"\x00"), d.cred.ID...)))
}

// TestPasskey checks how somebody enrols passkeys, signs in with them alone and as a second step,
// raises a session, and removes them.
func TestPasskey(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		_, other := g.startSession(userdb.SessionOptions{})
		_, session := g.startSession(userdb.SessionOptions{})
		d := newDevice()
		c, session := g.register(keys, d, session)
		if len(c.RecoveryCodes) != 10 || c.Session.Level() != 2 {
			t.Errorf("the first passkey gave %d recovery codes and a session of level %d, want 10 and 2", len(c.RecoveryCodes), c.Session.Level())
		}
		g.wantEnded("another session", other)
		wantErr(t, "the passkey once more", tryRegister(g, keys, d, session), userdb.ErrDuplicate)
		second := newDevice()
		c2, kept := g.register(keys, second, session)
		if c2.Secret != "" || kept != session || len(c2.RecoveryCodes) != 0 {
			t.Errorf("the second passkey gave %+v, want neither another session nor recovery codes", c2)
		}
		if string(second.auth.Options.UserHandle) != string(d.auth.Options.UserHandle) || len(d.auth.Options.UserHandle) != 32 {
			t.Error("passkeys of one entry have different user handles")
		}
		e, err := g.users.Find(ctx, hints.Field("passkeys", digestOf(d)))
		if must(t, err); e.UID() != "alice" || fmt.Sprint(e.FactorMethods()) != "[passkey recovery]" || len(e.Texts("passkeys")) != 2 {
			t.Errorf("found %v with methods %q, digests %q; want alice, passkey and recovery, and two digests",
				e, e.FactorMethods(), e.Texts("passkeys"))
		}
		factors, err := g.users.Factors(ctx, uid("alice"))
		if must(t, err); len(factors) != 3 || factors[0].Method != "passkey" || factors[0].Name != "my key" {
			t.Errorf("the factors are %+v, want three, the first a passkey named my key", factors)
		}

		g.takeEvents()
		for _, one := range []*device{d, second, d} {
			e, err = g.loginPasskey(keys, one)
			if must(t, err); e.UID() != "alice" {
				t.Errorf("signed in as %v, want alice", e)
			}
		}
		_, secret, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		if s := g.wantSession("after a passkey", secret); s.Level() != 2 {
			t.Errorf("a passkey gives level %d, want 2", s.Level())
		}
		if events := g.takeEvents(); len(events) != 4 || events[0].Kind != userdb.EventLogin || events[0].Origin != "192.0.2.1" {
			t.Errorf("the events are %+v, want four, the first a login from 192.0.2.1", events)
		}

		ticket := g.ticket("192.0.2.1")
		challenge, err := keys.BeginTicket(ticket)
		must(t, err)
		p, err := keys.Proof(challenge.State, second.get(t, challenge))
		must(t, err)
		_, err = g.users.Prove(ctx, g.ticket("192.0.2.1"), p, userdb.Attempt{})
		wantErr(t, "the answer for another ticket", err, userdb.ErrLogin)
		_, err = g.users.LoginPasskey(ctx, p, userdb.Attempt{})
		wantErr(t, "the answer for a ticket, without it", err, userdb.ErrLogin)
		e, err = g.users.Prove(ctx, ticket, p, userdb.Attempt{Origin: "192.0.2.1"})
		if must(t, err); e.UID() != "alice" {
			t.Errorf("Prove returned %v, want alice", e)
		}
		_, err = g.users.Prove(ctx, ticket, p, userdb.Attempt{})
		wantErr(t, "the answer once more", err, userdb.ErrNotFound)

		g.advance(time.Hour) // a passkey raises a session that was verified long ago
		challenge, err = keys.BeginSession(secret)
		must(t, err)
		p, err = keys.Proof(challenge.State, d.get(t, challenge))
		must(t, err)
		_, _, _, err = g.users.RaiseSession(ctx, session, p, userdb.SessionOptions{})
		wantErr(t, "the answer for another session", err, userdb.ErrLogin)
		_, s, raised, err := g.users.RaiseSession(ctx, secret, p, userdb.SessionOptions{})
		if must(t, err); s.Level() != 2 || g.clock().Sub(s.VerifiedLevel2) > time.Minute {
			t.Errorf("the session has level %d, verified at %v; want 2, within the last minute", s.Level(), s.VerifiedLevel2)
		}

		if _, err = g.users.Update(ctx, uid("alice"), func(e *userdb.Entry) error { e.DropText("passkeys", digestOf(d)); return nil }); !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("removing the digest of a passkey: got error %v, want ErrInvalid", err)
		}
		removed, err := g.users.RemoveFactor(ctx, raised, factors[0].ID, userdb.SessionOptions{})
		must(t, err)
		e, err = g.users.Find(ctx, uid("alice"))
		must(t, err)
		gone, left := d, second
		if !strings.HasPrefix(digestOf(d), factors[0].ID[:32]) {
			gone, left = second, d
		}
		if texts := e.Texts("passkeys"); !slices.Equal(texts, []string{digestOf(left)}) {
			t.Errorf("the digests are %q, want %q", texts, digestOf(left))
		}
		_, err = g.loginPasskey(keys, gone)
		wantErr(t, "a passkey that was removed", err, userdb.ErrLogin)
		_, err = g.loginPasskey(keys, left)
		must(t, err)
		_, err = g.users.RemoveFactor(ctx, removed.Secret, factors[1].ID, userdb.SessionOptions{})
		must(t, err)
		e, err = g.users.Login(ctx, "alice", alicePassword, userdb.Attempt{})
		if must(t, err); len(e.FactorIDs()) != 0 || len(e.Texts("passkeys")) != 0 {
			t.Errorf("factors %q and digests %q are left, want none", e.FactorIDs(), e.Texts("passkeys"))
		}
	})
}

// tryRegister tries to enrol a passkey in a session.
func tryRegister(g *loginSite, keys *passkey.Passkeys, d *device, session string) error {
	g.t.Helper()
	c, err := keys.BeginRegistration(g.t.Context(), session, passkey.Registration{})
	must(g.t, err)
	_, err = keys.Register(g.t.Context(), session, c.State, d.create(g.t, c), "", userdb.SessionOptions{})
	return err
}

// TestPasskeyRefused checks that no answer signs in except the right one, and that this one signs
// in only once.
func TestPasskeyRefused(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		d, session := g.enrolDevice(keys)
		d.cred.Counter = 5
		_, err := g.loginPasskey(keys, d)
		must(t, err)
		d.cred.Counter++
		with := func(change func(d *device)) *device {
			other := *d
			change(&other)
			return &other
		}
		for what, other := range map[string]*device{
			"a wrong relying party":        with(func(d *device) { d.rp.ID = "example.org" }),
			"a wrong origin":               with(func(d *device) { d.rp.Origin = "https://evil.example.com" }),
			"another port":                 with(func(d *device) { d.rp.Origin = rpOrigin + ":8443" }),
			"an origin without TLS":        with(func(d *device) { d.rp.Origin = "http://login.example.com" }),
			"no user verification":         with(func(d *device) { d.auth.Options.UserNotVerified = true }),
			"no user":                      with(func(d *device) { d.auth.Options.UserNotPresent = true }),
			"another user handle":          with(func(d *device) { d.auth.Options.UserHandle = []byte(strings.Repeat("x", 32)) }),
			"no user handle":               with(func(d *device) { d.auth.Options.UserHandle = nil }),
			"another key":                  with(func(d *device) { d.cred.Key = newCredential().Key }),
			"an unknown passkey":           with(func(d *device) { d.cred = newCredential() }),
			"a passkey that became synced": with(func(d *device) { d.auth.Options.BackupEligible = true }),
		} {
			_, err := g.loginPasskey(keys, other)
			wantErr(t, what, err, userdb.ErrLogin)
		}
		c, err := keys.Begin()
		must(t, err)
		_, err = g.answer(keys, c.State, d.getCrossOrigin(t, c))
		wantErr(t, "a frame in another site", err, userdb.ErrLogin)
		other, err := keys.Begin()
		must(t, err)
		answer := d.get(t, c)
		_, err = g.answer(keys, other.State, answer)
		wantErr(t, "the challenge of another browser", err, userdb.ErrLogin)
		for what, state := range map[string]string{
			"no state": "", "a changed state": "A" + c.State, "a state without its signature": strings.Split(c.State, ".")[0] + ".",
			"a long state": c.State + strings.Repeat("A", 2000),
		} {
			_, err = g.answer(keys, state, answer)
			wantErr(t, what, err, userdb.ErrLogin)
		}
		_, err = g.answer(keys, c.State, append(answer, strings.Repeat(" ", passkey.MaxAnswer)...))
		wantErr(t, "a long answer", err, userdb.ErrLogin)
		_, err = g.answer(keys, c.State, []byte(`{"id":`))
		wantErr(t, "half an answer", err, userdb.ErrLogin)
		elsewhere, err := passkey.New(g.db, "user", passkey.Config{RPID: "login.example.com", Origins: []string{rpOrigin}})
		must(t, err)
		_, err = g.answer(elsewhere, c.State, answer)
		wantErr(t, "the state of another relying party", err, userdb.ErrLogin)
		registration, err := keys.BeginRegistration(ctx, session, passkey.Registration{})
		must(t, err)
		_, err = g.answer(keys, registration.State, d.get(t, registration))
		wantErr(t, "the state of a registration", err, userdb.ErrLogin)
		_, err = g.users.LoginPasskey(ctx, userdb.TOTP("123456"), userdb.Attempt{})
		wantErr(t, "a code", err, userdb.ErrLogin)
		_, err = g.users.LoginPasskey(ctx, userdb.Proof{}, userdb.Attempt{})
		wantErr(t, "nothing", err, userdb.ErrLogin)
		for _, e := range g.takeEvents() {
			if e.Kind == userdb.EventPasskeyClone {
				t.Error("a wrong answer counts as a copy")
			}
		}

		_, err = g.answer(keys, c.State, answer)
		must(t, err)
		_, err = g.answer(keys, c.State, answer)
		wantErr(t, "a replayed answer", err, userdb.ErrLogin)
		g.takeEvents()
		d.cred.Counter = 3
		_, err = g.loginPasskey(keys, d)
		wantErr(t, "a copy", err, userdb.ErrLogin)
		if events := g.takeEvents(); !slices.ContainsFunc(events, func(e userdb.Event) bool { return e.Kind == userdb.EventPasskeyClone }) {
			t.Errorf("a copy caused the events %+v, want %s among them", events, userdb.EventPasskeyClone)
		}
		d.cred.Counter = 0
		_, err = g.loginPasskey(keys, d)
		wantErr(t, "a counter that begins again", err, userdb.ErrLogin)
		d.cred.Counter = 100
		_, err = g.loginPasskey(keys, d)
		must(t, err)

		d.cred.Counter++
		c, err = keys.Begin()
		must(t, err)
		answer = d.get(t, c)
		g.advance(passkey.ChallengeLife)
		_, err = g.answer(keys, c.State, answer)
		wantErr(t, "a late answer", err, userdb.ErrLogin)
		must(t, g.users.Disable(ctx, uid("alice")))
		_, err = g.loginPasskey(keys, d)
		wantErr(t, "a disabled entry", err, userdb.ErrLogin)
		must(t, g.users.Delete(ctx, uid("alice")))
		_, err = g.loginPasskey(keys, d)
		wantErr(t, "a deleted entry", err, userdb.ErrLogin)
		if log := g.log(); strings.Contains(log, c.State) || strings.Contains(log, digestOf(d)) {
			t.Error("the log shows a state or a digest")
		}
	})
}

// TestPasskeyRegistration checks what is refused when a passkey is enrolled.
func TestPasskeyRegistration(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		_, session := g.startSession(userdb.SessionOptions{})
		for what, change := range map[string]func(d *device){
			"a wrong relying party": func(d *device) { d.rp.ID = "example.org" },
			"a wrong origin":        func(d *device) { d.rp.Origin = "https://example.org" },
			"no user verification":  func(d *device) { d.auth.Options.UserNotVerified = true },
		} {
			d := newDevice()
			change(d)
			wantErr(t, what, tryRegister(g, keys, d, session), userdb.ErrLogin)
		}
		d := newDevice()
		c, err := keys.BeginRegistration(ctx, session, passkey.Registration{})
		must(t, err)
		answer := d.create(t, c)
		_, another := g.startSession(userdb.SessionOptions{})
		_, err = keys.Register(ctx, another, c.State, answer, "", userdb.SessionOptions{})
		wantErr(t, "the challenge of another session", err, userdb.ErrLogin)
		login, err := keys.Begin()
		must(t, err)
		_, err = keys.Register(ctx, session, login.State, answer, "", userdb.SessionOptions{})
		wantErr(t, "the challenge of a sign-in", err, userdb.ErrLogin)
		g.advance(11 * time.Minute)
		_, err = keys.BeginRegistration(ctx, session, passkey.Registration{})
		wantErr(t, "a session that was verified long ago", err, userdb.ErrNotVerified)

		_, session = g.startSession(userdb.SessionOptions{})
		_, session = g.register(keys, d, session)
		g.add("bob", alicePassword)
		bob, err := g.users.Login(ctx, "bob", alicePassword, userdb.Attempt{})
		must(t, err)
		_, bobs, err := g.users.StartSession(ctx, bob, userdb.SessionOptions{})
		must(t, err)
		wantErr(t, "the passkey of another entry", tryRegister(g, keys, d, bobs), userdb.ErrDuplicate)
		if e, err := g.users.Find(ctx, uid("bob")); err != nil || len(e.FactorIDs()) != 0 {
			t.Errorf("bob has the factors %q, error %v; want none", e.FactorIDs(), err)
		}
		g.wantSession("alice's session meanwhile", session)
		for range 7 {
			_, session = g.register(keys, newDevice(), session)
		}
		_, err = keys.BeginRegistration(ctx, session, passkey.Registration{})
		wantErr(t, "a ninth passkey", err, userdb.ErrInvalid)
		_, err = g.users.ResetFactors(ctx, uid("alice"))
		must(t, err)
		e, err := g.users.Find(ctx, uid("alice"))
		if must(t, err); len(e.Texts("passkeys")) != 0 {
			t.Errorf("the digests %q are left, want none", e.Texts("passkeys"))
		}
		_, bobs, err = g.users.StartSession(ctx, bob, userdb.SessionOptions{})
		must(t, err)
		g.register(keys, d, bobs) // ResetFactors has freed it
	})
}

// TestPasskeyLast checks that a passkey cannot be removed if it is the last way to sign in.
func TestPasskeyLast(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		g.add("carol", "")
		e, err := g.users.Find(ctx, uid("carol"))
		must(t, err)
		_, session, err := g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		d, second := newDevice(), newDevice()
		_, session = g.register(keys, d, session)
		all := func() (ids []string) {
			factors, err := g.users.Factors(ctx, uid("carol"))
			must(t, err)
			for _, f := range factors {
				if f.Method == "passkey" {
					ids = append(ids, f.ID)
				}
			}
			return ids
		}
		_, err = g.users.RemoveFactor(ctx, session, all()[0], userdb.SessionOptions{})
		wantErr(t, "the only passkey", err, userdb.ErrInvalid)
		if len(all()) != 1 {
			t.Error("the only passkey was removed")
		}
		_, session = g.register(keys, second, session)
		sessions := []string{session, ""}
		e, err = g.loginPasskey(keys, d)
		must(t, err)
		_, sessions[1], err = g.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		var removed [2]error
		var group sync.WaitGroup
		for i, id := range all() {
			group.Go(func() { _, removed[i] = g.users.RemoveFactor(ctx, sessions[i], id, userdb.SessionOptions{}) })
		}
		group.Wait()
		if (removed[0] == nil) == (removed[1] == nil) || len(all()) != 1 {
			t.Errorf("two removals at once: got errors %v, and %d passkeys are left; want one of each", removed, len(all()))
		}

		// Beside a passkey, the last link may go.
		e, err = g.users.Find(ctx, uid("carol"))
		must(t, err)
		_, secret, err := g.users.StartSession(ctx, e, userdb.SessionOptions{Level: 2})
		must(t, err)
		_, err = g.users.LinkIdentity(ctx, secret, linkOf("i"))
		must(t, err)
		_, _, _, err = g.users.UnlinkIdentity(ctx, secret, linkOf("i"), userdb.UnlinkOptions{Labels: []string{"op"}})
		must(t, err)
	})
}

// TestLastUsableFactor checks that factors whose key is lost do not count as ways to sign in.
func TestLastUsableFactor(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, o := t.Context(), passkeyOptions()
		g, newer := newLoginSite(s, o), newLoginSite(s, o)
		ring, err := sealed.New(append([][]byte{bytes.Repeat([]byte("n"), 32)}, o.Keys...))
		must(t, err)
		newer.db, err = view.Reconfigure(newer.db, func(c *view.Config) { c.Keys = ring })
		must(t, err)
		g.add("alice", alicePassword)
		g.add("carol", "")
		session := func(name string) string {
			e, err := g.users.Find(ctx, uid(name))
			must(t, err)
			_, secret, err := g.users.StartSession(ctx, e, userdb.SessionOptions{Level: 2})
			must(t, err)
			return secret
		}
		ids := func(name string) (usable, lost string) {
			factors, err := g.users.Factors(ctx, uid(name))
			must(t, err)
			for _, f := range factors {
				switch {
				case f.Name == "lost":
					lost = f.ID
				case f.Method != "recovery":
					usable = f.ID
				}
			}
			return usable, lost
		}
		enrolLost := func(name string) {
			keys, d, secret := newer.passkeys(), newDevice(), session(name)
			c, err := keys.BeginRegistration(ctx, secret, passkey.Registration{})
			must(t, err)
			_, err = keys.Register(ctx, secret, c.State, d.create(t, c), "lost", userdb.SessionOptions{})
			must(t, err)
		}
		remove := func(name, id string) error {
			_, err := g.users.RemoveFactor(ctx, session(name), id, userdb.SessionOptions{})
			return err
		}

		g.register(g.passkeys(), newDevice(), session("carol"))
		enrolLost("carol")
		usable, lost := ids("carol")
		wantErr(t, "the only passkey that can be used", remove("carol", usable), userdb.ErrInvalid)
		status, err := g.users.LoginStatus(ctx, uid("carol"))
		must(t, err)
		if s := status.SecondStep; !s.Damaged || !slices.Equal(s.Usable, []string{"passkey"}) {
			t.Errorf("the second step of carol is %+v, want damaged, with a usable passkey", s)
		}
		must(t, remove("carol", lost))
		wantErr(t, "the only passkey", remove("carol", usable), userdb.ErrInvalid)

		_, _ = g.enrolIn(session("alice"))
		enrolLost("alice")
		usable, lost = ids("alice")
		wantErr(t, "the only factor that can be used", remove("alice", usable), userdb.ErrInvalid)
		must(t, remove("alice", lost))
		must(t, remove("alice", usable))

		g.add("dora", "")
		enrolLost("dora")
		status, err = g.users.LoginStatus(ctx, uid("dora"))
		must(t, err)
		if s := status.SecondStep; !s.Damaged || len(s.Usable) > 0 {
			t.Errorf("the second step of dora is %+v, want damaged, with nothing usable", s)
		}
		_, err = g.users.LinkIdentity(ctx, session("dora"), linkOf("i"))
		must(t, err)
		_, _, _, err = g.users.UnlinkIdentity(ctx, session("dora"), linkOf("i"), userdb.UnlinkOptions{})
		wantErr(t, "a link beside a passkey that cannot be used", err, userdb.ErrInvalid)
	})
}

// TestPasskeyFieldIsNew checks that a process accepts passkeys even if another process added the
// field for them to the schema after the first one started.
func TestPasskeyFieldIsNew(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		if !s.has(manyClients) {
			t.Skip("another program cannot open this store")
		}
		ctx := t.Context()
		var stale [4]*loginSite
		for i := range stale {
			stale[i] = newLoginSite(s, factorOptions())
		}
		stale[0].add("alice", alicePassword)
		more := passkeyOptions()
		more.ApplySchema = migrate.AtOpen
		g := newLoginSite(s, more)
		keys := g.passkeys()
		d, session := g.enrolDevice(keys)
		ticket := g.ticket("")
		for i, begin := range []func() (passkey.Challenge, error){
			keys.Begin,
			func() (passkey.Challenge, error) { return keys.BeginTicket(ticket) },
			func() (passkey.Challenge, error) { return keys.BeginSession(session) },
		} {
			c, err := begin()
			must(t, err)
			p, err := keys.Proof(c.State, d.get(t, c))
			must(t, err)
			switch users := stale[i].users; i {
			case 0:
				_, err = users.LoginPasskey(ctx, p, userdb.Attempt{})
			case 1:
				_, err = users.Prove(ctx, ticket, p, userdb.Attempt{})
			case 2:
				_, _, _, err = users.RaiseSession(ctx, session, p, userdb.SessionOptions{})
			}
			if err != nil {
				t.Errorf("%s: %v", []string{"LoginPasskey", "Prove", "RaiseSession"}[i], err)
			}
		}
		status, err := stale[3].users.LoginStatus(ctx, uid("alice"))
		if err != nil || !slices.Equal(status.SecondStep.Usable, []string{"passkey"}) || status.SecondStep.Damaged {
			t.Errorf("the second step is %+v, %v; want a usable passkey and no damage", status.SecondStep, err)
		}
	})
}

// TestPasskeyOrphan checks that an entry that has the digest of a passkey, but not the passkey, can
// register it again.
func TestPasskeyOrphan(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		keys := g.passkeys()
		d, _ := g.enrolDevice(keys)
		g.setMark("")
		g.add("bob", alicePassword)
		err := tryRegister(g, keys, d, g.sessionOf("bob"))
		wantErr(t, "another entry", err, userdb.ErrDuplicate)
		_, session := g.register(keys, d, g.sessionOf("alice"))
		_, err = g.loginPasskey(keys, d)
		must(t, err)
		wantErr(t, "once more", tryRegister(g, keys, d, session), userdb.ErrDuplicate)
	})
}

// TestPasskeyRaces checks that one of 20 sign-ins with one answer succeeds, that a passkey goes to
// one of two entries, and that the largest counter stays.
func TestPasskeyRaces(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		d, _ := g.enrolDevice(keys)
		for _, counter := range []uint32{0, 7} {
			d.cred.Counter = counter
			c, err := keys.Begin()
			must(t, err)
			answer := d.get(t, c)
			g.takeEvents()
			errs := atOnce(20, func(int) error { _, err := g.answer(keys, c.State, answer); return err })
			succeeded := 0
			for _, err := range errs {
				if err == nil {
					succeeded++
				} else if !errors.Is(err, userdb.ErrLogin) {
					t.Errorf("got error %v, want ErrLogin", err)
				}
			}
			if succeeded != 1 {
				t.Errorf("%d of 20 sign-ins with one answer succeeded, want 1", succeeded)
			}
			for _, e := range g.takeEvents() {
				if e.Kind == userdb.EventPasskeyClone {
					t.Error("an answer that was sent twice counts as a copy")
				}
			}
		}
		var proofs []userdb.Proof
		for i := range 10 {
			d.cred.Counter = uint32(100 + i)
			c, err := keys.Begin()
			must(t, err)
			p, err := keys.Proof(c.State, d.get(t, c))
			must(t, err)
			proofs = append(proofs, p)
		}
		atOnce(len(proofs), func(i int) error { _, err := g.users.LoginPasskey(ctx, proofs[i], userdb.Attempt{}); return err })
		_, _, r := g.readAlice()
		name := r.Factors().Passkeys()[0]
		f, err := factor.Parse(name, g.raw.HGet(ctx, "~/factor/{user/uid:alice}", name).Val())
		if must(t, err); f.Last() != 109 {
			t.Errorf("the counter is %d, want the largest, 109", f.Last())
		}

		shared := newDevice()
		var sessions [2]string
		for i, name := range []string{"bob", "carol"} {
			g.add(name, "")
			e, err := g.users.Find(ctx, uid(name))
			must(t, err)
			_, sessions[i], err = g.users.StartSession(ctx, e, userdb.SessionOptions{})
			must(t, err)
		}
		devices := [2]device{*shared, *shared}
		var challenges [2]passkey.Challenge
		var answers [2][]byte
		for i := range devices {
			challenges[i], err = keys.BeginRegistration(ctx, sessions[i], passkey.Registration{})
			must(t, err)
			answers[i] = devices[i].create(t, challenges[i])
		}
		errs := atOnce(2, func(i int) error {
			_, err := keys.Register(ctx, sessions[i], challenges[i].State, answers[i], "", userdb.SessionOptions{})
			return err
		})
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("one passkey for two entries: got errors %v, want one", errs)
		}
		winner := slices.Index(errs, nil)
		wantErr(t, "the other entry", errs[1-winner], userdb.ErrDuplicate)
		e, err := g.loginPasskey(keys, &devices[winner])
		if must(t, err); e.UID() != []string{"bob", "carol"}[winner] {
			t.Errorf("the passkey signs in to %v, want the entry that registered it", e)
		}
		_, err = g.loginPasskey(keys, &devices[1-winner])
		wantErr(t, "with the other's user handle", err, userdb.ErrLogin)
	})
}

// atOnce makes n calls at the same time, and returns their errors.
func atOnce(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		group.Go(func() { <-begin; errs[i] = call(i) })
	}
	close(begin)
	group.Wait()
	return errs
}

// TestPasskeyElsewhere checks that a state is worth nothing in another type or namespace, and that
// New refuses relying parties and origins that do not match or are not well-formed.
func TestPasskeyElsewhere(t *testing.T) {
	o := passkeyOptions()
	o.Schema.Types["admin"] = o.Schema.Types["user"]
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		keys := g.passkeys()
		admins, err := passkey.New(g.db, "admin", passkey.Config{RPID: rpID, Origins: []string{rpOrigin}})
		must(t, err)
		d, _ := g.enrolDevice(keys)
		c, err := keys.Begin()
		must(t, err)
		_, err = admins.Proof(c.State, d.get(t, c))
		wantErr(t, "another type", err, userdb.ErrLogin)
		elsewhere, err := passkey.New(g.in(space(t, "other")).db, "user", passkey.Config{RPID: rpID, Origins: []string{rpOrigin}})
		must(t, err)
		_, err = elsewhere.Proof(c.State, d.get(t, c))
		wantErr(t, "another namespace", err, userdb.ErrLogin)
		_, err = g.answer(keys, c.State, d.get(t, c))
		must(t, err)
		for what, c := range map[string]passkey.Config{
			"no relying party":   {Origins: []string{rpOrigin}},
			"no origin":          {RPID: rpID},
			"a foreign origin":   {RPID: rpID, Origins: []string{"https://notexample.com"}},
			"no TLS":             {RPID: rpID, Origins: []string{"http://example.com"}},
			"a path":             {RPID: rpID, Origins: []string{rpOrigin + "/"}},
			"a port in the RPID": {RPID: "example.com:8443", Origins: []string{rpOrigin}},
			"a URL as the RPID":  {RPID: rpOrigin, Origins: []string{rpOrigin}},
		} {
			_, err = passkey.New(g.db, "user", c)
			wantErr(t, what, err, userdb.ErrInvalid)
		}
	})
}

// TestPasskeyFailures checks that several sign-ins without an answer of a passkey cause one event.
func TestPasskeyFailures(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		g.takeEvents()
		for range 5 {
			_, err := g.users.LoginPasskey(t.Context(), userdb.Proof{}, userdb.Attempt{Origin: "192.0.2.1"})
			wantErr(t, "no answer", err, userdb.ErrLogin)
		}
		if events := g.takeEvents(); len(events) != 1 || events[0].Kind != userdb.EventFailure {
			t.Errorf("five failures caused %+v, want one event", events)
		}
	})
}

// TestExportPasskeys checks that an export with secrets contains passkeys, that their owners can
// sign in with them where the lines are imported, and that a line is refused if it lacks the value
// by which a passkey is found.
func TestExportPasskeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		root := newLoginSite(s, passkeyOptions())
		g := root.in(space(t, "from"))
		g.add("alice", alicePassword)
		d, _ := g.enrolDevice(g.passkeys())
		var b strings.Builder
		_, err := transfer.Export(ctx, g.db, &b, transfer.ExportOptions{Secrets: true})
		must(t, err)
		load := func(to string, o transfer.ImportOptions) (*loginSite, transfer.Report, string) {
			t.Helper()
			c, reason := root.in(space(t, to)), ""
			o.Refused = func(_ int64, why string) { reason = why }
			r, err := transfer.Import(ctx, c.db, strings.NewReader(b.String()), o)
			must(t, err)
			return c, r, reason
		}
		c, r, why := load("to", transfer.ImportOptions{})
		if r.Created != 1 {
			t.Fatalf("imported %+v, refused for %q; want 1 created", r, why)
		}
		c.now = g.clock()
		_, err = c.loginPasskey(c.passkeys(), d)
		must(t, err)
		secret := b.String()
		b.Reset()
		_, err = transfer.Export(ctx, g.db, &b, transfer.ExportOptions{})
		must(t, err)
		if strings.Contains(b.String(), digestOf(d)) || !strings.Contains(b.String(), `"second_factor":true`) {
			t.Errorf("an export without secrets is %s, want second_factor and no digest of a passkey", &b)
		}
		b.Reset()
		b.WriteString(secret)
		if _, r, why := load("other", transfer.ImportOptions{Ignore: []string{"passkeys"}}); r.Refused != 1 || !strings.Contains(why, "without the value") {
			t.Errorf("without the digest: got %+v, refused for %q; want it refused for the missing value", r, why)
		}
	})
}
