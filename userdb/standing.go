package userdb

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
)

// A PasswordState tells what there is of a password.
type PasswordState string

// The states of a password.
const (
	PasswordNone     PasswordState = "none"     // nobody can log in by one
	PasswordStored   PasswordState = "stored"   // it can be checked
	PasswordUnusable PasswordState = "unusable" // there is a hash that this store cannot check, such as one of a pepper that it does not have
)

// A Standing is what Login goes by, but for the password itself.
type Standing struct {
	Disabled    bool
	Password    PasswordState
	Identifiers int              // secondary facets: without one nobody can be named to Login
	Wait        time.Duration    // until an attempt is admitted that comes from an origin which is not familiar; zero: it is admitted now
	Failures    int              // that count towards that
	Familiar    []FamiliarOrigin // those that logged in before, the latest first; five at most
	LastLogin   time.Time        // from a familiar origin; zero: none in 90 days
	Tokens      []OpenToken      // that are good now, the newest first
}

// Admits reports whether a good password would be let in now, from an origin that is not familiar and that has not failed elsewhere.
func (s Standing) Admits() bool {
	return !s.Disabled && s.Password == PasswordStored && s.Identifiers > 0 && s.Wait == 0
}

// A FamiliarOrigin is one from which an entry logged in. Which one it is nobody can tell: a keyed hash is kept.
type FamiliarOrigin struct {
	LastLogin time.Time
	Left      int // failures of its own that it has left before it counts as a stranger
}

// An OpenToken is a token that is good. Its secret is not known.
type OpenToken struct {
	Purpose string
	Field   string    // as Token.Field, or that of PurposeChange; "": it is bound to none
	Until   time.Time // by the clock of the store
}

// Standing tells why Login would refuse the owner of an entry, whatever the password. It counts and changes nothing. What it does not
// tell is how an origin fares that failed at other entries. ErrNotFound: there is no such entry. ErrCorrupt: as of Login.
func (t *Type) Standing(ctx context.Context, h hints.Hint) (s Standing, err error) {
	ctx, v := t.db.begin(ctx, "Standing", &err)
	defer v.end(&err)
	t = t.now()
	r, err := t.record(ctx, h)
	if err != nil {
		return Standing{}, public(err)
	}
	s = Standing{Disabled: r.Fields[store.FieldDisabled] != "", Password: t.passwordState(r)}
	for _, field := range t.declared.Secondary {
		if r.Fields[field] != "" {
			s.Identifiers++
		}
	}
	counters, err := t.declared.Counters(r)
	if err != nil {
		return Standing{}, err
	}
	g, err := t.view.Engine.Guesses(ctx, store.Counters{Account: counters, Now: t.view.StoreTime()})
	if err != nil {
		return Standing{}, curable(err)
	}
	s.Wait, s.Failures = g.Wait, g.Failures
	for _, f := range g.Familiar {
		s.Familiar = append(s.Familiar, FamiliarOrigin{LastLogin: f.LastLogin, Left: max(store.FamiliarMost-f.Failures, 0)})
	}
	if len(s.Familiar) > 0 {
		s.LastLogin = s.Familiar[0].LastLogin
	}
	s.Tokens, err = t.openTokens(ctx, r, g.Now)
	return s, err
}

func (t *Type) passwordState(r store.Record) PasswordState {
	hash := r.Fields[store.FieldPassword]
	switch {
	case hash == "":
		return PasswordNone
	case t.db.hashers.Of(t.declared).Usable(hash) != nil:
		return PasswordUnusable
	}
	return PasswordStored
}

// openTokens are the tokens of an entry that are good at a time of the store.
func (t *Type) openTokens(ctx context.Context, r store.Record, now time.Time) (open []OpenToken, err error) {
	key, err := store.TokenKey(r.Key)
	if err != nil {
		return nil, err
	}
	found, err := store.Hashes(ctx, t.view.Engine, []string{key.String()})
	if err != nil {
		return nil, err
	}
	for _, token := range r.OpenTokens(found[0].Fields, now) {
		tk := told(token.Token)
		open = append(open, OpenToken{Purpose: tk.Purpose, Field: tk.Field, Until: token.Until})
	}
	return open, nil
}
