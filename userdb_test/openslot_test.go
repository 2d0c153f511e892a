package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestOpenSlotOfTags creates an entry whose tags cannot be written because their slot is open, that
// is, on the way to another node. The entry must be readable, and the tags must be there when the
// migration ends.
func TestOpenSlotOfTags(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users, ctx := typeOf(t, db, "user"), t.Context()
	add(t, users, "first", "name", "first")
	slot := c.OpenSlot("user/uid:u/tags")
	_, err = users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "you"), Tags: []string{"red"}, Password: clearPassword})
	must(t, err)
	pending := func() bool { return c.Client().HExists(ctx, "user/uid:u", "~fill").Val() }
	if !pending() {
		t.Fatal("the tags are written already")
	}
	for name, method := range map[string]func() error{
		"find":  func() error { _, err := users.Find(ctx, hints.Any("you")); return err },
		"login": func() error { _, err := users.Login(ctx, "you", clearPassword, userdb.Attempt{}); return err },
		"update": func() error {
			_, err := users.Update(ctx, hints.UID("u"), putText("job", "cook"))
			return err
		},
	} {
		if err := method(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := 0
	for _, err := range users.All(ctx, userdb.Query{}) {
		must(t, err)
		n++
	}
	if n != 2 || !pending() {
		t.Errorf("listed %d entries, want 2; the tags are pending: %v", n, pending())
	}
	_, err = users.Tags(hints.UID("u")).Members(ctx)
	wantErr(t, "tags whose slot is open", err, userdb.ErrUnavailable, "TRYAGAIN")
	slot.Finish()
	if members, err := users.Tags(hints.UID("u")).Members(ctx); err != nil || len(members) != 1 || pending() {
		t.Errorf("after the migration: got tags %q, %v, pending: %v; want one tag, no longer pending", members, err, pending())
	}
	wantRepairable(t, db, noExcuse)
}

// addWithWaitingTags creates an entry in the state that remains if the last step of a create fails:
// its tags are not written yet.
func addWithWaitingTags(t *testing.T, users *userdb.Type, client redis.UniversalClient, ns recordkey.Namespace, uid string) {
	t.Helper()
	ctx, prefix := context.Background(), ns.String()
	add(t, users, uid, "name", "name of "+uid)
	must(t, client.SAdd(ctx, prefix+"~/fill/ABCDEFGHIJKL/{"+prefix+"user/uid:"+uid+"/tags}", "red", "blue").Err())
	must(t, client.HSet(ctx, prefix+"user/uid:"+uid, "~fill", "ABCDEFGHIJKL i:tags").Err())
}

// TestPendingTags creates entries whose tags are not written yet. A check must list the entries and
// change nothing. A copy of the namespace must have the tags. A repair or a reader must write them.
func TestPendingTags(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.needs(manyClients)
		ctx := t.Context()
		s.wide()
		from, to := parseNamespace(t, "from"), parseNamespace(t, "to")
		db, err := s.first.In(from)
		must(t, err)
		users := typeOf(t, db, "user")
		addWithWaitingTags(t, users, s.raw, from, "a")
		addWithWaitingTags(t, users, s.raw, from, "b")
		_, err = migrate.CopyNamespace(ctx, s.first, from, to)
		must(t, err)
		copied, err := s.first.In(to)
		must(t, err)

		var listed int
		for range 2 {
			listed = len(errorsFound(t, copied, false))
		}
		if listed != 2 {
			t.Errorf("a check lists %d entries, want 2", listed)
		}
		if members, err := typeOf(t, copied, "user").Tags(hints.UID("b")).Members(ctx); err != nil || len(members) != 2 {
			t.Errorf("tags of a copied entry: got %q, %v; want two", members, err)
		}
		if repaired := errorsFound(t, copied, true); len(repaired) != 1 || !repaired[0].Repaired {
			t.Errorf("a repair returned %v, want one repaired problem", repaired)
		}
		if left := errorsFound(t, copied, false); len(left) != 0 {
			t.Errorf("after the repair, a check found %v, want nothing", left)
		}
		tagged := 0
		for _, err := range typeOf(t, copied, "user").All(ctx, userdb.Query{Tags: []string{"red", "blue"}}) {
			must(t, err)
			tagged++
		}
		if tagged != 2 {
			t.Errorf("%d entries have both tags, want 2", tagged)
		}
		for _, ns := range []recordkey.Namespace{from, to} {
			_, err := migrate.DropNamespace(ctx, s.first, ns)
			must(t, err)
		}
	})
}

