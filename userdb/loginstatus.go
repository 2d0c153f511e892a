package userdb

import (
	"context"
	"slices"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/store/token"
)

// A PasswordState describes the password of an entry, and whether it can be checked.
type PasswordState string

// The states of a password.
const (
	PasswordNone   PasswordState = "none"   // the entry has no password
	PasswordStored PasswordState = "stored" // the password can be checked
	// PasswordUnusable means that the entry has a hash that this program cannot check, for example
	// because it does not have the pepper.
	PasswordUnusable PasswordState = "unusable"
)

// A LoginStatus holds everything that Login considers, except the password itself.
type LoginStatus struct {
	Disabled bool
	Password PasswordState

	// Identifiers is the number of identifiers that Login accepts. Without one, it cannot find the
	// entry.
	Identifiers int

	// Wait is the time until an attempt from an unfamiliar origin is checked. It is zero if one
	// would be checked now.
	Wait time.Duration

	// Failures is the number of failed attempts that count towards Wait.
	Failures int

	// Familiar holds the origins that have logged in before, the latest first, at most five.
	Familiar []FamiliarOrigin

	// LastLogin is the time of the last login from a familiar origin. It is zero if there was none
	// in the last 90 days.
	LastLogin time.Time

	// SecondStep describes the second step of a login, if the entry has a second factor.
	SecondStep SecondStep

	// Tokens holds the tokens that can be redeemed now, the newest first.
	Tokens []OpenToken
}

// CanLogIn reports whether Login would accept the right password now, from an unfamiliar origin
// that has not failed with other accounts. If the entry has a second factor, Login then returns a
// ticket for the second step: see SecondStep.
func (s LoginStatus) CanLogIn() bool {
	return !s.Disabled && s.Password == PasswordStored && s.Identifiers > 0 && s.Wait == 0
}

// A SecondStep describes the second step of a login, which Prove takes. It is the zero value if the
// entry has no second factor.
type SecondStep struct {
	// Methods are those of Entry.FactorMethods.
	Methods []string

	// Usable holds the methods, except "recovery", that work: at least one factor of the method can
	// be decrypted here and, if it is a passkey, the entry still has its digest.
	Usable []string

	// WrongCodes is the number of wrong codes of authenticator apps within a day, from origins that
	// have not signed in with two steps before.
	WrongCodes int

	// Wait is the time until codes from such origins are checked again. It is zero if one would be
	// checked now. Recovery codes are always checked.
	Wait time.Duration

	// RecoveryCodes is the number of recovery codes that can still be used.
	RecoveryCodes int

	// Damaged says that factors are absent or cannot be read, for example because Options.Keys
	// lacks their key. Methods with such a factor may not work.
	Damaged bool
}

// secondStep reads what Prove considers for an entry.
func (t *Type) secondStep(ctx context.Context, r store.Record) (s SecondStep, err error) {
	if !r.Factors().Any() {
		return SecondStep{}, nil
	}
	s.Methods = r.Factors().Methods()
	names := append(r.Factors().Names(), factor.StrangersTries)
	now, values, err := t.view.Engine.ReadFactors(ctx, r.Key, names, t.view.StoreTime())
	if err != nil {
		return SecondStep{}, err
	}
	last := len(names) - 1
	s.WrongCodes, s.Wait = factor.ParseTries(values[last], now)
	s.Damaged = last == 0 // the mark lists no factor
	for i, name := range names[:last] {
		f, err := factor.Parse(name, values[i])
		if err == nil {
			_, err = t.open(r.Key, name, f.Sealed)
		}
		switch {
		case err != nil, f.Kind == factor.Passkey && !hasDigest(r, name):
			s.Damaged = true
		case f.Kind == factor.Recovery:
			s.RecoveryCodes = max(recoveryCodes-f.Uses(), 0)
		case !slices.Contains(s.Usable, f.Kind):
			s.Usable = append(s.Usable, f.Kind)
		}
	}
	slices.Sort(s.Usable)
	return s, nil
}

