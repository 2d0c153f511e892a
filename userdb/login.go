package userdb

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
)

// An Attempt tells where a login comes from. The zero Attempt does not.
type Attempt struct {
	// Origin is an address or a name that the caller vouches for, not what a visitor can choose.
	// However an address is written, it is one origin, and so are all of an IPv6 /64 prefix. "": it
	// is not known, and all visitors are strangers to an account.
	Origin string
}

// Login returns the entry that has the identifier under any of its secondary fields, if the password is its own. The
// identifier is a visitor's text: it is never parsed as a key. A hash that is foreign, of another cost or pepper, or as
// the original made it, is replaced. The entry is read once more when all else is done: after Disable, Delete,
// SetPassword or ChangePassword have returned, no login returns it as it was before, however long the login took until
// then.
//
// ErrLogin is the one answer, after the same work, to an unknown identifier, a wrong password, an entry without one and
// a disabled one. ErrTooManyAttempts says that nothing was checked, because too many attempts failed, and how long to
// wait. A *BusyError says that more logins wait for a processor than can be served before the
// deadline of ctx.
// ErrCorrupt names a broken record of the store's own, without which no attempt can be judged, or the entry that cannot
// be read.
//
// Failures are counted for each account, and for each origin over all accounts; an identifier that nobody has counts as
// an account. After ten failures in a day delays begin, which double from a second to a quarter of an hour, and after
// sixty the account is closed to strangers for the rest of the day; an origin is held back after thirty failures in an
// hour. Of the five origins that logged in to an account last, in 90 days, each has eight failures of its own before it
// counts as a stranger. A new password forgets all failures. An attempt counts as a failure while its password is being
// checked, so ten logins of one account at the same moment can delay the eleventh.
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
	if e, err = t.entry(p.r, nil); err != nil {
		t.db.emit(ctx, p.event(EventFailure))
		return Entry{}, err
	}
	t.db.emit(ctx, Event{Kind: EventLogin, PRK: p.r.Key, Origin: a.Origin, Renewed: renewed})
	return e, nil
}

// proveAttempts bounds how often a password is checked again because the hash changed meanwhile.
const proveAttempts = 4

// prove checks a password and then, if it was right, whether it still is: an attempt may have waited for a worker while
// the owner set another password or an operator disabled the entry. It returns why the hash should be renewed.
func (p *proof) prove(ctx context.Context, pw string) (renew string, err error) {
	for range proveAttempts {
		result, err := p.check(ctx, pw)
		if err != nil {
			return "", err
		}
		same, err := p.reread(ctx, p.hash())
		if err != nil || same {
			return result.Renew, err
		}
		// There is another hash. If it is a renewed one, the password is right for that, too.
	}
	return "", ErrConflict
}

// reread reads the entry again, and reports whether its hash is one of those that the password is right for. A
// login ends with it: nobody is let in whose right to log in ended before.
func (p *proof) reread(ctx context.Context, right ...string) (bool, error) {
	now, err := p.t.view.FindOne(ctx, store.Lookup{PRK: p.r.Key})
	switch {
	case errors.Is(err, ErrNotFound), err == nil && (now.Fields[store.FieldDisabled] != "" || !p.lookup.Names(now)):
		p.t.db.emit(ctx, p.event(EventFailure))
		return false, ErrLogin
	case err != nil:
		return false, err
	}
	p.r = now
	return p.hash() != "" && slices.Contains(right, p.hash()), nil
}

// hash is the hash that the entry had when it was read last.
func (p *proof) hash() string { return p.r.Fields[store.FieldPassword] }

// renew stores a new hash of a password that just proved right, and returns why, if it did. That takes as long
// as a hash does; so the entry is judged once more after it, whatever became of the new hash.
func (p *proof) renew(ctx context.Context, pw, why string) (renewed string, err error) {
	hash := p.replace(ctx, pw)
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

// replace tries to store a new hash, and returns it. Where another login was faster, or the entry has changed,
// the entry stays as it is.
func (p *proof) replace(ctx context.Context, pw string) string {
	hash, err := p.t.db.hashers.hashUnjudged(ctx, p.t.declared, pw)
	if err == nil {
		err = p.t.following(ctx, func(t *Type) error {
			wires := change.Bare(p.r)
			wires[store.FieldPassword] = hash
			c, _, err := t.declared.Update(p.r, wires, nil)
			if err == nil {
				_, err = t.apply(ctx, c, p.r)
			}
			return err
		})
	}
	if !done(err) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
		p.t.warn(ctx, "a hash is not renewed", p.r, err)
	}
	return hash
}

// newProof begins an attempt to log in by an identifier, whether an entry has it or not.
func (t *Type) newProof(ctx context.Context, identifier string, a Attempt) (*proof, error) {
	t = t.now()
	p := &proof{t: t, identifier: identifier, origin: a.Origin}
	_, l, err := t.view.Resolve(hints.Any(identifier), t.declared.Name)
	if err != nil {
		return p, nil // the text cannot be anybody's
	}
	p.lookup = l
	p.r, err = t.view.FindOne(ctx, l)
	if store.IsEntryError(err) {
		p.r, err = store.Record{}, nil
	}
	return p, err
}

