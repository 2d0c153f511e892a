package userdb_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// dropEvent calls do, which makes a change on a cluster, and keeps the event of that change out of
// the feed, as if the process had died just before appending it.
func (g *loginSite) dropEvent(do func()) {
	g.t.Helper()
	refused := make(chan bool, 10)
	g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if !strings.Contains(wordsOf(cmds[0]), "~/feed/{") || !strings.HasPrefix(cmds[0].Name(), "eval") {
			return send()
		}
		refused <- true
		cmds[0].SetErr(context.Canceled)
		return context.Canceled
	})
	defer g.tap.set(nil)
	do()
	<-refused
}

// wantInFeed waits until the feed has exactly these kinds of events of an entry, in this order. It
// reads the feed from its beginning each time, because on a cluster an event may arrive behind
// newer ones that a reader has already read. The position of session events does not matter, and
// EventRepair, which says that a repair has begun, is ignored.
func (g *loginSite) wantInFeed(what, name string, want ...string) {
	g.t.Helper()
	var got []string
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got = nil
		for _, e := range readFeed(g.t, g.db, 0) {
			if e.Key.Value() == name && e.Kind != userdb.EventRepair {
				got = append(got, string(e.Kind))
			}
		}
		if slices.Equal(sessionsLast(got), sessionsLast(want)) {
			return
		}
		if time.Now().After(deadline) {
			g.t.Errorf("%s: the feed has %q, want %q", what, got, want)
			return
		}
	}
}

// repairOptions lists the options of every repair that reads an entry.
var repairOptions = map[string]func(prk recordkey.Key) check.Options{
	"all":    func(recordkey.Key) check.Options { return check.Options{Repair: true} },
	"by UID": func(prk recordkey.Key) check.Options { return check.Options{Only: hints.Key(prk), Repair: true} },
	"by name": func(prk recordkey.Key) check.Options {
		srk, _ := recordkey.SRK("user", "name", prk.Value())
		return check.Options{Only: hints.Key(srk), Repair: true}
	},
}

// TestFeedAfterProcessDies lets a process die before it appends an event to the feed of a cluster.
// The next change of the entry, or any repair that reads it, must append the event, once and in its
// place, however long ago the process died.
func TestFeedAfterProcessDies(t *testing.T) {
	for _, ago := range []time.Duration{0, 3 * time.Hour} {
		t.Run(fmt.Sprint(ago), func(t *testing.T) {
			eachLoginSite(t, userdb.Options{History: true}, func(t *testing.T, g *loginSite) {
				if g.has(oneScript) { // the script that makes the change also appends the event
					return
				}
				ctx := store.WithoutOtherWriters(t.Context())
				die := func(name string) {
					t.Helper()
					g.advance(-ago)
					must(t, g.create(name, alicePassword))
					g.wantInFeed("after the create", name, "create")
					g.dropEvent(func() { must(t, setJob(ctx, g.users, name, "cook")) })
					g.advance(ago)
					g.wantInFeed("after the process died", name, "create")
				}
				die("changed")
				must(t, setJob(ctx, g.users, "changed", "baker"))
				g.wantInFeed("after a change", "changed", "create", "update", "update")
				die("gone")
				must(t, g.users.Delete(ctx, uid("gone")))
				g.wantInFeed("after a delete", "gone", "create", "update", "delete")
				for how, options := range repairOptions {
					name := strings.ReplaceAll(how, " ", "-")
					die(name)
					prk, err := recordkey.PRK("user", "uid", name)
					must(t, err)
					for p, err := range check.Run(ctx, g.db, options(prk)) {
						must(t, err)
						t.Errorf("repair (%s) found: %v", how, p)
					}
					g.wantInFeed("after a repair ("+how+")", name, "create", "update")
					must(t, setJob(ctx, g.users, name, "baker"))
					g.wantInFeed("after a repair ("+how+") and a change", name, "create", "update", "update")
				}
			})
		})
	}
}

// TestFeedHoursLater changes an entry hours after its last event, when a cluster no longer knows
// which of its events are in the feed. The change must not append any of them again.
func TestFeedHoursLater(t *testing.T) {
	eachLoginSite(t, userdb.Options{History: true}, func(t *testing.T, g *loginSite) {
		if g.has(oneScript) {
			return
		}
		ctx := t.Context()
		must(t, g.create("ann", alicePassword))
		must(t, setJob(ctx, g.users, "ann", "cook"))
		g.wantInFeed("at once", "ann", "create", "update")
		forget := func() {
			t.Helper()
			g.advance(3 * time.Hour)
			for _, key := range g.keys(ctx) {
				if strings.Contains(key, "~/fed/") {
					must(t, g.raw.Unlink(ctx, key).Err())
				}
			}
		}
		forget()
		must(t, setJob(ctx, g.users, "ann", "baker"))
		g.wantInFeed("hours later", "ann", "create", "update", "update")
	})
}

