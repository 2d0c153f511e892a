package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// people is the type that all actors know: two secondary fields, an index, an indexed set.
var people = func() *change.Type {
	secondary := schema.Field{Role: schema.RoleSecondary}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Fold: schema.FoldCasefold,
		Fields:   map[string]schema.Field{"email": secondary, "name": secondary, "job": {Role: schema.RoleIndexed}},
		Tertiary: map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}},
	}}}, recordkey.Namespace{})
	if err != nil {
		panic(err)
	}
	t, err := c.Type("user")
	if err != nil {
		panic(err)
	}
	return t
}()

// A verb is what an actor does.
type verb struct {
	name    string
	do      func(ctx context.Context, a *actor) error
	commits bool     // it has done nothing unless it committed
	finds   string   // it looks for the owner of this value
	in      []string // under these fields
}

// verbAttempts is how often a verb begins again when the entry has changed meanwhile.
const verbAttempts = 3

// pairs makes a map of FIELD=VALUE words; "" values mean that the field goes.
func pairs(words string) map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields(words) {
		field, value, _ := strings.Cut(w, "=")
		m[field] = value
	}
	return m
}

func create(uid, words string, tags ...string) verb {
	return verb{name: "create " + uid + " " + words, commits: true, do: func(ctx context.Context, a *actor) error {
		c, err := people.Create(change.Draft{UID: uid, Facets: pairs(words), More: []change.Content{{Name: "tags", Kind: "set", Values: tags}}})
		if err == nil {
			err = a.apply(ctx, c)
		}
		return err
	}}
}

func update(uid, words string) verb {
	return verb{name: "update " + uid + " " + words, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			facets := map[string]string{}
			for f, v := range r.Fields {
				if !store.OwnField(f) {
					facets[f] = v
				}
			}
			maps.Copy(facets, pairs(words))
			maps.DeleteFunc(facets, func(_, v string) bool { return v == "" })
			return people.Update(r, facets, nil)
		})
	}}
}

func remove(uid string) verb {
	return verb{name: "delete " + uid, commits: true, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) { return people.Delete(r), true, nil })
	}}
}

// retag puts other tags in the place of an entry's.
func retag(uid string, tags ...string) verb {
	return verb{name: "retag " + uid + " " + strings.Join(tags, " "), do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			c, _, err := people.Update(r, pairs("uid="+uid+" email="+r.Fields["email"]), nil)
			if err == nil {
				err = people.Replace(&c, []change.Content{{Name: "tags", Kind: "set", Values: tags}})
			}
			return c, true, err
		})
	}}
}

func rewriteEntry(ctx context.Context, a *actor, uid string, make func(store.Record) (store.Change, bool, error)) error {
	for attempt := 1; ; attempt++ {
		prk, err := people.PRK(uid)
		if err != nil {
			return err
		}
		found, err := a.engine.Find(ctx, []store.Lookup{{PRK: prk}})
		if err == nil {
			err = found[0].Err
		}
		if err != nil {
			return err
		}
		c, changed, err := make(found[0].Record)
		if err != nil || !changed {
			return err
		}
		err = a.apply(ctx, c)
		if !errors.Is(err, store.ErrConflict) || attempt == verbAttempts {
			return err
		}
	}
}

// tag and untag change the set of an entry.
func tag(uid, t string) verb   { return tagged("tag", "SADD", uid, t, true) }
func untag(uid, t string) verb { return tagged("untag", "SREM", uid, t, false) }

func tagged(name, command, uid, t string, join bool) verb {
	return verb{name: name + " " + uid + " " + t, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK(uid)
		key, index, err := people.Tertiary(prk, "tags", "set", []string{t})
		if err != nil {
			return err
		}
		op := store.Op{PRK: prk, Key: key, Command: command, Args: []string{t}, Write: true, Schema: people.Guard()}
		if op.Index = index; !join {
			op.Index, op.Unindex = nil, index
		}
		_, err = a.engine.Tertiary(ctx, op)
		return err
	}}
}

// wait is time that goes by between the steps of others.
func wait(seconds int64) verb {
	return verb{name: fmt.Sprintf("wait %d", seconds), do: func(_ context.Context, a *actor) error {
		return a.event("clock", func(w *world) { w.now += seconds * 1000 })
	}}
}

const (
	storedSchema = "~/schema/user"
	reliedOn     = "~/schema/relied" // there when somebody relies on another schema
)

// restate has another schema be in force, waits, and relies on that nobody writes by the old one any more.
func restate() verb {
	return verb{name: "restate", do: func(ctx context.Context, a *actor) error {
		if err := a.engine.write(ctx, "hset", storedSchema, "fingerprint", "another"); err != nil {
			return err
		}
		if err := a.event("clock", func(w *world) { w.now += changeWait.Milliseconds() }); err != nil {
			return err
		}
		return a.engine.write(ctx, "hset", reliedOn, "on", "another")
	}}
}

// then is several verbs of one actor. After one that failed for an unknown reason none follows.
func then(verbs ...verb) []verb { return verbs }

// play has one more actor do its verbs.
func (s *stage) play(verbs []verb) { s.actors = append(s.actors, s.cast(len(s.actors), verbs)) }

func (a *actor) perform(ctx context.Context, verbs []verb) {
	for i, v := range verbs {
		a.mu.Lock()
		a.verb = fmt.Sprintf("%d %s", i, v.name)
		a.mu.Unlock()
		err := v.do(ctx, a)
		a.mu.Lock()
		a.results = append(a.results, err)
		a.mu.Unlock()
	}
}
