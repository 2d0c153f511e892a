// Package passkey lets people sign in with passkeys (WebAuthn Level 3). It makes the challenges for
// browsers and verifies the answers; package userdb stores the passkeys of entries as second
// factors. Making a challenge stores nothing; a used one is remembered until it would have expired.
//
// Each ceremony has two calls. Begin, BeginTicket, BeginSession and BeginRegistration return a
// Challenge: options for the browser, and a State that must come back with the answer, such as in a
// cookie (SetState). Proof turns an answer into a userdb.Proof for LoginPasskey, Prove or
// RaiseSession, and Register enrols a passkey. Script holds the part that runs in the browser.
//
//	users, err := db.Type("user")
//	keys, err := passkey.New(db, "user", passkey.Config{
//		RPID: "example.com", Name: "Example", Origins: []string{"https://example.com"},
//	})
//	challenge, err := keys.Begin()                          // a page asks for a challenge
//	proof, err := keys.Proof(state, answer)                 // and sends the answer
//	e, err := users.LoginPasskey(ctx, proof, userdb.Attempt{Origin: address})
//
// The schema needs "factors": true and a field for digests of passkeys:
//
//	"passkeys": {"role": "secondary", "typed": false, "many": 8}
//
// docs/passkeys.md says what a passkey proves, what is refused, and which limits there are.
package passkey
