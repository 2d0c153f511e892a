package userdb

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
)

// An Attempt says where a login comes from.
type Attempt struct {
	// Origin is an address or a name that the caller vouches for: not what a visitor can choose. ""
	// is not known: then all visitors are strangers to an account.
	Origin string
}

// Login returns the entry that has the identifier under any of its secondary fields, if the password
// is its own. The identifier is a visitor's text: it is never parsed as a key. A hash that is foreign,
// of another cost or pepper, or as the original made it, is replaced. The entry is as it was read last, when
// nothing was left to be done: after Disable, Delete, SetPassword or ChangePassword have returned no login
// reads it as it was before, however long it took until then.
//
// ErrLogin is the one answer, after the same work, to an unknown identifier, a wrong password, an
// entry without one and a disabled one. ErrTooManyAttempts says that nothing was checked, because
// too many attempts failed, and how long to wait. ErrUnavailable also says that more logins wait
// for a processor than can be served before the deadline of ctx. ErrCorrupt names a broken record of the
// store's own, without which nobody can be judged, or the entry that cannot be read.
//
// Failures are counted for each account, and for each origin over all accounts; an identifier that
// nobody has counts as an account. After ten failures in a day delays begin, which double from a
// second to a quarter of an hour, and after sixty the account is closed to strangers for the rest of
// the day; an origin is held back after thirty failures in an hour. Of the five origins that
// logged in to an account last, in 90 days, each has eight failures of its own before it counts as a
// stranger. A new password forgets all failures. An attempt counts as a failure while its password is
// being checked, so ten logins of one account at the same moment can delay the eleventh.
func (t *Type) Login(ctx context.Context, identifier, pw string, a Attempt) (Entry, error) {
	g, err := t.visitor(ctx, identifier, a)
	if err != nil {
		return Entry{}, err
	}
	why, err := g.stand(ctx, pw)
	renewed := ""
	if err == nil && why != "" {
		renewed, err = g.renew(ctx, pw, why)
	}
	if err != nil {
		return Entry{}, err
	}
	e, err := t.entry(g.r)
	if err != nil {
		t.db.emit(ctx, g.event(EventFailure))
		return Entry{}, err
	}
	t.db.emit(ctx, Event{Kind: EventLogin, PRK: g.r.Key, Origin: a.Origin, Renewed: renewed})
	return e, nil
}

// standAttempts bounds how often a password is checked anew because the hash changed meanwhile.
const standAttempts = 4

// stand checks a password, and once it was right that it still is: an attempt may have waited for a
// worker while its owner set another password or an operator disabled the entry. It returns what speaks
// for a new hash.
func (g *guess) stand(ctx context.Context, pw string) (renew string, err error) {
	for range standAttempts {
		result, err := g.check(ctx, pw)
		if err != nil {
			return "", err
		}
		same, err := g.look(ctx, g.hash())
		if err != nil || same {
			return result.Renew, err
		}
		// Another hash, be it a renewed one: then the password is right for that, too.
	}
	return "", ErrConflict
}

// look reads the entry anew, and reports whether its hash is one of those that the password is right for. A
// login ends with a look: what ended before it the right to log in lets nobody in.
func (g *guess) look(ctx context.Context, right ...string) (bool, error) {
	found, err := g.t.db.view.Engine.Find(ctx, []store.Lookup{{PRK: g.r.Key}})
	if err != nil {
		return false, err
	}
	now, err := found[0].Record, found[0].Err
	switch {
	case errors.Is(err, ErrNotFound), err == nil && (now.Fields[store.FieldDisabled] != "" || !g.lookup.Names(now)):
		g.t.db.emit(ctx, g.event(EventFailure))
		return false, ErrLogin
	case err != nil:
		return false, err
	}
	g.r = now
	return g.hash() != "" && slices.Contains(right, g.hash()), nil
}

// hash is the hash that the entry had when it was read last.
func (g *guess) hash() string { return g.r.Fields[store.FieldPassword] }

// renew stores a new hash of a password that just proved right, and returns why, if it did. That takes as long
// as a hash does; so the entry is judged once more behind it, whatever became of the new hash.
func (g *guess) renew(ctx context.Context, pw, why string) (renewed string, err error) {
	hash := g.replace(ctx, pw)
	switch same, err := g.look(ctx, g.hash(), hash); {
	case err != nil:
		return "", err
	case !same:
		_, err = g.stand(ctx, pw)
		return "", err
	case g.hash() != hash:
		return "", nil
	}
	return why, nil
}

// replace tries to store a new hash, and returns it. Where another login was faster, or the entry changed, it
// stays as it is by then.
func (g *guess) replace(ctx context.Context, pw string) string {
	hash, err := g.t.makeHash(ctx, pw)
	if err == nil {
		err = g.store(ctx, hash)
	}
	if !done(err) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
		g.t.warn(ctx, "a hash is not renewed", g.r, err)
	}
	return hash
}

func (g *guess) store(ctx context.Context, hash string) error {
	wires := change.Bare(g.r)
	wires[store.FieldPassword] = hash
	c, _, err := g.t.t.Update(g.r, wires, nil)
	if err == nil {
		_, err = g.t.apply(ctx, c, g.r)
	}
	return err
}