// addsMember reports whether a command adds a member to a set, by itself or in a script on several
// keys.
func addsMember(cmd redis.Cmder) bool {
	words := strings.ToLower(wordsOf(cmd))
	if strings.HasPrefix(words, "sadd ") {
		return true
	}
	return strings.HasPrefix(words, "eval") && strings.Contains(words, " sadd ") && fmt.Sprint(cmd.Args()[2]) != "1"
}

// TestTwoCallersAddSameTag lets two callers add the same tag at the same time, and loses the reply
// to one of them. Only one of them changes the entry, so the history must have one line.
func TestTwoCallersAddSameTag(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(manyClients)
		users := typeOf(t, s.open(userdb.Options{History: true}), "user")
		db, err := userdb.Open(t.Context(), s.url, userdb.Options{History: true})
		must(t, err)
		defer db.Close()
		other := typeOf(t, db, "user")
		// first reports whether the other caller, which loses no reply, adds the tag first.
		for _, first := range []bool{true, false} {
			name := fmt.Sprint("u", first)
			_, err = users.Create(t.Context(), userdb.NewEntry{UID: name, Facets: schema.Texts("name", name)})
			must(t, err)
			var intercepted atomic.Bool
			s.tap.set(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
				if !addsMember(cmds[0]) || intercepted.Swap(true) {
					return send()
				}
				if first {
					must(t, errOf(other.Tags(uid(name)).Add(ctx, "red")))
				}
				if err := send(); redis.HasErrorPrefix(err, "NOSCRIPT") {
					intercepted.Store(false)
					return err
				}
				if !first {
					must(t, errOf(other.Tags(uid(name)).Add(ctx, "red")))
				}
				cmds[0].SetErr(io.EOF)
				return io.EOF
			})
			err = errOf(users.Tags(uid(name)).Add(t.Context(), "red"))
			s.tap.set(nil)
			must(t, err)
			if got := historyKinds(t, users, name); !intercepted.Load() || !slices.Equal(got, []string{"create", "tags"}) {
				t.Errorf("the other caller first: %v: the history is %q, want create and tags", first, got)
			}
		}
	})
}

// TestFeedHasTimesOfHistory checks that an event has the same time in the feed as in the history of
// its entry, even if other events have the same millisecond.
func TestFeedHasTimesOfHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{History: true})
		users := typeOf(t, db, "user")
		must(t, errOf(users.Create(t.Context(), userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "ann")})))
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				for i := range 5 {
					if err := errOf(users.Tags(uid("ann")).Add(t.Context(), fmt.Sprint("tag", caller, i))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		var want, got []int64
		all, err := users.History(t.Context(), uid("ann"))
		must(t, err)
		for _, e := range slices.Backward(all) {
			want = append(want, e.Time.UnixMicro())
		}
		for deadline := time.Now().Add(patience); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			got = nil
			for _, e := range readFeed(t, db, 0) {
				got = append(got, e.Time.UnixMicro())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the feed has the times %v, want those of the history %v", got, want)
		}
	})
}

// TestFloodOfVisitorTokens checks that the tokens that visitors ask for fill at most a fiftieth of
// the feed of changes in a day, and that histories have them all.
func TestFloodOfVisitorTokens(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{History: true})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users, inHistories := typeOf(t, db, "user"), 0
	for i := range 20 {
		name := fmt.Sprint("ann", i)
		must(t, errOf(users.Create(t.Context(), userdb.NewEntry{UID: name, Facets: schema.Texts("email", name+"@example.com")})))
		for range 3 {
			_, _, err := users.IssueForVisitor(t.Context(), "email", name+"@example.com", userdb.Token{Purpose: "reset"}, userdb.Attempt{})
			must(t, err)
			_, _, err = users.IssueForVisitor(t.Context(), "email", "nobody"+name, userdb.Token{Purpose: "reset"}, userdb.Attempt{})
			wantErr(t, "an unknown identifier", err, userdb.ErrNotFound)
		}
		all, err := users.History(t.Context(), hints.UID(name))
		must(t, err)
		inHistories += len(all)
	}
	must(t, errOf(users.Issue(t.Context(), hints.UID("ann0"), userdb.Token{Purpose: "reset"})))
	kinds := map[userdb.EventKind]int{}
	for _, e := range readFeed(t, db, 0) {
		kinds[e.Kind]++
	}
	// An embedded store keeps 2,000 events, of which 40 are a fiftieth.
	if want := map[userdb.EventKind]int{userdb.EventCreate: 20, userdb.EventIssue: 40 + 1}; !maps.Equal(kinds, want) || inHistories != 20+60 {
		t.Errorf("the feed has %v and the histories %d events, want %v and 80", kinds, inHistories, want)
	}
}

