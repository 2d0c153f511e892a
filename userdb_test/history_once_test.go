package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// historyKinds returns the kinds of the events in an entry's history, oldest first.
func historyKinds(t *testing.T, users *userdb.Type, uid string) []string {
	t.Helper()
	history, err := users.History(t.Context(), hints.UID(uid))
	must(t, err)
	slices.Reverse(history)
	return kindsOf(history)
}

// setJob changes the job of an entry, which adds one line to its history.
func setJob(ctx context.Context, users *userdb.Type, name, job string) error {
	return errOf(users.Update(ctx, uid(name), putText("job", job)))
}

func kindsOf(events []userdb.HistoryEvent) (kinds []string) {
	for _, e := range events {
		kinds = append(kinds, string(e.Kind))
	}
	return kinds
}

// sessionsLast moves events of sessions behind the others, because their position in a feed is not
// fixed: events can have the same millisecond, and a cluster adds them as they arrive.
func sessionsLast(events []string) []string {
	isSession := func(event string) bool { return strings.HasPrefix(event, "session_") }
	changes := slices.DeleteFunc(slices.Clone(events), isSession)
	return append(changes, slices.DeleteFunc(slices.Clone(events), func(event string) bool { return !isSession(event) })...)
}

// TestFeedHasEachEventOnce checks that the feed has each event once and in order, whether a
// session, a token or a tag follows a create.
func TestFeedHasEachEventOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{History: true})
		users, ctx := typeOf(t, db, "user"), t.Context()
		want := map[string][]string{}
		for i := range 5 {
			for name, second := range map[string]func(e userdb.Entry){
				"session_start": func(e userdb.Entry) {
					_, _, err := users.StartSession(ctx, e, userdb.SessionOptions{})
					must(t, err)
				},
				"issue": func(e userdb.Entry) {
					_, err := users.Issue(ctx, hints.UID(e.UID()), userdb.Token{Purpose: "reset"})
					must(t, err)
				},
				"tags": func(e userdb.Entry) {
					_, err := users.Tags(hints.UID(e.UID())).Add(ctx, "red")
					must(t, err)
				},
			} {
				uid := fmt.Sprint(strings.ReplaceAll(name, "_", "-"), i)
				e, err := users.Create(ctx, userdb.NewEntry{UID: uid})
				must(t, err)
				second(e)
				must(t, setJob(ctx, users, uid, "cook"))
				want[uid] = []string{"create", name, "update"}
			}
		}
		got := map[string][]string{}
		for _, e := range waitForFeed(t, db, 3*len(want)) {
			got[e.Key.Value()] = append(got[e.Key.Value()], string(e.Kind))
		}
		for uid, kinds := range want {
			if history := historyKinds(t, users, uid); !slices.Equal(sessionsLast(got[uid]), sessionsLast(kinds)) || !slices.Equal(history, kinds) {
				t.Errorf("%s: the feed has %q, the history %q, want %q", uid, got[uid], history, kinds)
			}
		}
	})
}

// An entryCall is a call that concerns an entry of createFullEntry.
type entryCall struct {
	name string
	do   func(ctx context.Context, users *userdb.Type, e userdb.Entry, secret string) error
}

// recordedCalls lists calls that each add one event to the feed. All but "log in" and "delete" also
// add a line to the history of the entry.
var recordedCalls = []entryCall{
	{"update", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return setJob(ctx, users, e.UID(), "cook")
	}},
	{"add a tag", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Tags(uid(e.UID())).Add(ctx, "b"))
	}},
	{"remove a tag", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Tags(uid(e.UID())).Remove(ctx, "a"))
	}},
	{"put a setting", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return users.Hash(uid(e.UID()), "settings").Put(ctx, "k", "other")
	}},
	{"remove a setting", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Hash(uid(e.UID()), "settings").Remove(ctx, "k"))
	}},
	{"remove a note", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.List(uid(e.UID()), "notes").Remove(ctx, "n"))
	}},
	{"put a score", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return users.SortedSet(uid(e.UID()), "scores").Put(ctx, 2, "m")
	}},
	{"start a session", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		_, _, err := users.StartSession(ctx, e, userdb.SessionOptions{})
		return err
	}},
	{"end a session", func(ctx context.Context, users *userdb.Type, _ userdb.Entry, secret string) error {
		return users.EndSession(ctx, secret)
	}},
	{"issue a token", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Issue(ctx, uid(e.UID()), userdb.Token{Purpose: "reset"}))
	}},
	{"log in", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Login(ctx, e.UID(), clearPassword, userdb.Attempt{}))
	}},
	{"delete", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return users.Delete(ctx, uid(e.UID()))
	}},
}

