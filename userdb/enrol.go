package userdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/totp"
)

// A Factor describes a second factor of an entry.
type Factor struct {
	ID     string
	Method string // "totp", "passkey", or "recovery" for a set of recovery codes
	Name   string // given by its owner
	Added  time.Time
	Used   time.Time // when a login last used it, or when it was added
	Left   int       // for "recovery", how many codes can still be used
}

// TOTPOptions describes an authenticator app to enrol.
type TOTPOptions struct {
	// Name helps the owner to tell factors apart. It has at most 64 bytes.
	Name string
	// Issuer names the service, and Account the user. The app shows both beside its codes. If
	// Account is "", the UID is used.
	Issuer, Account string
}

// A TOTPEnrolment holds the secret of an authenticator app that is not confirmed yet. Only its
// owner may see it.
type TOTPEnrolment struct {
	ID     string
	Secret string // in base32, for people who type it
	URI    string // otpauth://…, for a QR code
}

// Format writes the ID, not the secret, whatever the formatting verb.
func (e TOTPEnrolment) Format(f fmt.State, _ rune) { fmt.Fprint(f, "enrolment "+e.ID) }

// LogValue returns the ID, not the secret.
func (e TOTPEnrolment) LogValue() slog.Value { return slog.StringValue(e.ID) }

// EnrolTOTP begins to enrol an authenticator app for the owner of a session. Nothing changes until
// ConfirmTOTP receives a code of the app, within an hour.
//
// The session must be verified within the last ten minutes, on level 2 if the entry has a factor;
// otherwise the error is ErrNotVerified. The error is ErrNotFound if the session has ended,
// ErrUnproven if the entry was self-registered and its address is not verified yet, and ErrInvalid
// if the name is too long, if the stored schema does not allow factors (schema.Type.Factors), if
// Options.Keys is empty, or if the entry has eight factors.
func (t *Type) EnrolTOTP(ctx context.Context, session string, o TOTPOptions) (enrolment TOTPEnrolment, err error) {
	ctx, v := t.db.begin(ctx, "EnrolTOTP", &err)
	defer v.end(&err)
	if t, err = t.readSchema(ctx); err != nil {
		return TOTPEnrolment{}, err
	}
	r, _, _, _, err := t.enrolmentSession(ctx, session, nil)
	name, wrong := factorName(o.Name)
	if err = cmp.Or(err, wrong); err != nil {
		return TOTPEnrolment{}, err
	}
	p := factor.Pending{ID: newFactorID(), Label: name}
	secret := totp.NewSecret()
	p.Sealed = t.seal(r.Key, p.Name(), secret)
	if err := t.view.Engine.BeginEnrolment(ctx, r.Key, p, t.view.StoreTime()); err != nil {
		return TOTPEnrolment{}, err
	}
	if o.Account == "" {
		o.Account = r.Key.Value()
	}
	return TOTPEnrolment{ID: p.ID, Secret: totp.Text(secret), URI: totp.URI(truncate(o.Issuer), truncate(o.Account), secret)}, nil
}

// errNoFactors means that the schema in force does not allow factors.
var errNoFactors = invalid("factor", "schema", "the stored schema does not allow second factors")

// errNoKey means that Options.Keys is empty.
var errNoKey = invalid("factor", "key", "no key was given that could encrypt the secret of a second factor")

// HasKeys reports whether Options.Keys has a key. Without one, nobody can enrol a second factor.
func (db *DB) HasKeys() bool { return db.view().Config.Keys.Any() }

// AllowsFactors reports whether entries can enrol second factors: the schema in force allows it,
// and Options.Keys has a key.
func (t *Type) AllowsFactors() bool { return t.Schema().Factors && t.ring().Any() }

// factorName returns the name of a factor as it is stored: valid UTF-8.
func factorName(name string) (string, error) {
	name = strings.ToValidUTF8(name, "\ufffd")
	if len(name) > passkeys.MaxName {
		return "", invalid("factor", "name", fmt.Sprintf("the name has over %d bytes", passkeys.MaxName))
	}
	return name, nil
}

