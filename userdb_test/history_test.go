package userdb_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// formatEvents formats events as text: kind, fields, purpose, actor and origin.
func formatEvents(events []userdb.HistoryEvent) (all []string) {
	for _, e := range events {
		line := string(e.Kind)
		if len(e.Fields) > 0 {
			line += " " + strings.Join(e.Fields, ",")
		}
		if e.Purpose != "" {
			line += " " + e.Purpose
		}
		all = append(all, line+" "+e.Actor+" "+e.Origin)
	}
	return all
}

// waitForFeed returns all events of a feed as soon as there are want of them. It fails the test if
// there are fewer after patience, or more.
func waitForFeed(t *testing.T, db *userdb.DB, want int, kinds ...userdb.EventKind) []userdb.HistoryEvent {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if len(readPages(t, db, kinds...)) >= want {
			break
		}
	}
	// On a cluster, an event can arrive between two pages, behind newer ones. So read the feed
	// again now that everything is there.
	all := readPages(t, db, kinds...)
	if len(all) != want {
		t.Fatalf("the feed has %d events, want %d: %q", len(all), want, formatEvents(all))
	}
	return all
}

// readPages reads a feed from its beginning to its end, in small pages.
func readPages(t *testing.T, db *userdb.DB, kinds ...userdb.EventKind) (all []userdb.HistoryEvent) {
	t.Helper()
	for after, last := "", -1; len(all) != last; {
		last = len(all)
		p, err := db.Events(t.Context(), userdb.EventQuery{After: after, Limit: 7, Kinds: kinds})
		must(t, err)
		if p.Gap {
			t.Fatal("the feed has a gap")
		}
		all, after = append(all, p.Events...), p.Next
	}
	return all
}

