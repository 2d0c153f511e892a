package serve_test

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/serve"
)

// A lossyStore executes every command, but loses all replies after a number of commands.
type lossyStore struct{ left atomic.Int64 }

func (l *lossyStore) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lossyStore) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if l.left.Add(-1) < 0 {
			err = &net.OpError{Op: "read", Err: io.EOF}
			cmd.SetErr(err)
		}
		return err
	}
}

func (l *lossyStore) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			// The command holds the error.
			_ = l.ProcessHook(func(context.Context, redis.Cmder) error { return nil })(ctx, cmd)
		}
		if err := cmds[0].Err(); err != nil {
			_ = next(ctx, cmds)
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// TestLostReplies checks the response to a password reset if the replies of the store are lost from
// some command on. A reset makes two changes: the new password and the new session. No response may
// say that nothing was changed, because the token may have been used.
func TestLostReplies(t *testing.T) {
	t.Parallel() // it waits for retries
	raw := testdb.EmbeddedClient(t)
	c := newClient(t, testdb.Open(t, raw, testdb.Space(t, ""), testSchema()), serve.Options{})
	path := c.create(alice)
	store := &lossyStore{}
	store.left.Store(1 << 30)
	raw.AddHook(store)
	details := map[string]int{}
	for n := int64(0); ; n++ {
		token := c.do("200", "POST", "/v1/types/user/tokens", `{"purpose":"lost","uid":"alice"}`).str("secret")
		c.do("200", "GET", path, "") // caches the API key
		store.left.Store(n)
		r := c.send("POST", "/v1/password-resets", `{"purpose":"lost","secret":"`+token+`","password":"battery staple 9","session":{}}`)
		store.left.Store(1 << 30)
		if r.status == 200 {
			break
		}
		if r.status != 503 || r.header.Get("Retry-After") == "" || strings.Contains(r.str("detail"), "nothing") {
			t.Errorf("after %d replies: got %d, want 503 with a Retry-After: %s", n, r.status, r.text)
		}
		details[r.str("detail")]++
	}
	if details["the store did not answer: whether the change was made is not known"] == 0 || details["the store does not answer or is full; the server's log has the cause under this request_id"] == 0 {
		t.Errorf("got the details %v, want one about the change and one about the store", details)
	}
}

// A muteStore replies to no command until it is released, even if the command's context ends.
type muteStore struct {
	asked   chan struct{} // closed by the first command
	once    sync.Once
	release chan struct{}
}

func (m *muteStore) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *muteStore) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		m.once.Do(func() { close(m.asked) })
		<-m.release
		return next(ctx, cmd)
	}
}

func (m *muteStore) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		m.once.Do(func() { close(m.asked) })
		<-m.release
		return next(ctx, cmds)
	}
}

// TestReadyCanceled checks that while one request for /readyz waits for a store that does not
// reply, another one ends with its context.
func TestReadyCanceled(t *testing.T) {
	t.Parallel()
	raw := testdb.EmbeddedClient(t)
	service, err := serve.New(testdb.Open(t, raw, testdb.Space(t, ""), testSchema()).DB, serve.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := &muteStore{asked: make(chan struct{}), release: make(chan struct{})}
	raw.AddHook(store)
	ready := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		service.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/readyz", nil))
		return w.Code
	}
	var first sync.WaitGroup
	first.Go(func() { ready(t.Context()) })
	<-store.asked
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := ready(ended); got != 503 { // the store has not been released yet
		t.Errorf("got %d, want 503", got)
	}
	close(store.release)
	first.Wait()
}
