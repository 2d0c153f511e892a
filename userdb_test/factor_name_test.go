package userdb_test

import (
	"bytes"
	"encoding/base32"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/userdb"
)

// TestFactorNames checks, for every kind of factor that has a name, that a name of more than 64
// bytes is refused, not cut. A name of 64 bytes must be stored as it is, and invalid UTF-8 must be
// replaced.
func TestFactorNames(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		longest := strings.Repeat("ä", 32)
		wantName := func(what string, err error) {
			t.Helper()
			field, ok := errors.AsType[*userdb.FieldError](err)
			if !ok || !errors.Is(err, userdb.ErrInvalid) || field.Field != "factor" || field.Rule != "name" || !strings.Contains(field.Reason, "64 bytes") {
				t.Errorf("%s: got %v, want an ErrInvalid about the name", what, err)
			}
		}
		_, session := g.startSession(userdb.SessionOptions{})
		for _, name := range []string{longest + "x", longest + "ä", strings.Repeat("x", 63) + "ä", strings.Repeat("x", 65)} {
			_, err := g.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{Name: name})
			wantName("an app", err)
			_, err = keys.BeginRegistration(ctx, session, passkey.Registration{Name: name})
			wantName("a challenge", err)
			c, err := keys.BeginRegistration(ctx, session, passkey.Registration{})
			must(t, err)
			_, err = keys.Register(ctx, session, c.State, newDevice().create(t, c), name, userdb.SessionOptions{})
			wantName("a passkey", err)
		}
		d := newDevice()
		c, err := keys.BeginRegistration(ctx, session, passkey.Registration{Name: longest})
		must(t, err)
		done, err := keys.Register(ctx, session, c.State, d.create(t, c), "", userdb.SessionOptions{})
		must(t, err)
		enrolment, err := g.users.EnrolTOTP(ctx, done.Secret, userdb.TOTPOptions{Name: "x\xff\xffä"})
		must(t, err)
		a := &app{g: g}
		a.secret, err = base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(enrolment.Secret)
		must(t, err)
		_, err = g.users.ConfirmTOTP(ctx, done.Secret, enrolment.ID, a.code(), userdb.SessionOptions{})
		must(t, err)
		all, err := g.users.Factors(ctx, uid("alice"))
		must(t, err)
		var names []string
		for _, f := range all {
			if names = append(names, f.Name); !utf8.ValidString(f.Name) {
				t.Errorf("the name %q is not valid UTF-8", f.Name)
			}
		}
		if got, want := strings.Join(names, " "), longest+" x\ufffdä "; got != want {
			t.Errorf("got the names %q, want %q", got, want)
		}
	})
}

// TestRotateKeysWhileEnrolling rotates the keys while an app is being enrolled. A program that
// still has the old key must be able to confirm the app, and for a program without that key the
// enrolment must have expired.
func TestRotateKeysWhileEnrolling(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		if !s.has(manyClients) {
			t.Skip("another program cannot open this store")
		}
		ctx := t.Context()
		open := func(letters string) *loginSite {
			o := factorOptions()
			o.Keys = nil
			for _, l := range letters {
				o.Keys = append(o.Keys, bytes.Repeat([]byte(string(l)), 32))
			}
			return newLoginSite(s, o)
		}
		g := open("a")
		g.add("alice", alicePassword)
		_, session := g.startSession(userdb.SessionOptions{})
		e, err := g.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{})
		must(t, err)
		a := &app{g: g}
		a.secret, err = base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(e.Secret)
		must(t, err)
		confirm := func(letters string) error {
			t.Helper()
			other := open(letters)
			other.now = g.clock()
			_, err := other.users.ConfirmTOTP(ctx, session, e.ID, a.code(), userdb.SessionOptions{})
			return err
		}
		n, err := open("ba").users.RotateKeys(ctx)
		if must(t, err); n != 0 {
			t.Errorf("%d secrets were rotated, want none", n)
		}
		wantErr(t, "without the old key", confirm("b"), userdb.ErrNotFound)
		must(t, confirm("ba"))
		n, err = open("b").users.RotateKeys(ctx) // confirming encrypted it with the new key
		if must(t, err); n != 0 {
			t.Errorf("%d secrets were rotated after it was confirmed, want none", n)
		}
	})
}