// TestHistoryEndsWithEntry checks that an entry never shows events of an earlier entry with the
// same UID, whether or not the programs that deleted and created them keep histories.
func TestHistoryEndsWithEntry(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, h := t.Context(), hints.UID("ann")
		recording, plain := typeOf(t, s.open(userdb.Options{History: true}), "user"), typeOf(t, s.open(userdb.Options{}), "user")
		var want []string
		if !s.has(manyClients) { // plain is a view of the program that keeps histories
			want = []string{"create added,name library "}
		}
		for name, deleting := range map[string]*userdb.Type{"plain": plain, "recording": recording} {
			must(t, errOf(recording.Create(ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann", "email", "ann@x.org")})))
			must(t, errOf(recording.Update(ctx, h, putText("job", "x"))))
			must(t, deleting.Delete(ctx, h))
			must(t, errOf(plain.Create(ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann")})))
			events, err := recording.History(ctx, h)
			must(t, err)
			if got := formatEvents(events); !slices.Equal(got, want) {
				t.Errorf("after a delete by a %s program, the next entry has the events %q, want %q", name, got, want)
			}
			must(t, plain.Delete(ctx, h))
		}
		if s.has(manyClients) {
			must(t, errOf(plain.Create(ctx, userdb.NewEntry{UID: "ann"})))
			if _, err := plain.History(ctx, h); !errors.Is(err, userdb.ErrNoHistory) {
				t.Errorf("a program that keeps no histories: got %v, want ErrNoHistory", err)
			}
		}
	})
}

// isSession reports whether an event is the start or the end of a session.
func isSession(e userdb.HistoryEvent) bool {
	return e.Kind == userdb.EventSessionStart || e.Kind == userdb.EventSessionEnd
}

// TestSessionEventsAreLimited checks that sessions do not crowd other events out of an account's
// history, however often its owner signs in.
func TestSessionEventsAreLimited(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, h := typeOf(t, s.open(userdb.Options{History: true}), "user"), hints.UID("ann")
		e, err := users.Create(t.Context(), userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann")})
		must(t, err)
		must(t, errOf(users.Update(t.Context(), h, putText("job", "x"))))
		must(t, users.ResetThrottle(t.Context(), h))
		for range 60 {
			_, secret, err := users.StartSession(t.Context(), e, userdb.SessionOptions{})
			must(t, err)
			must(t, users.EndSession(t.Context(), secret))
		}
		all, err := users.History(t.Context(), h)
		must(t, err)
		if len(all) != 100 {
			t.Fatalf("the history has %d events, want 100", len(all))
		}
		oldest := all[97:] // in the order of the history, newest first
		if oldest[2].Kind != userdb.EventCreate || oldest[1].Kind != userdb.EventUpdate || !isSession(oldest[0]) {
			t.Errorf("the oldest events are %q, want create, update, and the start or end of a session", formatEvents(oldest))
		}
		for n := range 80 {
			must(t, errOf(users.Update(t.Context(), h, putText("job", itoa(n)))))
		}
		if all, err = users.History(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		sessions := 0
		for _, e := range all {
			if isSession(e) {
				sessions++
			}
		}
		if len(all) != 100 || sessions != 30 {
			t.Errorf("%d events, %d of sessions; want 100 and 30", len(all), sessions)
		}
	})
}

// TestTokenEventsAreLimited checks that tokens do not crowd other events out of an account's
// history, however many are issued.
func TestTokenEventsAreLimited(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, h := typeOf(t, s.open(userdb.Options{History: true}), "user"), hints.UID("ann")
		must(t, errOf(users.Create(t.Context(), userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann")})))
		for n := range 85 {
			must(t, errOf(users.Update(t.Context(), h, putText("job", itoa(n)))))
		}
		for range 120 {
			must(t, errOf(users.Issue(t.Context(), h, userdb.Token{Purpose: "reset"})))
		}
		all, err := users.History(t.Context(), h)
		must(t, err)
		issued := 0
		for _, e := range all {
			if e.Kind == userdb.EventIssue {
				issued++
			}
		}
		if len(all) != 100 || issued != 20 || all[99].Kind != userdb.EventUpdate {
			t.Errorf("%d events, %d of tokens; want 100 and 20, and an update as the oldest of %q", len(all), issued, formatEvents(all[max(0, len(all)-4):]))
		}
	})
}

// TestFloodOfFailures checks that successful logins and changes stay in the feed, however often
// visitors fail to log in.
func TestFloodOfFailures(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{History: true})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users := typeOf(t, db, "user")
	ann := userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann"), Password: "correct horse battery"}
	must(t, errOf(users.Create(t.Context(), ann)))
	must(t, errOf(users.Login(t.Context(), "ann", "correct horse battery", userdb.Attempt{Origin: "192.0.2.7"})))
	for range 2500 { // an embedded store keeps 2,000
		_, err := users.Login(t.Context(), "nobody", "wrong password", userdb.Attempt{})
		if !errors.Is(err, userdb.ErrLogin) && !errors.Is(err, userdb.ErrTooManyAttempts) {
			t.Fatalf("got %v, want ErrLogin or ErrTooManyAttempts", err)
		}
	}
	all := waitForFeed(t, db, 2, userdb.EventCreate, userdb.EventLogin)
	if all[0].Kind != userdb.EventCreate || all[1].Kind != userdb.EventLogin {
		t.Errorf("the feed has %q, want create and login", formatEvents(all))
	}
	failures := []userdb.EventKind{userdb.EventLoginFailed, userdb.EventThrottle}
	page, err := db.Events(t.Context(), userdb.EventQuery{Kinds: failures, Limit: 1000})
	throttled := 0
	for _, e := range page.Events {
		if e.Kind == userdb.EventThrottle {
			throttled++
		}
	}
	if err != nil || throttled != 1 || len(page.Events) > 100 {
		t.Errorf("got %d failures, %d of them throttled, and error %v; want at most 100, 1 of them throttled, and no error",
			len(page.Events), throttled, err)
	}
}

// TestFloodOfLogins checks that the feed records at most sixty successful logins to one account in
// an hour, so that logins to other accounts stay.
func TestFloodOfLogins(t *testing.T) {
	eachLoginSite(t, userdb.Options{History: true}, func(t *testing.T, g *loginSite) {
		g.add("bob", alicePassword)
		recorded := func() map[string]int {
			page, err := g.db.Events(t.Context(), userdb.EventQuery{Kinds: []userdb.EventKind{userdb.EventLogin}, Limit: 1000})
			must(t, err)
			found := map[string]int{}
			for _, e := range page.Events {
				found[e.Key.Value()]++
			}
			return found
		}
		must(t, g.logIn("bob", alicePassword, ""))
		for range 70 {
			must(t, g.logIn("alice", alicePassword, ""))
		}
		waitForFeed(t, g.db, 61, userdb.EventLogin)
		if got, want := recorded(), map[string]int{"alice": 60, "bob": 1}; !maps.Equal(got, want) {
			t.Errorf("the feed has logins to %v, want %v", got, want)
		}
		g.advance(time.Hour)
		must(t, g.logIn("alice", alicePassword, ""))
		waitForFeed(t, g.db, 62, userdb.EventLogin)
		if got, want := recorded(), map[string]int{"alice": 61, "bob": 1}; !maps.Equal(got, want) {
			t.Errorf("an hour later, the feed has logins to %v, want %v", got, want)
		}
	})
}

// TestHistory checks that each change adds one line to the entry's history and to the feed, and
// that logins are only in the feed. A line names the actor and the changed fields, but holds no
// values.
func TestHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{History: true})
		users, h := typeOf(t, db, "user"), hints.UID("ann")
		ctx := userdb.WithActor(t.Context(), userdb.Actor{Name: "key:a b", Origin: "192.0.2.1"})
		facets := schema.Texts("name", "Ann", "email", "secret@example.com")
		e, err := users.Create(ctx, userdb.NewEntry{UID: "ann", Facets: facets, Tags: []string{"secret"}})
		must(t, err)
		e.Put("job", schema.Text("secret"))
		e.Put("name", schema.Text("Anna"))
		_, err = users.Save(t.Context(), e)
		must(t, err)
		e, err = users.SetPassword(ctx, h, "battery staple 9")
		must(t, err)
		_, err = users.Login(ctx, "anna", "battery staple 9", userdb.Attempt{Origin: "192.0.2.9"})
		must(t, err)
		_, err = users.Login(ctx, "anna", "secret", userdb.Attempt{})
		if err == nil {
			t.Fatal("logged in with a wrong password")
		}
		_, err = users.Login(ctx, "secret", "secret", userdb.Attempt{})
		if err == nil {
			t.Fatal("logged in with an unknown identifier")
		}
		_, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{Origin: "2001:db8::1"})
		must(t, err)
		must(t, users.EndSession(ctx, secret))
		must(t, users.EndSession(ctx, secret)) // the session has already ended
		token, err := users.Issue(ctx, h, userdb.Token{Purpose: "re set"})
		must(t, err)
		_, _, err = users.Redeem(ctx, "re set", token)
		must(t, err)
		for range 2 { // the second changes nothing
			_, err = users.Tags(h).Add(ctx, "secret2")
			must(t, err)
		}
		must(t, users.Tags(h).Replace(ctx, "secret3"))
		must(t, users.Disable(ctx, h))
		must(t, users.Enable(ctx, h))
		_, err = users.EndSessions(ctx, h)
		must(t, err)
		_, err = users.Update(ctx, h, func(e *userdb.Entry) error { e.Drop("email"); return nil })
		must(t, err)
		_, err = users.Update(ctx, h, func(e *userdb.Entry) error { return nil }) // changes nothing
		must(t, err)

		who := " key:a b 192.0.2.1"
		want := []string{
			"create added,email,name" + who, "update job library ", "identifier name library ",
			"password" + who, "session_start key:a b 2001:db8::1", "session_end" + who,
			"issue re set" + who, "redeem re set" + who, "tags tags" + who, "tags tags" + who,
			"disable" + who, "enable" + who, "session_end" + who, "identifier email" + who,
		}
		history, err := users.History(ctx, h)
		must(t, err)
		slices.Reverse(history)
		if got := formatEvents(history); !slices.Equal(got, want) {
			t.Errorf("the history is\n%q, want\n%q", got, want)
		}
		for i, e := range history {
			if e.Key.String() != "user/uid:ann" || time.Since(e.Time) > time.Minute || i > 0 && !e.Time.After(history[i-1].Time) {
				t.Errorf("event %d is %+v, want one of ann, made just now and after the event before it", i, e)
			}
		}
		events := waitForFeed(t, db, len(want)+3)
		var logins, changes []userdb.HistoryEvent
		for _, e := range events {
			if strings.HasPrefix(string(e.Kind), "login") {
				logins = append(logins, e)
			} else {
				changes = append(changes, e)
			}
		}
		wantLogins := []string{"login key:a b 192.0.2.9", "login_failed" + who, "login_failed" + who}
		// On a cluster, events of different entries may come in any order.
		slices.SortFunc(logins, func(a, b userdb.HistoryEvent) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Key.Value(), a.Key.Value()))
		})
		if got := formatEvents(logins); !slices.Equal(got, wantLogins) {
			t.Errorf("the logins in the feed are %q, want %q", got, wantLogins)
		} else if logins[1].Key.Value() != "ann" || logins[2].Key.IsValid() {
			t.Errorf("failed logins of %v and %v, want ann and no key", logins[1].Key, logins[2].Key)
		}
		if got := formatEvents(changes); !slices.Equal(sessionsLast(got), sessionsLast(want)) {
			t.Errorf("the changes in the feed are\n%q, want\n%q", got, want)
		}
		ids := map[string]bool{}
		for _, e := range events {
			ids[e.ID] = true
		}
		if len(ids) != len(events) {
			t.Errorf("the IDs of events are not distinct: %v", events)
		}
		if got := formatEvents(waitForFeed(t, db, 2, "disable", "enable")); len(got) != 2 {
			t.Errorf("events of kinds disable and enable: got %q, want 2", got)
		}
		for _, key := range s.keys(t.Context()) {
			text := s.raw.HGet(t.Context(), key, "~note").Val() // history lines kept in the entry
			if strings.Contains(key, "/history/") {
				text += s.raw.Get(t.Context(), key).Val()
			}
			text += fmt.Sprint(s.raw.XRange(t.Context(), key, "-", "+").Val())
			if strings.Contains(text, "secret") {
				t.Errorf("the history or feed in %s holds a value: %s", key, text)
			}
		}

		must(t, users.Delete(ctx, h))
		if _, err := users.History(ctx, h); err == nil {
			t.Error("a deleted entry has a history")
		}
		_, err = users.Create(ctx, userdb.NewEntry{UID: "ann"})
		must(t, err)
		history, err = users.History(ctx, h)
		must(t, err)
		if got := formatEvents(history); !slices.Equal(got, []string{"create added" + who}) {
			t.Errorf("the history of a new entry with the same UID is %q, want only its create", got)
		}
		last := formatEvents(waitForFeed(t, db, len(want)+5))
		if got := last[len(last)-2:]; !slices.Equal(got, []string{"delete" + who, "create added" + who}) {
			t.Errorf("the feed ends with %q, want delete and create", got)
		}
	})
}

