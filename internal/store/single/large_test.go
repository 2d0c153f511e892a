package single

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A mortalProcess dies after it has sent a number of commands. Its scripts may be mutants.
type mortalProcess struct {
	left   int
	mutate func(source string) string
}

var errDead = fmt.Errorf("the process has died: %w", context.Canceled)

func (*mortalProcess) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mortalProcess) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *mortalProcess) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.left--; m.left < 0 {
			cmd.SetErr(errDead)
			return errDead
		}
		if args := cmd.Args(); cmd.Name() == "evalsha" && m.mutate != nil {
			for _, s := range append(allScripts, realignScript) {
				if args[1] == s.SHA {
					args[0], args[1] = "eval", m.mutate(s.Source)
				}
			}
		}
		return next(ctx, cmd)
	}
}

// manyTags lists the tags of an entry: more than an engine with smallBatch handles at once.
var manyTags = []string{"a", "b", "c", "d", "e", "f", "g"}

const smallBatch = 2

func (p fixture) retagged(uid string, tags ...string) store.Change {
	p.t.Helper()
	r := p.find(uid)
	c, _, err := p.users.Update(r, change.Facets(r), nil)
	if err == nil {
		err = p.users.SetTertiary(&c, []change.Content{{Name: "tags", Kind: "set", Values: tags}})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// hidingChanges holds the changes that hide a large set from readers.
var hidingChanges = map[string]func(p fixture) store.Change{
	"delete":  func(p fixture) store.Change { return p.users.Delete(p.find("u"), time.Now()) },
	"replace": func(p fixture) store.Change { return p.retagged("u", "c", "x") },
	"drop":    func(p fixture) store.Change { return p.retagged("u") },
}

// followUps holds the changes that another process makes after one has died during one of
// hidingChanges. The second result reports whether the change can be made.
var followUps = map[string]func(p fixture) (store.Change, bool){
	"create again": func(p fixture) (store.Change, bool) {
		return p.draft("u", "anew", []string{"b", "y"}), !p.find("u").Live()
	},
	"create again without tags": func(p fixture) (store.Change, bool) {
		return p.draft("u", "anew", nil), !p.find("u").Live()
	},
	"update": func(p fixture) (store.Change, bool) {
		if !p.find("u").Live() {
			return store.Change{}, false
		}
		return p.updated("u", map[string]string{"uid": "u", "name": "m"}), true
	},
	"replace": func(p fixture) (store.Change, bool) {
		if !p.find("u").Live() {
			return store.Change{}, false
		}
		return p.retagged("u", "a", "z"), true
	},
	"delete": func(p fixture) (store.Change, bool) {
		return p.users.Delete(p.find("u"), time.Now()), p.find("u").Live()
	},
}

// checkClean checks that nothing is left of a large set: where it was moved, in indexes, and in
// ~drop.
func (p fixture) checkClean(what string) {
	p.t.Helper()
	ctx, client := p.t.Context(), p.engine.client
	r := p.find("u")
	tags := client.SMembers(ctx, "user/uid:u/tags").Val()
	for key := range p.dump() {
		if strings.HasPrefix(key, "~/drop/") {
			p.report("%s: left over: %s", what, key)
		}
		tag, is := strings.CutPrefix(key, "user/tags:")
		tag, _, _ = strings.Cut(tag, "/")
		if is && client.SIsMember(ctx, key, "user/uid:u").Val() != (r.Live() && slices.Contains(tags, tag)) {
			p.report("%s: I5: %s, tags %q", what, key, tags)
		}
	}
	if drop := client.HGet(ctx, "user/uid:u", store.FieldDrop).Val(); drop != "" {
		p.report("%s: ~drop is %q", what, drop)
	}
	p.checkInvariants(what, false)
}

// TestDiesBeforeAllIsDropped has a process die at each of its commands while it makes a change that
// replaces or drops a large set. If the change was made, readers must see nothing of the set. The
// next change of the entry must drop the rest, and a later entry with that UID must inherit
// nothing.
func TestDiesBeforeAllIsDropped(t *testing.T) {
	srv := redistest.Start(t)
	for name := range hidingChanges {
		for next := range followUps {
			t.Run(name+", "+next, func(t *testing.T) {
				for at := 1; diesAtCommand(t, srv, at, nil, nil, name, next); at++ {
					if at > 100 {
						t.Fatal("the process never finishes")
					}
				}
			})
		}
	}
}

// largeMutants lists edits of the scripts. Each removes a safeguard that keeps a large set from
// being forgotten or inherited.
var largeMutants = []struct{ name, old, new string }{
	{"~drop is not written by a delete", "if dropping ~= head[7] then redis.call('HSET', entry, '~drop', dropping) end", ""},
	{"~drop is not written by an update", "refused = refused or write('HSET', entry, '~drop', dropping)", ""},
	{"a tombstone forgets ~drop", ", ['~drop'] = true", ""},
	{"a large set is not moved aside", "if redis.call('EXISTS', d.key) == 1 then redis.call('RENAME', d.key, d.aside) end", ""},
	{"tags of the next entry are removed as well", "has[i - 2] == 1 and 'SADD' or 'SREM'", "'SREM'"},
	{"the next change does not continue dropping", "return {'ok', dropping}", "return {'ok', dropping ~= head[7] and dropping}"},
	{"a short change ignores ~drop", "or head[3] or head[4] or head[6] or string", "or head[3] or head[4] or string"},
}

// TestLargeMutants checks that the tests notice each missing safeguard.
func TestLargeMutants(t *testing.T) {
	srv := redistest.Start(t)
	for _, m := range largeMutants {
		t.Run(m.name, func(t *testing.T) {
			if !slices.ContainsFunc(append(allScripts, realignScript), func(s redisx.Script) bool { return strings.Contains(s.Source, m.old) }) {
				t.Fatalf("no script contains the text to replace: %s", m.old)
			}
			found := ""
			report := func(format string, args ...any) { found = fmt.Sprintf(format, args...) }
			mutate := func(source string) string { return strings.Replace(source, m.old, m.new, 1) }
			for name := range hidingChanges {
				for next := range followUps {
					for at := 1; found == "" && at < 60 && diesAtCommand(t, srv, at, mutate, report, name, next); at++ {
					}
				}
			}
			if found == "" {
				t.Error("no test noticed the edit")
			}
			t.Log(found)
		})
	}
}

// diesAtCommand makes a change in a process that dies at a command, lets another process continue,
// and checks both. It reports whether the process died before it finished.
func diesAtCommand(t *testing.T, srv *redistest.Server, at int, mutate func(string) string, report func(string, ...any), name, next string) bool {
	t.Helper()
	if err := srv.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p := newFixture(t, srv)
	if report != nil {
		p.report = report
	}
	p.apply(p.draft("u", "n", manyTags))
	client, what := srv.Client(), fmt.Sprintf("dies at command %d", at)
	m := &mortalProcess{left: at, mutate: mutate}
	client.AddHook(m)
	_, err := New(client, Options{MemberBatch: smallBatch}).Apply(t.Context(), hidingChanges[name](p))
	hidden := !p.find("u").Live() || p.engine.client.SCard(t.Context(), "user/uid:u/tags").Val() <= smallBatch
	if hidden != (err == nil) && m.left >= 0 {
		p.report("%s: error %v, tags hidden from readers: %v; want them hidden only without an error", what, err, hidden)
	}
	if left := p.engine.client.SCard(t.Context(), "user/uid:u/tags").Val(); hidden && left > smallBatch {
		p.report("%s: readers still see %d tags", what, left)
	}
	other := srv.Client()
	other.AddHook(&mortalProcess{left: 1 << 30, mutate: mutate})
	if c, can := followUps[next](p); can {
		if _, err := New(other, Options{MemberBatch: smallBatch}).Apply(t.Context(), c); err != nil {
			p.report("%s, then %s: %v", what, next, err)
		}
		p.checkClean(what + ", then " + next)
	}
	return m.left < 0
}
