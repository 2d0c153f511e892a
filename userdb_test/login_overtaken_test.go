package userdb_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// An ending is what happens to alice at one moment of her login, and whether she gets in.
type ending struct {
	name string
	do   func(g *gate) error
	want error
}

const nextPassword = "brand new horse"

var endings = []ending{
	{"set", func(g *gate) error { return g.users.SetPassword(g.t.Context(), uid("alice"), nextPassword) }, userdb.ErrLogin},
	{"set to the same", func(g *gate) error { return g.users.SetPassword(g.t.Context(), uid("alice"), alicePassword) }, nil},
	{"disabled", func(g *gate) error { return g.users.Disable(g.t.Context(), uid("alice")) }, userdb.ErrLogin},
	{"disabled and enabled", func(g *gate) error {
		return errors.Join(g.users.Disable(g.t.Context(), uid("alice")), g.users.Enable(g.t.Context(), uid("alice")))
	}, nil},
	{"deleted", func(g *gate) error { return g.users.Delete(g.t.Context(), uid("alice")) }, userdb.ErrLogin},
	{"made anew", func(g *gate) error { return g.anew("alice", alicePassword) }, nil},
	{"made anew with another password", func(g *gate) error { return g.anew("alice", nextPassword) }, userdb.ErrLogin},
	{"another facet", func(g *gate) error { return g.put("job", "cook") }, nil},
}

// lostNames are endings for whoever comes by the name.
var lostNames = []ending{
	{"made anew for somebody else", func(g *gate) error { return g.anew("bob", alicePassword) }, userdb.ErrLogin},
	{"renamed", func(g *gate) error { return g.put("name", "bob") }, userdb.ErrLogin},
}

// behindTheBack are endings by a program that knows no ~rev.
var behindTheBack = []ending{
	{"another password", func(g *gate) error { g.store("alice", "password", hashed(g.t, "brand new horse")); return nil }, userdb.ErrLogin},
	{"no password", func(g *gate) error { return g.raw.HDel(g.t.Context(), "user/uid:alice", "password").Err() }, userdb.ErrLogin},
	{"renewed", func(g *gate) error { g.store("alice", "password", hashed(g.t, alicePassword)); return nil }, nil},
	{"another facet", func(g *gate) error { g.store("alice", "job", "cook"); return nil }, nil},
}

// anew deletes alice, and makes an entry of her UID.
func (g *gate) anew(name, password string) error {
	if err := g.users.Delete(g.t.Context(), uid("alice")); err != nil {
		return err
	}
	_, err := g.users.Create(g.t.Context(), userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", name), Password: password})
	return err
}

// put changes a facet of alice.
func (g *gate) put(field, text string) error {
	_, err := g.users.Update(g.t.Context(), uid("alice"), func(e *userdb.Entry) error {
		e.Put(field, schema.Text(text))
		return nil
	})
	return err
}

// before does something once, before the first round trip from now on with this text in it is sent.
func (g *gate) before(text string, do func()) (done *atomic.Bool) {
	g.t.Helper()
	g.needs(interleaves)
	done = &atomic.Bool{}
	g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if strings.Contains(wordsOf(cmds[0]), text) && done.CompareAndSwap(false, true) {
			do()
		}
		return send()
	})
	return done
}

// TestOvertakenRenewal: a login that replaces the hash is judged by the entry as it is behind that.
func TestOvertakenRenewal(t *testing.T) {
	for _, e := range slices.Concat(endings, lostNames) {
		t.Run(e.name, func(t *testing.T) {
			eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
				g.store("alice", "password", bcryptOf(t, "b", 4, alicePassword))
				done := g.before("password $2a$", func() { must(t, e.do(g)) })
				got, err := g.users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
				if !done.Load() {
					t.Error("nothing happened meanwhile")
				}
				if !errors.Is(err, e.want) || err == nil && got.UID() != "alice" {
					t.Errorf("got %v, %v; want %v", got, err, e.want)
				}
				told := g.told()
				if last := brief(told[len(told)-1]); err != nil && !strings.HasPrefix(last, "failure") {
					t.Errorf("the last event is %q, want a failure", last)
				}
			})
		})
	}
}

// TestOvertakenByARefusedWrite: the same where the new hash cannot be written at all.
func TestOvertakenByARefusedWrite(t *testing.T) {
	eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
		g.store("alice", "password", bcryptOf(t, "b", 4, alicePassword))
		g.needs(interleaves)
		once := &atomic.Bool{}
		g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if strings.Contains(wordsOf(cmds[0]), "password $2a$") && once.CompareAndSwap(false, true) {
				must(t, g.users.Disable(t.Context(), uid("alice")))
				err := serverAnswer("OOM refused by the test")
				cmds[0].SetErr(err)
				return err
			}
			return send()
		})
		wantErr(t, "disabled", g.in("alice", alicePassword, ""), userdb.ErrLogin)
	})
}

// TestOvertakenNewPassword: who proved the old password changes nothing once he may not log in any more.
func TestOvertakenNewPassword(t *testing.T) {
	for _, e := range endings {
		want := e.want
		if strings.HasPrefix(e.name, "set") || strings.HasPrefix(e.name, "made anew") {
			want = userdb.ErrConflict
		}
		t.Run(e.name, func(t *testing.T) {
			eachGate(t, gateOptions(), func(t *testing.T, g *gate) {
				done := g.before("password $2a$", func() { must(t, e.do(g)) })
				err := g.users.ChangePassword(t.Context(), uid("alice"), alicePassword, "battery staple", userdb.Attempt{})
				if !done.Load() || !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
		})
	}
}

// TestOvertakenLogin: what counts is the entry as it is when the password proves right, not as it was
// when the login began to wait.
func TestOvertakenLogin(t *testing.T) {
	for _, tt := range slices.Concat(endings, behindTheBack, lostNames) {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *gate) {
				begun := g.meanwhile(func() { must(t, tt.do(g)) })
				e, err := g.users.Login(t.Context(), "alice", alicePassword, userdb.Attempt{})
				if !begun.Load() {
					t.Error("nothing happened meanwhile")
				}
				if !errors.Is(err, tt.want) || err == nil && e.UID() != "alice" {
					t.Errorf("got %v, %v; want %v", e, err, tt.want)
				}
				if err == nil && tt.name == "another facet" && e.Text("job") != "cook" {
					t.Errorf("the entry is as it was: %v", e)
				}
			})
		})
	}
}

// TestOvertakenChange: what holds for a login holds for the old password of a change.
func TestOvertakenChange(t *testing.T) {
	for _, tt := range slices.Concat(endings, behindTheBack) {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, userdb.Options{HashWorkers: 1}, func(t *testing.T, g *gate) {
				g.meanwhile(func() { must(t, tt.do(g)) })
				err := g.users.ChangePassword(t.Context(), uid("alice"), alicePassword, "battery staple", userdb.Attempt{})
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if tt.want == nil {
					must(t, g.in("alice", "battery staple", ""))
				}
			})
		})
	}
}

// meanwhile does something once, when somebody has been looked up and his turn to be checked comes.
func (g *gate) meanwhile(do func()) (begun *atomic.Bool) {
	begun = &atomic.Bool{}
	g.db.Core().Now = func() time.Time {
		if begun.CompareAndSwap(false, true) {
			do()
		}
		return g.clock()
	}
	return begun
}
