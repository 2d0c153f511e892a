package passkey

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
)

// DefaultField is the field for the digests of passkeys if Config does not name another one.
const DefaultField = passkeys.DefaultField

// ChallengeLife is how long the answer to a challenge is accepted.
const ChallengeLife = 5 * time.Minute

// MaxAnswer limits the length of an answer, in bytes.
const MaxAnswer = 64 << 10

// Config describes the site that passkeys are for. None of it comes from a request.
type Config struct {
	// RPID is the relying party: the domain of the site, or a parent domain, without scheme and
	// port. Passkeys only work for the relying party that they were made for, so it should never
	// change.
	RPID string

	// Origins are the origins of the pages that use passkeys, each with its scheme and, unless it
	// is the default, its port: https://example.com. The host must be the RPID or a subdomain of
	// it. http is accepted only for localhost and its subdomains.
	Origins []string

	// Name names the site. If "", it is the RPID.
	Name string

	// Field is the secondary field that holds the digests of an entry's passkeys. If "", it is
	// DefaultField.
	Field string
}

// Passkeys makes and verifies passkeys for the entries of a type. It is safe for concurrent use.
type Passkeys struct {
	db     *userdb.DB
	users  *userdb.Type
	config Config
	scope  string // the namespace, type, relying party and field that states belong to
	rp     *webauthn.WebAuthn
}

// New returns the Passkeys of a type. The error is an ErrInvalid if the configuration is not
// usable, or if userdb.Options.Keys is empty.
func New(db *userdb.DB, typ string, c Config) (*Passkeys, error) {
	users, err := db.Type(typ)
	if err != nil {
		return nil, err
	}
	c.Origins = slices.Clone(c.Origins)
	if c.Field == "" {
		c.Field = DefaultField
	}
	if c.Name == "" {
		c.Name = c.RPID
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	required := true
	rp, err := webauthn.New(&webauthn.Config{
		RPID: c.RPID, RPDisplayName: c.Name, RPOrigins: c.Origins,
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			RequireResidentKey: &required, ResidentKey: protocol.ResidentKeyRequirementRequired,
			UserVerification: protocol.VerificationRequired,
		},
		Timeouts: webauthn.TimeoutsConfig{
			Login:        webauthn.TimeoutConfig{Timeout: ChallengeLife, TimeoutUVD: ChallengeLife},
			Registration: webauthn.TimeoutConfig{Timeout: ChallengeLife, TimeoutUVD: ChallengeLife},
		},
		// No extension is requested, and no output of one is used.
		ExtensionsUnsolicitedOutputPolicy: protocol.UnsolicitedOutputPolicyIgnore,
	})
	if err != nil {
		return nil, invalid("rp", err.Error())
	}
	if len(view.HooksOf(db).DeriveKeys("")) == 0 {
		return nil, invalid("key", "passkeys need userdb.Options.Keys")
	}
	v := view.Of(db)
	return &Passkeys{
		db: db, users: users, config: c, scope: strings.Join([]string{v.NS.Path(), typ, c.RPID, c.Field}, "\x00"),
		rp: rp,
	}, nil
}

func invalid(rule, reason string) error {
	return &userdb.FieldError{Err: userdb.ErrInvalid, Field: "passkey", Rule: rule, Reason: reason}
}

// Check checks RPID and Origins as New does. The error is an ErrInvalid.
func (c Config) Check() error {
	if c.RPID == "" || c.RPID != strings.ToLower(c.RPID) || strings.ContainsAny(c.RPID, ":/ ") {
		return invalid("rp", "the relying party must be a domain in lower case, such as example.com")
	}
	if len(c.Origins) == 0 {
		return invalid("origin", "no origin is given")
	}
	for _, origin := range c.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme+"://"+u.Host != origin || u.Hostname() == "" {
			return invalid("origin", fmt.Sprintf("%q is not an origin such as https://example.com", origin))
		}
		host := u.Hostname()
		local := host == "localhost" || strings.HasSuffix(host, ".localhost")
		if u.Scheme != "https" && !(u.Scheme == "http" && local) {
			return invalid("origin", fmt.Sprintf("%q: browsers offer passkeys only over https, and to localhost", origin))
		}
		if host != c.RPID && !strings.HasSuffix(host, "."+c.RPID) {
			return invalid("origin", fmt.Sprintf("%q does not belong to the relying party %q", origin, c.RPID))
		}
	}
	return nil
}