// TestHistoryOfLostValue removes a value that a repair moved out of its field. The history must
// record this as an update.
func TestHistoryOfLostValue(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{History: true}), "user")
		add(t, users, "ann", "name", "Ann")
		s.command("HSET", "user/uid:ann", "~lost:name", "Anna")
		_, err := users.Update(t.Context(), hints.UID("ann"), func(e *userdb.Entry) error {
			e.Drop("~lost:name")
			return nil
		})
		must(t, err)
		history, err := users.History(t.Context(), hints.UID("ann"))
		must(t, err)
		if got := formatEvents(history); len(got) != 2 || !strings.HasPrefix(got[0], "update ~lost:name ") {
			t.Errorf("the history is %q, want an update of ~lost:name after the create", got)
		}
	})
}

// TestHistoryIsBounded checks that a history keeps at most a hundred lines, for 90 days.
func TestHistoryIsBounded(t *testing.T) {
	eachLoginSite(t, userdb.Options{History: true}, func(t *testing.T, g *loginSite) {
		h := hints.UID("alice")
		touch := func(i int) {
			ctx := userdb.WithActor(t.Context(), userdb.Actor{Name: fmt.Sprint("f", i)})
			_, err := g.users.Update(ctx, h, putText("job", fmt.Sprint(i)))
			must(t, err)
		}
		for i := range 120 {
			touch(i)
		}
		history, err := g.users.History(t.Context(), h)
		must(t, err)
		if len(history) != 100 || history[0].Actor != "f119" || history[99].Actor != "f20" {
			t.Fatalf("%d events, from %v to %v; want 100, from f119 to f20", len(history), history[0], history[len(history)-1])
		}
		g.advance(91 * 24 * time.Hour)
		history, err = g.users.History(t.Context(), h)
		must(t, err)
		if len(history) != 0 {
			t.Errorf("after 91 days the history is %q, want none", formatEvents(history))
		}
		touch(120)
		history, err = g.users.History(t.Context(), h)
		must(t, err)
		if len(history) != 1 {
			t.Errorf("after another change the history is %q, want one event", formatEvents(history))
		}
	})
}

