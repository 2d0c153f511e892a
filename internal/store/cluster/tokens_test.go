package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

const tokensOfA = "~/token/{user/uid:A}"

// withTokens returns a start in which A has open tokens. Each argument is a hash and a purpose.
func withTokens(start func() map[string]*cell, each ...string) func() map[string]*cell {
	record := &cell{kind: 'h', hash: map[string]string{}, ends: startTime + 3_600_000}
	for i, one := range each {
		hash, purpose, _ := strings.Cut(one, " ")
		record.hash[hash] = fmt.Sprintf("%d %d %s  v", startTime+3_600_000, i+1, purpose)
	}
	return func() map[string]*cell {
		cells := with(start, tokensOfA, record)()
		cells[tokensOfA].hash = maps.Clone(record.hash)
		cells["user/uid:A"].hash[token.FieldTokens] = "1"
		return cells
	}
}

// rewrite changes facets, own fields and tokens of an entry, as package userdb does.
func rewrite(ctx context.Context, a *actor, uid, words string, own map[string]string, tokens token.Ending) error {
	return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
		if r.Fields[store.FieldDisabled] != "" || tokens.Spend != "" && !r.Tokens().Allows(tokens.Spend) {
			return store.Change{}, false, store.ErrNotFound
		}
		facets := change.Facets(r)
		maps.Copy(facets, pairs(words))
		c, changed, err := people.Update(r, facets, own)
		tokens.Known = c.Tokens.Known
		c.Tokens = tokens
		return c, changed || tokens.Spend != "", err
	})
}

// spend returns a verb that spends a token to change facets.
func spend(uid, hash, purpose, words string) verb {
	return verb{name: "spend " + uid + " " + hash + " " + words, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK(uid)
		t, err := a.engine.PeekIssued(ctx, prk, hash, time.Time{})
		if err == nil && t.Purpose != purpose {
			err = store.ErrNotFound
		}
		if err != nil {
			return err
		}
		return rewrite(ctx, a, uid, words, nil, token.Ending{Spend: hash, Purpose: purpose})
	}}
}

// disable returns a verb that disables an entry, which ends all tokens.
func disable(uid string) verb {
	return verb{name: "disable " + uid, do: func(ctx context.Context, a *actor) error {
		return rewrite(ctx, a, uid, "", map[string]string{store.FieldDisabled: "now"}, token.Ending{All: true})
	}}
}

// issue returns a verb that issues a token. The token is bound to the field email, and its value is
// the address in that field.
func issue(uid, hash string) verb {
	return verb{name: "issue " + uid + " " + hash, do: func(ctx context.Context, a *actor) error {
		for attempt := 1; ; attempt++ {
			prk, _ := people.PRK(uid)
			found, err := a.engine.Find(ctx, []store.Lookup{{PRK: prk}})
			if err == nil {
				err = found[0].Err
			}
			if err == nil && found[0].Record.Fields[store.FieldDisabled] != "" {
				err = store.ErrNotFound
			}
			if err != nil {
				return err
			}
			r := found[0].Record
			err = a.engine.Issue(ctx, token.Issue{
				Token: token.Token{Hash: hash, Purpose: "reset", Fields: []string{"email"}, Value: r.Fields["email"]},
				PRK:   prk, Rev: r.Version().Rev, Life: time.Hour, Note: a.line("issue"),
			})
			if !errors.Is(err, store.ErrConflict) || attempt == verbAttempts {
				return err
			}
		}
	}}
}

// invitation returns the record of an invitation h1 for the entry P, which does not exist.
func invitation() map[string]*cell {
	text := fmt.Sprintf("%d 1 %s  v", startTime+3_600_000, recordkey.Escape("invite:email"))
	return map[string]*cell{"~/token/{user/uid:P}": {kind: 'h', hash: map[string]string{"h1": text}, ends: startTime + 3_600_000}}
}

// accept returns a verb that creates the entry that an invitation is for.
func accept(words string) verb {
	return verb{name: "accept P " + words, commits: true, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK("P")
		t, _, err := a.engine.Peek(ctx, prk, "h1", time.Time{})
		if err != nil {
			return err
		}
		c, err := people.Create(change.Draft{UID: "P", Facets: pairs(words)})
		if err == nil {
			c.Tokens = token.Ending{Known: true, All: true, Spend: t.Hash, Purpose: t.Purpose}
			err = a.apply(ctx, c)
		}
		return err
	}}
}

// checkInvitation returns what is wrong after an invitation was accepted, or "". The record of the
// invitation must be gone, unless ~tokens says that the invitation is no longer valid. An entry
// that has a job was created without the invitation.
func checkInvitation(s *simulation) string {
	if e, record := s.recordOf("user/uid:P"), s.world.at("~/token/{user/uid:P}"); e.Live() && e.Fields["job"] == "" && record != nil && e.Tokens().Allows("h1") == e.Tokens().Any() {
		return "tokens: the invitation is left"
	}
	return ""
}

// tokensOf returns the record of an entry's tokens.
func (s *simulation) tokensOf(uid string) map[string]string {
	if c := s.world.at("~/token/{user/uid:" + uid + "}"); c != nil {
		return c.hash
	}
	return nil
}

