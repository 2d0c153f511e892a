package single

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A refuser has the server refuse writes of scripts: either the write with number at, once, or
// every write by one command, as if the user had no right to it.
type refuser struct {
	mu      sync.Mutex // ApplyAll makes several calls at a time
	at      int        // the number of the write to refuse, from 1
	command string
	mutate  func(source string) string
	report  func(format string, args ...any) // receives what is wrong; if nil, the test fails
	refused bool
	applied bool
}

func (*refuser) DialHook(next redis.DialHook) redis.DialHook { return next }

// writes lists the commands by which scripts change records.
const writes = "SET MSET HSET HSETNX HDEL SADD SREM ZADD ZREM RPUSH UNLINK EXPIRE PEXPIRE PERSIST RENAME XADD"

// refusing is the Lua that is put before a script. It counts the writes of the script, and refuses
// the write with a given number, or every write by a given command.
const refusing = `local n, real, is = 0, redis, {}
for word in string.gmatch('` + writes + `', '%%S+') do is[word] = true end
local function refused(command)
  if is[command] then n = n + 1 end
  return is[command] and (n == %d or command == '%s') and {err = 'ERR refused in the middle'}
end
local redis = {error_reply = real.error_reply, pcall = function(command, ...) return refused(command) or real.pcall(command, ...) end,
  call = function(command, ...)
    local no = refused(command)
    if no then error({err = no.err}) end
    return real.call(command, ...)
  end}
`

var allScripts = []redisx.Script{
	changeScript, createScript, updateScript, notedScript, createsScript, tertiaryScript, onekey.ReplaceSchemaScript, onekey.EpochScript, onekey.SessionScript, onekey.IssueScript,
	onekey.InviteScript, onekey.LimitScript, onekey.RemoveScript, onekey.FinishTombstoneScript, onekey.ThrottleScript,
	onekey.PreserveScript, onekey.RestoreHeldScript, onekey.UnholdScript,
}

// rewrite puts refusing before the script of a command, unless r has refused its one write.
func (r *refuser) rewrite(cmd redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	args := cmd.Args()
	if r.refused && r.command == "" || len(args) < 2 || cmd.Name() != "evalsha" {
		return
	}
	for _, s := range allScripts {
		if args[1] == s.SHA {
			source := s.Source
			if r.mutate != nil {
				source = r.mutate(source)
			}
			args[0], args[1] = "eval", fmt.Sprintf(refusing, r.at, r.command)+source
			r.applied = true
		}
	}
}

func (r *refuser) observe(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = r.refused || err != nil && strings.Contains(err.Error(), "refused in the middle")
}

func (r *refuser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.rewrite(cmd)
		err := next(ctx, cmd)
		r.observe(err)
		return err
	}
}

func (r *refuser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			r.rewrite(cmd)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			r.observe(cmd.Err())
		}
		return err
	}
}

// dump returns the contents of each hash, set and string on the server as text.
func (p fixture) dump() map[string]string {
	p.t.Helper()
	ctx, all := p.t.Context(), map[string]string{}
	for _, key := range p.engine.client.Keys(ctx, "*").Val() {
		switch p.engine.client.Type(ctx, key).Val() {
		case "hash":
			all[key] = fmt.Sprint(p.engine.client.HGetAll(ctx, key).Val())
		case "set":
			all[key] = fmt.Sprint(p.engine.client.SMembersMap(ctx, key).Val())
		case "string":
			all[key] = p.engine.client.Get(ctx, key).Val()
		}
	}
	return all
}