// visitor begins an attempt of whoever gives an identifier, at the entry that has it or at nobody's.
func (t *Type) visitor(ctx context.Context, identifier string, a Attempt) (*guess, error) {
	g := &guess{t: t, identifier: identifier, origin: a.Origin}
	s, err := t.db.view.Resolve(hints.Any(identifier), t.t.Name)
	if err != nil || len(s.Lookup.SRKs) == 0 {
		return g, nil // the text cannot be anybody's
	}
	g.lookup = s.Lookup
	found, err := t.db.view.Look(ctx, []store.Lookup{s.Lookup})
	if err == nil {
		g.r, err = found[0].Record, found[0].Err
	}
	if store.IsEntryError(err) {
		g.r, err = store.Record{}, nil
	}
	return g, err
}

// A guess is one attempt to prove to be somebody. The zero record is nobody's.
type guess struct {
	t                  *Type
	lookup             store.Lookup // what the visitor named the entry by; the zero Lookup: nothing
	r                  store.Record
	identifier, origin string
}

// check compares a password, if the counters admit it, when a worker is free: so no more attempts
// are counted and not yet judged than there are workers.
func (g guess) check(ctx context.Context, pw string) (password.Result, error) {
	attempt, err := g.attempt(ctx)
	if err != nil {
		return password.Result{}, err
	}
	var result password.Result
	var as store.Admission
	var failed error
	job := func() {
		if as, failed = g.t.db.view.Engine.Admit(ctx, attempt); failed == nil && as.Wait == 0 {
			result = g.verify(ctx, pw)
		}
	}
	if err := g.t.onPool(ctx, job); err != nil {
		return password.Result{}, err
	}
	switch {
	case failed != nil:
		return password.Result{}, curable(failed)
	case as.Wait > 0:
		e := g.event(EventThrottle)
		e.Wait = as.Wait
		g.t.db.emit(ctx, e)
		return password.Result{}, &WaitError{Wait: as.Wait}
	case !result.OK || g.r.Fields[store.FieldDisabled] != "":
		g.t.db.emit(ctx, g.event(EventFailure))
		return password.Result{}, ErrLogin
	}
	if err := g.t.db.view.Engine.Forgive(ctx, attempt, as); err != nil {
		g.t.warn(ctx, "a good login stays counted as a failure", g.r, err)
	}
	return result, nil
}

// verify does the same work whoever is asked for. Only an entry whose password was never set here may have one
// of the original's making.
func (g guess) verify(ctx context.Context, pw string) password.Result {
	verify := g.t.hasher().Verify
	if g.r.Fields[store.FieldChanged] == "" {
		verify = g.t.hasher().VerifyOriginal
	}
	result, err := verify(g.hash(), pw)
	if err != nil {
		g.t.warn(ctx, "a stored hash is not usable", g.r, err)
	}
	return result
}

// event names the entry, or of nobody's identifier a keyed hash: people type passwords there.
func (g guess) event(kind EventKind) Event {
	e := Event{Kind: kind, PRK: g.r.Key, Origin: g.origin}
	if !g.r.Live() {
		e.Identifier = g.nobody()
	}
	return e
}

// nobody is an identifier that nobody has, as it is counted and logged.
func (g guess) nobody() string {
	return g.t.db.secret.digest("identifier", g.t.t.Schema.Canonical(g.identifier))
}

// attempt names the counters.
func (g guess) attempt(ctx context.Context) (store.Attempt, error) {
	if err := g.t.db.loadSecret(ctx); err != nil {
		return store.Attempt{}, err
	}
	a := store.Attempt{Now: g.t.db.view.StoreTime()}
	var err error
	if g.r.Live() {
		a.Account, err = g.t.t.Counters(g.r)
	} else {
		a.Account, err = g.t.t.Own("throttle", "nobody", g.nobody())
	}
	if err == nil && g.origin != "" {
		a.Name = g.t.db.secret.digest("origin", g.origin)
		a.Origin, err = g.t.t.Own("throttle", "origin", a.Name)
	}
	return a, err
}

// warn logs what an operator should know and a visitor should not.
func (t *Type) warn(ctx context.Context, what string, r store.Record, err error) {
	t.db.view.Log.WarnContext(ctx, what, slog.String("prk", relative(r.Key)), slog.Any("error", err))
}

// A secret keys the hashes under which identifiers that nobody has, and origins, are counted and
// logged: visitors type passwords into the wrong box. It is made once for each namespace, and lies
// in the database as ~/secret.
type secret struct{ key atomic.Pointer[string] }

// digest is 128 bits of a keyed hash of some kind of text, as text; loadSecret comes first.
func (s *secret) digest(kind, text string) string {
	mac := hmac.New(sha256.New, []byte(*s.key.Load()))
	mac.Write([]byte(kind + "\x00" + text))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// loadSecret reads the secret of the view's namespace, or makes it.
func (db *DB) loadSecret(ctx context.Context) error {
	if db.secret.key.Load() != nil {
		return nil
	}
	key, err := recordkey.Own("secret")
	if err != nil {
		return err
	}
	var fresh [32]byte
	rand.Read(fresh[:]) // never fails, says its documentation
	key = key.In(db.view.NS)
	text, err := db.view.Engine.Secret(ctx, key, hex.EncodeToString(fresh[:]))
	if raw, bad := hex.DecodeString(text); err == nil && (bad != nil || len(raw) != len(fresh)) {
		err = &store.CorruptError{Key: key.String(), Reason: "not the 64 hexadecimal digits that were made"}
	}
	if err != nil {
		return curable(err)
	}
	db.secret.key.Store(&text)
	return nil
}

// curable names what mends a record of the store's own: without it nobody logs in.
func curable(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w; 'userdb check --repair' mends it", err)
	}
	return err
}