// usersWithHistory opens a store that keeps histories, and returns it with its type user.
func (s *site) usersWithHistory() (*userdb.DB, *userdb.Type) {
	db := s.open(userdb.Options{History: true, Schema: wideSchema(schema.FoldCasefold)})
	return db, typeOf(s.t, db, "user")
}

// doWithLoss makes a call and loses the nth writing command that it sends, counted from 0, or only
// the reply to it if executed is true.
func (v entryCall) doWithLoss(s *site, users *userdb.Type, e userdb.Entry, secret string, n int, executed bool) error {
	s.tap.loseNthWrite(n, executed)
	defer s.tap.set(nil)
	return v.do(s.t.Context(), users, e, secret)
}

// createFullEntry creates an entry for the calls of a test, and returns it with the secret of its
// session.
func createFullEntry(t *testing.T, users *userdb.Type, name string) (userdb.Entry, string) {
	t.Helper()
	ctx := t.Context()
	e, err := users.Create(ctx, userdb.NewEntry{
		UID: name, Facets: schema.Texts("name", name), Tags: []string{"a"}, Password: clearPassword,
	})
	must(t, err)
	must(t, users.Hash(uid(name), "settings").Put(ctx, "k", "v"))
	must(t, errOf(users.List(uid(name), "notes").Append(ctx, "n")))
	must(t, users.SortedSet(uid(name), "scores").Put(ctx, 1, "m"))
	_, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{})
	must(t, err)
	return e, secret
}

const setupLines = 5 // history lines of an entry of createFullEntry

// mayWrite reports whether commands may change something. It leaves out scripts on an SRK, which
// write no history.
func mayWrite(cmds []redis.Cmder) bool {
	name, args := strings.ToLower(cmds[0].Name()), cmds[0].Args()
	if strings.HasPrefix(name, "eval") && len(args) > 3 && strings.HasSuffix(argument(args[3]), "/~prk") {
		return false
	}
	return strings.HasPrefix(name, "eval") || slices.Contains([]string{"sadd", "srem", "hset", "hdel", "lrem", "zadd"}, name)
}

// loseNthWrite loses the nth writing command from now on, counted from 0, or only the reply to it
// if executed is true.
func (t *tap) loseNthWrite(n int, executed bool) {
	var sent atomic.Int64
	t.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if !mayWrite(cmds) || sent.Add(1) != int64(n+1) {
			return send()
		}
		if executed {
			if err := send(); redis.HasErrorPrefix(err, "NOSCRIPT") {
				return err
			}
		}
		for _, cmd := range cmds {
			cmd.SetErr(io.EOF)
		}
		return io.EOF
	})
}

// TestLostRepliesRecordedOnce loses each of the first four writing commands of each call once, or
// only the reply to it. Each change must have one line in the history and one in the feed.
func TestLostRepliesRecordedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db, users := s.usersWithHistory()
		labels := map[string]string{}
		for _, call := range recordedCalls {
			for n := range 4 {
				for _, executed := range []bool{true, false} {
					key := fmt.Sprint("u", len(labels))
					labels[key] = fmt.Sprintf("%s, command %d lost, executed: %v", call.name, n, executed)
					e, secret := createFullEntry(t, users, key)
					if err := call.doWithLoss(s, users, e, secret, n, executed); err != nil {
						t.Fatalf("%s: %v", labels[key], err)
					}
					if got := historyLen(t, users, key); got != setupLines+1 && call.name != "log in" && call.name != "delete" {
						t.Errorf("%s: %d lines, want %d", labels[key], got, setupLines+1)
					}
				}
			}
		}
		all, got := readFeed(t, db, (setupLines+1)*len(labels)), map[string]int{}
		for _, e := range all {
			got[e.Key.Value()]++
		}
		for key := range labels {
			if got[key] != setupLines+1 {
				t.Errorf("%s: %d events, want %d", labels[key], got[key], setupLines+1)
			}
		}
	})
}

