package single

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// A meddler is a hook of a client. At the end of each round trip that reads, it calls after.
type meddler struct {
	rounds int
	after  func(round int)
}

func (*meddler) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meddler) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		m.count(cmd)
		return err
	}
}

func (m *meddler) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		m.count(cmds[0])
		return err
	}
}

// count counts a round trip of GETs or HGETALLs by the first of its commands, and calls after.
func (m *meddler) count(first redis.Cmder) {
	if name := first.Name(); name == "get" || name == "hgetall" {
		m.rounds++
		m.after(m.rounds)
	}
}

// TestFindBatch changes entries between the round trips of a lookup that is batched with others.
// The answer must have been true at some time in between (I2, I4).
func TestFindBatch(t *testing.T) {
	srk := func(field string) recordkey.Key {
		k, err := recordkey.SRK("user", field, "v")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	name, email := []recordkey.Key{srk("name")}, []recordkey.Key{srk("email")}
	both := []recordkey.Key{srk("email"), srk("name")}
	for _, tt := range []struct {
		what      string
		lookup    store.Lookup
		after     map[int]string // what happens after each round trip
		want      string         // UID
		sentAgain bool           // the lookup must be sent again by itself although nothing happens
	}{
		{what: "nothing happens", lookup: store.Lookup{SRKs: name}, want: "u"},
		{what: "looked up under two fields", lookup: store.Lookup{SRKs: both}, want: "u"},
		{what: "absent", lookup: store.Lookup{SRKs: email}},
		{what: "absent, looked up under two fields", lookup: store.Lookup{SRKs: []recordkey.Key{srk("email"), srk("nick")}}, sentAgain: true},
		{what: "renamed", lookup: store.Lookup{SRKs: name}, after: map[int]string{1: "rename"}},
		{what: "moved to the other field", lookup: store.Lookup{SRKs: both}, after: map[int]string{1: "move"}, want: "u"},
		{what: "moved to the other field, looked up under one", lookup: store.Lookup{SRKs: name}, after: map[int]string{1: "move"}},
		{what: "deleted", lookup: store.Lookup{SRKs: name}, after: map[int]string{1: "delete"}},
		{what: "taken by another entry", lookup: store.Lookup{SRKs: name}, after: map[int]string{1: "give"}, want: "w"},
		{what: "changed after the lookup", lookup: store.Lookup{SRKs: name}, after: map[int]string{2: "give"}, want: "u"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			srv := redistest.Shared(t)
			p, client := newFixture(t, srv), srv.Client()
			p.make("u", "v")
			m := &meddler{after: func(round int) { p.interfere(tt.after[round]) }}
			client.AddHook(m)
			e := New(client, Options{})
			for range manyLookups {
				e.finding.Add(1)
			}
			found, err := e.Find(t.Context(), []store.Lookup{tt.lookup})
			if err != nil {
				t.Fatal(err)
			}
			if got := found[0].Record.Key.Value(); got != tt.want || tt.want == "" && !errors.Is(found[0].Err, store.ErrNotFound) {
				t.Errorf("got %q, %v; want %q", got, found[0].Err, tt.want)
			}
			if m.after = func(int) {}; tt.after == nil {
				if _, consistent, err := e.FindBatched(t.Context(), tt.lookup); consistent == tt.sentAgain || err != nil {
					t.Errorf("FindBatched: got consistent %v, error %v; want %v, no error", consistent, err, !tt.sentAgain)
				}
			}
			if m.rounds == 0 {
				t.Error("the lookup was sent by itself, want it in a batch")
			}
		})
	}
}

// interfere changes the entry "u" through a client other than the one under test.
func (p fixture) interfere(how string) {
	switch how {
	case "rename":
		p.change("u", map[string]string{"uid": "u", "name": "other"})
	case "move":
		p.change("u", map[string]string{"uid": "u", "email": "v"})
	case "delete":
		p.remove("u")
	case "give":
		p.remove("u")
		p.make("w", "v")
	}
}

func (p fixture) change(uid string, facets map[string]string) {
	p.t.Helper()
	c, _, err := p.users.Update(p.find(uid), facets, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.apply(c)
}