// TestTokensStayOutOfFeed checks that if the feed has no room for the tokens of an entry, it still
// gets later events of the entry.
func TestTokensStayOutOfFeed(t *testing.T) {
	o := loginOptions()
	o.History = true
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		issue := func(ctx context.Context) {
			must(t, errOf(g.users.Issue(ctx, uid("alice"), userdb.Token{Purpose: "reset"})))
		}
		issue(t.Context())
		g.wantInFeed("with room", "alice", "create", "issue")
		issue(view.WithoutFeed(t.Context()))
		issue(t.Context())
		must(t, g.users.Disable(t.Context(), uid("alice")))
		g.wantInFeed("without room", "alice", "create", "issue", "issue", "disable")
		must(t, g.users.Enable(t.Context(), uid("alice")))
		issue(t.Context())
		g.wantInFeed("with room again", "alice", "create", "issue", "issue", "disable", "enable", "issue")
		all, err := g.users.History(t.Context(), uid("alice"))
		must(t, err)
		var kinds []string
		for _, e := range slices.Backward(all) {
			kinds = append(kinds, string(e.Kind))
		}
		if want := []string{"create", "issue", "issue", "issue", "disable", "enable", "issue"}; !slices.Equal(kinds, want) {
			t.Errorf("the history has %q, want %q", kinds, want)
		}
	})
}

// TestFloodOfSessions checks that an account holder who begins and ends sessions displaces no
// changes, that the feed has at most sixty of these events in an hour, and that histories have them
// all.
func TestFloodOfSessions(t *testing.T) {
	o := loginOptions()
	o.History = true
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		e, err := g.users.Find(t.Context(), uid("alice"))
		must(t, err)
		start := func() {
			_, secret, err := g.users.StartSession(t.Context(), e, userdb.SessionOptions{})
			must(t, err)
			must(t, g.users.EndSession(t.Context(), secret))
		}
		want := []string{"create"}
		for range 29 {
			start()
			want = append(want, "session_start", "session_end")
		}
		e, err = g.users.EndSessions(t.Context(), uid("alice"))
		must(t, err)
		start()
		g.wantInFeed("within an hour", "alice", append(want, "session_end", "session_start")...)
		all, err := g.users.History(t.Context(), uid("alice"))
		if err != nil || len(all) != len(want)+3 || all[0].Kind != userdb.EventSessionEnd {
			t.Errorf("the history has %d events, %v; want %d", len(all), err, len(want)+3)
		}
		must(t, g.users.Disable(t.Context(), uid("alice")))
		g.advance(time.Hour)
		must(t, g.users.Enable(t.Context(), uid("alice")))
		e, err = g.users.Find(t.Context(), uid("alice"))
		must(t, err)
		start()
		waitForFeed(t, g.db, 62, userdb.EventSessionStart, userdb.EventSessionEnd)
		feed, err := history.FeedKey(recordkey.Namespace{}, history.FeedChanges, 0)
		must(t, err)
		keys := []string{feed.String()}
		for part := 1; part < history.FeedParts; part++ {
			feed, err := history.FeedKey(recordkey.Namespace{}, history.FeedChanges, part)
			must(t, err)
			keys = append(keys, feed.String())
		}
		for _, key := range keys {
			for _, m := range g.raw.XRange(t.Context(), key, "-", "+").Val() {
				if text, _ := m.Values["e"].(string); strings.Contains(text, "session_") {
					t.Errorf("the feed of changes has %q, want no events of sessions", text)
				}
			}
		}
	})
}

// TestFloodsHideNoOperator checks, in an embedded store, whose feeds are short, that no flood of
// changes, of acts of an API key, or of guesses at the console pushes out the acts of operators.
func TestFloodsHideNoOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes tens of thousands of changes")
	}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{History: true})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users, ctx := typeOf(t, db, "user"), t.Context()
	must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: "ann"})))
	for _, kind := range []userdb.EventKind{userdb.EventKeyCreate, userdb.EventOperatorLoginFailed} {
		must(t, admin.RecordEvent(ctx, db, kind, "x"))
	}
	for i := range history.EmbeddedEntries + 500 {
		must(t, errOf(users.Update(ctx, uid("ann"), putText("name", fmt.Sprint("Ann ", i)))))
	}
	key := userdb.WithActor(ctx, userdb.Actor{Name: "key:greedy"})
	for range history.EmbeddedEntries + 500 {
		must(t, users.ResetThrottle(key, uid("ann")))
	}
	for range history.EmbeddedEntries + 500 { // guesses at the console
		must(t, admin.RecordEvent(ctx, db, userdb.EventOperatorLoginFailed, ""))
	}
	page, err := db.Events(ctx, userdb.EventQuery{Kinds: []userdb.EventKind{userdb.EventKeyCreate}})
	if must(t, err); len(page.Events) != 1 || page.Events[0].Purpose != "x" {
		t.Errorf("the feed has %v, want the creation of the key", page.Events)
	}
}