// TestHistoryParallel changes one entry from many goroutines. Each change must have its line, and
// the feed must have the lines in the order of the history.
func TestHistoryParallel(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		var dbs []*userdb.DB
		for range 3 {
			if dbs = append(dbs, s.open(userdb.Options{History: true})); !s.has(manyClients) {
				break
			}
		}
		_, err := typeOf(t, dbs[0], "user").Create(t.Context(), userdb.NewEntry{UID: "ann"})
		must(t, err)
		var all sync.WaitGroup
		for i := range 12 {
			users := typeOf(t, dbs[i%len(dbs)], "user")
			all.Go(func() {
				for j := range 5 {
					who := fmt.Sprintf("f%d.%d", i, j)
					ctx := userdb.WithActor(t.Context(), userdb.Actor{Name: who})
					_, err := users.Update(ctx, hints.UID("ann"), putText("job", who))
					must(t, err)
				}
			})
		}
		all.Wait()
		history, err := typeOf(t, dbs[0], "user").History(t.Context(), hints.UID("ann"))
		must(t, err)
		if len(history) != 61 {
			t.Fatalf("the history has %d lines, want 61", len(history))
		}
		slices.Reverse(history)
		events := waitForFeed(t, dbs[0], 61)
		if a, b := formatEvents(history), formatEvents(events); !slices.Equal(a, b) {
			t.Errorf("the history is\n%q, the feed\n%q\nwant the same", a, b)
		}
	})
}