// checkTokens returns what is wrong with the tokens of A after all verbs have ended, or "".
func checkTokens(s *simulation) string {
	e, r, good := s.world.at("user/uid:A"), s.recordOf("user/uid:A"), map[string]string{}
	for _, t := range r.Tokens().Open(s.tokensOf("A"), time.UnixMilli(s.world.now)) {
		if r.Live() {
			good[t.Hash] = t.Value
		}
	}
	email, _ := e.field("email").(string)
	issued, hasValid := good["h9"], len(good) > 0
	switch { // the facets show which verbs of a scenario succeeded
	case e.field("job") == "first" && e.field("name") == "second":
		return "tokens: spent twice"
	case hasValid && e.field(store.FieldDisabled) != nil:
		return "tokens: a disabled entry has valid ones"
	case issued != "" && issued != email:
		return "tokens: one for " + issued + " is valid, although the address is " + email
	case email == "second" && good["h1"] != "":
		return "tokens: an older one is valid beside a newer one"
	case email == "n" && (hasValid || e.field("name") != nil):
		return "tokens: the new entry has those of the old one"
	}
	return ""
}

// tokenScenarios returns scenarios in which tokens are spent or end.
func tokenScenarios() []scenario {
	noTokens := entries(someRev, "A email=a")
	open := withTokens(noTokens, "h1 reset", "h2 reset", "h3 login")
	var all []scenario
	for _, s := range []struct {
		name  string
		start func() map[string]*cell
		wins  int
		left  []verb
		right []verb
	}{
		{"spend | spend", open, 1, sequence(spend("A", "h1", "reset", "job=first")), sequence(spend("A", "h1", "reset", "name=second"))},
		{"old | new", open, 1, sequence(spend("A", "h1", "reset", "email=first")), sequence(spend("A", "h2", "reset", "email=second"))},
		{"two purposes", open, 2, sequence(spend("A", "h1", "reset", "job=first")), sequence(spend("A", "h3", "login", ""))},
		{"spend | disable", open, 0, sequence(spend("A", "h1", "reset", "job=first")), sequence(disable("A"))},
		{"spend | update", open, 2, sequence(spend("A", "h1", "reset", "job=first")), sequence(update("A", "name=x"))},
		{"spend | issue", open, 2, sequence(spend("A", "h1", "reset", "job=first")), sequence(issue("A", "h9"))},
		{"issue | disable", noTokens, 0, sequence(issue("A", "h9")), sequence(disable("A"))},
		{"issue | disable, with others", open, 0, sequence(issue("A", "h9")), sequence(disable("A"))},
		{"issue, spend | disable", noTokens, 0, sequence(issue("A", "h9"), spend("A", "h9", "reset", "job=first")), sequence(disable("A"))},
		{"issue | update email, with others", open, 2, sequence(issue("A", "h9")), sequence(update("A", "email=b"))},
		{"issue | issue", noTokens, 2, sequence(issue("A", "h8")), sequence(issue("A", "h9"))},
		{"issue | update email", noTokens, 2, sequence(issue("A", "h9")), sequence(update("A", "email=b"))},
		{"issue | update email and back", noTokens, 0, sequence(issue("A", "h9")), sequence(update("A", "email=b"), update("A", "email=a"))},
		{"spend | delete, create", open, 0, sequence(spend("A", "h1", "reset", "name=second")), sequence(remove("A"), create("A", "email=n"))},
		{"issue | delete, create", noTokens, 0, sequence(issue("A", "h9")), sequence(remove("A"), create("A", "email=m"))},
	} {
		all = append(all, scenario{name: "tokens: " + s.name, start: s.start, actors: [][]verb{s.left, s.right}, wins: s.wins, final: checkTokens})
	}
	for _, s := range []struct {
		name        string
		wins        int
		left, right []verb
	}{
		{"accept | accept", 1, sequence(accept("email=x name=first")), sequence(accept("email=y name=second"))},
		{"accept, delete | accept", 2, sequence(accept("email=x"), remove("P")), sequence(accept("email=y"))},
		{"accept | create the same", 1, sequence(accept("email=x")), sequence(create("P", "email=x job=cook"))},
		{"create, delete | accept", 2, sequence(create("P", "email=x job=cook"), remove("P")), sequence(accept("email=y"))},
		{"accept | create the address", 1, sequence(accept("email=x")), sequence(create("Q", "email=x"))},
	} {
		all = append(all, scenario{name: "tokens: " + s.name, start: invitation, actors: [][]verb{s.left, s.right}, wins: s.wins, final: checkInvitation})
	}
	return all
}

// tokenMutants are programs that lack a safeguard for tokens. Most of these safeguards matter only
// while the slot of the entry is being migrated.
var tokenMutants = []mutant{
	{name: "a delete leaves an invitation", finds: "3 verbs", in: []string{"tokens: create, delete"}, rewrite: replace(
		"write_tokens(members, tokens) -- without tokens", "if may_have_tokens(mark) then write_tokens(members, tokens) end -- without tokens")},
	{name: "a repeated delete leaves an invitation", finds: "3 verbs", in: []string{"tokens: create, delete"}, kinds: refusals, rewrite: replace(
		"write_tokens(members, tokens) -- without tokens", "if not done then write_tokens(members, tokens) end -- without tokens")},
	{name: "tokens issued after the separate read are missed", finds: "tokens: one for", in: []string{"tokens: issue | update email, with"}, kinds: []fault{tryAgain}, rewrite: replace(
		"if not done and ARGV[13] ~= '' and mark ~= ARGV[13] then", "if false then")},
	{name: "an issue does not change ~tokens", finds: "tokens: one for", in: []string{"tokens: issue | update email, with"}, kinds: []fault{tryAgain}, rewrite: replace(
		"first_word = nil, 0, '1' .. string.sub(ARGV[3], 1, 6)", "first_word = nil, 0, '1'")},
	{name: "a token that waits in the entry survives a change of its fields", finds: "tokens: one for", in: []string{"tokens: issue | update email"}, kinds: []fault{tryAgain}, rewrite: replace(
		"    if t then\n      t.waits = waiting[i + 1]", "    if t then\n      t.fields = ''\n      t.waits = waiting[i + 1]")},
}
