package userdb

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/hashpool"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/password"
)

// An Attempt says where a login comes from. The zero Attempt says that this is unknown.
type Attempt struct {
	// Origin is an address or a name that the caller vouches for, not one that a visitor can
	// choose. All spellings of an address are one origin, and so are all addresses of an IPv6 /64
	// prefix. If it is "", the origin is unknown and every visitor is unfamiliar to the account.
	Origin string

	// Session is the secret of the visitor's session. Only ChangePassword uses it, if the entry has
	// a second factor.
	Session string

	// Proven says that the caller has verified that the visitor owns the address, for example by
	// asking a provider. Only Invite uses it: it counts such visitors apart from all others.
	Proven bool

	// Allowed reports whether an entry may log in here. If it may not, Login treats any password as
	// wrong, and LoginLinked treats the entry as disabled. Other methods do not use Allowed. If
	// nil, every entry may log in.
	Allowed func(Entry) bool
}

// Format writes the origin, not the secret of the session, whatever the formatting verb.
func (a Attempt) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "attempt from %q", a.Origin) }

// LogValue returns the origin, not the secret of the session.
func (a Attempt) LogValue() slog.Value { return slog.StringValue(a.Origin) }

// Login returns the entry that has the identifier in any of its secondary fields, if pw is its
// password. The identifier is text from a visitor and is never parsed as a key.
//
// The error is
//
//   - ErrLogin if the identifier is unknown, the password is wrong, or the entry has no password,
//     is disabled or is refused by a.Allowed. The error does not say which, and Login does the same
//     work in each case. If a mail address is not the first of its field, or was not when it was
//     added, it counts as unknown until it is verified.
//   - ErrFactor with a *FactorError if the password is right and the entry has a second factor.
//   - ErrTooManyAttempts if too many attempts have failed. The password was not checked. A
//     *WaitError says how long to wait.
//   - ErrUnavailable with a *BusyError if more logins are waiting for a processor than can be
//     served before the deadline of ctx, or if this origin, this account or the actor of ctx has
//     used up its share of the queue.
//   - ErrCorrupt if the entry, or a record of the store that counts attempts, is damaged. The error
//     names the record.
//
// Login counts failures for each account and, over all accounts, for each origin. An identifier
// that nobody has counts as an account. After ten failures in a day, attempts on an account are
// delayed, from one second, doubling up to a quarter of an hour; after sixty, the account is closed
// to unfamiliar origins for the rest of the day. An origin is delayed after thirty failures in an
// hour. The five origins that logged in to an account last, within 90 days, are familiar: each has
// eight failures of its own before it is treated as unfamiliar. A new password clears all failures
// of an account. An attempt counts as a failure while its password is being checked, so ten logins
// to one account at the same moment can delay an eleventh.
//
// If the password is right but its hash is foreign, has another cost or pepper, or has the encoding
// of the original, Login replaces the hash, unless it would have to wait for a processor again.
// Finally Login reads the entry again, so that after Disable, Delete, SetPassword or ChangePassword
// has returned, no login returns the entry as it was before, however long it has been running.
func (t *Type) Login(ctx context.Context, identifier, pw string, a Attempt) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Login", &err)
	defer v.end(&err)
	p, err := t.newProof(ctx, identifier, a)
	if err != nil {
		return Entry{}, err
	}
	why, err := p.prove(ctx, pw)
	renewed := ""
	if err == nil && why != "" {
		renewed, err = p.renew(ctx, pw, why)
	}
	if err != nil {
		return Entry{}, err
	}
	second := p.r.Factors()
	if e, err = t.entry(p.r, nil); err != nil {
		t.db.emit(ctx, p.event(EventFailure))
		return Entry{}, err
	}
	if second.Any() {
		return Entry{}, t.requireFactor(ctx, p.r, stepPassword, a.Origin)
	}
	t.db.emit(ctx, Event{Kind: EventLogin, Key: p.r.Key, Origin: a.Origin, Renewed: renewed})
	return e, nil
}

// maxProofs limits how often prove checks a password. It checks again if the hash has changed.
const maxProofs = 4

// prove checks a password. If it was right, prove reads the entry again, because the owner may have
// set another password, or an operator may have disabled the entry, while the attempt waited for a
// worker. It returns why the hash should be replaced, or "".
func (p *proof) prove(ctx context.Context, pw string) (renew string, err error) {
	for range maxProofs {
		result, err := p.check(ctx, pw)
		if err != nil {
			return "", err
		}
		same, err := p.reread(ctx, p.hash())
		if err != nil || same {
			return result.Renew, err
		}
		// The hash has changed. If it was only renewed, the password is still right.
	}
	return "", ErrConflict
}