// TestHistoryOfManyCreates makes many creates at the same time, which are sent in batches. Each
// must have its line in the history of its entry and in the feed.
func TestHistoryOfManyCreates(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(cheapWrites)
		db := s.open(userdb.Options{History: true})
		users := typeOf(t, db, "user")
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				facets := schema.Texts("name", fmt.Sprint("n", i))
				_, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprint("u", i), Facets: facets, Tags: []string{"t"}})
				must(t, err)
			})
		}
		all.Wait()
		seen := map[string]bool{}
		for _, e := range waitForFeed(t, db, 300) {
			seen[e.Key.Value()] = true
		}
		if len(seen) != 300 {
			t.Errorf("the feed has events of %d entries, want 300", len(seen))
		}
		for i := range 300 {
			history, err := users.History(t.Context(), hints.UID(fmt.Sprint("u", i)))
			must(t, err)
			if got := formatEvents(history); !slices.Equal(got, []string{"create added,name library "}) {
				t.Fatalf("the history of u%d is %q, want one create", i, got)
			}
		}
	})
}

// TestNoHistory checks that no events are recorded without the option.
func TestNoHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{})
		users := typeOf(t, db, "user")
		e, err := users.Create(t.Context(), userdb.NewEntry{UID: "ann", Password: "battery staple 9"})
		must(t, err)
		_, _, err = users.StartSession(t.Context(), e, userdb.SessionOptions{})
		must(t, err)
		must(t, users.Disable(t.Context(), hints.UID("ann")))
		history, err := users.History(t.Context(), hints.UID("ann"))
		if len(history) != 0 || !errors.Is(err, userdb.ErrNoHistory) {
			t.Errorf("the history is %q, %v; want none, and ErrNoHistory", formatEvents(history), err)
		}
		waitForFeed(t, db, 0)
	})
}

