// Package oidc lets the visitors of a web.Flows sign in with other providers, by OpenID Connect:
// with the authorization code flow, PKCE, state, nonce, and a redirect URI for each provider.
//
//	signIn := &oidc.SignIn{Flows: flows, Keys: keys, Providers: []oidc.Provider{{
//		Name: "example", Issuer: "https://id.example.com", ClientID: "…", ClientSecret: "…",
//	}}}
//	flows.Register(mux)
//	err := signIn.Register(mux)
//
// An identity is an issuer with a subject, never an address. It signs in to the account that it is
// linked to; owners link it while they are signed in. docs/oidc.md says what happens to other
// identities.
package oidc
