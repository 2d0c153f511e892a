package userdb_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/userdb"
)

// createCrossOrigin answers a challenge for a new passkey as create does, but without an
// attestation. crossOrigin is true if the page that asks is a frame in a page of another site.
func (d *device) createCrossOrigin(t *testing.T, c passkey.Challenge, crossOrigin bool) []byte {
	t.Helper()
	return d.createKey(t, c, crossOrigin, "\x63fmt\x64none\x67attStmt\xa0", d.cred.Key.AttestationData())
}

// createKey does what createCrossOrigin does, with the given encodings of an attestation and of a
// public key.
func (d *device) createKey(t *testing.T, c passkey.Challenge, crossOrigin bool, attestation string, key []byte) []byte {
	t.Helper()
	var options struct {
		PublicKey struct{ Challenge string } `json:"publicKey"`
	}
	must(t, json.Unmarshal(c.Options, &options))
	client, err := json.Marshal(map[string]any{
		"type": "webauthn.create", "challenge": options.PublicKey.Challenge, "origin": d.rp.Origin,
		"crossOrigin": crossOrigin,
	})
	must(t, err)
	rp := sha256.Sum256([]byte(d.rp.ID))
	data := binary.BigEndian.AppendUint32(append(rp[:], 0x45), d.cred.Counter)
	data = append(data, d.auth.Aaguid[:]...)
	data = binary.BigEndian.AppendUint16(data, uint16(len(d.cred.ID)))
	data = append(append(data, d.cred.ID...), key...)
	object := binary.BigEndian.AppendUint16([]byte("\xa3"+attestation+"\x68authData\x59"), uint16(len(data)))
	text := base64.RawURLEncoding.EncodeToString
	answer, err := json.Marshal(map[string]any{
		"type": "public-key", "id": text(d.cred.ID), "rawId": text(d.cred.ID), "response": map[string]string{
			"attestationObject": text(append(object, data...)), "clientDataJSON": text(client),
		},
	})
	must(t, err)
	return answer
}

// rsaKey returns a public RSA key for PS256, in COSE, with a modulus of n bytes.
func rsaKey(n int) []byte {
	key := binary.BigEndian.AppendUint16([]byte("\xa4\x01\x03\x03\x38\x24\x20\x59"), uint16(n))
	return append(append(key, bytes.Repeat([]byte{0xff}, n)...), "\x21\x43\x01\x00\x01"...)
}

// TestPasskeyKeySizes checks that nobody enrols a key with which every answer takes long to verify,
// and that an attestation, which is what an authenticator says about itself, is not verified:
// verifying it could take as long.
func TestPasskeyKeySizes(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		_, session := g.startSession(userdb.SessionOptions{})
		const none = "\x63fmt\x64none\x67attStmt\xa0"
		packed := "\x63fmt\x66packed\x67attStmt\xa3\x63alg\x26\x63sig\x41\x00\x63x5c\x81\x41\x00"
		for _, tt := range []struct {
			name, attestation string
			key               func(d *device) []byte
			refused           bool
		}{
			{"a modulus of 4,104 bits", none, func(*device) []byte { return rsaKey(513) }, true},
			{"a modulus of 320,000 bits", none, func(*device) []byte { return rsaKey(40_000) }, true},
			{"no key", none, func(*device) []byte { return []byte("\xa0") }, true},
			{"a modulus of 4,096 bits", none, func(*device) []byte { return rsaKey(512) }, false},
			{"an attestation", packed, func(d *device) []byte { return d.cred.Key.AttestationData() }, false},
		} {
			d := newDevice()
			c, err := keys.BeginRegistration(ctx, session, passkey.Registration{})
			must(t, err)
			done, err := keys.Register(ctx, session, c.State, d.createKey(t, c, false, tt.attestation, tt.key(d)), "", userdb.SessionOptions{})
			if tt.refused {
				wantErr(t, tt.name, err, userdb.ErrLogin)
			} else if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			if done.Secret != "" {
				session = done.Secret
			}
		}
	})
}