// TestEventsEnd reads from the end of the feed on. Each later event must be read once, and a feed
// that was trimmed must have one gap. A text that is not a cursor must be refused.
func TestEventsEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{History: true})
		users := typeOf(t, db, "user")
		for i := range 20 {
			_, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprint("u", i)})
			must(t, err)
		}
		waitForFeed(t, db, 20)
		read := func(after string) userdb.EventPage {
			p, err := db.Events(t.Context(), userdb.EventQuery{After: after})
			must(t, err)
			return p
		}
		p := read(userdb.EventsEnd)
		if len(p.Events) != 0 || p.Gap {
			t.Fatalf("at the end of the feed: got %+v, want neither events nor a gap", p)
		}
		for i := range 20 {
			_, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprint("v", i)})
			must(t, err)
		}
		waitForFeed(t, db, 40)
		next := read(p.Next)
		if len(next.Events) != 20 || next.Gap || len(read(next.Next).Events) != 0 {
			t.Errorf("after the end of the feed: got %q, want 20 events", formatEvents(next.Events))
		}
		for _, cursor := range []string{"x", "!", "MC4wLng", strings.Repeat("A", 10000)} {
			if _, err := db.Events(t.Context(), userdb.EventQuery{After: cursor}); err == nil {
				t.Errorf("%q is accepted as a cursor", cursor)
			}
		}
		// After everything was trimmed there is one gap, and reading continues.
		for _, key := range s.keys(context.Background()) {
			if k, err := recordkey.Parse(key); err == nil && strings.Contains(k.String(), "~/feed/{feed/changes") {
				s.raw.XTrimMaxLen(t.Context(), key, 0)
			}
		}
		if p := read(next.Next); !p.Gap || len(p.Events) != 0 || read(p.Next).Gap {
			t.Errorf("after everything was trimmed: got %+v, want one gap and no events", p)
		}
	})
}

// TestEventsBeyondEnd removes the last events from a feed, as a failover may. A reader that has
// already read them must get a gap, and after that only new events.
func TestEventsBeyondEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{History: true})
		users := typeOf(t, db, "user")
		create := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				_, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprint("u", i)})
				must(t, err)
			}
		}
		read := func(after string) userdb.EventPage {
			t.Helper()
			p, err := db.Events(t.Context(), userdb.EventQuery{After: after})
			must(t, err)
			return p
		}
		loseLast := func() {
			t.Helper()
			for _, key := range s.keys(t.Context()) {
				if !strings.Contains(key, "~/feed/{feed/changes") {
					continue
				}
				for _, m := range s.raw.XRevRangeN(t.Context(), key, "+", "-", 1).Val() {
					must(t, s.raw.XDel(t.Context(), key, m.ID).Err())
				}
			}
		}
		create(0, 40)
		waitForFeed(t, db, 40)
		at := read("").Next
		loseLast()
		p := read(at)
		if !p.Gap || len(p.Events) != 0 {
			t.Fatalf("beyond the end: got gap %v, events %q; want a gap and no events", p.Gap, formatEvents(p.Events))
		}
		if again := read(p.Next); again.Gap || len(again.Events) != 0 {
			t.Errorf("from the next position: got gap %v, events %q; want neither", again.Gap, formatEvents(again.Events))
		}
		left := len(read("").Events)
		create(40, 50)
		waitForFeed(t, db, left+10)
		for name, after := range map[string]string{"from the next position": p.Next, "beyond the end": at} {
			p := read(after)
			fresh := !slices.ContainsFunc(p.Events, func(e userdb.HistoryEvent) bool {
				return !strings.HasPrefix(e.Key.Value(), "u4") || len(e.Key.Value()) != 3
			})
			if len(p.Events) != 10 || !fresh || p.Gap != (name == "beyond the end") {
				t.Errorf("reading new events %s: got gap %v, events %q; want the ten new events, and a gap only beyond the end",
					name, p.Gap, formatEvents(p.Events))
			}
		}
	})
}

