package transfer_test

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/maintain/transfer"
)

// TestKeycloakVersions imports an account with credentials of different versions of Keycloak. The
// password was hashed with Python's hashlib. Keycloak itself reads a credential without an
// algorithm, or with that of one-time passwords, as "pbkdf2".
func TestKeycloakVersions(t *testing.T) {
	const (
		old = `"type":"password","salt":"AQIDBAUGBwgJCgsMDQ4PEA==","hashIterations":1000,"hashedSaltedValue":` +
			`"Hbe7QdY1Aya8W0EcSvYUtVurKggNYyh3FFSjw8B4uIk8DkVDhlHKPGYf63MfOmBPoQy3DISBx8YxIx/0B2ZpDA=="`
		totp = `{"type":"totp","hashedSaltedValue":"not base64","algorithm":"HmacSHA1","digits":6,"period":30,"counter":0}`
	)
	for _, tt := range []struct {
		name, credentials string
		secondFactor      int64
	}{
		{"without an algorithm", `{` + old + `}`, 0},
		{"with the algorithm of one-time passwords", `{` + old + `,"algorithm":"HmacSHA1"}`, 0},
		{"beside a one-time password", totp + `,{` + old + `,"algorithm":"pbkdf2"}`, 1},
		{
			"beside earlier passwords",
			`{` + old + `,"algorithm":"pbkdf2"},{"type":"password-history","secretData":"{\"value\":\"AAAA\",\"salt\":\"AAAA\"}","credentialData":"{\"hashIterations\":1}"}`, 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *site) {
				in := `{"users":[{"id":"1","username":"anna","credentials":[` + tt.credentials + `]}]}`
				report, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in), transfer.ImportOptions{From: "keycloak"})
				if want := (transfer.Report{Read: 1, Created: 1, SecondFactor: tt.secondFactor}); report != want || err != nil {
					t.Errorf("got %+v, %v; want %+v", report, err, want)
				}
				s.requireLogin(t, "anna", "Sommerhaus-2024", true)
			})
		})
	}
}
