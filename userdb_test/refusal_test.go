package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A refusal describes a state of a server in which it refuses commands.
type refusal struct {
	prefix      string // the first word of the server's error
	alternative string // other text that the error may have instead of the prefix
	config      []string
	begin       func(s *site, admin *redis.Conn)
	end         func(s *site, admin *redis.Conn)
	reads       bool   // the server also refuses reads
	methods     string // names of the writingMethods that the server refuses, separated by spaces
}

// runCommands sends each command on a connection that the server does not refuse. A command has
// spaces between its words.
func runCommands(s *site, admin *redis.Conn, commands ...string) {
	s.t.Helper()
	for _, command := range commands {
		args := []any{}
		for _, word := range strings.Fields(command) {
			args = append(args, word)
		}
		if err := admin.Do(context.Background(), args...).Err(); err != nil {
			s.t.Fatalf("%s: %v", command, err)
		}
	}
}

// commands returns a function that calls runCommands.
func commands(lines ...string) func(s *site, admin *redis.Conn) {
	return func(s *site, admin *redis.Conn) { runCommands(s, admin, lines...) }
}

var refusals = []refusal{
	{
		prefix: "OOM", methods: "create bare update touch touch-old tags notes",
		begin: func(s *site, admin *redis.Conn) {
			for i := range 64 {
				must(s.t, admin.Set(s.t.Context(), fmt.Sprint("~/ballast/", i), strings.Repeat("x", 64<<10), 0).Err())
			}
			runCommands(s, admin, "config set maxmemory-policy noeviction", "config set maxmemory 1mb")
		},
		end: commands("config set maxmemory 0"),
	},
	{
		prefix: "READONLY", methods: "create bare update touch touch-old tags notes delete",
		begin: commands("replicaof 127.0.0.1 1"), end: commands("replicaof no one"),
	},
	{
		prefix: "NOREPLICAS", methods: "create bare update touch touch-old tags notes delete",
		begin: commands("config set min-replicas-to-write 1"), end: commands("config set min-replicas-to-write 0"),
	},
	{
		prefix: "NOAUTH", alternative: "unauthenticated multibulk length", methods: "create bare update touch touch-old tags notes delete", reads: true,
		begin: commands("config set requirepass secret", "client kill type normal skipme yes"),
		end:   commands(`config set requirepass nobody-asks`, "acl setuser default nopass"),
	},
	{
		prefix: "LOADING", methods: "create bare update touch touch-old tags notes delete", reads: true,
		config: []string{"enable-debug-command yes", "loading-process-events-interval-bytes 1024"},
		begin:  reload, end: waitUntilLoaded,
	},
	{
		prefix: "NOPERM", methods: "create bare update touch touch-old tags notes delete", reads: true,
		begin: commands("acl setuser default -@all +hello +client +ping +auth +acl"),
		end:   commands("acl setuser default +@all"),
	},
}

// reload makes the server load its records again, which takes more than a minute unless
// waitUntilLoaded makes it faster. The server answers between two records of over a kilobyte.
func reload(s *site, admin *redis.Conn) {
	s.t.Helper()
	ctx := context.Background()
	for i := range 1600 {
		must(s.t, admin.Set(ctx, fmt.Sprint("~/ballast/", i), strings.Repeat("x", 2000), 0).Err())
	}
	runCommands(s, admin, "config set rdbcompression no", "config set key-load-delay 50000")
	loader := s.raw.(*redis.Client).Conn() // DEBUG RELOAD blocks its connection
	must(s.t, loader.Ping(ctx).Err())
	ended := make(chan error, 1)
	go func() {
		defer loader.Close()
		ended <- loader.Do(ctx, "debug", "reload").Err()
	}()
	for !redis.HasErrorPrefix(s.raw.Ping(ctx).Err(), "LOADING") {
		select {
		case err := <-ended:
			// The reload failed, for example because the disk is full.
			s.t.Fatalf("reloading: %v", err)
		default:
			runtime.Gosched()
		}
	}
}