// TestEventsLatest reads a feed backward, page by page. The reader must get the events of the
// forward order, reversed, and none that are added meanwhile.
func TestEventsLatest(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{History: true})
		users := typeOf(t, db, "user")
		empty, err := db.Events(t.Context(), userdb.EventQuery{Latest: true})
		if err != nil || len(empty.Events) != 0 || empty.Next != "" {
			t.Fatalf("the latest events of an empty feed: got %+v, %v; want none", empty, err)
		}
		for i := range 12 {
			uid := fmt.Sprintf("u%d", i)
			facets := schema.Texts("name", uid)
			_, err := users.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: facets, Password: alicePassword})
			must(t, err)
			_, err = users.Login(t.Context(), uid, alicePassword, userdb.Attempt{})
			must(t, err)
			must(t, users.Disable(t.Context(), hints.UID(uid)))
		}
		u3, err := recordkey.PRK("user", "uid", "u3")
		must(t, err)
		failed := 0
		for name, q := range map[string]userdb.EventQuery{
			"all events":   {},
			"logins":       {Kinds: []userdb.EventKind{"login"}},
			"changes":      {Kinds: []userdb.EventKind{"create", "disable"}},
			"one entry":    {Key: u3},
			"no such kind": {Kinds: []userdb.EventKind{"delete"}},
		} {
			var want []userdb.HistoryEvent
			for _, e := range waitForFeed(t, db, 36+failed) {
				if (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)) && (!q.Key.IsValid() || q.Key == e.Key) {
					want = append(want, e)
				}
			}
			slices.Reverse(want)
			q.Latest, q.Limit = true, 5
			var got []userdb.HistoryEvent
			end := ""
			for n := 0; n == 0 || q.After != ""; n++ {
				p, err := db.Events(t.Context(), q)
				must(t, err)
				if n == 0 {
					end = p.End
					_, err := users.Login(t.Context(), "nobody", wrongPassword, userdb.Attempt{})
					if err == nil {
						t.Fatal("logged in with an unknown identifier")
					}
					failed++
				}
				got, q.After = append(got, p.Events...), p.Next
			}
			ids := func(all []userdb.HistoryEvent) (ids []string) {
				for _, e := range all {
					ids = append(ids, e.ID)
				}
				return ids
			}
			if !slices.Equal(ids(got), ids(want)) {
				t.Errorf("%s: read backward %q, want %q", name, formatEvents(got), formatEvents(want))
			}
			after, err := db.Events(t.Context(), userdb.EventQuery{After: end, Key: q.Key})
			if q.Key.IsValid() { // the failed login is not about the entry
				if err != nil || len(after.Events) != 0 {
					t.Errorf("%s: events after the end: %q, %v; want none", name, formatEvents(after.Events), err)
				}
				continue
			}
			if err != nil || len(after.Events) != 1 || after.Events[0].Kind != "login_failed" {
				t.Errorf("%s: events after the end: %q, %v; want one failed login", name, formatEvents(after.Events), err)
			}
		}
	})
}

// TestFeedIsTrimmed checks that a feed drops events that are too old and, if it takes too much
// memory, its oldest events, a sixteenth at a time. Redis drops only whole nodes of a hundred
// entries, and estimates the memory of a stream from its first five nodes, up to a fifth too low or
// too high. The test needs many events: half of them must fill well over sixteen nodes, because a
// sixteenth of fewer nodes is none.
func TestFeedIsTrimmed(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{History: true})
		_, err := typeOf(t, db, "user").Create(t.Context(), userdb.NewEntry{UID: "ann"})
		must(t, err)
		waitForFeed(t, db, 1)
		var stream string
		for _, key := range s.keys(t.Context()) {
			if strings.Contains(key, "/feed/{") {
				stream = key
			}
		}
		pipe := s.raw.Pipeline()
		for i := range 6000 {
			event := fmt.Sprintf("user/uid:ann %d update / / job /", i)
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []string{"e", event}})
		}
		s.send(t.Context(), pipe)
		trimmer := view.Of(db).Engine.(interface {
			Trim(ctx context.Context, stream string, l history.FeedLimit) (int64, error)
		})
		trim := func(l history.FeedLimit) int64 {
			n, err := trimmer.Trim(t.Context(), stream, l)
			must(t, err)
			return n
		}
		if n := trim(history.FeedLimit{Bytes: 1 << 30, Life: time.Hour}); n != 6001 {
			t.Errorf("within the limits: %d of 6001 events are left, want all", n)
		}
		used := s.raw.MemoryUsage(t.Context(), stream).Val()
		first := trim(history.FeedLimit{Bytes: used / 2, Life: time.Hour})
		if first >= 6001 || first < 5400 {
			t.Errorf("the first step leaves %d of 6001 events, want 5400 to 6000", first)
		}
		n := first
		for range 50 {
			n = trim(history.FeedLimit{Bytes: used / 2, Life: time.Hour})
		}
		if now := s.raw.MemoryUsage(t.Context(), stream).Val(); now > used/2 || n < 2000 {
			t.Errorf("of %d bytes %d are left, in %d events; want at most half, in at least 2000 events", used, now, n)
		}
		// The clock of an embedded store can stand still for some time on a busy machine.
		eventually(t, "all events that are too old are dropped, apart from one node", func() bool {
			return trim(history.FeedLimit{Bytes: 1 << 30}) <= 100
		})
	})
}
