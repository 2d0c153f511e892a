package single

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A refuser has the server refuse one write of the first script that writes so often, whatever was written before it.
type refuser struct {
	mu   sync.Mutex // many creates are several calls at a time
	at   int        // from 1
	met  bool
	used bool
}

func (*refuser) DialHook(next redis.DialHook) redis.DialHook { return next }

// refusing counts the writes of a script, and refuses the one at a number.
const refusing = `local n, real, is = 0, redis, {}
for word in string.gmatch('SET MSET HSET HSETNX HDEL SADD SREM ZADD ZREM RPUSH UNLINK EXPIRE PERSIST RENAME', '%%S+') do is[word] = true end
local function refused(command)
  if is[command] then n = n + 1 end
  return is[command] and n == %d and {err = 'ERR refused in the middle'}
end
local redis = {error_reply = real.error_reply, pcall = function(command, ...) return refused(command) or real.pcall(command, ...) end,
  call = function(command, ...)
    local no = refused(command)
    if no then error({err = no.err}) end
    return real.call(command, ...)
  end}
`

var everyScript = []redisx.Script{changeScript, createScript, updateScript, notedScript, createsScript, tertiaryScript, onekey.RestateScript}

func (r *refuser) rewrite(cmd redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	args := cmd.Args()
	if r.met || len(args) < 2 || cmd.Name() != "evalsha" {
		return
	}
	for _, s := range everyScript {
		if args[1] == s.SHA {
			args[0], args[1] = "eval", fmt.Sprintf(refusing, r.at)+s.Source
			r.used = true
		}
	}
}

func (r *refuser) judge(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.met = r.met || err != nil && strings.Contains(err.Error(), "refused in the middle")
}

func (r *refuser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.rewrite(cmd)
		err := next(ctx, cmd)
		r.judge(err)
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
			r.judge(cmd.Err())
		}
		return err
	}
}

// raw is all that a server has: what lies at each key, but for revs.
func (p pair) raw() map[string]string {
	p.t.Helper()
	ctx, all := p.t.Context(), map[string]string{}
	for _, key := range p.plain.client.Keys(ctx, "*").Val() {
		switch p.plain.client.Type(ctx, key).Val() {
		case "hash":
			all[key] = fmt.Sprint(p.plain.client.HGetAll(ctx, key).Val())
		case "set":
			all[key] = fmt.Sprint(p.plain.client.SMembersMap(ctx, key).Val())
		case "string":
			all[key] = p.plain.client.Get(ctx, key).Val()
		}
	}
	return all
}

// sound looks for broken promises: each live entry's values name it (I1, and so I2), its tags are in their index, and, but
// for those of a create that was cut off, no tags are there without an entry.
func (p pair) sound(what string, cut bool) {
	p.t.Helper()
	ctx, client := p.t.Context(), p.plain.client
	for key := range p.raw() {
		if !strings.HasPrefix(key, "user/uid:") {
			continue
		}
		prk, tags, _ := strings.Cut(key[len("user/"):], "/")
		prk = "user/" + prk
		live := client.HGet(ctx, prk, store.FieldType).Val() != ""
		if tags != "" && !live && !cut {
			p.t.Errorf("%s: %s of no entry", what, key)
		}
		for _, tag := range client.SMembers(ctx, prk+"/tags").Val() {
			if live && !client.SIsMember(ctx, "user/tags:"+tag+"/~prks", prk).Val() {
				p.t.Errorf("%s: I5: %s is not in the index of %s", what, prk, tag)
			}
		}
		for _, field := range []string{"name", "email"} {
			v := client.HGet(ctx, prk, field).Val()
			if live && v != "" && client.Get(ctx, "user/"+field+":"+v+"/~prk").Val() != prk {
				p.t.Errorf("%s: I1: the SRK of %s %q does not name %s", what, field, v, prk)
			}
		}
	}
}

func (p pair) updated(uid string, facets map[string]string) store.Change {
	p.t.Helper()
	c, _, err := p.users.Update(p.find(uid), facets, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// refusedVerbs write to an entry a with tags, to one that is gone, or make others.
var refusedVerbs = map[string]func(p pair, e *Engine) error{
	"create":           func(p pair, e *Engine) error { return p.by(e, p.draft("u", "n", nil)) },
	"create with tags": func(p pair, e *Engine) error { return p.by(e, p.draft("u", "n", []string{"red", "blue"})) },
	"create anew":      func(p pair, e *Engine) error { return p.by(e, p.draft("gone", "n", []string{"red"})) },
	"create many": func(p pair, e *Engine) error {
		cs := []store.Change{p.draft("u", "n", nil), p.draft("v", "m", []string{"red"}), p.draft("w", "l", []string{"blue"})}
		errs := e.ApplyAll(p.t.Context(), cs)
		return errors.Join(errs...)
	},
	"update": func(p pair, e *Engine) error {
		return p.by(e, p.updated("a", map[string]string{"uid": "a", "email": "y"}))
	},
	"delete": func(p pair, e *Engine) error { return p.by(e, p.users.Delete(p.find("a"))) },
	"tag": func(p pair, e *Engine) error {
		prk, _ := p.users.PRK("a")
		key, index, err := p.users.Tertiary(prk, "tags", "set", []string{"blue"})
		if err != nil {
			p.t.Fatal(err)
		}
		_, err = e.Tertiary(p.t.Context(), store.Op{PRK: prk, Key: key, Command: "SADD", Args: []string{"blue"}, Write: true, Index: index, Schema: p.users.Guard})
		return err
	},
}

func (p pair) by(e *Engine, c store.Change) error {
	_, err := e.Apply(p.t.Context(), c)
	return err
}

// TestRefusedInTheMiddle has the server refuse each write of each script, one at a time, as for want of a right. Nothing
// is broken then; the error says that the outcome is not known, unless nothing was written; and the verb can be done.
func TestRefusedInTheMiddle(t *testing.T) {
	srv := redistest.Start(t)
	for name := range refusedVerbs {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				if at > 100 {
					t.Fatal("the script does not end")
				}
				if err := srv.Client().FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				if refusedAt(t, srv, at, name) {
					continue
				}
				if at < 3 {
					t.Errorf("only %d writes", at-1)
				}
				return
			}
		})
	}
}

// refusedAt reports whether there was a write of that number.
func refusedAt(t *testing.T, srv *redistest.Server, at int, name string) bool {
	t.Helper()
	verb := refusedVerbs[name]
	p, what := newPair(t, srv), fmt.Sprintf("write %d refused", at)
	p.apply(p.draft("a", "x", []string{"red", "blue"}))
	p.apply(p.draft("gone", "g", []string{"admin"}))
	p.remove("gone")
	before, r, client := p.raw(), &refuser{at: at}, srv.Client()
	client.AddHook(r)
	err := verb(p, New(client, Options{}))
	if !r.used {
		t.Fatal("no script was refused anything")
	}
	p.sound(what, err != nil && strings.HasPrefix(name, "create"))
	if err != nil && !errors.Is(err, store.ErrOutcomeUnknown) && !maps.Equal(before, p.raw()) {
		t.Errorf("%s: %v, but it wrote", what, err)
	}
	if !r.met && err != nil {
		t.Errorf("%s: %v", what, err)
	}
	again := verb(p, p.plain)
	var done *store.FieldError
	if again != nil && !(errors.As(again, &done) && done.Field == "uid") && !errors.Is(again, store.ErrNotFound) {
		t.Errorf("%s, once more: %v", what, again)
	}
	p.sound(what+", once more", false)
	return r.met
}
