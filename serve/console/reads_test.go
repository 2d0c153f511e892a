package console

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"testing"

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

// TestAccountPageReadsOnce checks that the page of an account reads each thing once.
func TestAccountPageReadsOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, d *testConsole) {
		d.createAccount("u1", "name", "Alice", "email", "alice@example.com")
		d.do(http.StatusOK, "/console/types/user/u1") // what the first page of a session does
		d.calls.reset()
		d.do(http.StatusOK, "/console/types/user/u1")
		got := d.calls.reset()
		maps.DeleteFunc(got, func(name string, _ int) bool { // the operator's own session
			return name == "Session" || name == "VerifySession"
		})
		want := map[string]int{"Find": 1, "LoginStatus": 1, "History": 1, "Set.Members": 1, "Sessions": 1}
		if !maps.Equal(got, want) {
			t.Errorf("the page calls %v, want %v", got, want)
		}
	})
}
