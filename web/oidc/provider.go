package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A Provider describes an OpenID provider, and this site as its client.
type Provider struct {
	// Name is part of paths and is stored with each link, so it must never change. It consists of
	// up to 32 lower-case letters, digits and hyphens.
	Name string
	// Label is the name for visitors. If "", it is Name.
	Label string
	// Issuer is the provider's identifier, exactly as in its metadata. It begins with https://, or
	// with http:// for a provider on this machine.
	Issuer string
	// ClientID and ClientSecret identify this site to the provider. A public client has no secret.
	// The redirect URI to register there is Flows.Base, Flows.Paths.With, Name and /callback:
	// https://example.com/signin/with/NAME/callback.
	ClientID, ClientSecret string
	// Scopes are requested besides openid. If nil, email is requested.
	Scopes []string
	// Domains are the mail domains whose addresses the provider itself assigns, so that its word
	// proves who has one. A new visitor with any other address has to prove it by a mail.
	Domains []string
	// MaxAge, if not zero, is how long ago the visitor may have signed in to the provider.
	// Otherwise a session that is open there is enough.
	MaxAge time.Duration
}

// Limits on what providers answer.
const (
	maxAnswer      = 256 << 10        // bytes
	answerTimeout  = 10 * time.Second // for each request, and for all of one sign-in
	maxWaiting     = 32               // sign-ins that wait for one provider, or for its metadata
	maxSubject     = 255              // as the specification says
	metadataAge    = 24 * time.Hour   // after which the metadata is read again
	firstBackOff   = time.Second      // after a failure to read it
	longestBackOff = 5 * time.Minute
)

// A remote is a provider together with its metadata.
type remote struct {
	Provider
	redirectURI string
	client      *http.Client
	now         func() time.Time
	exchanges   chan struct{} // holds an element for each sign-in that waits for the provider
	readers     chan struct{} // the same for requests that wait for its metadata

	mu       sync.Mutex
	known    *metadata
	failures int
	again    time.Time     // when to read the metadata again
	reading  chan struct{} // closed when it was read; nil if nobody reads it
}

// metadata holds what a provider says about itself.
type metadata struct {
	config    oauth2.Config
	provider  *oidc.Provider
	verifier  *oidc.IDTokenVerifier
	namesSelf bool // answers have the parameter iss of RFC 9207
}

var validName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// newRemote returns the remote of a provider. It returns an error if the configuration of the
// provider is not valid.
func newRemote(p Provider, base string, client *http.Client, now func() time.Time) (*remote, error) {
	switch {
	case !validName.MatchString(p.Name):
		return nil, fmt.Errorf("oidc: %q is not a valid name of a provider", p.Name)
	case p.ClientID == "":
		return nil, fmt.Errorf("oidc: provider %s has no client ID", p.Name)
	}
	if err := checkURL(p.Issuer, true); err != nil {
		return nil, fmt.Errorf("oidc: the issuer of provider %s: %w", p.Name, err)
	}
	if p.Label == "" {
		p.Label = p.Name
	}
	if p.Scopes == nil {
		p.Scopes = []string{oidc.ScopeEmail}
	}
	return &remote{
		Provider: p, redirectURI: base + "/" + p.Name + "/callback", client: client, now: now, exchanges: make(chan struct{}, maxWaiting),
		readers: make(chan struct{}, maxWaiting),
	}, nil
}

// checkURL returns an error unless secrets may be sent to a URL. Without TLS they may be sent only
// to this machine, and only if local is set.
func checkURL(text string, local bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return errors.New("not a URL of a server")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && local && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return nil
	}
	return errors.New("not an https URL")
}