// A Challenge asks a browser for the answer of a passkey.
type Challenge struct {
	// Options is JSON for the browser, with the member "publicKey". Script takes it as it is.
	Options json.RawMessage
	// State must come back with the answer. It is not secret, and it cannot be changed or forged.
	// Keep it in a cookie, so that only the browser that asked can answer.
	State string
}

// Begin returns a challenge for signing in without a name: the browser offers the passkeys that the
// visitor has. Begin sends no command to the store, so pages may call it for every visitor.
func (p *Passkeys) Begin() (Challenge, error) { return p.begin("") }

// BeginTicket returns a challenge for the second step of a login, with the ticket of the first. The
// Proof is for userdb.Type.Prove with the same ticket.
func (p *Passkeys) BeginTicket(ticket string) (Challenge, error) {
	return p.begin(passkeys.Binding(passkeys.ForTicket, ticket))
}

// BeginSession returns a challenge for raising a session. The Proof is for userdb.Type.RaiseSession
// with the same secret.
func (p *Passkeys) BeginSession(secret string) (Challenge, error) {
	return p.begin(passkeys.Binding(passkeys.ForSession, secret))
}

func (p *Passkeys) begin(purpose string) (Challenge, error) {
	options, session, err := p.rp.BeginDiscoverableLogin()
	if err != nil {
		return Challenge{}, err
	}
	return p.challenge(options, state{Challenge: session.Challenge, For: purpose})
}