// checkEnrolment returns an error if an entry may not have another factor, or if it was
// self-registered and its address is not verified yet.
func (t *Type) checkEnrolment(r store.Record) error {
	err := t.checkAnother(r.Factors())
	if err == nil && r.Fields[store.FieldUnproven] != "" {
		err = publicError(t.declared.CheckUnproven(r, nil, map[string]string{factor.FieldMark: "new"}))
	}
	return err
}

// checkAnother returns an error if an entry with the given mark may not have another factor.
func (t *Type) checkAnother(mark factor.Mark) error {
	n := 0
	for _, name := range mark.Names() {
		if !strings.HasPrefix(name, factor.Recovery+"/") {
			n++
		}
	}
	switch {
	case !t.declared.Schema.Factors:
		return errNoFactors
	case !t.ring().Any():
		return errNoKey
	case n >= factor.Max:
		return invalid("factor", "number", fmt.Sprintf("the entry already has %d second factors", factor.Max))
	}
	return nil
}

// readSchema reads the stored schema and returns the type under it. The stored schema decides
// whether entries may enrol factors; the schema of this program may differ or be out of date.
func (t *Type) readSchema(ctx context.Context) (*Type, error) {
	t = t.current()
	_, err := t.db.refreshForRead(ctx, t.view, t.declared.Name)
	return t.current(), err
}

// A FactorChange holds the secrets that a change of factors gives to the owner, who sees them once.
type FactorChange struct {
	// RecoveryCodes holds the new recovery codes, if any.
	RecoveryCodes []string

	// Session and Secret describe the new session, if all earlier ones ended. Otherwise they are
	// zero.
	Session Session
	Secret  string
}

// Format writes the number of codes and the ID of the session, never the codes or the secret,
// whatever the formatting verb.
func (c FactorChange) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "%d recovery codes, session %q", len(c.RecoveryCodes), c.Session.ID)
}

// LogValue returns the ID of the session, without the codes and the secret.
func (c FactorChange) LogValue() slog.Value { return slog.StringValue(c.Session.ID) }

// ConfirmTOTP enrols an authenticator app if code is one of its codes. If this is the first factor
// of the entry, all its sessions and all logins under way end, and the result has ten recovery
// codes and a new session of level 2.
//
// The errors are those of EnrolTOTP. The error is ErrLogin if the code is wrong, and ErrNotFound if
// the enrolment has expired, was confirmed, or began with a key that is no longer in Options.Keys.
// If it is ErrOutcomeUnknown, the factor may have been added; if the result then has recovery
// codes, it was.
func (t *Type) ConfirmTOTP(ctx context.Context, session, id, code string, o SessionOptions) (c FactorChange, err error) {
	ctx, v := t.db.begin(ctx, "ConfirmTOTP", &err)
	defer v.end(&err)
	if t, err = t.readSchema(ctx); err != nil {
		return FactorChange{}, err
	}
	o, err = o.withDefaults()
	if err != nil {
		return FactorChange{}, err
	}
	pendingName := factor.Pending{ID: id}.Name()
	r, s, now, values, err := t.enrolmentSession(ctx, session, []string{pendingName})
	if err != nil {
		return FactorChange{}, err
	}
	p, err := factor.ParsePending(pendingName, values[0])
	if err != nil || !p.Until.After(now) {
		return FactorChange{}, ErrNotFound
	}
	secret, err := t.open(r.Key, p.Name(), p.Sealed)
	if errors.Is(err, sealed.ErrKey) { // the key was removed; RotateKeys leaves pending enrolments
		err = ErrNotFound
	}
	if err != nil {
		return FactorChange{}, err
	}
	step, ok := int64(0), len(code) <= maxProof
	if ok {
		step, ok = totp.Match(secret, code, now, -1)
	}
	if !ok {
		return FactorChange{}, ErrLogin
	}
	f := factor.Factor{
		Kind: factor.TOTP, ID: p.ID, Made: now, Used: now, Label: p.Label,
		Accepted: fmt.Sprintf("%d:%s", step, newFactorID()), // so that nobody uses the code again
	}
	f.Sealed = t.seal(r.Key, f.Name(), secret)
	return t.enrol(ctx, r, s, f, p.Name(), o)
}

