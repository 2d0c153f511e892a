package userdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
)

// PasskeyProof returns the proof that a passkey's answer gives. Package passkey calls it. Methods
// that take a Proof verify the answer with the stored key.
func PasskeyProof(a passkeys.Answer) Proof { return Proof{kind: factor.Passkey, answer: a} }

// isFor reports whether the proof may be used for a purpose. The challenge of a passkey is made for
// one purpose and secret; other proofs may be used for any purpose.
func (p Proof) isFor(purpose, secret string) bool {
	return p.kind != factor.Passkey || p.answer.For == passkeys.Binding(purpose, secret)
}

// checkPasskeyField returns an ErrInvalid if a field cannot hold the digests of passkeys.
func (t *Type) checkPasskeyField(field string) error {
	if !slices.Contains(t.declared.Secondary, field) || slices.Contains(t.declared.Typed, field) {
		return invalid(field, "passkey", fmt.Sprintf(
			`the schema needs the field %q: {"role": "secondary", "typed": false, "many": 8} for passkeys`, field,
		))
	}
	return nil
}

// BeginPasskey checks that the owner of a session may enrol a passkey, whose digest the field will
// hold. It returns the UID, and the stored form of the entry's passkeys. Package passkey calls it.
// The errors are those of EnrolTOTP.
func (t *Type) BeginPasskey(ctx context.Context, session, field string) (uid string, stored [][]byte, err error) {
	ctx, v := t.db.begin(ctx, "BeginPasskey", &err)
	defer v.end(&err)
	if t, err = t.readSchema(ctx); err != nil {
		return "", nil, err
	}
	r, _, _, _, err := t.enrolmentSession(ctx, session, nil)
	if err == nil {
		err = t.checkPasskeyField(field)
	}
	if err != nil {
		return "", nil, err
	}
	names := r.Factors().Passkeys()
	if len(names) == 0 {
		return r.Key.Value(), nil, nil
	}
	_, values, err := t.view.Engine.ReadFactors(ctx, r.Key, names, t.view.StoreTime())
	if err != nil {
		return "", nil, err
	}
	for i, name := range names {
		f, err := t.parseFactor(r, name, values[i])
		if err != nil {
			return "", nil, err
		}
		credential, err := t.open(r.Key, name, f.Sealed)
		if err != nil {
			return "", nil, err
		}
		stored = append(stored, credential)
	}
	return r.Key.Value(), stored, nil
}

// parseFactor parses the stored form of a factor.
func (t *Type) parseFactor(r store.Record, name, value string) (factor.Factor, error) {
	f, err := factor.Parse(name, value)
	if err != nil {
		err = fmt.Errorf("%w: factor %s of %s is damaged or absent", ErrCorrupt, name, relativeKey(r.Key))
	}
	return f, err
}

// AddPasskey enrols a passkey for the owner of a session, in one change with its digest. Package
// passkey calls it, after it has verified the answer that holds the passkey. If it is the first
// factor of the entry, AddPasskey does what ConfirmTOTP does.
//
// The errors are those of EnrolTOTP. The error is also ErrLogin if the challenge was made for
// another session, and ErrDuplicate if an entry already has the passkey.
func (t *Type) AddPasskey(
	ctx context.Context, session string, p passkeys.Credential, o SessionOptions,
) (c FactorChange, err error) {
	ctx, v := t.db.begin(ctx, "AddPasskey", &err)
	defer v.end(&err)
	if t, err = t.readSchema(ctx); err != nil {
		return FactorChange{}, err
	}
	o, err = o.withDefaults()
	if err == nil && p.For != passkeys.Binding(passkeys.ForRegister, session) {
		err = ErrLogin
	}
	if err != nil {
		return FactorChange{}, err
	}
	r, s, now, _, err := t.enrolmentSession(ctx, session, nil)
	if err == nil {
		err = t.checkPasskeyField(p.Field)
	}
	name, wrong := factorName(p.Name)
	if err == nil {
		err = wrong
	}
	if err == nil && (len(p.Stored) == 0 || len(p.Stored) > passkeys.MaxStored) {
		err = invalid("factor", "size", "the passkey is too large")
	}
	if err != nil {
		return FactorChange{}, err
	}
	f := factor.Factor{
		Kind: factor.Passkey, ID: factor.PasskeyID(p.Digest, newFactorID()[:passkeyRandom]), Made: now, Used: now,
		Label: name, Accepted: strconv.FormatUint(uint64(p.Counter), 10) + ":" + newFactorID(),
	}
	f.Sealed = t.seal(r.Key, f.Name(), p.Stored)
	return t.enrol(ctx, r, s, f, "", o, fieldText{p.Field, p.Digest})
}

// passkeyRandom is the length of the random part of a passkey's ID.
const passkeyRandom = 16

// A fieldText is a value that a change adds to a field.
type fieldText struct{ field, text string }