// reread reads the entry again and reports whether its hash is one of right, the hashes that the
// password matches. Every login ends with reread, so that it fails if the entry lost the right to
// log in meanwhile.
func (p *proof) reread(ctx context.Context, right ...string) (bool, error) {
	current, err := p.t.view.FindOne(ctx, store.Lookup{PRK: p.r.Key})
	switch {
	case errors.Is(err, ErrNotFound), err == nil && (!p.mayLogIn(current) || !p.t.signsIn(p.lookup, current)):
		p.t.db.emit(ctx, p.event(EventFailure))
		return false, ErrLogin
	case err != nil:
		return false, err
	}
	p.r = current
	return p.hash() != "" && slices.Contains(right, p.hash()), nil
}

// hash returns the password hash that the entry had when it was last read.
func (p *proof) hash() string { return p.r.PasswordHash() }

// renew stores a new hash of a password that was right. It returns why, or "" if it stored no hash.
// Hashing takes as long as checking does, so renew checks the entry once more afterwards, whether
// or not the new hash was stored.
func (p *proof) renew(ctx context.Context, pw, why string) (renewed string, err error) {
	hash := p.replaceHash(ctx, pw)
	switch same, err := p.reread(ctx, p.hash(), hash); {
	case err != nil:
		return "", err
	case !same:
		_, err = p.prove(ctx, pw)
		return "", err
	case p.hash() != hash:
		return "", nil
	}
	return why, nil
}

// replaceHash tries to store a new hash, and returns it whether or not it was stored. It stores
// nothing if another login was faster or the entry has changed. If the login would have to wait for
// a worker again, it makes no hash and returns "".
func (p *proof) replaceHash(ctx context.Context, pw string) string {
	c := p.caller(ctx)
	c.Spare = true
	hash, err := p.t.db.hashers.hashUnchecked(ctx, c, p.t.declared, pw)
	if errors.Is(err, hashpool.ErrBusy) {
		return "" // a later login replaces it
	}
	if err == nil {
		err = p.t.retryOnSchemaChange(ctx, func(t *Type) error {
			encoded := change.Facets(p.r)
			encoded[store.FieldPassword] = hash
			c, _, err := t.declared.Update(p.r, encoded, nil)
			if err == nil {
				_, err = t.apply(ctx, c, p.r)
			}
			return err
		})
	}
	if !committed(err) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
		p.t.warn(ctx, "cannot replace a password hash", p.r, err)
	}
	return hash
}

// newProof starts an attempt to log in with an identifier, whether or not an entry has it.
func (t *Type) newProof(ctx context.Context, identifier string, a Attempt) (*proof, error) {
	t = t.current()
	p := &proof{t: t, identifier: identifier, origin: a.Origin, allowed: a.Allowed}
	_, l, err := t.view.Resolve(hints.Any(identifier), t.declared.Name)
	if err != nil {
		return p, nil // no entry can have this identifier
	}
	p.lookup = l
	p.r, err = t.view.FindOne(ctx, l)
	if store.IsEntryError(err) || err == nil && !t.signsIn(l, p.r) {
		p.r, err = store.Record{}, nil
	}
	return p, err
}

// A proof represents one attempt to prove ownership of an account.
type proof struct {
	t                  *Type
	lookup             store.Lookup // of the identifier; zero if no entry can have it
	r                  store.Record // zero if no entry has the identifier
	identifier, origin string
	allowed            func(Entry) bool // of the Attempt; nil if every entry may log in
	digest             string           // set by unknownDigest
}

// mayLogIn reports whether an entry may log in, whatever the password.
func (p *proof) mayLogIn(r store.Record) bool {
	return r.Fields[store.FieldDisabled] == "" && p.t.allows(p.allowed, r)
}

// allows reports whether a function of an Attempt allows an entry to log in.
func (t *Type) allows(allowed func(Entry) bool, r store.Record) bool {
	return allowed == nil || allowed(t.entryUnchecked(store.Record{Key: r.Key, Fields: maps.Clone(r.Fields)}))
}

// check compares a password with the hash if the counters admit the attempt. A delayed attempt does
// not enter the queue for a worker. Other attempts are counted only when they have a worker, so
// that the number of attempts that are counted but not yet verified never exceeds the number of
// workers.
func (p *proof) check(ctx context.Context, pw string) (password.Result, error) {
	attempt, err := p.counters(ctx)
	if err != nil {
		return password.Result{}, err
	}
	var result password.Result
	var admission throttle.Admission
	admission.Wait, err = p.t.view.Engine.LoginWait(ctx, attempt)
	if err == nil && admission.Wait == 0 {
		err = p.t.db.hashers.onPool(ctx, p.caller(ctx), func() (err error) {
			if admission, err = p.t.view.Engine.Admit(ctx, attempt); err == nil && admission.Wait == 0 {
				result = p.verify(ctx, pw)
			}
			return err
		})
	}
	switch {
	case err != nil:
		return password.Result{}, withRepairHint(err)
	case admission.Wait > 0:
		e := p.event(EventThrottle)
		e.Wait = admission.Wait
		p.t.db.emit(ctx, e)
		return password.Result{}, &WaitError{Wait: admission.Wait}
	case !result.OK || !p.mayLogIn(p.r):
		p.t.db.emit(ctx, p.event(EventFailure))
		return password.Result{}, ErrLogin
	}
	if err := p.t.view.Engine.Undo(ctx, attempt, admission); err != nil {
		p.t.warn(ctx, "a successful login stays counted as a failure", p.r, err)
	}
	return result, nil
}