// enrol adds a factor and the given values to an entry with the session s, and removes the pending
// enrolment of the factor, if it has one. If this is the first factor, enrol also adds recovery
// codes, ends all sessions and starts a new one.
func (t *Type) enrol(
	ctx context.Context, r store.Record, s session.Session, f factor.Factor, pending string, o SessionOptions, values ...fieldText,
) (c FactorChange, err error) {
	added := []factor.Factor{f}
	first := !r.Factors().Any()
	if first {
		set, codes := t.newRecoveryCodes(r, f.Made)
		added, c.RecoveryCodes = append(added, set), codes
	}
	if err := t.view.Engine.StoreFactors(ctx, r.Key, pending, added, t.view.StoreTime()); err != nil {
		return FactorChange{}, err
	}
	r, err = t.changeFactors(ctx, r, factorEdit{session: &s, endSessions: first, add: values, mark: func(mark factor.Mark) (factor.Mark, error) {
		if mark.Any() == first {
			return "", ErrConflict
		}
		return mark.With(namesOf(added)...), t.checkAnother(mark)
	}})
	if !committed(err) {
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.current().forget(ctx, r, namesOf(added))
		}
		return FactorChange{}, err
	}
	if !first {
		return c, err
	}
	return t.startAfter(ctx, r, err, c, o, session.Session{})
}

// Factors returns the second factors of an entry, without their secrets, the oldest first and
// recovery codes last. It returns nil if the entry has none. The error is ErrNotFound if there is
// no such entry, and ErrCorrupt if a factor is absent or damaged.
func (t *Type) Factors(ctx context.Context, h hints.Hint) (all []Factor, err error) {
	ctx, v := t.db.begin(ctx, "Factors", &err)
	defer v.end(&err)
	t = t.current()
	r, err := t.record(ctx, h)
	if err != nil {
		return nil, publicError(err)
	}
	names := r.Factors().Names()
	if !r.Factors().Any() {
		return nil, nil
	}
	_, values, err := t.view.Engine.ReadFactors(ctx, r.Key, names, t.view.StoreTime())
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		f, err := t.parseFactor(r, name, values[i])
		if err != nil {
			return nil, err
		}
		described := Factor{ID: f.ID, Method: f.Kind, Name: f.Label, Added: f.Made, Used: f.Used}
		if f.Kind == factor.Recovery {
			described.Left = max(recoveryCodes-f.Uses(), 0)
		}
		all = append(all, described)
	}
	slices.SortStableFunc(all, func(a, b Factor) int {
		switch aCodes, bCodes := a.Method == factor.Recovery, b.Method == factor.Recovery; {
		case aCodes && !bCodes:
			return 1
		case bCodes && !aCodes:
			return -1
		}
		return a.Added.Compare(b.Added)
	})
	return all, nil
}

// RemoveFactor removes a second factor for the owner of a session. All sessions of the entry end,
// and the result has a new one. The recovery codes are removed together with the last factor, but
// never alone: see ReplaceRecoveryCodes. The errors are those of EnrolTOTP. The error is also
// ErrNotFound if the entry has no such factor, and ErrInvalid with the rule "last" for the last
// passkey of an entry without a password, or if the factors that would be left cannot be used, for
// example because Options.Keys lacks their key.
func (t *Type) RemoveFactor(ctx context.Context, session, id string, o SessionOptions) (c FactorChange, err error) {
	ctx, v := t.db.begin(ctx, "RemoveFactor", &err)
	defer v.end(&err)
	t = t.current()
	o, err = o.withDefaults()
	if err != nil {
		return FactorChange{}, err
	}
	r, s, _, _, err := t.verifiedSession(ctx, session, nil)
	if err != nil {
		return FactorChange{}, err
	}
	before := r.Factors()
	r, err = t.changeFactors(ctx, r, factorEdit{session: &s, endSessions: true, mark: func(mark factor.Mark) (factor.Mark, error) {
		before = mark
		for _, kind := range []string{factor.TOTP, factor.Passkey} {
			if name := kind + "/" + id; slices.Contains(mark.Names(), name) {
				return mark.Without(name), nil
			}
		}
		return "", ErrNotFound
	}})
	if !committed(err) {
		return FactorChange{}, err
	}
	t.forgetFactors(ctx, r, before)
	return t.startAfter(ctx, r, err, c, o, s)
}