// errorsFound returns the errors that a check or a repair finds. All must be about tags that are
// not written yet.
func errorsFound(t *testing.T, db *userdb.DB, repair bool) (found []check.Problem) {
	t.Helper()
	for p, err := range check.Run(store.WithoutOtherWriters(t.Context()), db, check.Options{Repair: repair}) {
		must(t, err)
		if p.Severity == check.SeverityError {
			found = append(found, p)
			if p.Code != "fill_waiting" {
				t.Errorf("a check found %v, want only fill_waiting", p)
			}
		}
	}
	return found
}

// TestClusterDeletesInOpenSlot deletes entries whose slot is being migrated. Each must leave a
// tombstone, so that a new account with the UID inherits nothing and no value gets two owners.
func TestClusterDeletesInOpenSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users, raw := typeOf(t, db, "user"), clientOf(db).(*redis.ClusterClient)
	for i := range 3 {
		uid, key := fmt.Sprint("u", i), fmt.Sprint("user/uid:u", i)
		_, err := users.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "n"+uid, "job", "j"), Tags: []string{"admin"}})
		must(t, err)
		slot := c.OpenSlot(key)
		must(t, users.Delete(t.Context(), hints.UID(uid)))
		fields := raw.HGetAll(t.Context(), key).Val()
		if life := raw.TTL(t.Context(), key).Val(); len(fields) != 1 || len(fields["~rev"]) < 24 || life <= 0 {
			t.Errorf("the tombstone is %q with the time to live %v, want only ~rev and a time to live", fields, life)
		}
		if i == 1 {
			slot.Finish()
		}
		_, err = users.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "n"+uid)})
		must(t, err)
		_, err = users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("email", "n"+uid)})
		if !errors.Is(err, userdb.ErrInvalid) && !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a second entry with the name: got %v, want ErrInvalid or ErrDuplicate", err)
		}
		if i == 2 {
			slot.Finish()
		}
		if tags, err := users.Tags(hints.UID(uid)).Members(t.Context()); err != nil || len(tags) > 0 {
			t.Errorf("the new account has the tags %q, %v; want none", tags, err)
		}
		if i == 0 {
			slot.Finish()
		}
	}
	wantRepairable(t, db, noExcuse)
}

// TestTokensInOpenSlot issues and redeems tokens while the slot of their entry is being migrated:
// first while the record of tokens is on the same node as the entry, then while it is on another.
func TestTokensInOpenSlot(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), redistest.StartCluster(t)
	db, err := userdb.Open(ctx, c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	_, err = users.Create(ctx, userdb.NewEntry{UID: "alice", Facets: schema.Texts("email", "alice@example.com"), Password: alicePassword})
	must(t, err)
	alice := hints.UID("alice")
	issue := func(purpose string) string {
		t.Helper()
		secret, _, err := users.IssueFor(ctx, alice, "email", userdb.Token{Purpose: purpose, Value: "Al"})
		must(t, err)
		return secret
	}
	login, reset, change, verify := issue("login"), issue("reset"), issue("change:name"), issue("verify")
	slot := c.OpenSlot("user/uid:alice")
	_, _, err = users.Redeem(ctx, "login", login)
	must(t, err)

	host, port, _ := net.SplitHostPort(slot.To.Addr())
	must(t, slot.From.Client().Do(ctx, "MIGRATE", host, port, "user/uid:alice", 0, 5000).Err())
	_, _, err = users.Peek(ctx, "reset", reset)
	must(t, err)
	_, _, err = users.Redeem(ctx, "verify", verify)
	must(t, err)
	_, _, err = users.Redeem(ctx, "verify", verify)
	wantErr(t, "a spent token", err, userdb.ErrNotFound)
	apart := issue("verify") // issued while the entry and its tokens are on different nodes
	_, _, err = users.Redeem(ctx, "login", apart)
	wantErr(t, "another purpose", err, userdb.ErrNotFound)
	must(t, slot.From.Client().Do(ctx, "MIGRATE", host, port, aliceTokens, 0, 5000).Err())
	_, err = users.ResetPassword(ctx, "reset", reset, resetPassword)
	must(t, err)
	_, _, err = users.Redeem(ctx, "change:name", change)
	wantErr(t, "after a reset", err, userdb.ErrNotFound)
	for name, secret := range map[string]string{"spent": verify, "issued while on different nodes": apart} {
		_, _, err = users.Redeem(ctx, "verify", secret)
		wantErr(t, name+", after a reset", err, userdb.ErrNotFound)
	}
	// An update that voids tokens must succeed when none are left.
	_, err = users.Update(ctx, alice, func(e *userdb.Entry) error {
		e.Put("email", schema.Text("new@example.com"))
		return nil
	})
	must(t, err)
	slot.Finish()
	login = issue("login")
	_, _, err = users.Redeem(ctx, "login", login)
	must(t, err)
	wantRepairable(t, db, noExcuse)
}