// verify checks the password and does the same work whether or not there is an entry. It accepts a
// hash in the encoding of the original only if neither this library nor an import has ever set the
// entry's password.
func (p *proof) verify(ctx context.Context, pw string) password.Result {
	hasher := p.t.db.hashers.HasherFor(p.t.declared)
	verify := hasher.Verify
	switch {
	case p.r.HashImported():
		verify = hasher.VerifyImported
	case p.r.Fields[store.FieldChanged] == "" && p.r.Fields[store.FieldImported] == "":
		verify = hasher.VerifyOriginal
	}
	result, err := verify(p.hash(), pw)
	if err != nil {
		p.t.warn(ctx, "a stored password hash is unusable", p.r, err)
	}
	return result
}

// event returns an event about the entry. If there is none, the event has a keyed hash of the
// identifier and not the text itself, because people type passwords into the wrong box.
func (p *proof) event(kind EventKind) Event {
	e := Event{Kind: kind, Key: p.r.Key, Origin: p.origin}
	if !p.r.Live() {
		e.Identifier = p.unknownDigest()
	}
	return e
}

// unknownDigest returns the keyed hash under which an identifier that nobody has is counted and
// logged.
func (p *proof) unknownDigest() string {
	if p.digest == "" {
		p.digest = p.t.identifierDigest(p.identifier)
	}
	return p.digest
}

// caller returns the caller on whose behalf the attempt uses the pool. An identifier that nobody
// has counts as an account. The secret must have been loaded, which counters does.
func (p *proof) caller(ctx context.Context) hashpool.Caller {
	account := p.r.Key.String()
	if !p.r.Live() {
		account = p.unknownDigest()
	}
	return callerIn(ctx, hashpool.General, p.origin, account)
}

// counters returns the counters for the account and the origin.
func (p *proof) counters(ctx context.Context) (throttle.Counters, error) {
	if err := p.t.db.loadSecret(ctx); err != nil {
		return throttle.Counters{}, err
	}
	a := throttle.Counters{Now: p.t.view.StoreTime()}
	var err error
	if p.r.Live() {
		a.Account, err = throttle.Key(p.r.Key)
	} else {
		a.Account, err = throttle.UnknownKey(p.t.view.NS, p.t.Name(), p.unknownDigest())
	}
	if err == nil && p.origin != "" {
		a.Name = p.t.db.originDigest(p.origin)
		a.Origin, err = throttle.OriginKey(p.t.view.NS, p.t.Name(), a.Name)
	}
	return a, err
}

// warn logs a problem for operators that visitors should not see.
func (t *Type) warn(ctx context.Context, what string, r store.Record, err error) {
	t.view.Config.Log.WarnContext(ctx, what, slog.String("prk", relativeKey(r.Key)), slog.Any("error", err))
}

// digest returns 128 bits of a keyed hash of text in hexadecimal. Origins are counted by their
// digests. So are identifiers that nobody has, which are also logged as digests, because visitors
// type passwords into the wrong box. The caller must have called loadSecret.
func (db *DB) digest(kind, text string) string {
	mac := hmac.New(sha256.New, []byte(db.secret.Load().text))
	mac.Write([]byte(kind + "\x00" + text))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// A loadedSecret holds the secret of a namespace and when it was read.
type loadedSecret struct {
	text string
	at   time.Time
}

// secretAge is how long a secret is used before it is read again. A Redis server may lose its
// records, or be restored from a backup, while processes run, and all processes must count with the
// same secret.
const secretAge = time.Minute

// loadSecret reads the secret of the view's namespace unless it has been read within secretAge. If
// reading it again fails, the previous secret stays in use for another secretAge.
func (db *DB) loadSecret(ctx context.Context) error {
	last, v := db.secret.Load(), db.view()
	now := v.Now()
	if last == nil {
		last = &loadedSecret{}
	} else if now.Sub(last.at) < secretAge {
		return nil
	}
	text, err := v.Secret(ctx, last.text)
	if err != nil {
		if last.text == "" {
			return withRepairHint(err)
		}
		v.Config.Log.WarnContext(ctx, "the secret of the keyed hashes cannot be read again", slog.Any("error", withRepairHint(err)))
		text = last.text
	}
	db.secret.Store(&loadedSecret{text, now})
	return nil
}

// withRepairHint adds to an ErrCorrupt the command that repairs the damaged record, which is one of
// the store's own. It returns any other error unchanged.
func withRepairHint(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w; 'userdb check --repair' repairs it", err)
	}
	return err
}
