package single

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A replyLoser carries commands out, but loses the replies of the first scripts.
type replyLoser struct {
	left    int
	between func() // called after each loss
}

func (*replyLoser) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*replyLoser) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *replyLoser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if l.left == 0 || cmd.Name() != "eval" && cmd.Name() != "evalsha" || redisx.NoScript(err) {
			return err
		}
		l.left--
		l.between()
		err = &net.OpError{Op: "read", Err: errors.New("connection reset")}
		cmd.SetErr(err)
		return err
	}
}

// A fixture holds a type of entries in an empty store, and an engine that loses no replies.
type fixture struct {
	t      *testing.T
	users  *change.Type
	engine *Engine
	// report is called with each problem.
	report func(format string, args ...any)
}

func newFixture(t *testing.T, srv *redistest.Server) fixture {
	t.Helper()
	secondary := schema.Field{Role: schema.RoleSecondary}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Fold: schema.FoldCasefold, Fields: map[string]schema.Field{"name": secondary, "email": {Role: schema.RoleSecondary, Many: 4}},
		Tertiary: map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}},
	}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	users, err := c.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	p := fixture{t, users, New(srv.Client(), Options{}), t.Errorf}
	p.make("first", "first") // so that the schema is stored
	return p
}

func (p fixture) draft(uid, name string, tags []string) store.Change {
	p.t.Helper()
	c, err := p.users.Create(change.Draft{UID: uid, Facets: map[string]string{"name": name}, Tertiary: []change.Content{{Name: "tags", Kind: "set", Values: tags}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p fixture) find(uid string) store.Record {
	p.t.Helper()
	prk, _ := p.users.PRK(uid)
	found, err := p.engine.Find(p.t.Context(), []store.Lookup{{PRK: prk}})
	if err != nil {
		p.t.Fatal(err)
	}
	return found[0].Record
}

func (p fixture) apply(c store.Change) {
	p.t.Helper()
	if _, err := p.engine.Apply(p.t.Context(), c); err != nil {
		p.t.Fatal(err)
	}
}

func (p fixture) make(uid, name string) { p.t.Helper(); p.apply(p.draft(uid, name, nil)) }
func (p fixture) remove(uid string)     { p.t.Helper(); p.apply(p.users.Delete(p.find(uid), time.Now())) }

var lostReplyCases = []struct {
	name     string
	tags     []string // with tags, change.lua makes the entry
	lost     int
	between  func(p fixture)
	want     error
	wantName string // the name that the entry has in the end
}{
	{name: "one reply is lost", lost: 1, wantName: "n"},
	{name: "three replies are lost", lost: 3, wantName: "n"},
	{name: "with tags, one reply is lost", tags: []string{"red"}, lost: 1, wantName: "n"},
	{name: "with tags, three replies are lost", tags: []string{"red"}, lost: 3, wantName: "n"},
	{name: "every reply is lost", lost: 1000, want: store.ErrOutcomeUnknown, wantName: "n"},
	{name: "others delete the entry", lost: 1, between: func(p fixture) { p.remove("u") }},
	{name: "others delete and create the entry", lost: 1, between: func(p fixture) {
		p.remove("u")
		p.make("u", "m")
	}, wantName: "m"},
	{name: "others delete and create the entry until its rev is forgotten", lost: 1, between: func(p fixture) {
		for range 3 {
			p.remove("u")
			p.make("u", "m")
		}
	}, want: store.ErrOutcomeUnknown, wantName: "m"},
	{name: "others delete the entry and take its name", lost: 1, between: func(p fixture) {
		p.remove("u")
		p.make("v", "n")
	}},
}

// TestCreateArrivesTwice loses the replies to a create, which is sent again. The create must make
// the entry only once, must not fail as a duplicate of itself, and must not make the entry again
// after others changed it in the meantime (I7).
func TestCreateArrivesTwice(t *testing.T) {
	for _, tt := range lostReplyCases {
		t.Run(tt.name, func(t *testing.T) {
			srv := redistest.Shared(t)
			p, client := newFixture(t, srv), srv.Client()
			client.AddHook(&replyLoser{left: tt.lost, between: func() {
				if tt.between != nil {
					tt.between(p)
				}
			}})
			_, err := New(client, Options{}).Apply(t.Context(), p.draft("u", "n", tt.tags))
			if !errors.Is(err, tt.want) || errors.Is(err, store.ErrDuplicate) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			r := p.find("u")
			if r.Fields["name"] != tt.wantName {
				t.Errorf("the entry is %v, want the name %q", r.Fields, tt.wantName)
			}
			if tt.between == nil && len(r.Fields[store.FieldRev]) != store.RevLen {
				t.Errorf("~rev is %q, want one rev: the entry was made more than once", r.Fields[store.FieldRev])
			}
			if tags, _ := client.SMembers(t.Context(), "user/uid:u/tags").Result(); len(tags) != len(tt.tags) {
				t.Errorf("tags %q, want %q", tags, tt.tags)
			}
		})
	}
}