// newClient returns a client that limits the duration and the size of answers, and follows no
// redirects.
func newClient(base http.RoundTripper) *http.Client {
	if base == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxResponseHeaderBytes = 64 << 10
		base = t
	}
	return &http.Client{
		Transport: limitedTransport{base}, Timeout: answerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A limitedTransport returns answers that cannot be read beyond maxAnswer bytes.
type limitedTransport struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.base.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// errAway means that a provider does not answer, or answers nothing that can be used.
var errAway = fmt.Errorf("the other provider is not available: %w", userdb.ErrUnavailable)

// metadata returns what the provider says about itself, as it was last read, even if newer metadata
// is being read or cannot be read. If it has never been read, metadata waits until it is. It
// returns errAway at once for a while after a failure, or if maxWaiting callers already wait.
func (p *remote) metadata(ctx context.Context) (*metadata, error) {
	p.mu.Lock()
	if now := p.now(); p.reading == nil && !now.Before(p.again) {
		p.reading = make(chan struct{})
		go p.discover(p.reading)
	}
	known, reading := p.known, p.reading
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	if reading != nil {
		select {
		case p.readers <- struct{}{}:
			defer func() { <-p.readers }()
		default:
			return nil, errAway
		}
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, errAway
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return nil, errAway
	}
	return p.known, nil
}

// discover reads the metadata and closes done. It goes on when the request that started it ends.
func (p *remote) discover(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	found, err := p.read(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading = nil; err != nil {
		wait := min(firstBackOff<<min(p.failures, 20), longestBackOff)
		p.failures++
		p.again = p.now().Add(wait)
		p.warn(ctx, "the metadata of a provider cannot be read", err)
	} else {
		p.known, p.failures, p.again = found, 0, p.now().Add(metadataAge)
	}
	close(done)
}

func (p *remote) read(ctx context.Context) (*metadata, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.Issuer)
	if err != nil {
		return nil, err
	}
	var extra struct {
		JWKS      string   `json:"jwks_uri"`
		Methods   []string `json:"token_endpoint_auth_methods_supported"`
		NamesSelf bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := provider.Claims(&extra); err != nil {
		return nil, err
	}
	endpoint, local := provider.Endpoint(), strings.HasPrefix(p.Issuer, "http:")
	for name, text := range map[string]string{"authorization_endpoint": endpoint.AuthURL, "token_endpoint": endpoint.TokenURL, "jwks_uri": extra.JWKS} {
		if err := checkURL(text, local); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if text := provider.UserInfoEndpoint(); text != "" {
		if err := checkURL(text, local); err != nil {
			return nil, fmt.Errorf("userinfo_endpoint: %w", err)
		}
	}
	// By default, clients use basic authentication. Trying both ways would send the code twice.
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	if p.ClientSecret == "" || len(extra.Methods) > 0 && !slices.Contains(extra.Methods, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &metadata{
		provider: provider, namesSelf: extra.NamesSelf,
		verifier: provider.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.now}),
		config: oauth2.Config{
			ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: endpoint, RedirectURL: p.redirectURI,
			Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...),
		},
	}, nil
}

// authURL returns the URL to which the browser goes for an attempt.
func (p *remote) authURL(ctx context.Context, a attempt) (string, error) {
	m, err := p.metadata(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)}
	if p.MaxAge > 0 {
		options = append(options, oauth2.SetAuthURLParam("max_age", fmt.Sprint(int64(p.MaxAge/time.Second))))
	}
	return m.config.AuthCodeURL(a.State, options...), nil
}

// Claims hold what a provider says about a visitor. Only Issuer and Subject say who it is.
type Claims struct {
	Issuer, Subject string
	Email           string
	EmailVerified   bool   // the provider says so
	HostedDomain    string // from Google: the domain of the organization that has the account
	Name            string
}

// identity returns what a link holds: the SHA-256 of issuer and subject. Subjects that differ only
// in case belong to different people, so the text itself could not be compared as other values are.
func (c Claims) identity() string {
	sum := sha256.Sum256([]byte(c.Issuer + "\x00" + c.Subject))
	return hex.EncodeToString(sum[:])
}

// A refusedError means that an answer of a provider is not accepted. Its text is for the log.
type refusedError string

func (e refusedError) Error() string { return "refused: " + string(e) }

// exchange exchanges a code for the claims of the visitor who began the attempt.
func (p *remote) exchange(ctx context.Context, a attempt, code string) (Claims, error) {
	select {
	case p.exchanges <- struct{}{}:
		defer func() { <-p.exchanges }()
	default:
		return Claims{}, errAway
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), answerTimeout)
	defer cancel()
	m, err := p.metadata(ctx)
	if err != nil {
		return Claims{}, err
	}
	tokens, err := m.config.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Claims{}, exchangeError(err)
	}
	text, _ := tokens.Extra("id_token").(string)
	if text == "" {
		return Claims{}, refusedError("the answer has no ID token")
	}
	token, err := m.verifier.Verify(ctx, text)
	if err != nil {
		return Claims{}, refusedError(err.Error())
	}
	c, err := p.claims(a, token)
	if err != nil {
		return Claims{}, err
	}
	if c.Email == "" && slices.Contains(p.Scopes, oidc.ScopeEmail) && m.provider.UserInfoEndpoint() != "" {
		p.addUserInfo(ctx, m, tokens, &c)
	}
	return c, nil
}