// TestPasskeyRegistrationRefused checks that no answer enrols a passkey except the right one.
func TestPasskeyRegistrationRefused(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		_, session := g.startSession(userdb.SessionOptions{})
		begin := func() passkey.Challenge {
			t.Helper()
			c, err := keys.BeginRegistration(ctx, session, passkey.Registration{})
			must(t, err)
			return c
		}
		register := func(c passkey.Challenge, answer []byte) error {
			done, err := keys.Register(ctx, session, c.State, answer, "", userdb.SessionOptions{})
			if err == nil {
				session = done.Secret
			}
			return err
		}
		c, other, d := begin(), begin(), newDevice()
		wantErr(t, "a frame in another site", register(c, d.createCrossOrigin(t, c, true)), userdb.ErrLogin)
		wantErr(t, "the challenge of another page", register(other, d.create(t, c)), userdb.ErrLogin)
		long := append(d.create(t, c), strings.Repeat(" ", passkey.MaxAnswer)...)
		wantErr(t, "a long answer", register(c, long), userdb.ErrLogin)
		big := newDevice()
		big.cred.ID = make([]byte, 1024)
		wantErr(t, "a credential ID of 1,024 bytes", register(c, big.create(t, c)), userdb.ErrLogin)
		must(t, register(c, d.createCrossOrigin(t, c, false)))
	})
}

// TestPasskeyOptions checks what browsers are asked for.
func TestPasskeyOptions(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		keys := g.passkeys()
		d, session := g.enrolDevice(keys)
		var options struct {
			PublicKey struct {
				UserVerification       string
				AuthenticatorSelection struct{ ResidentKey, UserVerification string }
				ExcludeCredentials     []struct{ ID string }
			} `json:"publicKey"`
		}
		c, err := keys.BeginRegistration(t.Context(), session, passkey.Registration{})
		must(t, err)
		must(t, json.Unmarshal(c.Options, &options))
		if s := options.PublicKey.AuthenticatorSelection; s.ResidentKey != "required" || s.UserVerification != "required" {
			t.Errorf("a registration asks for %+v, want a resident key and user verification", s)
		}
		excluded := options.PublicKey.ExcludeCredentials
		if len(excluded) != 1 || excluded[0].ID != base64.RawURLEncoding.EncodeToString(d.cred.ID) {
			t.Errorf("a registration excludes %v, want the passkey of the entry", excluded)
		}
		c, err = keys.Begin()
		must(t, err)
		must(t, json.Unmarshal(c.Options, &options))
		if options.PublicKey.UserVerification != "required" {
			t.Errorf("a sign-in asks for user verification %q, want required", options.PublicKey.UserVerification)
		}
	})
}

// TestPasskeyFirstCounter checks that the counter of a registration is compared with that of the
// first sign-in.
func TestPasskeyFirstCounter(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		keys := g.passkeys()
		_, session := g.startSession(userdb.SessionOptions{})
		d := newDevice()
		d.cred.Counter = 9
		g.register(keys, d, session)
		d.cred.Counter = 5
		_, err := g.loginPasskey(keys, d)
		wantErr(t, "a counter below that of the registration", err, userdb.ErrLogin)
		d.cred.Counter = 10
		_, err = g.loginPasskey(keys, d)
		must(t, err)
	})
}

