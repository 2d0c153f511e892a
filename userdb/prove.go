package userdb

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/recordkey"
)

// A Proof holds the evidence for the second step of a login, such as a code. The zero Proof proves
// nothing.
type Proof struct {
	kind   string // of the factor
	text   string
	answer passkeys.Answer
}

// TOTP returns a Proof from a code of an authenticator app. White space in the code is ignored.
func TOTP(code string) Proof { return Proof{kind: factor.TOTP, text: code} }

// RecoveryCode returns a Proof from a recovery code. Case, white space and hyphens are ignored.
func RecoveryCode(code string) Proof { return Proof{kind: factor.Recovery, text: code} }

// Format writes the kind of the proof, not its code, whatever the formatting verb.
func (p Proof) Format(f fmt.State, _ rune) { fmt.Fprint(f, "proof by "+p.kind) }

// LogValue returns the kind of the proof.
func (p Proof) LogValue() slog.Value { return slog.StringValue(p.kind) }

// maxProof limits the length of a code, in bytes.
const maxProof = 64

// Prove takes the second step of a login, with the ticket of the *FactorError that the first step
// returned. It returns the entry, for which StartSession then starts a session of level 2. Of any
// number of callers with one ticket or one code, one succeeds.
//
// The error is
//
//   - ErrLogin if the code is wrong or was used before, or if the challenge of a passkey was made
//     for another purpose. The ticket allows five attempts.
//   - ErrNotFound if the ticket is invalid, has expired, was used or has had five attempts, or if
//     all sessions of the entry have ended or its factors have changed since. The user must log in
//     again.
//   - ErrTooManyAttempts with a *WaitError if too many codes of authenticator apps were wrong
//     within a day: 20 from an origin that has signed in to the entry with two steps before, or 20
//     from all other origins together. Recovery codes are still accepted.
//   - ErrCorrupt if the factors of the entry are damaged, or Options.Keys lacks their key.
//
// The code of an authenticator app is accepted within half a minute before and after its time by
// the store's clock, and only if it is later than the last one that was accepted.
func (t *Type) Prove(ctx context.Context, ticket string, p Proof, a Attempt) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Prove", &err)
	defer v.end(&err)
	t = t.current()
	if !p.isFor(passkeys.ForTicket, ticket) {
		return Entry{}, ErrLogin
	}
	prk, ok := t.secretOwner(ticket)
	if !ok {
		return Entry{}, ErrNotFound
	}
	r, err := t.proveFactor(ctx, prk, hashSecret(ticket), p, a.Origin)
	if err != nil {
		return Entry{}, err
	}
	if e, err = t.entry(r, nil); err != nil {
		return Entry{}, err
	}
	e.proved = true
	t.db.emit(ctx, Event{Kind: EventLogin, Key: r.Key, Origin: a.Origin})
	return e, nil
}

// proveFactor verifies a proof and spends the ticket with the given hash if the proof is right. It
// returns the entry as read after that.
func (t *Type) proveFactor(
	ctx context.Context, prk recordkey.Key, ticket string, p Proof, origin string,
) (store.Record, error) {
	r, err := t.view.FindOne(ctx, store.Lookup{PRK: prk})
	if err != nil {
		return store.Record{}, err
	}
	if r.Fields[store.FieldDisabled] != "" || !r.Factors().Any() {
		return store.Record{}, ErrNotFound
	}
	digest, err := t.db.countedOrigin(ctx, origin)
	if err != nil {
		return store.Record{}, err
	}
	try := factor.Try{
		PRK: prk, ID: ticket, Generation: r.ForSessions().Generation(), Attempt: newFactorID(),
		Guessable: p.kind == factor.TOTP, Factors: t.factorsFor(r, p), Origin: digest, Now: t.view.StoreTime(),
	}
	if err := t.spendTicket(ctx, r, try, p, origin); err != nil {
		return store.Record{}, err
	}
	// Read the entry again, as Login does, in case it lost the right to log in meanwhile.
	current, err := t.view.FindOne(ctx, store.Lookup{PRK: prk})
	if err != nil {
		return store.Record{}, err
	}
	if current.ForSessions().Generation() != try.Generation || current.Factors() != r.Factors() || current.Fields[store.FieldDisabled] != "" {
		return store.Record{}, ErrNotFound
	}
	return current, nil
}