// checkInvariants reports broken invariants. The SRKs of each live entry must name it (I1, and so
// I2), and its tags must be in their indexes (I5). A live entry must not have a time to live. Tags
// may exist without a live entry only if cut is true, because a call was cut off.
func (p fixture) checkInvariants(what string, cut bool) {
	p.t.Helper()
	ctx, client := p.t.Context(), p.engine.client
	for key := range p.dump() {
		if !strings.HasPrefix(key, "user/uid:") {
			continue
		}
		prk, tags, _ := strings.Cut(key[len("user/"):], "/")
		prk = "user/" + prk
		live := client.HGet(ctx, prk, store.FieldType).Val() != ""
		if tags != "" && !live && !cut {
			p.report("%s: %s has no entry", what, key)
		}
		if live && client.TTL(ctx, prk).Val() != -1 {
			p.report("%s: %s is live, but will expire", what, prk)
		}
		for _, tag := range client.SMembers(ctx, prk+"/tags").Val() {
			if live && !client.SIsMember(ctx, "user/tags:"+tag+"/~prks", prk).Val() {
				p.report("%s: I5: %s is not in the index of %s", what, prk, tag)
			}
		}
		for _, field := range []string{"name", "email"} {
			v := strings.ToLower(client.HGet(ctx, prk, field).Val())
			if skv, err := client.HGet(ctx, prk, store.FieldSKV(field)).Result(); live && err == nil && skv != v {
				p.report("%s: I1: the canonical %s of %s is stored as %q, but is %q", what, field, prk, skv, v)
			}
			if live && v != "" && client.Get(ctx, "user/"+field+":"+v+"/~prk").Val() != prk {
				p.report("%s: I1: the SRK of %s %q does not name %s", what, field, v, prk)
			}
		}
	}
}