// A proof is one attempt to prove to be the owner of an account. The zero record: nobody has the identifier.
type proof struct {
	t                  *Type
	lookup             store.Lookup // what the visitor named the entry by; the zero Lookup: nothing
	r                  store.Record
	identifier, origin string
	digest             string // see nobody
}

// check compares a password, if the counters admit it. An attempt that they hold back takes no
// place in the queue for a worker. Those that do wait are counted when they have a worker, so that
// no more attempts are counted and not yet judged than there are workers.
func (p *proof) check(ctx context.Context, pw string) (password.Result, error) {
	attempt, err := p.attempt(ctx)
	if err != nil {
		return password.Result{}, err
	}
	var result password.Result
	var as store.Admission
	as.Wait, err = p.t.view.Engine.LoginWait(ctx, attempt)
	if err == nil && as.Wait == 0 {
		err = p.t.db.hashers.onPool(ctx, func() (err error) {
			if as, err = p.t.view.Engine.Admit(ctx, attempt); err == nil && as.Wait == 0 {
				result = p.verify(ctx, pw)
			}
			return err
		})
	}
	switch {
	case err != nil:
		return password.Result{}, curable(err)
	case as.Wait > 0:
		e := p.event(EventThrottle)
		e.Wait = as.Wait
		p.t.db.emit(ctx, e)
		return password.Result{}, &WaitError{Wait: as.Wait}
	case !result.OK || p.r.Fields[store.FieldDisabled] != "":
		p.t.db.emit(ctx, p.event(EventFailure))
		return password.Result{}, ErrLogin
	}
	if err := p.t.view.Engine.Forgive(ctx, attempt, as); err != nil {
		p.t.warn(ctx, "a good login stays counted as a failure", p.r, err)
	}
	return result, nil
}

// verify does the same work whether there is an entry or not. Only an entry whose password was never set here may
// have a hash as the original made them.
func (p *proof) verify(ctx context.Context, pw string) password.Result {
	verify := p.t.db.hashers.Of(p.t.declared).Verify
	if p.r.Fields[store.FieldChanged] == "" {
		verify = p.t.db.hashers.Of(p.t.declared).VerifyOriginal
	}
	result, err := verify(p.hash(), pw)
	if err != nil {
		p.t.warn(ctx, "a stored hash is not usable", p.r, err)
	}
	return result
}

// event names the entry or, where there is none, a keyed hash of the identifier: people type passwords there.
func (p *proof) event(kind EventKind) Event {
	e := Event{Kind: kind, PRK: p.r.Key, Origin: p.origin}
	if !p.r.Live() {
		e.Identifier = p.nobody()
	}
	return e
}

// nobody returns an identifier that nobody has as it is counted and logged.
func (p *proof) nobody() string {
	if p.digest == "" {
		p.digest = p.t.typedDigest(p.identifier)
	}
	return p.digest
}

// attempt names the counters.
func (p *proof) attempt(ctx context.Context) (store.Counters, error) {
	if err := p.t.db.loadSecret(ctx); err != nil {
		return store.Counters{}, err
	}
	a := store.Counters{Now: p.t.view.StoreTime()}
	var err error
	if p.r.Live() {
		a.Account, err = p.t.declared.Counters(p.r)
	} else {
		a.Account, err = p.t.declared.Own("throttle", "nobody", p.nobody())
	}
	if err == nil && p.origin != "" {
		a.Name = p.t.db.originDigest(p.origin)
		a.Origin, err = p.t.declared.Own("throttle", "origin", a.Name)
	}
	return a, err
}

// warn logs what an operator should know and a visitor should not.
func (t *Type) warn(ctx context.Context, what string, r store.Record, err error) {
	t.view.Config.Log.WarnContext(ctx, what, slog.String("prk", relative(r.Key)), slog.Any("error", err))
}

// digest is 128 bits of a keyed hash of some kind of text, as text; loadSecret comes first. Under it, identifiers that
// nobody has, and origins, are counted and logged: visitors type passwords into the wrong box.
func (db *DB) digest(kind, text string) string {
	mac := hmac.New(sha256.New, []byte(*db.secret.Load()))
	mac.Write([]byte(kind + "\x00" + text))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// loadSecret reads the secret of the view's namespace, once.
func (db *DB) loadSecret(ctx context.Context) error {
	if db.secret.Load() != nil {
		return nil
	}
	text, err := db.view().Secret(ctx)
	if err != nil {
		return curable(err)
	}
	db.secret.Store(&text)
	return nil
}

// curable names what mends a record of the store's own: without it nobody logs in.
func curable(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w; 'userdb check --repair' mends it", err)
	}
	return err
}