// TestSessionStartRepeatedAfterEnd loses the reply to the command that starts a session. Before the
// command is repeated, all sessions of the account end, or the account is deleted. The feed must
// have the start of the session once.
func TestSessionStartRepeatedAfterEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(interleaves)
		db, users := s.usersWithHistory()
		ends := []func(ctx context.Context, name string) error{
			func(ctx context.Context, name string) error { return errOf(users.EndSessions(ctx, uid(name))) },
			func(ctx context.Context, name string) error {
				if err := users.Delete(ctx, uid(name)); err != nil {
					return err
				}
				return errOf(users.Create(ctx, userdb.NewEntry{UID: name}))
			},
		}
		for i, end := range ends {
			e, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprint("u", i)})
			must(t, err)
			lost := false
			s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if lost || !slices.ContainsFunc(cmds[0].Args(), func(arg any) bool { return argument(arg) == "begin" }) {
					return send()
				}
				if err := send(); redis.HasErrorPrefix(err, "NOSCRIPT") {
					return err
				}
				lost = true
				if err := end(t.Context(), e.UID()); err != nil {
					t.Error(err)
				}
				cmds[0].SetErr(io.EOF)
				return io.EOF
			})
			_, _, err = users.StartSession(t.Context(), e, userdb.SessionOptions{})
			s.tap.set(nil)
			if !lost || err != nil && !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("lost a reply: %v, want true; got %v, want nil, ErrConflict or ErrNotFound", lost, err)
			}
		}
		begun := map[string]int{}
		for _, e := range readFeed(t, db, 7) {
			if e.Kind == userdb.EventSessionStart {
				begun[e.Key.Value()]++
			}
		}
		if want := map[string]int{"u0": 1, "u1": 1}; !maps.Equal(begun, want) {
			t.Errorf("session starts in the feed: %v, want %v", begun, want)
		}
	})
}

// historyLen returns the number of lines in an entry's history, or 0 if the entry does not exist.
func historyLen(t *testing.T, users *userdb.Type, name string) int {
	t.Helper()
	history, err := users.History(t.Context(), uid(name))
	if !errors.Is(err, userdb.ErrNotFound) {
		must(t, err)
	}
	return len(history)
}

// readFeed returns all events of the feed. It waits until there are as many as want, or for
// patience.
func readFeed(t *testing.T, db *userdb.DB, want int) (all []userdb.HistoryEvent) {
	t.Helper()
	var after string
	for deadline := time.Now().Add(patience); len(all) < want && time.Now().Before(deadline); {
		p, err := db.Events(t.Context(), userdb.EventQuery{After: after, Limit: 1000})
		must(t, err)
		all, after = append(all, p.Events...), p.Next
	}
	p, err := db.Events(t.Context(), userdb.EventQuery{After: after, Limit: 1000})
	must(t, err)
	return append(all, p.Events...)
}

// unchangingCalls lists calls that change nothing in an entry of createFullEntry, or are refused.
var unchangingCalls = []entryCall{
	{"add the same tag", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Tags(uid(e.UID())).Add(ctx, "a"))
	}},
	{"remove another tag", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Tags(uid(e.UID())).Remove(ctx, "z"))
	}},
	{"put the same setting", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return users.Hash(uid(e.UID()), "settings").Put(ctx, "k", "v")
	}},
	{"remove another setting", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.Hash(uid(e.UID()), "settings").Remove(ctx, "z"))
	}},
	{"remove another note", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.List(uid(e.UID()), "notes").Remove(ctx, "z"))
	}},
	{"put the same score", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return users.SortedSet(uid(e.UID()), "scores").Put(ctx, 1, "m")
	}},
	{"remove another score", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		return errOf(users.SortedSet(uid(e.UID()), "scores").Remove(ctx, "z"))
	}},
	{"add to a set that is a string", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		if err := errOf(users.Set(uid(e.UID()), "friends").Add(ctx, "f")); !errors.Is(err, userdb.ErrCorrupt) {
			return fmt.Errorf("got %w, want ErrCorrupt", err)
		}
		return nil
	}},
	{"end a session that does not exist", func(ctx context.Context, users *userdb.Type, e userdb.Entry, _ string) error {
		if err := users.EndSessionID(ctx, uid(e.UID()), "z"); !errors.Is(err, userdb.ErrNotFound) {
			return fmt.Errorf("got %w, want ErrNotFound", err)
		}
		return nil
	}},
}

