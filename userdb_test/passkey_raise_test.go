package userdb_test

import (
	"testing"

	"github.com/coffeenode/userdb/userdb"
)

// TestPasskeyRaisesOnce checks that only one of 20 callers with the same answer of a passkey raises
// a session, whether or not the passkey counts its answers.
func TestPasskeyRaisesOnce(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		ctx, keys := t.Context(), g.passkeys()
		d, session := g.enrolDevice(keys)
		for _, counter := range []uint32{0, 7} {
			d.cred.Counter = counter
			c, err := keys.BeginSession(session)
			must(t, err)
			p, err := keys.Proof(c.State, d.get(t, c))
			must(t, err)
			raised := make([]string, 20)
			errs := atOnce(len(raised), func(i int) (err error) {
				_, _, raised[i], err = g.users.RaiseSession(ctx, session, p, userdb.SessionOptions{})
				return err
			})
			succeeded, old := 0, session
			for i, err := range errs {
				if err == nil {
					succeeded, session = succeeded+1, raised[i]
				}
			}
			if succeeded != 1 {
				t.Fatalf("%d of %d callers raised a session with one answer, want 1: %v", succeeded, len(raised), errs)
			}
			g.wantEnded("the session that was raised", old)
			if s := g.wantSession("the new session", session); s.Level() != 2 {
				t.Errorf("the new session has level %d, want 2", s.Level())
			}
		}
	})
}