// waitUntilLoaded waits until the server has loaded its records.
func waitUntilLoaded(s *site, _ *redis.Conn) {
	s.t.Helper()
	admin := s.raw.(*redis.Client).Conn()
	defer admin.Close()
	runCommands(s, admin, "config set key-load-delay 0")
	for err := s.raw.Ping(context.Background()).Err(); err != nil; err = s.raw.Ping(context.Background()).Err() {
		if !redis.HasErrorPrefix(err, "LOADING") {
			s.t.Fatal(err)
		}
		runtime.Gosched()
	}
}

// writingMethods returns methods that write, by name. Most of them write to the entry u of
// lossyStore. "touch" writes one plain facet to it, "touch-old" to an entry without a revision, and
// "bare" creates an entry without facets.
func writingMethods(ctx context.Context, users *userdb.Type) map[string]func() error {
	return map[string]func() error{
		"create": func() error {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "v", Facets: schema.Texts("name", "m", "job", "j"), Tags: []string{"a", "b"}})
			return err
		},
		"bare": func() error {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "bare"})
			return err
		},
		"touch": func() error {
			_, err := users.Update(ctx, hints.UID("u"), putText("plain", "x"))
			return err
		},
		"touch-old": func() error {
			_, err := users.Update(ctx, hints.UID("old"), putText("plain", "x"))
			return err
		},
		"update": func() error {
			_, err := users.Update(ctx, hints.Any("n"), func(e *userdb.Entry) error {
				e.Put("name", schema.Text("m"))
				e.Put("job", schema.Text("other"))
				return nil
			})
			return err
		},
		"tags": func() error {
			_, err := users.Tags(hints.UID("u")).Add(ctx, "b", "c")
			return err
		},
		"notes": func() error {
			_, err := users.List(hints.UID("u"), "notes").Append(ctx, "x")
			return err
		},
		"delete": func() error { return users.Delete(ctx, hints.Any("n")) },
	}
}

// TestRefusingServer calls methods while the server refuses commands. A refused method must return
// ErrUnavailable with the first word of the server's error, and write nothing. Reads that the
// server does not refuse must work.
func TestRefusingServer(t *testing.T) {
	for _, r := range refusals {
		t.Run(r.prefix, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, redistest.Config(r.config...))
			// Otherwise the client would retry reads for longer than the test needs.
			s.url += "?max_retries=-1"
			users := lossyStore(t, s)
			add(t, users, "old")
			// The npm package coffeenode-userdb writes no ~rev.
			must(t, s.raw.HDel(t.Context(), "user/uid:old", "~rev").Err())
			before := s.comparableRecords()
			admin := s.raw.(*redis.Client).Conn()
			defer admin.Close()
			must(t, admin.Ping(t.Context()).Err())
			r.begin(s, admin)
			ended := false
			defer func() {
				if !ended {
					r.end(s, admin)
				}
			}()
			for _, name := range strings.Fields(r.methods) {
				s.noticeClosedConnections()
				ctx, cancel := context.WithCancel(t.Context())
				// Otherwise the call would be retried for longer than the test needs.
				s.tap.afterWrite(cancel)
				err := writingMethods(ctx, users)[name]()
				s.tap.set(nil)
				cancel()
				r.wantRefused(t, name, err)
				if errors.Is(err, userdb.ErrOutcomeUnknown) {
					t.Errorf("%s: got %v, but the outcome is known: nothing was written", name, err)
				}
			}
			checkReads(t, users, r)
			r.end(s, admin)
			ended = true
			if diff := diffRecords(before, s.comparableRecords()); diff != "" {
				t.Errorf("refused methods wrote:\n%s", diff)
			}
			for name, method := range writingMethods(t.Context(), users) {
				if name != "update" && name != "delete" {
					must(t, method())
				}
			}
		})
	}
}

// TestEndSessionOnFullServer checks that people can sign out while a server has no memory left.
func TestEndSessionOnFullServer(t *testing.T) {
	s := startServer(t)
	users := lossyStore(t, s)
	e, err := users.Find(t.Context(), hints.UID("u"))
	must(t, err)
	_, secret, err := users.StartSession(t.Context(), e, userdb.SessionOptions{})
	must(t, err)
	admin := s.raw.(*redis.Client).Conn()
	defer admin.Close()
	full := refusals[0]
	full.begin(s, admin)
	defer full.end(s, admin)
	_, _, err = users.StartSession(t.Context(), e, userdb.SessionOptions{})
	full.wantRefused(t, "a new session", err)
	must(t, users.EndSession(t.Context(), secret))
	_, _, err = users.Session(t.Context(), secret)
	wantErr(t, "the ended session", err, userdb.ErrNotFound)
}