// TestUnchangedNotRecorded checks that a call that changes nothing, or is refused, leaves no line.
func TestUnchangedNotRecorded(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db, users := s.usersWithHistory()
		for i, call := range unchangingCalls {
			e, secret := createFullEntry(t, users, fmt.Sprint("u", i))
			must(t, s.raw.Set(t.Context(), "user/uid:"+e.UID()+"/friends", "x", 0).Err())
			for _, lost := range []int{100, 0, 1} { // with 100, no command is lost
				err := call.doWithLoss(s, users, e, secret, lost, true)
				if n := historyLen(t, users, e.UID()); err != nil || n != setupLines {
					t.Errorf("%s, command %d lost: %v; %d lines, want %d", call.name, lost, err, n, setupLines)
				}
			}
			must(t, s.raw.Unlink(t.Context(), "user/uid:"+e.UID()+"/friends").Err())
		}
		if all := readFeed(t, db, setupLines*len(unchangingCalls)); len(all) != setupLines*len(unchangingCalls) {
			t.Errorf("the feed has %d events, want %d", len(all), setupLines*len(unchangingCalls))
		}
	})
}

// TestHistoryDuringSlotMigration changes an entry whose slot is being migrated. Each change must
// leave one line, and a call that changes nothing must leave none. The entry must keep at most a
// hundred lines.
func TestHistoryDuringSlotMigration(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), redistest.StartCluster(t)
	db, err := userdb.Open(ctx, c.URL(), userdb.Options{History: true})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	slot := c.OpenSlot("user/uid:ann")
	e, err := users.Create(ctx, userdb.NewEntry{UID: "ann"})
	must(t, err)
	want := []string{"create"}
	for range 2 {
		_, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{})
		must(t, err)
		must(t, users.EndSession(ctx, secret))
		must(t, users.EndSession(ctx, secret)) // the session has already ended
		wantErr(t, "ending a session that does not exist", users.EndSessionID(ctx, uid("ann"), "z"), userdb.ErrNotFound)
		want = append(want, "session_start", "session_end")
	}
	_, err = users.Tags(uid("ann")).Add(ctx, "red")
	must(t, err)
	_, err = users.Tags(uid("ann")).Add(ctx, "red")
	must(t, err)
	want = append(want, "tags")
	if got := historyKinds(t, users, "ann"); !slices.Equal(got, want) {
		t.Errorf("while the slot is migrated the history is %q, want %q", got, want)
	}
	for i := range 120 {
		must(t, setJob(ctx, users, "ann", fmt.Sprint(i)))
		want = append(want, "update")
	}
	if n := strings.Count(c.Client().HGet(ctx, "user/uid:ann", "~note").Val(), "\n") + 1; n != 100 {
		t.Errorf("the entry keeps %d lines, want 100", n)
	}
	must(t, users.Delete(ctx, uid("ann")))
	want = append(want, "delete")
	if got := kindsOf(readFeed(t, db, len(want))); !slices.Equal(sessionsLast(got), sessionsLast(want)) {
		t.Errorf("the feed has %q, want %q", got, want)
	}
	slot.Finish()
	_, err = users.Create(ctx, userdb.NewEntry{UID: "ann"})
	must(t, err)
	want = append(want, "create")
	if got := kindsOf(readFeed(t, db, len(want))); !slices.Equal(sessionsLast(got), sessionsLast(want)) {
		t.Errorf("after the migration the feed has %q, want %q", got, want)
	}
	if got := historyKinds(t, users, "ann"); !slices.Equal(got, []string{"create"}) {
		t.Errorf("the history of the new entry is %q, want only its create", got)
	}
	wantRepairable(t, db, noExcuse)
}