func (p fixture) updated(uid string, facets map[string]string) store.Change {
	p.t.Helper()
	c, _, err := p.users.Update(p.find(uid), facets, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// refusedCalls holds calls by name. They write to the entry "a", which has tags, or to the deleted
// entry "gone", or create other entries.
var refusedCalls = map[string]func(p fixture, e *Engine) error{
	"create":           func(p fixture, e *Engine) error { return p.applyNoted(e, p.draft("u", "n", nil)) },
	"create with tags": func(p fixture, e *Engine) error { return p.applyNoted(e, p.draft("u", "n", []string{"red", "blue"})) },
	"create again":     func(p fixture, e *Engine) error { return p.applyNoted(e, p.draft("gone", "n", []string{"red"})) },
	"create many": func(p fixture, e *Engine) error {
		cs := []store.Change{noted(p.draft("u", "n", nil)), noted(p.draft("v", "m", []string{"red"})), noted(p.draft("w", "l", []string{"blue"}))}
		errs := e.ApplyAll(p.t.Context(), cs)
		return errors.Join(errs...)
	},
	"create while others create": func(p fixture, e *Engine) error {
		e.creating.Add(redisx.BatchThreshold)
		defer e.creating.Add(-redisx.BatchThreshold)
		return p.applyNoted(e, p.draft("u", "n", []string{"red"}))
	},
	"update": func(p fixture, e *Engine) error {
		// This removes the address.
		return p.applyNoted(e, p.updated("a", map[string]string{"uid": "a", "name": "y"}))
	},
	"replace tags": func(p fixture, e *Engine) error {
		c := p.updated("a", map[string]string{"uid": "a", "name": "X", "email": "e", "plain": "text"})
		if err := p.users.SetTertiary(&c, []change.Content{{Name: "tags", Kind: "set", Values: []string{"green", "red"}}}); err != nil {
			p.t.Fatal(err)
		}
		return p.applyNoted(e, c)
	},
	"delete": func(p fixture, e *Engine) error {
		return p.applyNoted(e, p.users.Delete(p.find("a"), time.Now()))
	},
	"retire": func(p fixture, e *Engine) error {
		c := p.users.Delete(p.find("a"), time.Now())
		c.Set = []store.Facet{{Field: store.FieldRetired, Wire: "2026-11-28T20:00:00.000Z"}}
		return p.applyNoted(e, c)
	},
	"give up a name": func(p fixture, e *Engine) error {
		c := p.updated("a", map[string]string{"uid": "a", "name": "y", "email": "e"})
		h := store.HeldValue{Field: "name", Canonical: "x", Until: time.Now().Add(time.Hour)}
		for _, srk := range c.Release {
			c.Hold = append(c.Hold, store.HeldKeyOf(srk, h.Until))
		}
		c.Release, c.Set = nil, append(c.Set, store.Facet{Field: h.Name(), Wire: h.Text()})
		return p.applyNoted(e, c)
	},
	"add an address": func(p fixture, e *Engine) error {
		old := p.find("a")
		facets, own := change.Facets(old), map[string]string{}
		err := p.users.SetTexts(old, facets, own, "email", []string{"e", "w"}, time.Now())
		c, _, updateErr := p.users.Update(old, facets, own)
		if err = cmp.Or(err, updateErr); err != nil {
			p.t.Fatal(err)
		}
		return p.applyNoted(e, c)
	},
	"add a tag": func(p fixture, e *Engine) error {
		prk, _ := p.users.PRK("a")
		key, index, err := p.users.TertiaryKey(prk, "tags", "set", []string{"green"})
		if err != nil {
			p.t.Fatal(err)
		}
		_, err = e.Tertiary(p.t.Context(), store.Op{PRK: prk, Key: key, Command: "SADD", Args: []string{"green"}, Write: true, Index: index, Schema: p.users.Guard, Note: testNote})
		return err
	},
}

func (p fixture) applyNoted(e *Engine, c store.Change) error {
	_, err := e.Apply(p.t.Context(), noted(c))
	return err
}

// testNote is the note of the refused calls.
var testNote = history.Note{Lines: []string{"probe / / / /"}}

func noted(c store.Change) store.Change {
	c.Note = testNote
	return c
}

// preparations holds what must be done before some of the calls.
var preparations = map[string]func(p fixture) error{}

type effect struct {
	uid    string // of the entry that the call changes
	done   func(p fixture) bool
	silent bool // it leaves no history line
	writes int  // the least number of writes that its script makes; 0 stands for 2
	// harmless says that the call may fail and still have written something, since that does no
	// harm.
	harmless bool
}

// effects says for each call how to check whether it took effect.
var effects = map[string]effect{
	"create":                     {uid: "u", done: func(p fixture) bool { return p.find("u").Live() }},
	"create with tags":           {uid: "u", done: func(p fixture) bool { return p.find("u").Live() }},
	"create again":               {uid: "gone", done: func(p fixture) bool { return p.find("gone").Live() }},
	"create many":                {uid: "u", done: func(p fixture) bool { return p.find("u").Live() }},
	"create while others create": {uid: "u", done: func(p fixture) bool { return p.find("u").Live() }},
	"update":                     {uid: "a", done: func(p fixture) bool { return p.find("a").Fields["name"] == "y" }},
	"replace tags":               {uid: "a", done: func(p fixture) bool { return p.hasTag("green") }},
	"delete":                     {uid: "a", done: func(p fixture) bool { return !p.find("a").Live() }},
	"retire":                     {uid: "a", done: func(p fixture) bool { return !p.find("a").Live() }},
	"give up a name":             {uid: "a", done: func(p fixture) bool { return p.find("a").Fields["name"] == "y" }},
	"add an address":             {uid: "a", done: func(p fixture) bool { return p.find("a").HasValue("email", "w") }},
	"add a tag":                  {uid: "a", done: func(p fixture) bool { return p.hasTag("green") }},
}

func (p fixture) hasTag(tag string) bool {
	return p.engine.client.SIsMember(p.t.Context(), "user/uid:a/tags", tag).Val()
}

// checkNotes checks that a call that took no effect left no history line, and that a call that
// succeeded left one.
func (p fixture) checkNotes(what, name string, acknowledged bool) {
	p.t.Helper()
	ctx, want := p.t.Context(), effects[name]
	if want.silent {
		if acknowledged && !want.done(p) {
			p.report("%s: acknowledged, but not done", what)
		}
		return
	}
	prk, _ := p.users.PRK(want.uid)
	lines, err := p.engine.HistoryLines(ctx, prk)
	if err != nil {
		p.t.Fatal(err)
	}
	inHistory := strings.Count(strings.Join(lines, "\n"), " probe ")
	inFeed := 0
	for _, m := range p.engine.client.XRange(ctx, p.engine.FeedKey(prk.Namespace(), history.FeedChanges, prk), "-", "+").Val() {
		inFeed += strings.Count(m.Values["e"].(string), prk.String()+" - probe ")
	}
	least, most := 0, 0
	if want.done(p) {
		most = 1
	}
	if acknowledged {
		least = 1
	}
	if name == "delete" || name == "retire" { // the history goes with the entry
		inHistory = min(max(inHistory, least), most)
	}
	if inHistory < least || inHistory > most || inFeed < least || inFeed > most {
		p.report("%s: %d lines in the history, %d in the feed, want %d to %d", what, inHistory, inFeed, least, most)
	}
}

// checkForgotten checks that an entry that was deleted left no history.
func (p fixture) checkForgotten(what, uid string) {
	p.t.Helper()
	prk, _ := p.users.PRK(uid)
	if lines, err := p.engine.HistoryLines(p.t.Context(), prk); err != nil || len(lines) > 0 {
		p.report("%s: the history %q is left, error %v", what, lines, err)
	}
}

// TestRefusedInTheMiddle has the server refuse each write of each script, one at a time. Nothing
// may be broken then; the error must say that the outcome is unknown, unless nothing was written;
// and the call must succeed later.
func TestRefusedInTheMiddle(t *testing.T) {
	srv := redistest.Start(t)
	for name := range refusedCalls {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				if at > 100 {
					t.Fatal("the script keeps writing")
				}
				if runRefused(t, srv, &refuser{at: at}, name) {
					continue
				}
				if at <= cmp.Or(effects[name].writes, 2) {
					t.Errorf("the script made only %d writes, want at least %d", at-1, cmp.Or(effects[name].writes, 2))
				}
				return
			}
		})
	}
}

