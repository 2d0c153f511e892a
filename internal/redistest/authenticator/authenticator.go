// Package authenticator answers challenges for passkeys as a browser and its authenticator do. It
// is for tests only.
package authenticator

import (
	"encoding/base64"
	"encoding/json"

	"github.com/descope/virtualwebauthn"
)

// A Device is an authenticator with one passkey, together with its browser. Tests change its parts
// to make wrong answers.
type Device struct {
	RP   virtualwebauthn.RelyingParty
	Auth virtualwebauthn.Authenticator
	Cred virtualwebauthn.Credential
}

// New returns a device for pages of an origin.
func New(rpID, origin string) *Device {
	return &Device{
		RP:   virtualwebauthn.RelyingParty{ID: rpID, Name: rpID, Origin: origin},
		Auth: virtualwebauthn.NewAuthenticator(), Cred: NewCredential(),
	}
}

// NewCredential returns a credential whose public key has two coordinates of 32 bytes each. In one
// of 128 credentials, virtualwebauthn omits the leading zero of a coordinate, and then no signature
// is valid.
func NewCredential() virtualwebauthn.Credential {
	const keyBytes = 77 // of a COSE key on the curve P-256
	for {
		if c := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2); len(c.Key.AttestationData()) == keyBytes {
			return c
		}
	}
}

// With returns a copy of the device, changed by change.
func (d *Device) With(change func(d *Device)) *Device {
	other := *d
	change(&other)
	return &other
}

// Create returns the answer to a challenge for a new passkey. The challenge is JSON with the member
// publicKey.
func (d *Device) Create(challenge string) (answer string, err error) {
	o, err := virtualwebauthn.ParseAttestationOptions(challenge)
	if err != nil {
		return "", err
	}
	var wire struct {
		PublicKey struct {
			User struct{ ID string }
		}
	}
	if err := json.Unmarshal([]byte(challenge), &wire); err != nil {
		return "", err
	}
	if d.Auth.Options.UserHandle, err = base64.RawURLEncoding.DecodeString(wire.PublicKey.User.ID); err != nil {
		return "", err
	}
	return virtualwebauthn.CreateAttestationResponse(d.RP, d.Auth, d.Cred, *o), nil
}

// Get answers a challenge with the passkey.
func (d *Device) Get(challenge string) (answer string, err error) {
	o, err := virtualwebauthn.ParseAssertionOptions(challenge)
	if err != nil {
		return "", err
	}
	return virtualwebauthn.CreateAssertionResponse(d.RP, d.Auth, d.Cred, *o), nil
}