// factorsFor returns the names of the factors of an entry that may accept a proof.
func (t *Type) factorsFor(r store.Record, p Proof) (names []string) {
	if p.kind == factor.Passkey {
		return t.passkeysOf(r, p)
	}
	for _, name := range r.Factors().Names() {
		if strings.HasPrefix(name, p.kind+"/") {
			names = append(names, name)
		}
	}
	return names
}

// spendTicket counts an attempt, verifies its proof and, if that is right, spends the ticket. It
// emits the events of an attempt that fails.
func (t *Type) spendTicket(ctx context.Context, r store.Record, try factor.Try, p Proof, origin string) error {
	tried, err := t.view.Engine.TryTicket(ctx, try)
	if err != nil {
		return err
	}
	if tried.Wait > 0 {
		t.db.emit(ctx, Event{Kind: EventThrottle, Key: r.Key, Origin: origin, Wait: tried.Wait})
		return &WaitError{Wait: tried.Wait}
	}
	name, number, err := t.verifyProof(ctx, r, try.Factors, tried, p, origin)
	if err == nil {
		err = t.view.Engine.SpendTicket(ctx, factor.Spend{
			PRK: try.PRK, ID: try.ID, Generation: try.Generation, Attempt: try.Attempt, Factor: name, Number: number,
			Origin: try.Origin, Now: t.view.StoreTime(),
		})
	}
	if errors.Is(err, ErrConflict) {
		err = ErrLogin // another caller used the code at the same moment
	}
	if errors.Is(err, ErrLogin) {
		t.db.emit(ctx, Event{Kind: EventFailure, Key: r.Key, Origin: origin})
		if tried.Last {
			t.db.emit(ctx, Event{Kind: EventFactorLock, Key: r.Key, Origin: origin})
		}
	}
	return err
}

// verifyProof returns the name of the factor that accepts a proof, and the number to record as
// used. If no factor accepts it, the error is ErrLogin, or ErrCorrupt if one of them cannot be
// read.
func (t *Type) verifyProof(
	ctx context.Context, r store.Record, names []string, tried factor.Tried, p Proof, origin string,
) (name string, number int64, err error) {
	if p.kind == factor.Passkey {
		return t.verifyPasskey(ctx, r, names, tried.Factors, p, origin)
	}
	if len(p.text) > maxProof || len(names) == 0 {
		return "", 0, ErrLogin
	}
	failure := ErrLogin
	for i, name := range names {
		f, err := t.parseFactor(r, name, tried.Factors[i])
		if err != nil {
			failure = err
			continue
		}
		secret, err := t.open(r.Key, f.Name(), f.Sealed)
		if err != nil {
			failure = err
			continue
		}
		number, ok := int64(0), false
		switch p.kind {
		case factor.TOTP:
			number, ok = totp.Match(secret, p.text, tried.Now, f.Last())
		case factor.Recovery:
			number, ok = matchCode(secret, p.text)
			ok = ok && !f.HasAccepted(number)
		}
		if ok {
			return name, number, nil
		}
	}
	return "", 0, failure
}

// open decrypts the secret of a factor.
func (t *Type) open(prk recordkey.Key, name, text string) ([]byte, error) {
	secret, err := t.ring().Open(text, factor.Place(prk.In(t.view.NS), name)...)
	if err != nil {
		return nil, fmt.Errorf("%w: factor %s of %s: %w", ErrCorrupt, name, relativeKey(prk), err)
	}
	return secret, nil
}

// seal encrypts the secret of a factor.
func (t *Type) seal(prk recordkey.Key, name string, secret []byte) string {
	return t.ring().Seal(secret, factor.Place(prk.In(t.view.NS), name)...)
}