// TestForbidden takes away the right to one command after the other, each during all attempts of a
// call.
func TestForbidden(t *testing.T) {
	srv := redistest.Start(t)
	for name := range refusedCalls {
		t.Run(name, func(t *testing.T) {
			for command := range strings.FieldsSeq(writes) {
				runRefused(t, srv, &refuser{command: command}, name)
			}
		})
	}
}

// runRefused makes a call while r refuses some of its writes, and checks what is left. If a create
// with tags or a delete fails and leaves no live entry, runRefused then makes the next entry with
// that UID. At the end it makes the call again, without refusals. It reports whether r refused
// anything.
func runRefused(t *testing.T, srv *redistest.Server, r *refuser, name string) bool {
	t.Helper()
	client := srv.Client()
	defer client.Close()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	call := refusedCalls[name]
	p, what := newFixture(t, srv), fmt.Sprintf("write %d refused", r.at)
	if r.command != "" {
		what = "every " + r.command + " refused"
	}
	defer p.engine.client.Close()
	if r.report != nil {
		p.report = r.report
		p.engine.client.AddHook(&refuser{at: 1 << 30, mutate: r.mutate})
	}
	p.apply(p.draft("a", "x", []string{"red", "blue"}))
	update := p.updated("a", map[string]string{"uid": "a", "name": "X", "email": "e"})
	update.Note = history.Note{Lines: []string{"setup / / / /"}}
	p.apply(update)
	p.apply(p.draft("gone", "g", []string{"admin"}))
	p.remove("gone")
	if prepare := preparations[name]; prepare != nil {
		if err := prepare(p); err != nil {
			t.Fatal(err)
		}
	}
	before := p.dump()
	client.AddHook(r)
	err := call(p, New(client, Options{}))
	if !r.applied {
		t.Fatal("no script ran under the refuser")
	}
	p.checkNotes(what, name, err == nil)
	if name == "delete" && err == nil {
		p.checkForgotten(what, "a")
	}
	cut := err != nil && (strings.HasPrefix(name, "create") || name == "delete" || name == "retire")
	p.checkInvariants(what, cut)
	a := p.find("a")
	if r.command != "" && a.Live() && name == "update" && (a.Fields["name"] == "y") == (a.Fields["email"] == "e") {
		p.report("%s: only half of the change was made: %v", what, a.Fields)
	}
	if n := client.SCard(t.Context(), "user/uid:a/tags").Val(); a.Live() && n < 2 {
		p.report("%s: only %d of two tags are left", what, n)
	}
	if err != nil && !effects[name].harmless && !errors.Is(err, store.ErrOutcomeUnknown) && !maps.Equal(before, p.dump()) {
		p.report("%s: it wrote something, but the error is %v, want ErrOutcomeUnknown", what, err)
	}
	if !r.refused && err != nil {
		p.report("%s: %v", what, err)
	}
	// bare is the UID of the entry that is made next, without tags.
	bare := map[string]string{"create with tags": "u", "delete": "a"}[name]
	if bare != "" && err != nil && !p.find(bare).Live() {
		p.make(bare, "another")
		if tags := client.SMembers(t.Context(), "user/uid:"+bare+"/tags").Val(); len(tags) > 0 {
			p.report("%s: the next entry has the tags %q", what, tags)
		}
		if email := p.find(bare).Fields["email"]; email != "" {
			p.report("%s: the next entry has the address %q", what, email)
		}
		p.checkForgotten(what+", then the next entry was made", bare)
	}
	again := call(p, p.engine)
	var done *store.FieldError
	if again != nil && !(errors.As(again, &done) && done.Field == "uid") && !errors.Is(again, store.ErrNotFound) {
		p.report("%s, once more: %v", what, again)
	}
	// No later entry drops what a retired one left.
	p.checkInvariants(what+", once more", name == "retire")
	p.checkKept(what, name, r.refused)
	return r.refused
}