// ReplaceRecoveryCodes replaces the recovery codes of an entry with a second factor, for the owner
// of a session, and returns the new codes. The errors are those of EnrolTOTP. The error is also
// ErrNotFound if the entry has no factor.
func (t *Type) ReplaceRecoveryCodes(ctx context.Context, session string) (codes []string, err error) {
	ctx, v := t.db.begin(ctx, "ReplaceRecoveryCodes", &err)
	defer v.end(&err)
	t = t.current()
	r, s, now, _, err := t.verifiedSession(ctx, session, nil)
	if err != nil {
		return nil, err
	}
	return t.replaceRecoveryCodes(ctx, r, now, &s)
}

// ResetRecoveryCodes does what ReplaceRecoveryCodes does, for an operator who has verified the
// identity of the owner.
func (t *Type) ResetRecoveryCodes(ctx context.Context, h hints.Hint) (codes []string, err error) {
	ctx, v := t.db.begin(ctx, "ResetRecoveryCodes", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return nil, publicError(err)
	}
	t = t.current()
	now, _, err := t.view.Engine.ReadFactors(ctx, r.Key, nil, t.view.StoreTime())
	if err != nil {
		return nil, err
	}
	return t.replaceRecoveryCodes(ctx, r, now, nil)
}

func (t *Type) replaceRecoveryCodes(ctx context.Context, r store.Record, now time.Time, s *session.Session) ([]string, error) {
	if !r.Factors().Any() {
		return nil, ErrNotFound
	}
	if !t.ring().Any() {
		return nil, errNoKey
	}
	set, codes := t.newRecoveryCodes(r, now)
	if err := t.view.Engine.StoreFactors(ctx, r.Key, "", []factor.Factor{set}, t.view.StoreTime()); err != nil {
		return nil, err
	}
	before := r.Factors()
	r, err := t.changeFactors(ctx, r, factorEdit{session: s, mark: func(mark factor.Mark) (factor.Mark, error) {
		if before = mark; !mark.Any() {
			return "", ErrNotFound
		}
		kept := slices.DeleteFunc(mark.Names(), func(name string) bool { return strings.HasPrefix(name, factor.Recovery+"/") })
		return factor.Mark("").With(append(kept, set.Name())...), nil
	}})
	if !committed(err) {
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.forget(ctx, r, []string{set.Name()})
		}
		return nil, err
	}
	t.forgetFactors(ctx, r, before)
	return codes, err
}

// ResetFactors removes the second factors with the given IDs, or all if no IDs are given, and ends
// the sessions of the entry. It is for an operator who has verified the identity of the owner. If
// the entry has none of the factors, nothing changes. The errors are those of Update.
func (t *Type) ResetFactors(ctx context.Context, h hints.Hint, ids ...string) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "ResetFactors", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return Entry{}, publicError(err)
	}
	before := r.Factors()
	r, err = t.changeFactors(ctx, r, factorEdit{endSessions: true, mark: func(mark factor.Mark) (factor.Mark, error) {
		before = mark
		if len(ids) == 0 {
			return "", nil
		}
		for _, name := range mark.Names() {
			if _, id, _ := strings.Cut(name, "/"); slices.Contains(ids, id) {
				mark = mark.Without(name)
			}
		}
		return mark, nil
	}})
	t = t.current()
	if committed(err) {
		t.forgetFactors(ctx, r, before)
	}
	return t.entry(r, err)
}