// A FamiliarOrigin describes an origin from which an entry has logged in. The origin is stored only
// as a keyed hash and cannot be recovered.
type FamiliarOrigin struct {
	LastLogin time.Time
	Remaining int // failures that remain before the origin becomes unfamiliar
}

// An OpenToken describes a token that can be redeemed. Its secret is not stored.
type OpenToken struct {
	Purpose string
	Field   string    // Token.Field or the field of PurposeChange; "" if the token has neither
	Expires time.Time // when it expires, by the clock of the store
}

// LoginStatus returns what Login would consider for an entry, apart from the password, and so shows
// why Login refuses the owner. It counts nothing and changes nothing. It does not say whether an
// origin must wait because of failures with other accounts. The error is ErrNotFound if there is no
// such entry, and ErrCorrupt as for Login.
func (t *Type) LoginStatus(ctx context.Context, h hints.Hint) (s LoginStatus, err error) {
	ctx, v := t.db.begin(ctx, "LoginStatus", &err)
	defer v.end(&err)
	t = t.current()
	r, err := t.record(ctx, h)
	if err != nil {
		return LoginStatus{}, publicError(err)
	}
	s = LoginStatus{Disabled: r.Fields[store.FieldDisabled] != "", Password: t.passwordState(r), Identifiers: t.identifiers(r)}
	counters, err := throttle.Key(r.Key)
	if err != nil {
		return LoginStatus{}, err
	}
	state, err := t.view.Engine.ThrottleState(ctx, throttle.Counters{Account: counters, Now: t.view.StoreTime()})
	if err != nil {
		return LoginStatus{}, withRepairHint(err)
	}
	s.Wait, s.Failures = state.Wait, state.Failures
	for _, f := range state.Familiar {
		s.Familiar = append(s.Familiar, FamiliarOrigin{LastLogin: f.LastLogin, Remaining: max(throttle.FamiliarMax-f.Failures, 0)})
	}
	if len(s.Familiar) > 0 {
		s.LastLogin = s.Familiar[0].LastLogin
	}
	if s.SecondStep, err = t.secondStep(ctx, r); err != nil {
		return s, err
	}
	s.Tokens, err = t.openTokens(ctx, r, state.Now)
	return s, err
}

// identifiers returns the number of identifiers of an entry that Login accepts.
func (t *Type) identifiers(r store.Record) (n int) {
	for _, field := range t.declared.Typed {
		if r.Fields[field] != "" && !t.facetUnverified(r, field) {
			n++
		}
		for _, f := range store.FurtherIn(r.Fields, field) {
			if f.Verified > 0 || !t.declared.Schema.Fields[field].HasAddresses() {
				n++
			}
		}
	}
	return n
}

func (t *Type) passwordState(r store.Record) PasswordState {
	hash := r.PasswordHash()
	switch {
	case hash == "":
		return PasswordNone
	case t.db.hashers.HasherFor(t.declared).Usable(hash) != nil:
		return PasswordUnusable
	}
	return PasswordStored
}

// openTokens returns the tokens of an entry that can be redeemed at the given time of the store.
func (t *Type) openTokens(ctx context.Context, r store.Record, now time.Time) (open []OpenToken, err error) {
	if r.Fields[store.FieldDisabled] != "" {
		return nil, nil
	}
	key, err := token.Key(r.Key)
	if err != nil {
		return nil, err
	}
	found, err := store.Hashes(ctx, t.view.Engine, []string{key.String()})
	if err != nil {
		return nil, err
	}
	for _, stored := range r.Tokens().Open(found[0].Fields, now) {
		tk := publicToken(stored.Token)
		open = append(open, OpenToken{Purpose: tk.Purpose, Field: tk.Field, Expires: stored.Until})
	}
	return open, nil
}
