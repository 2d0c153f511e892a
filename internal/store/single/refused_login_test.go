package single

import (
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// init adds loginCalls to refusedCalls.
func init() {
	for name, v := range loginCalls {
		refusedCalls[name], effects[name], preparations[name] = v.call, effect{uid: "a", done: v.done}, v.prepare
	}
}

// loginCalls holds calls that write the sessions and the tokens of the entry "a", by name.
var loginCalls = map[string]struct {
	prepare func(p fixture) error
	call    func(p fixture, e *Engine) error
	done    func(p fixture) bool
}{
	"start a session": {
		// This gives the entry an epoch.
		func(p fixture) error { return p.startSession(p.engine, "s0", history.Note{}) },
		func(p fixture, e *Engine) error { return p.startSession(e, "s1", testNote) },
		func(p fixture) bool { return p.hasSession("s1") },
	},
	"end a session": {
		func(p fixture) error { return p.startSession(p.engine, "s1", history.Note{}) },
		func(p fixture, e *Engine) error {
			_, err := e.EndSession(p.t.Context(), p.prkA(), "s1", testNote, time.Time{})
			return err
		},
		func(p fixture) bool { return !p.hasSession("s1") },
	},
	"issue the first token": {
		func(fixture) error { return nil },
		func(p fixture, e *Engine) error { return p.issue(e, "h1", testNote) },
		func(p fixture) bool { return p.hasToken("h1") },
	},
	"issue another token": {
		func(p fixture) error { return p.issue(p.engine, "h0", history.Note{}) },
		func(p fixture, e *Engine) error { return p.issue(e, "h1", testNote) },
		func(p fixture) bool { return p.hasToken("h1") },
	},
	"redeem a token": {
		func(p fixture) error { return p.issue(p.engine, "h1", history.Note{}) },
		func(p fixture, e *Engine) error {
			c := p.updated("a", map[string]string{"uid": "a", "name": "y", "email": "e"})
			c.Tokens = token.Ending{Known: true, Spend: "h1", Purpose: "reset"}
			return p.applyNoted(e, c)
		},
		func(p fixture) bool { return p.find("a").Fields["name"] == "y" && !p.hasToken("h1") },
	},
}

func (p fixture) prkA() recordkey.Key {
	prk, _ := p.users.PRK("a")
	return prk
}

func (p fixture) startSession(e *Engine, id string, n history.Note) error {
	_, err := e.StartSession(p.t.Context(), session.Start{
		PRK: p.prkA(), Seen: p.find("a").ForSessions(), FirstEpoch: session.FirstEpoch(store.NewRev()), ID: id, Life: time.Hour, Idle: time.Hour, Note: n,
	})
	return err
}

func (p fixture) hasSession(id string) bool {
	_, _, err := p.engine.FindSession(p.t.Context(), p.prkA(), id, time.Time{})
	return err == nil
}

func (p fixture) issue(e *Engine, hash string, n history.Note) error {
	return e.Issue(p.t.Context(), token.Issue{
		Token: token.Token{Hash: hash, Purpose: "reset"}, PRK: p.prkA(), Rev: store.Rev(p.find("a").Fields[store.FieldRev]), Life: time.Hour, Note: n,
	})
}

func (p fixture) hasToken(hash string) bool {
	key, _ := token.Key(p.prkA())
	for _, t := range p.find("a").Tokens().Open(p.engine.client.HGetAll(p.t.Context(), key.String()).Val(), time.Now()) {
		if t.Hash == hash {
			return true
		}
	}
	return false
}