// addTexts adds to facets and own the values that a change adds to an entry. The entry may already
// have the digest of a passkey that it does not list.
func (t *Type) addTexts(r store.Record, facets, own map[string]string, values []fieldText) error {
	for _, v := range values {
		var texts []string
		for _, f := range t.declared.Values(r.Fields, v.field) {
			texts = append(texts, f.Written)
		}
		if slices.Contains(texts, v.text) {
			if slices.ContainsFunc(r.Factors().Passkeys(), func(name string) bool { return factor.IsOfDigest(name, v.text) }) {
				return store.DuplicateField(v.field)
			}
			continue
		}
		if err := t.declared.SetTexts(r, facets, own, v.field, append(texts, v.text), t.view.Now()); err != nil {
			return err
		}
	}
	return nil
}

// dropDigests removes from facets and own the digests of the passkeys that the mark of r lists and
// next does not. It reports whether it removed any.
func (t *Type) dropDigests(r store.Record, next factor.Mark, facets, own map[string]string) (bool, error) {
	gone := slices.DeleteFunc(r.Factors().Passkeys(), func(name string) bool { return slices.Contains(next.Names(), name) })
	if len(gone) == 0 {
		return false, nil
	}
	dropped := false
	for _, field := range t.declared.Secondary {
		if slices.Contains(t.declared.Typed, field) {
			continue
		}
		var kept []string
		values := t.declared.Values(r.Fields, field)
		for _, f := range values {
			if !slices.ContainsFunc(gone, func(name string) bool { return factor.IsOfDigest(name, f.Written) }) {
				kept = append(kept, f.Written)
			}
		}
		if len(kept) == len(values) {
			continue
		}
		dropped = true
		if err := t.declared.SetTexts(r, facets, own, field, kept, t.view.Now()); err != nil {
			return false, err
		}
	}
	return dropped, nil
}

// checkLast returns an ErrInvalid if a change of an entry's factors to those of next would prevent
// its owner from signing in: because none of the factors that remain can be used, or because no
// usable passkey remains and the entry has no password.
func (t *Type) checkLast(ctx context.Context, r store.Record, next factor.Mark) error {
	usable, err := t.usableFactors(ctx, r)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(usable), func(name string) bool { return !slices.Contains(next.Names(), name) })
	switch {
	case len(left) == len(usable) || hasPasskey(left):
		return nil
	case next.Any() && len(left) == 0:
		return invalid("factor", "last", "the owner would no longer be able to sign in, because the other factors cannot be used: first remove them, or add another one")
	case hasPasskey(usable) && !t.hasPassword(r):
		return invalid("factor", "last", "the owner would no longer be able to sign in: first set a password or add another passkey")
	}
	return nil
}

// usableFactors returns the names of the apps and passkeys of an entry that can be used: those that
// can be decrypted here, except passkeys whose digest the entry has lost. If the program has no
// keys at all, usableFactors assumes that all of them can be decrypted.
func (t *Type) usableFactors(ctx context.Context, r store.Record) (names []string, err error) {
	listed := r.Factors().Names()
	if len(listed) == 0 {
		return nil, nil
	}
	_, values, err := t.view.Engine.ReadFactors(ctx, r.Key, listed, t.view.StoreTime())
	if err != nil {
		return nil, err
	}
	for i, name := range listed {
		f, err := factor.Parse(name, values[i])
		if err != nil || f.Kind == factor.Recovery || f.Kind == factor.Passkey && !hasDigest(r, name) {
			continue
		}
		if _, err := t.open(r.Key, name, f.Sealed); err == nil || !t.ring().Any() {
			names = append(names, name)
		}
	}
	return names, nil
}

// hasDigest reports whether an entry has the digest of a passkey. It looks at every field, because
// the one that holds digests may be new in the stored schema.
func hasDigest(r store.Record, passkey string) bool {
	for field, text := range r.Fields {
		if !store.OwnField(field) && factor.IsOfDigest(passkey, text) {
			return true
		}
	}
	return slices.ContainsFunc(store.FurtherIn(r.Fields, ""), func(f store.Further) bool { return factor.IsOfDigest(passkey, f.Written) })
}

// hasPasskey reports whether one of the names of factors is that of a passkey.
func hasPasskey(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, factor.Passkey+"/") })
}

// LoginPasskey returns the entry whose passkey gave the answer that p holds. It needs no first
// step, because the answer proves possession of the passkey and the authenticator has verified its
// user. StartSession then starts a session of level 2. Of any number of callers with one answer,
// one succeeds.
//
// The error is ErrLogin if the proof is not from a passkey, if its challenge was made for another
// purpose, if no entry has the passkey, if the entry is disabled, or if the answer is wrong, was
// used before, or has a counter that shows that the passkey was copied. It is ErrTooManyAttempts
// with a *WaitError if the entry has signed in with passkeys 200 times within about an hour, and
// ErrCorrupt as for Prove. As wrong answers cost their sender nothing, a failure is reported as an
// event at most once an hour for each entry, for each origin, and for all unknown passkeys
// together.
func (t *Type) LoginPasskey(ctx context.Context, p Proof, a Attempt) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "LoginPasskey", &err)
	defer v.end(&err)
	if t = t.current(); t.checkPasskeyField(p.answer.Field) != nil {
		// The field may be new in the stored schema.
		if t, err = t.readSchema(ctx); err != nil {
			return Entry{}, err
		}
	}
	r, err := t.loginPasskey(ctx, p, a.Origin)
	failure := Event{Kind: EventFailure, Key: r.Key, Origin: a.Origin}
	if errors.Is(err, ErrLogin) && t.db.countEvent(t.db.cheapLimits("passkey", failure)...) {
		t.db.emit(ctx, failure)
	}
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