// exchangeError returns errAway if a provider did not answer or failed, and a refusedError if it
// refused the code.
func exchangeError(err error) error {
	refused, is := errors.AsType[*oauth2.RetrieveError](err)
	if !is || refused.Response == nil {
		return fmt.Errorf("%w: %w", errAway, err)
	}
	// The body may repeat what was sent, so it does not belong in a log.
	if status := refused.Response.StatusCode; status >= 500 {
		return fmt.Errorf("%w: the code: status %d", errAway, status)
	}
	return refusedError(fmt.Sprintf("the code: status %d, %.64q", refused.Response.StatusCode, refused.ErrorCode))
}

// tokenClaims are the claims of an ID token that the library does not check.
type tokenClaims struct {
	AuthorizedParty string   `json:"azp"`
	AuthTime        float64  `json:"auth_time"`
	Email           string   `json:"email"`
	EmailVerified   flexBool `json:"email_verified"`
	HostedDomain    string   `json:"hd"`
	Name            string   `json:"name"`
}

// claims returns the claims of an ID token after the checks that the library leaves out. The
// library has checked the signature, issuer, audience and times.
func (p *remote) claims(a attempt, token *oidc.IDToken) (Claims, error) {
	var t tokenClaims
	if err := token.Claims(&t); err != nil {
		return Claims{}, refusedError("the claims of the ID token cannot be read")
	}
	switch {
	case !equal(token.Nonce, a.Nonce):
		return Claims{}, refusedError("the ID token has another nonce")
	case t.AuthorizedParty != "" && t.AuthorizedParty != p.ClientID, t.AuthorizedParty == "" && len(token.Audience) > 1:
		return Claims{}, refusedError("the ID token is for another client")
	case token.Subject == "" || len(token.Subject) > maxSubject:
		return Claims{}, refusedError("the ID token has no subject, or one of over 255 bytes")
	case p.MaxAge > 0 && p.now().Sub(time.Unix(int64(t.AuthTime), 0)) > p.MaxAge+time.Minute:
		return Claims{}, refusedError("the visitor signed in to the provider too long ago")
	}
	return Claims{
		Issuer: p.Issuer, Subject: token.Subject, Email: t.Email, EmailVerified: bool(t.EmailVerified),
		HostedDomain: t.HostedDomain, Name: t.Name,
	}, nil
}

// addUserInfo adds an address that the provider gives only at its UserInfo endpoint, if it gives
// one there.
func (p *remote) addUserInfo(ctx context.Context, m *metadata, tokens *oauth2.Token, c *Claims) {
	info, err := m.provider.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	switch {
	case err != nil:
		p.warn(ctx, "the UserInfo of a provider cannot be read", err)
	case info.Subject != c.Subject:
		p.warn(ctx, "the UserInfo of a provider is about somebody else", nil)
	default:
		c.Email, c.EmailVerified = info.Email, info.EmailVerified
	}
}

// owns reports whether the claims prove that the visitor has the address.
func (p *remote) owns(c Claims) bool {
	_, domain, found := cutLast(c.Email, "@")
	if !found || !c.EmailVerified || !slices.ContainsFunc(p.Domains, func(d string) bool { return sameDomain(d, domain) }) {
		return false
	}
	// Google also has accounts with addresses of other domains, which it verified once.
	const google = "https://accounts.google.com"
	return p.Issuer != google || sameDomain(domain, "gmail.com") || sameDomain(domain, c.HostedDomain)
}

// sameDomain reports whether two domains are the same, as in the addresses of accounts. Domains
// that differ only in σ and ς or the like belong to different people.
func sameDomain(a, b string) bool {
	canonical := schema.Type{Fold: schema.FoldCasefold}.Canonical
	return canonical("x@"+a) == canonical("x@"+b)
}

// cutLast cuts s around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// warn logs what the operator should know. It truncates what a provider says.
func (p *remote) warn(ctx context.Context, what string, err error) {
	slog.WarnContext(ctx, "userdb: "+what, slog.String("provider", p.Name), slog.String("error", fmt.Sprintf("%.300v", err)))
}

// A flexBool is a boolean that some providers send as a text.
type flexBool bool

// UnmarshalJSON implements json.Unmarshaler.
func (b *flexBool) UnmarshalJSON(text []byte) error {
	*b = string(text) == "true" || string(text) == `"true"`
	return nil
}
