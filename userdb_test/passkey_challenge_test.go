package userdb_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/userdb"
)

// TestPasskeyChallenges checks that challenges of all kinds have 256 bits and do not recur.
func TestPasskeyChallenges(t *testing.T) {
	eachLoginSite(t, passkeyOptions(), func(t *testing.T, g *loginSite) {
		keys := g.passkeys()
		_, session := g.startSession(userdb.SessionOptions{})
		seen := map[string]bool{}
		for range 50 {
			for kind, begin := range map[string]func() (passkey.Challenge, error){
				"Begin":        keys.Begin,
				"BeginTicket":  func() (passkey.Challenge, error) { return keys.BeginTicket("ticket") },
				"BeginSession": func() (passkey.Challenge, error) { return keys.BeginSession(session) },
				"BeginRegistration": func() (passkey.Challenge, error) {
					return keys.BeginRegistration(t.Context(), session, passkey.Registration{})
				},
			} {
				c, err := begin()
				must(t, err)
				var options struct {
					PublicKey struct{ Challenge string } `json:"publicKey"`
				}
				must(t, json.Unmarshal(c.Options, &options))
				bytes, err := base64.RawURLEncoding.DecodeString(options.PublicKey.Challenge)
				if err != nil || len(bytes) != 32 {
					t.Errorf("%s: a challenge of %d bytes, %v; want 32", kind, len(bytes), err)
				}
				if seen[options.PublicKey.Challenge] {
					t.Errorf("%s: a challenge came twice", kind)
				}
				seen[options.PublicKey.Challenge] = true
			}
		}
	})
}