func (t *Type) ring() sealed.Ring { return t.view.Config.Keys }

// RaiseSession takes the second step of a login for a session whose owner took a step of a login
// within the last ten minutes (Session.Verified, which VerifySession renews); otherwise the error
// is ErrNotVerified. It starts another session, of level 2 and verified now, and ends the old one.
// A passkey takes both steps, so that VerifySession is not needed. The other errors are those of
// Prove and StartSession; ErrNotFound also means that the session has ended, or that the entry has
// no second factor. Of any number of callers with one answer of a passkey, one succeeds.
func (t *Type) RaiseSession(
	ctx context.Context, secret string, p Proof, o SessionOptions,
) (e Entry, session Session, sessionSecret string, err error) {
	ctx, v := t.db.begin(ctx, "RaiseSession", &err)
	defer v.end(&err)
	t = t.current()
	o, err = o.withDefaults()
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	if !p.isFor(passkeys.ForSession, secret) {
		return Entry{}, Session{}, "", ErrLogin
	}
	r, s, err := t.session(ctx, secret)
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	now, _, err := t.view.Engine.ReadFactors(ctx, r.Key, nil, t.view.StoreTime())
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	if p.kind != factor.Passkey && now.Sub(s.Verified) > factorAge {
		return Entry{}, Session{}, "", ErrNotVerified
	}
	if !r.Factors().Any() {
		return Entry{}, Session{}, "", ErrNotFound
	}
	ticket := raiseTicket(p)
	if err := t.issueTicket(ctx, r, ticket, stepSession, o.Origin); err != nil {
		return Entry{}, Session{}, "", err
	}
	if r, err = t.proveFactor(ctx, r.Key, ticket, p, o.Origin); err != nil {
		return Entry{}, Session{}, "", err
	}
	if e, err = t.entry(r, nil); err != nil {
		return Entry{}, Session{}, "", err
	}
	e.proved = true
	session, sessionSecret, err = t.startSession(ctx, e, o)
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	if _, endErr := t.endSession(ctx, r.Key, s.ID); endErr != nil {
		t.warn(ctx, "cannot end a session that was replaced", r, endErr)
	}
	return e, session, sessionSecret, nil
}

// raiseTicket returns the hash of the ticket for raising a session. All calls with the same answer
// of a passkey share one ticket, which is spent once. No secret has this hash, so Prove does not
// accept the ticket.
func raiseTicket(p Proof) string {
	name := p.answer.Challenge
	if p.kind != factor.Passkey {
		name = newFactorID()
	}
	return hashSecret("raise " + name)
}

// To change factors, links, or the password of an entry with a factor, the owner of a session must
// have been verified no longer than factorAge ago.
const factorAge = 10 * time.Minute

// Recovery codes have 50 bits: ten digits in base 32, without letters that look like digits.
const (
	recoveryCodes  = 10
	recoveryDigits = 10
	codeAlphabet   = "0123456789abcdefghjkmnpqrstvwxyz"
	codeHashBytes  = 16
)

// normalDigits removes hyphens from a recovery code in lower case, and replaces letters with the
// digits that they look like.
var normalDigits = strings.NewReplacer("-", "", "o", "0", "i", "1", "l", "1")

// hashCode returns the hash of a recovery code, which is the same for all its spellings.
func hashCode(code string) []byte {
	code = strings.Join(strings.Fields(strings.ToLower(code)), "")
	sum := sha256.Sum256([]byte("userdb recovery code\x00" + normalDigits.Replace(code)))
	return sum[:codeHashBytes]
}

// matchCode returns the index of a code among the hashes of recovery codes.
func matchCode(hashes []byte, code string) (index int64, ok bool) {
	hash := hashCode(code)
	for i := 0; i+codeHashBytes <= len(hashes); i += codeHashBytes {
		if subtle.ConstantTimeCompare(hashes[i:i+codeHashBytes], hash) == 1 {
			index, ok = int64(i/codeHashBytes), true
		}
	}
	return index, ok
}