func (t *Type) loginPasskey(ctx context.Context, p Proof, origin string) (r store.Record, err error) {
	if p.kind != factor.Passkey || p.answer.For != "" {
		return r, ErrLogin
	}
	if err := t.checkPasskeyField(p.answer.Field); err != nil {
		return r, err
	}
	r, err = t.record(ctx, hints.Field(p.answer.Field, p.answer.Digest))
	if errors.Is(err, ErrNotFound) {
		return store.Record{}, ErrLogin
	}
	if err != nil {
		return store.Record{}, publicError(err)
	}
	names := t.passkeysOf(r, p)
	if r.Fields[store.FieldDisabled] != "" || len(names) == 0 {
		return r, ErrLogin
	}
	name, err := t.acceptPasskey(ctx, r, names, p, origin)
	if err != nil {
		return r, err
	}
	// Read the entry again, as Login does, in case it lost the right to log in meanwhile.
	current, err := t.view.FindOne(ctx, store.Lookup{PRK: r.Key})
	if errors.Is(err, ErrNotFound) {
		return r, ErrLogin
	}
	if err != nil {
		return r, err
	}
	if !slices.Contains(t.passkeysOf(current, p), name) || current.Fields[store.FieldDisabled] != "" {
		return r, ErrLogin
	}
	return current, nil
}

// acceptPasskey verifies an answer and, if it is right, spends it. names are the passkeys that may
// have given the answer; acceptPasskey returns the one that did.
func (t *Type) acceptPasskey(ctx context.Context, r store.Record, names []string, p Proof, origin string) (name string, err error) {
	digest, err := t.db.countedOrigin(ctx, origin)
	if err != nil {
		return "", err
	}
	spent := factor.SpentName(p.answer.Challenge)
	_, values, err := t.view.Engine.ReadFactors(ctx, r.Key, append(slices.Clone(names), spent), t.view.StoreTime())
	if err != nil {
		return "", err
	}
	if values[len(names)] != "" {
		return "", ErrLogin
	}
	name, counter, err := t.verifyPasskey(ctx, r, names, values, p, origin)
	if err != nil {
		return "", err
	}
	wait, err := t.view.Engine.AcceptPasskey(ctx, factor.Accept{
		PRK: r.Key, Hash: p.answer.Challenge, Until: p.answer.Until.Add(clockSkew), Attempt: newFactorID(), Factor: name,
		Counter: uint32(counter), Origin: digest, Now: t.view.StoreTime(),
	})
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
		return "", ErrLogin // another caller used the answer, or the passkey was removed
	case err != nil:
		return "", err
	case wait > 0:
		t.db.emit(ctx, Event{Kind: EventThrottle, Key: r.Key, Origin: origin, Wait: wait})
		return "", &WaitError{Wait: wait}
	}
	return name, nil
}

// clockSkew is the tolerated difference between the clocks of the processes and of the store, for
// answers to LoginPasskey.
const clockSkew = time.Hour

// passkeysOf returns the names of the entry's passkeys that may have given the answer: those with
// its digest, if the entry has that digest.
func (t *Type) passkeysOf(r store.Record, p Proof) (names []string) {
	has := slices.ContainsFunc(t.declared.Values(r.Fields, p.answer.Field), func(f store.Further) bool {
		return f.Written == p.answer.Digest
	})
	for _, name := range r.Factors().Passkeys() {
		if has && factor.IsOfDigest(name, p.answer.Digest) {
			names = append(names, name)
		}
	}
	return names
}

// verifyPasskey returns the name of the passkey that gave the answer, and its counter. values holds
// the stored factors with the given names.
//
// Unless the last counter is 0, an answer whose counter is not larger comes from a copy of the
// passkey, or from the passkey after a copy has signed in. It is refused, and reported as an event.
func (t *Type) verifyPasskey(
	ctx context.Context, r store.Record, names, values []string, p Proof, origin string,
) (name string, counter int64, err error) {
	err = ErrLogin
	for i, name := range names {
		f, parseErr := t.parseFactor(r, name, values[i])
		if parseErr != nil {
			err = parseErr
			continue
		}
		stored, openErr := t.open(r.Key, name, f.Sealed)
		if openErr != nil {
			err = openErr
			continue
		}
		n, verifyErr := p.answer.Verify(stored)
		if verifyErr != nil {
			continue
		}
		if last := f.Last(); last > 0 && int64(n) <= last {
			t.db.emit(ctx, Event{Kind: EventPasskeyClone, Key: r.Key, Origin: origin})
			return "", 0, ErrLogin
		}
		return name, int64(n), nil
	}
	return "", 0, err
}