// TestRefusedAttemptsAreRecordedOnce checks that many refused attempts, which cost no password
// hash, add only one event an hour to the feed for each account or origin that is throttled.
func TestRefusedAttemptsAreRecordedOnce(t *testing.T) {
	o := loginOptions()
	o.History = true
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		ask := func(entered, origin string) error {
			_, _, err := g.users.IssueForVisitor(t.Context(), "email", entered, userdb.Token{Purpose: "reset"}, userdb.Attempt{Origin: origin})
			return err
		}
		for range 3 {
			must(t, ask("alice", "192.0.2.1"))
		}
		for i := range 10 {
			wantErr(t, "a fourth token", ask("alice", fmt.Sprint("192.0.2.", i)), userdb.ErrTooManyAttempts)
		}
		waitForFeed(t, g.db, 1, userdb.EventThrottle)
		for i := range 60 {
			_ = ask(fmt.Sprint("nobody", i), "198.51.100.1")
		}
		waitForFeed(t, g.db, 2, userdb.EventThrottle)
		g.advance(time.Hour)
		for range 5 {
			_ = ask("alice", "192.0.2.1")
		}
		waitForFeed(t, g.db, 3, userdb.EventThrottle)
	})
}

// TestInventedSessions checks that attempts to end sessions that do not exist are not counted in
// the store, and keep no real event out of the feed.
func TestInventedSessions(t *testing.T) {
	o := loginOptions()
	o.History = true
	eachLoginSite(t, o, func(t *testing.T, g *loginSite) {
		e, err := g.users.Find(t.Context(), uid("alice"))
		must(t, err)
		_, secret, err := g.users.StartSession(t.Context(), e, userdb.SessionOptions{})
		must(t, err)
		var counted atomic.Int64
		g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if strings.Contains(wordsOf(cmds[0]), "~/visits/") {
				counted.Add(1)
			}
			return send()
		})
		invented := strings.Repeat("A", len("01234567890123456789012345")) + secret[26:]
		for range 70 {
			must(t, g.users.EndSession(t.Context(), invented))
			wantErr(t, "no such ID", g.users.EndSessionID(t.Context(), uid("alice"), "AAAA"), userdb.ErrNotFound)
		}
		g.tap.set(nil)
		if n := counted.Load(); n > 0 {
			t.Errorf("%d sessions that do not exist were counted in the store, want 0", n)
		}
		must(t, g.users.EndSession(t.Context(), secret))
		must(t, g.logIn("alice", alicePassword, ""))
		g.wantInFeed("afterwards", "alice", "create", "session_start", "session_end", "login")
	})
}

// TestSessionsDoNotWaitForFeed checks that sessions begin and end on a cluster, and that their
// owners log in, while the master that keeps the feed of logins does not answer.
func TestSessionsDoNotWaitForFeed(t *testing.T) {
	s := clusterSite(t)
	db := s.open(userdb.Options{History: true})
	users, ctx := typeOf(t, db, "user"), t.Context()
	e, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "ann"), Password: alicePassword})
	must(t, err)
	answer := make(chan struct{})
	s.tap.set(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		if strings.Contains(wordsOf(cmds[0]), "/"+history.FeedLogins) {
			select {
			case <-answer:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return send()
	})
	_, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{})
	must(t, err)
	must(t, users.EndSession(ctx, secret))
	must(t, errOf(users.EndSessions(ctx, hints.Key(e.Key()))))
	must(t, errOf(users.Login(ctx, "ann", alicePassword, userdb.Attempt{})))
	close(answer)
	s.tap.set(nil)
	var kinds []userdb.EventKind
	for _, e := range waitForFeed(t, db, 4, userdb.EventSessionStart, userdb.EventSessionEnd, userdb.EventLogin) {
		kinds = append(kinds, e.Kind)
	}
	if want := []userdb.EventKind{userdb.EventSessionStart, userdb.EventSessionEnd, userdb.EventSessionEnd, userdb.EventLogin}; !slices.Equal(kinds, want) {
		t.Errorf("the feed has %q, want %q", kinds, want)
	}
}