// Proof returns the proof that an answer gives. The answer is JSON, as Script sends it. The method
// that takes the proof verifies the answer. The error is ErrLogin if the answer is malformed, or if
// the state has expired or is not that of a challenge for signing in.
func (p *Passkeys) Proof(stateText string, answer []byte) (userdb.Proof, error) {
	s, err := p.open(stateText)
	if err != nil || strings.HasPrefix(s.For, passkeys.ForRegister) || len(answer) > MaxAnswer {
		return userdb.Proof{}, userdb.ErrLogin
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(answer)
	if err != nil {
		return userdb.Proof{}, userdb.ErrLogin
	}
	hash := sha256.Sum256([]byte("userdb passkey answer\x00" + s.Challenge))
	return userdb.PasskeyProof(passkeys.Answer{
		Field: p.config.Field, Digest: p.digest(parsed.RawID), For: s.For,
		Challenge: hex.EncodeToString(hash[:]), Until: time.UnixMilli(s.Until),
		Verify: func(stored []byte) (uint32, error) { return p.verify(s, parsed, stored) },
	}), nil
}

// verify checks an answer against the stored passkey, and returns the counter in the answer. It
// checks everything that WebAuthn Level 3, section 7.2, demands, except the counter.
func (p *Passkeys) verify(s state, answer *protocol.ParsedCredentialAssertionData, stored []byte) (uint32, error) {
	u, err := parseUser(stored)
	if err != nil {
		return 0, err
	}
	session := webauthn.SessionData{
		Challenge: s.Challenge, RelyingPartyID: p.config.RPID, UserVerification: protocol.VerificationRequired,
	}
	if _, _, err := p.rp.ValidatePasskeyLogin(func([]byte, []byte) (webauthn.User, error) { return u, nil }, session, answer); err != nil {
		return 0, userdb.ErrLogin
	}
	data := answer.Response.AuthenticatorData
	if !data.Flags.HasUserVerified() || !data.Flags.HasUserPresent() || answer.Response.CollectedClientData.CrossOrigin ||
		!slices.Contains(p.config.Origins, answer.Response.CollectedClientData.Origin) {
		return 0, userdb.ErrLogin
	}
	return data.Counter, nil
}

// digest returns the value by which the entry with a credential is found.
func (p *Passkeys) digest(id []byte) string {
	sum := sha256.Sum256(append([]byte(p.config.RPID+"\x00"), id...))
	return hex.EncodeToString(sum[:])
}

// Registration describes a passkey to be created.
type Registration struct {
	// Account is the name that browsers show beside the passkey, such as a mail address. If "", it
	// is the UID.
	Account string
	// DisplayName is the name of the user. If "", it is Account.
	DisplayName string
	// Name helps the owner to tell factors apart. It has at most 64 bytes. Register may be given
	// another name.
	Name string
}

// BeginRegistration returns a challenge for a new passkey of the owner of a session. The errors are
// those of userdb.Type.EnrolTOTP.
func (p *Passkeys) BeginRegistration(ctx context.Context, session string, r Registration) (Challenge, error) {
	if err := checkName(r.Name); err != nil {
		return Challenge{}, err
	}
	uid, stored, err := p.users.BeginPasskey(ctx, session, p.config.Field)
	if err != nil {
		return Challenge{}, err
	}
	u := &user{account: r.Account, name: r.DisplayName}
	if u.account == "" {
		u.account = uid
	}
	if u.name == "" {
		u.name = u.account
	}
	var exclude []protocol.CredentialDescriptor
	for _, text := range stored {
		known, err := parseUser(text)
		if err != nil {
			return Challenge{}, err
		}
		u.handle = known.handle // all passkeys of an entry have the same one
		exclude = append(exclude, known.credential.Descriptor())
	}
	if u.handle == nil {
		u.handle = make([]byte, handleBytes)
		rand.Read(u.handle) // never returns an error
	}
	options, ceremony, err := p.rp.BeginRegistration(u, webauthn.WithExclusions(exclude))
	if err != nil {
		return Challenge{}, err
	}
	return p.challenge(options, state{
		Challenge: ceremony.Challenge, For: passkeys.Binding(passkeys.ForRegister, session), Handle: u.handle,
		Name: r.Name,
	})
}

// checkName returns an error if the name of a passkey is too long.
func checkName(name string) error {
	if len(name) <= passkeys.MaxName {
		return nil
	}
	return &userdb.FieldError{
		Field: "factor", Rule: "name", Err: userdb.ErrInvalid, Reason: fmt.Sprintf("the name has over %d bytes", passkeys.MaxName),
	}
}

// handleBytes is the length of a user handle, which is random.
const handleBytes = 32

// Register enrols the passkey in an answer to the challenge of BeginRegistration, for the owner of
// the same session. name helps the owner to tell factors apart; if it is "", it is that of the
// Registration. The result and the errors are those of userdb.Type.AddPasskey, and ErrLogin also
// means that the answer is wrong. If there is no answer, because the script got no challenge, the
// error is that of BeginRegistration.
func (p *Passkeys) Register(
	ctx context.Context, session, stateText string, answer []byte, name string, o userdb.SessionOptions,
) (userdb.FactorChange, error) {
	if err := checkName(name); err != nil {
		return userdb.FactorChange{}, err
	}
	if len(answer) == 0 {
		_, err := p.BeginRegistration(ctx, session, Registration{Name: name})
		return userdb.FactorChange{}, cmp.Or(err, userdb.ErrLogin)
	}
	s, err := p.open(stateText)
	if err != nil || !strings.HasPrefix(s.For, passkeys.ForRegister) || len(answer) > MaxAnswer {
		return userdb.FactorChange{}, userdb.ErrLogin
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(answer)
	if err != nil {
		return userdb.FactorChange{}, userdb.ErrLogin
	}
	object := &parsed.Response.AttestationObject
	if err := checkKey(object.AuthData.AttData.CredentialPublicKey); err != nil {
		return userdb.FactorChange{}, userdb.ErrLogin
	}
	// The kind of authenticator does not matter here, so its attestation is not verified. It could
	// be signed with a key of 40 KB, which takes seconds to verify.
	object.Format, object.AttStatement, object.SubStatements = string(protocol.AttestationFormatNone), nil, nil
	credential, err := p.rp.CreateCredential(&user{handle: s.Handle}, webauthn.SessionData{
		Challenge: s.Challenge, RelyingPartyID: p.config.RPID, UserID: s.Handle, UserVerification: protocol.VerificationRequired,
		CredParams: webauthn.CredentialParametersDefault(),
	}, parsed)
	if err != nil {
		return userdb.FactorChange{}, userdb.ErrLogin
	}
	if flags := credential.Flags; !flags.UserVerified || !flags.UserPresent || parsed.Response.CollectedClientData.CrossOrigin ||
		!slices.Contains(p.config.Origins, parsed.Response.CollectedClientData.Origin) || len(credential.ID) > maxCredentialID {
		return userdb.FactorChange{}, userdb.ErrLogin
	}
	if name == "" {
		name = s.Name
	}
	return p.users.AddPasskey(ctx, session, passkeys.Credential{
		Field: p.config.Field, Digest: p.digest(credential.ID), Name: name, Counter: credential.Authenticator.SignCount,
		For: s.For, Stored: storedOf(credential, s.Handle),
	}, o)
}

// Limits on the public key of a passkey, in bytes. Answers are verified before anything counts
// them, and verifying with an RSA modulus of 5 KB takes a hundred times as long as with one of 256
// bytes.
const (
	maxKey     = 4 << 10
	maxModulus = 512
)

// checkKey returns an error for a public key that cannot be parsed, or with which verifying an
// answer takes too long.
func checkKey(cose []byte) error {
	if len(cose) > maxKey {
		return errKey
	}
	key, err := webauthncose.ParsePublicKey(cose)
	if rsa, ok := key.(webauthncose.RSAPublicKeyData); ok && len(rsa.Modulus) > maxModulus {
		return errKey
	}
	return err
}

var errKey = errors.New("the key of the passkey is too large")

// maxCredentialID is the maximum length of a credential ID (WebAuthn, section 7.1, step 25).
const maxCredentialID = 1023

// challenge returns a challenge with the given options and state. The state expires after
// ChallengeLife.
func (p *Passkeys) challenge(options any, s state) (Challenge, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return Challenge{}, err
	}
	s.Until = view.Of(p.db).Now().Add(ChallengeLife).UnixMilli()
	sealed, err := p.seal(s)
	return Challenge{Options: text, State: sealed}, err
}

var errStored = errors.New("the stored passkey is damaged")

// user implements webauthn.User for an entry, with one of its passkeys or none.
type user struct {
	handle        []byte
	account, name string
	credential    *webauthn.Credential
}

func (u *user) WebAuthnID() []byte          { return u.handle }
func (u *user) WebAuthnName() string        { return u.account }
func (u *user) WebAuthnDisplayName() string { return u.name }

func (u *user) WebAuthnCredentials() []webauthn.Credential {
	if u.credential == nil {
		return nil
	}
	return []webauthn.Credential{*u.credential}
}

// stored holds what package userdb encrypts and stores of a passkey.
type stored struct {
	ID         []byte   `json:"id"`
	Key        []byte   `json:"key"` // COSE, as the authenticator gave it
	Handle     []byte   `json:"handle"`
	Flags      byte     `json:"flags"`
	AAGUID     []byte   `json:"aaguid,omitempty"`
	Transports []string `json:"transports,omitempty"`
}

// maxTransports limits the transports that are kept. They come from the browser and are not signed.
const maxTransports = 8

func storedOf(c *webauthn.Credential, handle []byte) []byte {
	s := stored{ID: c.ID, Key: c.PublicKey, Handle: handle, Flags: c.Flags.MsgpByte(), AAGUID: c.Authenticator.AAGUID}
	for _, t := range c.Transport {
		if len(s.Transports) < maxTransports && len(t) <= 32 {
			s.Transports = append(s.Transports, string(t))
		}
	}
	text, _ := json.Marshal(s) // marshaling strings cannot fail
	return text
}

func parseUser(text []byte) (*user, error) {
	var s stored
	if err := json.Unmarshal(text, &s); err != nil || len(s.ID) == 0 || len(s.Key) == 0 || len(s.Handle) == 0 {
		return nil, fmt.Errorf("%w: %w", userdb.ErrCorrupt, errStored)
	}
	if err := checkKey(s.Key); err != nil {
		return nil, fmt.Errorf("%w: %w: %w", userdb.ErrCorrupt, errStored, err)
	}
	c := &webauthn.Credential{ID: s.ID, PublicKey: s.Key, Flags: webauthn.CredentialFlagsFromMsgpByte(s.Flags)}
	c.Authenticator.AAGUID = s.AAGUID
	for _, t := range s.Transports {
		c.Transport = append(c.Transport, protocol.AuthenticatorTransport(t))
	}
	return &user{handle: s.Handle, credential: c}, nil
}
