package userdb_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
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

// wantInFeed checks that the feed has exactly these kinds of events of an entry, in this order. It
// ignores EventRepair, which says that a repair has begun.
func (g *loginSite) wantInFeed(what, name string, want ...string) {
	g.t.Helper()
	var got []string
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got = nil
		for _, e := range readFeed(g.t, g.db, 0) {
			if e.Key.Value() == name && e.Kind != userdb.EventRepair {
				got = append(got, string(e.Kind))
			}
		}
		if len(got) >= len(want) || time.Now().After(deadline) {
			break
		}
	}
	if !slices.Equal(got, want) {
		g.t.Errorf("%s: the feed has %q, want %q", what, got, want)
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