// TestSessionOnFullServer checks that a session counts as seen while a server has no memory left to
// record that. Otherwise a session that was verified long ago would count as verified lately.
func TestSessionOnFullServer(t *testing.T) {
	ctx, server := t.Context(), redistest.Start(t)
	db, err := userdb.Open(ctx, server.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	now := time.UnixMilli(time.Now().UnixMilli())
	db, err = view.Reconfigure(db, func(c *view.Config) { c.Clock = func() time.Time { return now } })
	must(t, err)
	users := typeOf(t, db, "user")
	e, err := users.Create(ctx, userdb.NewEntry{UID: "u"})
	must(t, err)
	begun, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{})
	must(t, err)
	must(t, server.Client().ConfigSet(ctx, "maxmemory", "1").Err())
	now = now.Add(2 * time.Hour)
	_, s, err := users.Session(ctx, secret)
	must(t, err)
	if s.LastSeen.Sub(begun.LastSeen) != 2*time.Hour || !s.Verified.Equal(begun.Verified) {
		t.Errorf("got the session %+v, want it seen two hours after %+v", s, begun)
	}
}

// TestDisableOnFullServer checks that an account can be disabled while no server has memory left,
// and that no other change gets through along with it.
func TestDisableOnFullServer(t *testing.T) {
	ctx := t.Context()
	setLimit := func(c *redis.Client, limit string) error { return c.ConfigSet(ctx, "maxmemory", limit).Err() }
	server, cluster := redistest.Start(t), redistest.StartCluster(t)
	tests := []struct {
		name, url string
		limit     func(string) error
	}{
		{"one server", server.URL(), func(limit string) error { return setLimit(server.Client(), limit) }},
		{"cluster", cluster.URL(), func(limit string) error {
			return cluster.Client().ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error { return setLimit(c, limit) })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			db, err := userdb.Open(ctx, tt.url, userdb.Options{Schema: wideSchema(schema.FoldCasefold), History: true})
			must(t, err)
			defer db.Close()
			users := typeOf(t, db, "user")
			e, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n", "job", "j")})
			must(t, err)
			_, session, err := users.StartSession(ctx, e, userdb.SessionOptions{})
			must(t, err)
			token, err := users.Issue(ctx, hints.UID("u"), userdb.Token{Purpose: "reset"})
			must(t, err)
			must(t, tt.limit("1"))
			_, err = users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error {
				e.SetDisabled(true)
				e.Put("plain", schema.Text("more"))
				return nil
			})
			wantErr(t, "disabling and another change", err, userdb.ErrUnavailable, "OOM")
			must(t, users.Disable(ctx, hints.UID("u")))
			wantErr(t, "Enable", users.Enable(ctx, hints.UID("u")), userdb.ErrUnavailable, "OOM")
			if e, err = users.Find(ctx, hints.UID("u")); err != nil || !e.Disabled() {
				t.Errorf("the entry is disabled: %v, %v; want true", e.Disabled(), err)
			}
			_, _, err = users.Session(ctx, session)
			wantErr(t, "its session", err, userdb.ErrNotFound)
			must(t, tt.limit("0"))
			must(t, users.Enable(ctx, hints.UID("u")))
			_, _, err = users.Redeem(ctx, "reset", token)
			wantErr(t, "its token", err, userdb.ErrNotFound)
			kinds := ""
			events, err := users.History(ctx, hints.UID("u"))
			must(t, err)
			for _, event := range events {
				kinds += string(event.Kind) + " "
			}
			if !strings.Contains(kinds, "disable") {
				t.Errorf("the history is %q, want the event disable in it", kinds)
			}
		})
	}
}

// noticeClosedConnections makes the client notice the connections that the server has closed. If a
// call used one of them, its outcome would be unknown.
func (s *site) noticeClosedConnections() {
	for range 20 {
		_ = s.raw.Ping(s.t.Context()).Err()
	}
}