// TestPasskeySpent checks that an answer is still refused at a time when the mark of its use may be
// forgotten, and that logins to an entry with too many marks have to wait until a mark is
// forgotten.
func TestPasskeySpent(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		d, _ := g.enrolDevice(keys)
		c, err := keys.Begin()
		must(t, err)
		old, err := keys.Proof(c.State, d.get(t, c))
		must(t, err)
		g.advance(passkey.ChallengeLife + time.Hour)
		_, err = g.users.LoginPasskey(ctx, old, userdb.Attempt{})
		wantErr(t, "an answer that is an hour too old", err, userdb.ErrLogin)

		const record = "~/factor/{user/uid:alice}"
		until := g.clock().Add(time.Minute).UnixMilli()
		for i := range factor.MaxSpentAnswers {
			must(t, g.raw.HSet(ctx, record, fmt.Sprintf("spent/%d", i), fmt.Sprintf("%d x", until)).Err())
		}
		_, err = g.loginPasskey(keys, d)
		var wait *userdb.WaitError
		if !errors.As(err, &wait) || wait.Wait > time.Minute {
			t.Errorf("one sign-in too many: got error %v, want a wait of up to a minute", err)
		}
		g.advance(time.Minute)
		_, err = g.loginPasskey(keys, d)
		must(t, err)
		names, err := g.raw.HKeys(ctx, record).Result()
		must(t, err)
		count := func(prefix string) (n int) {
			for _, name := range names {
				if strings.HasPrefix(name, prefix) {
					n++
				}
			}
			return n
		}
		if count("spent/") != 1 || count("origin/") != 1 {
			t.Errorf("the record has %d marks and %d origins, want 1 of each", count("spent/"), count("origin/"))
		}
	})
}

// TestPasskeyConfig checks that capitals in the RPID, and fields that cannot hold passkeys, are
// refused by New or by the first registration.
func TestPasskeyConfig(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		for what, c := range map[string]passkey.Config{
			"capitals":      {RPID: "Example.com", Origins: []string{"https://login.Example.com"}},
			"a typed field": {RPID: rpID, Origins: []string{rpOrigin}, Field: "email"},
			"no field":      {RPID: rpID, Origins: []string{rpOrigin}, Field: "nothing"},
		} {
			keys, err := passkey.New(g.db, "user", c)
			if err == nil {
				_, session := g.startSession(userdb.SessionOptions{})
				_, err = keys.BeginRegistration(t.Context(), session, passkey.Registration{})
			}
			wantErr(t, what, err, userdb.ErrInvalid)
		}
	})
}

// TestPasskeyKeys checks that a state stays valid when a new key is put first, and that passkeys
// cannot be used without keys.
func TestPasskeyKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		o := passkeyOptions()
		g := newLoginSite(s, o)
		g.add("alice", alicePassword)
		d, _ := g.enrolDevice(g.passkeys())
		c, err := g.passkeys().Begin()
		must(t, err)
		o.Keys = append([][]byte{bytes.Repeat([]byte("n"), 32)}, o.Keys...)
		rotated := newLoginSite(s, o)
		_, err = rotated.answer(rotated.passkeys(), c.State, d.get(t, c))
		must(t, err)
		o.Keys = nil
		db := newLoginSite(s, o).db
		if db.HasKeys() {
			return // an embedded store has keys of its own
		}
		_, err = passkey.New(db, "user", passkey.Config{RPID: rpID, Origins: []string{rpOrigin}})
		wantErr(t, "no keys", err, userdb.ErrInvalid)
	})
}

// TestPasskeyStateCookie checks that a browser keeps a state for one answer.
func TestPasskeyStateCookie(t *testing.T) {
	w := httptest.NewRecorder()
	passkey.SetState(w, passkey.Challenge{State: "x.y"})
	kept := w.Result().Cookies()
	if len(kept) != 1 || !kept[0].Secure || !kept[0].HttpOnly || kept[0].SameSite != http.SameSiteStrictMode ||
		!strings.HasPrefix(kept[0].Name, "__Host-") || kept[0].Path != "/" {
		t.Fatalf("SetState set %v, want one __Host- cookie that is Secure, HttpOnly and SameSite=Strict", kept)
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.AddCookie(kept[0])
	w = httptest.NewRecorder()
	if state := passkey.State(w, r); state != "x.y" {
		t.Errorf("got the state %q, want x.y", state)
	}
	if gone := w.Result().Cookies(); len(gone) != 1 || gone[0].Name != kept[0].Name || gone[0].MaxAge >= 0 {
		t.Errorf("State set %v, want the cookie removed", gone)
	}
}