// RotateKeys encrypts the secrets of all factors of the type with the first of Options.Keys, and
// returns how many it encrypted again. Afterwards the other keys are no longer needed, unless
// another process still encrypts with one of them. RotateKeys leaves pending enrolments as they
// are: without the key with which an enrolment began, ConfirmTOTP returns ErrNotFound, and the
// owner must begin again. RotateKeys may be interrupted and called again. If an entry or a secret
// cannot be read, RotateKeys continues and returns ErrCorrupt at the end. If a server restarts, or
// a replica takes over, RotateKeys encrypts again what they lost, and counts it twice.
func (t *Type) RotateKeys(ctx context.Context) (rotated int, err error) {
	ctx, v := t.db.begin(ctx, "RotateKeys", &err)
	defer v.end(&err)
	t = t.current()
	if !t.ring().Any() {
		return 0, errNoKey
	}
	var failure error
	err = t.view.UntilKept(ctx, func() error {
		for e, err := range t.All(ctx, Query{}) {
			n := 0
			if err == nil {
				n, err = t.rotate(ctx, store.Record{Key: e.key.In(t.view.NS), Fields: e.fields})
			}
			if rotated += n; errors.Is(err, ErrCorrupt) {
				failure = err
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	return rotated, cmp.Or(err, failure)
}

// rotate encrypts the secrets of an entry's factors with the first key, and returns how many it
// encrypted.
func (t *Type) rotate(ctx context.Context, r store.Record) (rotated int, err error) {
	names := r.Factors().Names()
	var failure error // for a secret that no key decrypts
	for range maxAttempts {
		if len(names) == 0 {
			return rotated, failure
		}
		_, values, err := t.view.Engine.ReadFactors(ctx, r.Key, names, t.view.StoreTime())
		if err != nil {
			return rotated, err
		}
		var again []string
		for i, name := range names {
			f, err := factor.Parse(name, values[i])
			if err != nil { // removed meanwhile, or damaged: check.Run reports it
				continue
			}
			if t.ring().Current(f.Sealed) {
				continue
			}
			secret, err := t.open(r.Key, name, f.Sealed)
			if err != nil {
				failure = err
				continue
			}
			replacement := f
			replacement.Sealed = t.seal(r.Key, name, secret)
			switch err := t.view.Engine.ReplaceFactor(ctx, r.Key, f, replacement); {
			case errors.Is(err, ErrConflict): // a login used it at the same moment
				again = append(again, name)
			case err != nil:
				return rotated, err
			default:
				rotated++
			}
		}
		names = again
	}
	return rotated, ErrConflict
}

// verifiedSession returns the entry and the session of a secret, the time of the store, and the
// values of the named members of the factor record. The error is ErrNotVerified unless the owner
// was verified within factorAge, on level 2 if the entry has a factor.
func (t *Type) verifiedSession(ctx context.Context, secret string, names []string) (
	r store.Record, s session.Session, now time.Time, values []string, err error,
) {
	if r, s, err = t.session(ctx, secret); err != nil {
		return r, s, now, nil, err
	}
	if now, values, err = t.view.Engine.ReadFactors(ctx, r.Key, names, t.view.StoreTime()); err != nil {
		return r, s, now, nil, err
	}
	verified := s.Verified
	if r.Factors().Any() {
		verified = s.VerifiedLevel2
	}
	if now.Sub(verified) > factorAge {
		return r, s, now, nil, ErrNotVerified
	}
	return r, s, now, values, nil
}

// enrolmentSession returns what verifiedSession returns, or the error of checkEnrolment.
func (t *Type) enrolmentSession(ctx context.Context, secret string, names []string) (
	r store.Record, s session.Session, now time.Time, values []string, err error,
) {
	r, s, now, values, err = t.verifiedSession(ctx, secret, names)
	if err == nil {
		err = t.checkEnrolment(r)
	}
	return r, s, now, values, err
}

// A factorEdit describes a change of the second factors of an entry.
type factorEdit struct {
	session     *session.Session // if not nil, it must be valid when the change is made
	endSessions bool             // if the mark changes, all sessions end
	add         []fieldText      // values that the same change adds
	// mark returns the new mark. It is called with each version of the mark that changeFactors
	// tries to change.
	mark func(factor.Mark) (factor.Mark, error)
}

// changeFactors changes the mark of an entry. The same change removes the digests of passkeys that
// the mark no longer lists.
func (t *Type) changeFactors(ctx context.Context, r store.Record, edit factorEdit) (store.Record, error) {
	before, r, err := t.rewriteInForce(ctx, r, func(t *Type, current store.Record) (store.Change, bool, error) {
		return t.factorChange(ctx, current, edit)
	})
	if committed(err) && before.Factors() != r.Factors() {
		t.db.emit(ctx, Event{Kind: EventFactors, Key: r.Key})
		t.current().clearSessions(ctx, before, r)
	}
	return r, err
}

// factorChange returns the change for an edit of an entry's factors, and reports whether there is
// anything to change.
func (t *Type) factorChange(ctx context.Context, current store.Record, edit factorEdit) (c store.Change, due bool, err error) {
	if edit.session != nil && !edit.session.ValidFor(current.ForSessions()) {
		return c, false, ErrNotFound
	}
	mark, err := edit.mark(current.Factors())
	if err != nil || mark == current.Factors() {
		return c, false, err
	}
	if !t.declared.Schema.Factors && len(mark.Names()) > len(current.Factors().Names()) {
		return c, false, errNoFactors
	}
	own := map[string]string{factor.FieldMark: string(mark)}
	if edit.endSessions {
		change.EndSessions(own)
	}
	facets := change.Facets(current)
	if err := t.addTexts(current, facets, own, edit.add); err != nil {
		return c, false, err
	}
	dropped, err := t.dropDigests(current, mark, facets, own)
	if err == nil && edit.session != nil {
		err = t.checkLast(ctx, current, mark)
	}
	if err != nil {
		return c, false, err
	}
	c, due, err = t.declared.Update(current, facets, own)
	if dropped && err == nil {
		t.declared.Hold(&c, current, t.view.Now())
	}
	return c, due, err
}

// startAfter starts a session after a change of factors that returned err, which may be nil. The
// new session counts as verified at the same times as old, or now if old is the zero Session.
func (t *Type) startAfter(
	ctx context.Context, r store.Record, err error, c FactorChange, o SessionOptions, old session.Session,
) (FactorChange, error) {
	t = t.current()
	e, readErr := t.entry(r, nil)
	if readErr != nil {
		return c, readErr
	}
	e.proved, e.verified, e.verifiedLevel2 = true, old.Verified, old.VerifiedLevel2
	var startErr error
	if c.Session, c.Secret, startErr = t.startSession(ctx, e, o); startErr != nil {
		return c, fmt.Errorf("%w: the factors were changed: %w", ErrOutcomeUnknown, startErr)
	}
	return c, err
}

// forgetFactors removes the factors that before lists and the entry no longer has.
func (t *Type) forgetFactors(ctx context.Context, r store.Record, before factor.Mark) {
	listed := r.Factors().Names()
	t.forget(ctx, r, slices.DeleteFunc(before.Names(), func(name string) bool { return slices.Contains(listed, name) }))
}

// forget removes unused members of an entry's factor record. If that fails, they stay as long as
// the entry, without effect.
func (t *Type) forget(ctx context.Context, r store.Record, names []string) {
	if len(names) == 0 {
		return
	}
	if err := t.view.Engine.ForgetFactors(ctx, r.Key, names); err != nil {
		t.warn(ctx, "cannot remove what is left of a second factor", r, err)
	}
}

// newRecoveryCodes returns new recovery codes, and the factor that stores their hashes.
func (t *Type) newRecoveryCodes(r store.Record, now time.Time) (set factor.Factor, codes []string) {
	set = factor.Factor{Kind: factor.Recovery, ID: newFactorID(), Made: now, Used: now}
	var hashes []byte
	for range recoveryCodes {
		var digits [recoveryDigits]byte
		rand.Read(digits[:]) // never returns an error
		for i, d := range digits {
			digits[i] = codeAlphabet[int(d)%len(codeAlphabet)] // 256 is a multiple of 32
		}
		code := string(digits[:recoveryDigits/2]) + "-" + string(digits[recoveryDigits/2:])
		codes, hashes = append(codes, code), append(hashes, hashCode(code)...)
	}
	set.Sealed = t.seal(r.Key, set.Name(), hashes)
	return set, codes
}

// newFactorID returns a new ID, which consists of lower-case letters and digits.
func newFactorID() string { return strings.ToLower(rand.Text()) }

func namesOf(factors []factor.Factor) (names []string) {
	for _, f := range factors {
		names = append(names, f.Name())
	}
	return names
}