// wantRefused checks that err is ErrUnavailable with the first word of the server's error.
func (r refusal) wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if r.alternative != "" && err != nil && strings.Contains(err.Error(), r.alternative) {
		wantErr(t, what, err, userdb.ErrUnavailable)
		return
	}
	wantErr(t, what, err, userdb.ErrUnavailable, r.prefix)
}

func checkReads(t *testing.T, users *userdb.Type, r refusal) {
	t.Helper()
	ctx := t.Context()
	reads := map[string]func() error{
		"find": func() error { _, err := users.Find(ctx, hints.Any("n")); return err },
		"uid":  func() error { _, err := users.Find(ctx, hints.UID("u")); return err },
		"tags": func() error { _, err := users.Tags(hints.UID("u")).Members(ctx); return err },
		"list": func() error {
			for _, err := range users.All(ctx, userdb.Query{Tags: []string{"a"}}) {
				return err
			}
			return errors.New("the list is empty")
		},
		"count": func() error { _, err := users.Count(ctx, userdb.Query{}); return err },
	}
	for name, read := range reads {
		if err := read(); r.reads {
			r.wantRefused(t, name, err)
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// afterWrite calls do after every attempt to write, with or without a reply, except NOSCRIPT.
func (t *tap) afterWrite(do func()) {
	t.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		if isWrite(cmds) && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			do()
		}
		return err
	})
}

// TestNarrowRights forbids the store's user one command at a time. A method that needs the command
// must fail with the server's error, and not return an empty answer.
func TestNarrowRights(t *testing.T) {
	s := startServer(t)
	users := lossyStore(t, s)
	admin := s.raw.(*redis.Client).Conn()
	defer admin.Close()
	must(t, admin.Ping(t.Context()).Err())
	ctx := t.Context()
	methods := map[string]func() error{ // by the command that each needs
		"scan": func() error { _, err := users.Count(ctx, userdb.Query{}); return err },
		"sscan": func() error {
			for _, err := range users.All(ctx, userdb.Query{Tags: []string{"a"}}) {
				return err
			}
			return nil
		},
		"sismember": func() error {
			for _, err := range users.All(ctx, userdb.Query{Tags: []string{"a"}}) {
				return err
			}
			return nil
		},
		"scard": func() error {
			for _, err := range users.All(ctx, userdb.Query{Tags: []string{"a"}, Where: schema.Texts("job", "j")}) {
				return err
			}
			return nil
		},
		"hgetall":  func() error { _, err := users.Find(ctx, hints.UID("u")); return err },
		"smembers": func() error { return users.Delete(ctx, hints.UID("u")) },
		"evalsha":  func() error { _, err := users.Find(ctx, hints.Any("n")); return err },
	}
	before := s.comparableRecords()
	for command, method := range methods {
		runCommands(s, admin, "acl setuser default -"+command)
		err := method()
		runCommands(s, admin, "acl setuser default +"+command)
		word := "NOPERM"
		// Scripts run these commands, and the server words the error differently there.
		if command == "sscan" || command == "smembers" {
			word = "can't run this command"
		}
		wantErr(t, "without "+command, err, userdb.ErrUnavailable, word)
	}
	if diff := diffRecords(before, s.comparableRecords()); diff != "" {
		t.Errorf("methods without rights wrote:\n%s", diff)
	}
}

// TestUnreachableServer calls methods while the server is down, when they must return
// ErrUnavailable, and after it is up again.
func TestUnreachableServer(t *testing.T) {
	s := startServer(t, redistest.AppendOnly("always"))
	users := lossyStore(t, s)
	s.server.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	s.tap.afterWrite(cancel)
	_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "m")})
	wantErr(t, "create", err, userdb.ErrUnavailable, "connection refused")
	s.tap.set(nil)
	_, err = users.Find(t.Context(), hints.Any("n"))
	wantErr(t, "find", err, userdb.ErrUnavailable, "connection refused")
	_, err = userdb.Open(t.Context(), s.url, userdb.Options{})
	wantErr(t, "open", err, userdb.ErrUnavailable, "connection refused")
	s.server.Restart()
	_, err = users.Find(t.Context(), hints.Any("n"))
	must(t, err)
	add(t, users, "v", "name", "m")
}
