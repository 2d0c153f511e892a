package console

import (
	"context"
	"fmt"
	"html"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// A callCounter counts the calls of the methods of a DB, by name.
type callCounter struct {
	mu    sync.Mutex
	calls map[string]int
	ended map[string]int // calls that have ended, since the console was opened
}

// reset returns the counts and sets them to zero.
func (c *callCounter) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = map[string]int{}
	return calls
}

// countEnded returns how many calls of a method have ended.
func (c *callCounter) countEnded(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[name]
}

func (c *callCounter) Call(ctx context.Context, name string) (context.Context, func(userdb.Outcome)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[name]++
	return ctx, func(userdb.Outcome) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ended == nil {
			c.ended = map[string]int{}
		}
		c.ended[name]++
	}
}

func (*callCounter) Hash(context.Context) (func(), func(userdb.Outcome)) {
	return func() {}, func(userdb.Outcome) {}
}

func (*callCounter) Event(context.Context, string) {}

// TestAccountPageReadsOnce checks that the page of an account reads each thing once, and only what
// the tab shows.
func TestAccountPageReadsOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		d.addValues("u1", "email", "alice@work.example", "alice@home.example")
		d.do(http.StatusOK, "/console/types/user/u1") // the first page makes more calls
		for tab, also := range map[string]string{"": "Set.Members", "signins": "Events", "devices": "Sessions", "history": ""} {
			d.calls.reset()
			d.do(http.StatusOK, "/console/types/user/u1?tab="+tab)
			got := d.calls.reset()
			maps.DeleteFunc(got, func(name string, _ int) bool { // the operator's own session
				return name == "Session" || name == "VerifySession"
			})
			want := map[string]int{"Find": 1, "LoginStatus": 1, "History": 1}
			if also != "" {
				want[also] = 1
			}
			if !maps.Equal(got, want) {
				t.Errorf("the tab %q calls %v, want %v", tab, got, want)
			}
		}
	})
}

// TestHistoryOfOneAccount checks that the history of one account reads the account's own history
// and searches the feed once, and that it has changes that the feed no longer has.
func TestHistoryOfOneAccount(t *testing.T) {
	skipUnderRace(t)
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	d.createAccount("u2", "name", "Bob")
	for i := range 2500 { // the feed keeps 2,000 events
		_, err := d.users.Tags(hints.UID("u2")).Add(t.Context(), fmt.Sprint("tag", i))
		must(t, err)
	}
	d.do(http.StatusOK, "/console/history") // the first page makes more calls
	d.calls.reset()
	d.wantText(d.do(http.StatusOK, "/console/history?account=alice"), "Alice: The application created the account")
	calls := d.calls.reset()
	if calls["History"] != 1 || calls["Events"] != 1 {
		t.Errorf("the page calls %v, want History and Events once", calls)
	}
	d.do(http.StatusOK, "/console/history?account=alice&kind=create")
	if n := d.calls.reset()["Events"]; n > 0 {
		t.Errorf("the feed was searched %d times for a kind that histories have, want none", n)
	}
}

// TestEventsBeyondHistory checks that the page also shows events in the feed for which the
// account's own history has no room, or which are about an earlier account with the same UID, and
// each event only once.
func TestEventsBeyondHistory(t *testing.T) {
	d := open(t, "memory:")
	d.createAccount("u1", "name", "Alice")
	must(t, d.users.Delete(t.Context(), hints.UID("u1")))
	d.createAccount("u1", "name", "Alice")
	d.wantText(d.do(http.StatusOK, "/console/history?account=alice&kind=delete"), "The application deleted")
	must(t, d.users.Disable(t.Context(), hints.UID("u1")))
	for i := range fullHistory {
		_, err := d.users.Tags(hints.UID("u1")).Add(t.Context(), fmt.Sprint("tag", i))
		must(t, err)
	}
	d.wantText(d.do(http.StatusOK, "/console/history?account=alice&kind=disable"), "Alice: The application disabled")
	path, shown := "/console/history?account=alice", ""
	for range 5 {
		text := d.do(http.StatusOK, path)
		shown += text
		next := regexp.MustCompile(`href="([^"]*after=[^"]*)"`).FindStringSubmatch(text)
		if next == nil {
			break
		}
		path = html.UnescapeString(next[1])
	}
	d.wantText(shown, fmt.Sprintf("changed tags %d times", fullHistory), "disabled the account")
	if n := strings.Count(shown, "changed tags"); n != 1 {
		t.Errorf("changes of tags are shown in %d lines, want one", n)
	}
}

// TestListConditions checks that a list takes only a limited number of conditions.
func TestListConditions(t *testing.T) {
	d := open(t, "memory:")
	for _, condition := range []string{"&where=name:x", "&tag=x"} {
		d.wantText(d.do(http.StatusUnprocessableEntity, "/console/types/user?"+strings.Repeat(condition, maxConditions+1)), "at most 20 conditions")
		d.wantNoText(d.do(http.StatusOK, "/console/types/user?"+strings.Repeat(condition, maxConditions)), "at most 20 conditions")
	}
}

// TestLabelsOfHistory checks that a page of events reads only a few of the accounts at a time.
func TestLabelsOfHistory(t *testing.T) {
	d := open(t, "memory:")
	for i := range labelBatch + 1 {
		d.createAccount(fmt.Sprint("u", i), "name", fmt.Sprint("Name ", i))
	}
	d.do(http.StatusOK, "/console/history") // the first page makes more calls
	d.calls.reset()
	d.wantText(d.do(http.StatusOK, "/console/history"), "Name 0", fmt.Sprint("Name ", labelBatch))
	if n := d.calls.reset()["FindAll"]; n != 2 {
		t.Errorf("%d accounts were read in %d lookups, want 2", labelBatch+1, n)
	}
}
