package single

import (
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// init adds the calls that leave no history line: those for invitations, counters and repairs.
func init() {
	for name, v := range otherCalls {
		refusedCalls[name], preparations[name] = v.call, v.prepare
		effects[name] = effect{uid: "a", done: v.done, silent: true, writes: v.writes, harmless: v.harmless}
	}
}

var otherCalls = map[string]struct {
	writes   int // the number of writes that its script makes
	harmless bool
	prepare  func(p fixture) error
	call     func(p fixture, e *Engine) error
	done     func(p fixture) bool
}{
	"issue an invitation": {
		2, false, nil,
		func(p fixture, e *Engine) error { return p.invite(e, "i1", time.Hour, time.Now()) },
		func(p fixture) bool { return p.invited("i1") },
	},
	"count a request": {
		1, false, nil,
		func(p fixture, e *Engine) error {
			_, err := e.Limit(p.t.Context(), throttle.Limit{Counter: p.counter("limit"), Max: 5, Window: time.Hour})
			return err
		},
		func(p fixture) bool { return p.has("limit") },
	},
	"admit a login attempt": {
		1, true, nil,
		func(p fixture, e *Engine) error {
			_, err := e.Admit(p.t.Context(), throttle.Counters{Account: p.counter("account"), Origin: p.counter("origin"), Name: "o"})
			return err
		},
		func(p fixture) bool { return p.has("account") && p.has("origin") },
	},
	"remove a record": {
		1, false, func(p fixture) error {
			return p.engine.client.Set(p.t.Context(), "user/name:lost/~prk", "user/uid:nobody", 0).Err()
		},
		func(p fixture, e *Engine) error {
			_, err := e.Repair(p.t.Context(), store.Remove{Key: "user/name:lost/~prk", Owner: "user/uid:nobody", Field: "name", Value: "lost"})
			return err
		},
		func(p fixture) bool { return p.engine.client.Exists(p.t.Context(), "user/name:lost/~prk").Val() == 0 },
	},
	"hold a value for an import": {
		2, true, nil,
		func(p fixture, e *Engine) error {
			_, err := store.Hold(p.t.Context(), e, p.holding())
			return err
		},
		func(p fixture) bool {
			r, srk := p.engine.client.HGetAll(p.t.Context(), "user/uid:late").Val(), p.engine.client.Get(p.t.Context(), "user/name:kept/~prk").Val()
			return r[store.FieldHeld("name", "kept")] != "" && srk == "user/uid:late"
		},
	},
	"retire a UID for an import": {
		1, false, nil,
		func(p fixture, e *Engine) error {
			prk, _ := p.users.PRK("late")
			_, err := e.Repair(p.t.Context(), store.Preserve{Entry: prk, Facet: store.Facet{Field: store.FieldRetired, Wire: "2026-11-28T20:00:00.000Z"}})
			return err
		},
		func(p fixture) bool {
			return p.engine.client.HExists(p.t.Context(), "user/uid:late", store.FieldRetired).Val()
		},
	},
	"release what a deleted entry holds": {
		1, false, func(p fixture) error {
			_, err := store.Hold(p.t.Context(), p.engine, p.holding())
			return err
		},
		func(p fixture, e *Engine) error {
			h := p.holding()
			_, err := e.Repair(p.t.Context(), store.ForgetHeld{Entry: h.Entry, Field: h.Field, Value: h.Canonical})
			return err
		},
		func(p fixture) bool {
			return !p.engine.client.HExists(p.t.Context(), "user/uid:late", store.FieldHeld("name", "kept")).Val()
		},
	},
	"finish a delete": {
		2, false, func(p fixture) error {
			return p.engine.client.HSet(p.t.Context(), "user/uid:half", "~isa", "", "~rev", "x", "name", "half").Err()
		},
		func(p fixture, e *Engine) error {
			prk, _ := p.users.PRK("half")
			_, err := e.Repair(p.t.Context(), store.FinishDelete{Entry: prk})
			return err
		},
		func(p fixture) bool { return p.engine.client.TTL(p.t.Context(), "user/uid:half").Val() > 0 },
	},
}

// holding returns a value that the entry "late", which does not exist, is to hold.
func (p fixture) holding() store.Holding {
	prk, _ := p.users.PRK("late")
	h := store.Holding{Entry: prk, HeldValue: store.HeldValue{Field: "name", Canonical: "kept", Until: time.Now().Add(time.Hour)}}
	h.SRK, _ = p.users.SRK("name", "kept")
	email, _ := p.users.SRK("email", "kept")
	h.Rivals = []recordkey.Key{email}
	return h
}

func (p fixture) counter(name string) recordkey.Key {
	key, err := recordkey.Own("throttle", name)
	if err != nil {
		p.t.Fatal(err)
	}
	return key
}

func (p fixture) has(name string) bool {
	return p.engine.client.Exists(p.t.Context(), p.counter(name).String()).Val() == 1
}

func (p fixture) invite(e *Engine, hash string, life time.Duration, now time.Time) error {
	prk, _ := p.users.PRK("invited")
	_, err := e.Invite(p.t.Context(), token.Invitation{Token: token.Token{Hash: hash, Purpose: "invite"}, PRK: prk, Life: life, Now: now})
	return err
}

func (p fixture) invited(hash string) bool {
	prk, _ := p.users.PRK("invited")
	_, left, err := p.engine.Peek(p.t.Context(), prk, hash, time.Time{})
	return err == nil && left > 0
}

// TestIssueSentAgainAfterAnother issues a token, then another one, and then the first again, as if
// the first reply had been lost. ~tokens must still name the other token, so that a change that
// read the record of tokens before the other token was issued is refused.
func TestIssueSentAgainAfterAnother(t *testing.T) {
	p := newFixture(t, redistest.Start(t))
	p.apply(p.draft("a", "x", nil))
	for _, hash := range []string{"first", "another", "first"} {
		if err := p.issue(p.engine, hash, history.Note{}); err != nil {
			t.Fatal(err)
		}
	}
	if mark := p.find("a").Fields["~tokens"]; !strings.HasPrefix(mark, "1anothe") {
		t.Errorf("~tokens is %q, want it to name the token %q", mark, "another")
	}
	if !p.hasToken("first") || !p.hasToken("another") {
		t.Error("a token is missing")
	}
}