// TestHistoryInOpenSlot changes an entry while its slot is being migrated. The entry must keep a
// history line of each change until the migration ends. Then the lines must reach the history and
// the feed.
func TestHistoryInOpenSlot(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), redistest.StartCluster(t)
	db, err := userdb.Open(ctx, c.URL(), userdb.Options{History: true})
	must(t, err)
	defer db.Close()
	users, h := typeOf(t, db, "user"), hints.UID("ann")
	touch := func(who string) {
		_, err := users.Update(userdb.WithActor(ctx, userdb.Actor{Name: who}), h, putText("job", who))
		must(t, err)
	}
	slot := c.OpenSlot("user/uid:ann")
	_, err = users.Create(ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann")})
	must(t, err)
	touch("a")
	touch("b")
	if pending := c.Client().HGet(ctx, "user/uid:ann", "~note").Val(); strings.Count(pending, "\n") != 2 {
		t.Errorf("the entry keeps the history %q, want three lines", pending)
	}
	want := []string{"update job b ", "update job a ", "create added,name library "}
	history, err := users.History(ctx, h)
	must(t, err)
	if got := formatEvents(history); !slices.Equal(got, want) {
		t.Errorf("during the migration: got history %q, want %q", got, want)
	}
	e, err := users.Find(ctx, h)
	must(t, err)
	_, secret, err := users.StartSession(ctx, e, userdb.SessionOptions{})
	must(t, err)
	must(t, users.EndSession(ctx, secret))
	slot.Finish()
	touch("c")
	history, err = users.History(ctx, h)
	must(t, err)
	slices.Reverse(history)
	got := formatEvents(history)
	if slices.Sort(got); len(got) != 6 || !slices.IsSortedFunc(history, func(a, b userdb.HistoryEvent) int { return a.Time.Compare(b.Time) }) {
		t.Errorf("after the migration: got history %q, want six events in order", formatEvents(history))
	}
	fed := formatEvents(waitForFeed(t, db, 6))
	if slices.Sort(fed); !slices.Equal(fed, got) {
		t.Errorf("the feed has %q, want %q", fed, got)
	}
	if c.Client().HExists(ctx, "user/uid:ann", "~note").Val() {
		t.Error("the entry still has lines that are in its history")
	}
	wantRepairable(t, db, noExcuse)
}

// TestListWhileSlotsMove moves the slot of an entry while All reads the entries: from a master that
// was not scanned yet to the one that was scanned first. The entry must still be listed.
func TestListWhileSlotsMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users, first := typeOf(t, db, "user"), c.Master("0") // scans begin there
	var early, late string
	for n := 0; early == "" || late == ""; n++ {
		uid := fmt.Sprint("u", n)
		if key := add(t, users, uid, "name", uid).Key().String(); c.Master(key) == first {
			early = uid
		} else {
			late = uid
		}
	}
	seen := map[string]bool{}
	for e, err := range users.All(t.Context(), userdb.Query{}) {
		must(t, err)
		if len(seen) == 0 {
			slot := c.OpenSlot("user/uid:" + late)
			if slot.To != first {
				t.Fatal("the slot moves to a master that is not scanned first")
			}
			slot.Finish()
		}
		seen[e.UID()] = true
	}
	if !seen[early] || !seen[late] {
		t.Errorf("got %v, want %s and %s", seen, early, late)
	}
}