// checkTaken checks that a new entry cannot get a value that "a" has or holds.
func (p fixture) checkTaken(what, value string) {
	p.t.Helper()
	if err := p.applyNoted(p.engine, p.draft("other", value, nil)); !errors.Is(err, store.ErrDuplicate) {
		p.report("%s: another entry got the value %s: %v", what, value, err)
	}
}

// checkKept checks that a retired UID stays retired, that the SRK of a value that was given up
// names the entry that holds it, and that no other entry gets it or a further value. If the server
// refused something, the SRK may lack its time to live.
func (p fixture) checkKept(what, name string, refused bool) {
	p.t.Helper()
	ctx, client, prk := p.t.Context(), p.engine.client, "user/uid:a"
	switch name {
	case "retire":
		if client.HGet(ctx, prk, store.FieldRetired).Val() == "" || client.TTL(ctx, prk).Val() != -1 {
			p.report("%s: the UID is not retired: %v, %v", what, client.HGetAll(ctx, prk).Val(), client.TTL(ctx, prk).Val())
		}
		if err := p.applyNoted(p.engine, p.draft("a", "another", nil)); !errors.Is(err, store.ErrDuplicate) {
			p.report("%s: the UID was reused: %v", what, err)
		}
	case "give up a name":
		srk := "user/name:x/~prk"
		if client.HGet(ctx, prk, store.FieldHeld("name", "x")).Val() == "" || client.Get(ctx, srk).Val() != prk || !refused && client.TTL(ctx, srk).Val() <= 0 {
			p.report("%s: the name is not held: %v, %v", what, client.Get(ctx, srk).Val(), client.TTL(ctx, srk).Val())
		}
		p.checkTaken(what, "x")
	case "hold a value for an import":
		if client.TTL(ctx, "user/uid:late").Val() <= 0 {
			p.report("%s: the tombstone never expires", what)
		}
		p.checkTaken(what, "kept")
	case "retire a UID for an import":
		if err := p.applyNoted(p.engine, p.draft("late", "another", nil)); !errors.Is(err, store.ErrDuplicate) {
			p.report("%s: the UID was reused: %v", what, err)
		}
	case "add an address":
		p.checkTaken(what, "w")
	}
}
