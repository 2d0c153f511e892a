package userdb_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// TestClusterClientLosesReplies uses a client whose router loses replies to commands that it does
// not know. New must refuse such a client. If a client gets the router only after New, no value
// that an entry has may count as free.
func TestClusterClientLosesReplies(t *testing.T) {
	s := clusterSite(t)
	t.Cleanup(s.check)
	add(t, s.wide(), "a", "email", "x")
	o, err := redis.ParseClusterURL("redis" + s.url[len("redis+cluster"):])
	must(t, err)
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { client.Close() })
	db, err := redisdb.New(t.Context(), client, userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
	must(t, err)
	client.SetCommandInfoResolver(client.NewDynamicResolver())
	_, err = redisdb.New(t.Context(), client, userdb.Options{})
	wantErr(t, "a router that loses replies", err, userdb.ErrUnsuitable, "the client alters exists or its reply")
	_, err = typeOf(t, db, "user").Create(t.Context(), userdb.NewEntry{UID: "b", Facets: schema.Texts("name", "x")})
	wantErr(t, "taking a value that another entry has in another field", err, userdb.ErrUnavailable, store.ErrReply.Error())
}

// A replyForger is a hook that answers some commands itself, wrongly.
type replyForger struct {
	off   bool
	forge func(cmd redis.Cmder) bool // reports whether it answered cmd
}

func (f *replyForger) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *replyForger) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !f.off && f.forge(cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (f *replyForger) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if !f.off && f.forge(cmd) {
				return cmd.Err()
			}
		}
		return next(ctx, cmds)
	}
}

// TestClientChangesReplies checks that New refuses clients whose hooks lose or change replies.
func TestClientChangesReplies(t *testing.T) {
	srv := redistest.Shared(t)
	for name, forge := range map[string]func(cmd redis.Cmder) bool{
		"most commands are not sent": func(cmd redis.Cmder) bool { return cmd.Name() != "ping" && cmd.Name() != "info" },
		"reads are not sent":         func(cmd redis.Cmder) bool { return cmd.Name() == "hgetall" },
		"scripts have old replies": func(cmd redis.Cmder) bool {
			return cmd.Name() == "eval" && setReply(cmd, []any{"~/probe/1", "old"})
		},
	} {
		o, err := redis.ParseURL(srv.URL())
		must(t, err)
		c := redis.NewClient(o)
		t.Cleanup(func() { c.Close() })
		f := &replyForger{off: true, forge: forge}
		c.AddHook(f)
		db, err := redisdb.New(t.Context(), c, userdb.Options{})
		must(t, err)
		f.off = false
		_, err = redisdb.New(t.Context(), c, userdb.Options{})
		wantErr(t, name, err, userdb.ErrUnsuitable, "the client alters ")
		f.off = true
		must(t, db.Close())
	}
}

func setReply(cmd redis.Cmder, v any) bool {
	if c, ok := cmd.(interface{ SetVal(any) }); ok {
		c.SetVal(v)
	}
	return true
}

// TestLostRepliesAreErrors sends no commands to the server, and leaves their replies empty. No
// method may conclude from this that a record does not exist.
func TestLostRepliesAreErrors(t *testing.T) {
	s := serverSite(t)
	t.Cleanup(s.check)
	users := s.wide()
	add(t, users, "a", "email", "x", "name", "y")
	f := &replyForger{forge: func(redis.Cmder) bool { return true }}
	s.raw.AddHook(f)
	defer func() { f.off = true }()
	ctx := t.Context()
	for name, method := range map[string]func() error{
		"find by UID":        func() error { _, err := users.Find(ctx, hints.UID("a")); return err },
		"find by identifier": func() error { _, err := users.Find(ctx, hints.Any("x")); return err },
		"find by one field":  func() error { _, err := users.Find(ctx, hints.Field("email", "x")); return err },
		"members":            func() error { _, err := users.Tags(hints.UID("a")).Members(ctx); return err },
		"create": func() error {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "b", Facets: schema.Texts("name", "x")})
			return err
		},
	} {
		err := method()
		if name == "create" {
			wantErr(t, name, err, userdb.ErrOutcomeUnknown, store.ErrReply.Error())
			continue
		}
		wantErr(t, name, err, userdb.ErrUnavailable, store.ErrReply.Error())
	}
}

// A nilReplies is a hook that lets the server run scripts, and replaces their replies with nil.
type nilReplies struct{ off bool }

func (n *nilReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *nilReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if n.off || err != nil || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return err
		}
		setReply(cmd, nil)
		cmd.SetErr(redis.Nil)
		return redis.Nil
	}
}

func (n *nilReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if !n.off && (cmd.Name() == "evalsha" || cmd.Name() == "eval") && cmd.Err() == nil {
				setReply(cmd, nil)
				cmd.SetErr(redis.Nil)
				err = redis.Nil
			}
		}
		return err
	}
}

// TestNilReplies replaces the replies of scripts with nil. No method may conclude from this that
// its script did nothing.
func TestNilReplies(t *testing.T) {
	s := serverSite(t)
	t.Cleanup(s.check)
	users := s.wide()
	add(t, users, "a", "email", "x")
	n := &nilReplies{}
	s.raw.AddHook(n)
	defer func() { n.off = true }()
	ctx := t.Context()
	for _, step := range []struct {
		name   string
		method func() error
	}{
		{"disable", func() error { return users.Disable(ctx, hints.UID("a")) }},
		{"enable", func() error { return users.Enable(ctx, hints.UID("a")) }},
		{"issue", func() error {
			_, err := users.Issue(ctx, hints.UID("a"), userdb.Token{Purpose: "p"})
			return err
		}},
	} {
		wantErr(t, step.name, step.method(), userdb.ErrOutcomeUnknown, store.ErrReply.Error())
	}
}
