package single

import (
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// These methods write beside an entry a: its sessions and its tokens.
func init() {
	for name, v := range loginVerbs {
		refusedVerbs[name], refusedDone[name], refusedPrepared[name] = v.verb, verbDone{"a", v.done}, v.prepare
	}
}

var loginVerbs = map[string]struct {
	prepare func(p pair) error
	verb    func(p pair, e *Engine) error
	done    func(p pair) bool
}{
	"begin a session": {
		// This gives the entry an epoch.
		func(p pair) error { return p.begin(p.plain, "s0", store.Note{}) },
		func(p pair, e *Engine) error { return p.begin(e, "s1", probeNote) },
		func(p pair) bool { return p.hasSession("s1") },
	},
	"end a session": {
		func(p pair) error { return p.begin(p.plain, "s1", store.Note{}) },
		func(p pair, e *Engine) error {
			_, err := e.Sessions(p.t.Context(), store.SessionsOp{PRK: p.a(), What: store.SessionsEnd, ID: "s1", Note: probeNote})
			return err
		},
		func(p pair) bool { return !p.hasSession("s1") },
	},
	"issue the first": {
		func(pair) error { return nil },
		func(p pair, e *Engine) error { return p.issue(e, "h1", probeNote) },
		func(p pair) bool { return p.hasToken("h1") },
	},
	"issue another": {
		func(p pair) error { return p.issue(p.plain, "h0", store.Note{}) },
		func(p pair, e *Engine) error { return p.issue(e, "h1", probeNote) },
		func(p pair) bool { return p.hasToken("h1") },
	},
	"redeem": {
		func(p pair) error { return p.issue(p.plain, "h1", store.Note{}) },
		func(p pair, e *Engine) error {
			c := p.updated("a", map[string]string{"uid": "a", "name": "y", "email": "e"})
			c.Tokens = store.Ending{Known: true, Spend: "h1", Purpose: "reset"}
			return p.by(e, c)
		},
		func(p pair) bool { return p.find("a").Fields["name"] == "y" && !p.hasToken("h1") },
	},
}

func (p pair) a() recordkey.Key {
	prk, _ := p.users.PRK("a")
	return prk
}

func (p pair) begin(e *Engine, id string, n store.Note) error {
	_, err := e.StartSession(p.t.Context(), store.Start{
		PRK: p.a(), Seen: p.find("a").Fields, First: store.NewFirstEpoch(), ID: id, Life: time.Hour, Idle: time.Hour, Note: n,
	})
	return err
}

func (p pair) hasSession(id string) bool {
	_, _, err := p.plain.FindSession(p.t.Context(), p.a(), id, time.Time{})
	return err == nil
}

func (p pair) issue(e *Engine, hash string, n store.Note) error {
	return e.Issue(p.t.Context(), store.Issue{
		Token: store.Token{Hash: hash, Purpose: "reset"}, PRK: p.a(), Rev: store.Rev(p.find("a").Fields[store.FieldRev]), Life: time.Hour, Note: n,
	})
}

func (p pair) hasToken(hash string) bool {
	key, _ := store.TokenKey(p.a())
	for _, t := range p.find("a").OpenTokens(p.plain.client.HGetAll(p.t.Context(), key.String()).Val(), time.Now()) {
		if t.Hash == hash {
			return true
		}
	}
	return false
}
