package serve

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/console"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// Limits on concurrent requests, by kind of sender and of request. Tests lower them.
var (
	maxRequests  = 1000 // with a valid key
	maxImports   = 16   // with a valid key and a body that streams for any length of time
	maxExports   = 16   // with a valid key and a response that streams entries
	maxListeners = 1000 // with a valid key and a response that is a stream of events
	maxCatchUps  = 16   // those of maxListeners that still read old events
	maxOperators = 100  // with the session of an operator
	maxUploads   = 16   // with the session of an operator and a file
	maxLookups   = 64   // lookups of keys and sessions in the store
	maxVisitors  = 4    // signing in to the console and setting it up; they use hash workers
	maxDiscovery = 16   // without a key, for the descriptions of SCIM
)

// maxBodies is how many bytes of bodies may be in memory at the same time. A body that has been
// decoded may take fifteen times as much, and one of SCIM 25 times. Tests lower it.
var maxBodies = 64 << 20

// maxResponses is how many bytes of responses may be in memory at the same time. As JSON they may
// take six times as much. Tests lower it.
var maxResponses = 128 << 20

// shares is the number of clients that together can use up a quota.
const shares = 4

// A quota limits how much of something requests may have at the same time. The requests of one
// client, which is a key or an operator, may have at most a quarter of it, so that one client alone
// cannot keep out the others. It is safe for concurrent use.
type quota struct {
	total int

	mu      sync.Mutex
	used    int
	by      map[string]int // by client
	waiting []*waiter      // in the order in which they came
}

// A waiter is a request that waits until it has n of a quota.
type waiter struct {
	client  string
	n       int
	granted chan struct{} // closed when the client has n more
}

func newQuota(total int) *quota { return &quota{total: total, by: map[string]int{}} }

// fits reports whether n more are free, and whether a client may have that many more.
func (q *quota) fits(client string, n int) (free, allowed bool) {
	return q.used+n <= q.total, q.by[client]+n <= max(1, q.total/shares)
}

// add gives a client n more, or takes away as many if n is negative.
func (q *quota) add(client string, n int) {
	q.used += n
	if q.by[client] += n; q.by[client] == 0 {
		delete(q.by, client)
	}
}

// take takes n for a client, or returns a problem with [userdb.CodeUnavailable].
func (q *quota) take(client string, n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked(client, n)
}

func (q *quota) takeLocked(client string, n int) error {
	switch free, allowed := q.fits(client, n); {
	case !free:
		return problem(userdb.CodeUnavailable, "too many requests at once").withRetryAfter(1)
	case !allowed:
		return problem(userdb.CodeUnavailable, "too many requests at once from one sender").withRetryAfter(1)
	}
	q.add(client, n)
	return nil
}

// give gives back n that a client took, and grants what is free now to waiters, in the order in
// which they came. If n is negative, the client takes that much more, even if it is not free.
func (q *quota) give(client string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(client, -n)
	q.waiting = slices.DeleteFunc(q.waiting, func(w *waiter) bool {
		free, allowed := q.fits(w.client, w.n)
		if free && allowed {
			q.add(w.client, w.n)
			close(w.granted)
		}
		return free && allowed
	})
}

// wait takes n for a client as soon as that much is free. If that takes longer than slotTimeout or
// ctx ends, it returns the problem that take would have returned. Callers already have a slot,
// which limits how many of them wait.
func (q *quota) wait(ctx context.Context, client string, n int) error {
	w := &waiter{client, n, make(chan struct{})}
	q.mu.Lock()
	err := q.takeLocked(client, n)
	if err != nil {
		q.waiting = append(q.waiting, w)
	}
	q.mu.Unlock()
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, w)
	if at < 0 { // it was granted at the last moment
		return nil
	}
	q.waiting = slices.Delete(q.waiting, at, at+1)
	return err
}

// takeSlot takes one slot for a client. leave gives it back; calling leave again does nothing.
func (q *quota) takeSlot(client string) (leave func(), err error) {
	if err := q.take(client, 1); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { q.give(client, 1) }), nil
}

// readBody reads the body of a request into memory and replaces the request's body with it, so that
// a client that sends slowly takes no slot. What was read counts against the quota of bodies until
// release is called. If the connection fails, the new body ends with the error.
func (b *budgets) readBody(w http.ResponseWriter, req *http.Request, client string) (release func(), err error) {
	control := http.NewResponseController(w)
	// If the connection cannot set deadlines, those of the server apply.
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body := &countedBody{Reader: req.Body, quota: b.bodies, client: client}
	text, err := io.ReadAll(io.LimitReader(body, maxBodyBytes+1))
	release = sync.OnceFunc(func() { b.bodies.give(client, body.n) })
	if body.refused != nil {
		release()
		return nil, body.refused
	}
	rest := io.Reader(failedReader{err})
	if err == nil {
		rest = http.NoBody
	}
	if err == nil && len(text) <= maxBodyBytes {
		// The deadline would end the request while it is being handled.
		_ = control.SetReadDeadline(time.Time{})
	}
	req.Body = io.NopCloser(io.MultiReader(bytes.NewReader(text), rest))
	return release, nil
}

// A countedBody counts each read against a quota, before it reads.
type countedBody struct {
	io.Reader
	quota   *quota
	client  string
	n       int
	refused error // by the quota
}

func (c *countedBody) Read(b []byte) (int, error) {
	if c.refused = c.quota.take(c.client, len(b)); c.refused != nil {
		return 0, c.refused
	}
	n, err := c.Reader.Read(b)
	c.quota.give(c.client, len(b)-n)
	c.n += n
	return n, err
}

// A failedReader returns the error with which reading a body failed.
type failedReader struct{ err error }

func (f failedReader) Read([]byte) (int, error) { return 0, f.err }

// slotTimeout is how long a request waits for a slot in a budget or for a part of a quota. Tests
// lower it.
var slotTimeout = 5 * time.Second

// A budget limits how many requests of one kind from unknown senders run at the same time.
type budget struct{ slots chan struct{} }

// budgets holds a quota or a budget for each kind of request. Requests without credentials have
// budgets of their own, so that any number of them takes no capacity from requests with
// credentials. Requests with keys likewise take none from operators.
type budgets struct {
	requests, imports, exports, listeners, catchUps, operators, uploads *quota // slots
	bodies, responses                                                   *quota // bytes
	lookups, visitors, discovery                                        budget
}

// Values of route.slots.
func importSlots(b *budgets) *quota { return b.imports }
func exportSlots(b *budgets) *quota { return b.exports }

func newBudgets() *budgets {
	return &budgets{
		requests: newQuota(maxRequests), imports: newQuota(maxImports), exports: newQuota(maxExports), listeners: newQuota(maxListeners), catchUps: newQuota(maxCatchUps),
		operators: newQuota(maxOperators), uploads: newQuota(maxUploads),
		bodies: newQuota(maxBodies), responses: newQuota(maxResponses),
		lookups: budget{make(chan struct{}, maxLookups)}, visitors: budget{make(chan struct{}, maxVisitors)},
		discovery: budget{make(chan struct{}, maxDiscovery)},
	}
}

// take takes a slot, which leave gives back. Calling leave again does nothing. If no slot is free
// in time, take returns a problem with [userdb.CodeUnavailable]. If ctx ends first, it returns the
// error of ctx.
func (b *budget) take(ctx context.Context) (leave func(), err error) {
	select {
	case b.slots <- struct{}{}:
		return b.leave(), nil
	default:
	}
	timer := time.NewTimer(slotTimeout)
	defer timer.Stop()
	select {
	case b.slots <- struct{}{}:
		return b.leave(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
	}
	return nil, problem(userdb.CodeUnavailable, "too many requests at once").withRetryAfter(1)
}

// leave returns a function that gives a slot back the first time it is called.
func (b *budget) leave() func() {
	left := false
	return func() {
		if !left {
			left = true
			<-b.slots
		}
	}
}

// admit takes a slot for a request to the console, from the budget for its kind of work.
func (b *budgets) admit(ctx context.Context, w console.Work) (leave func(), err error) {
	operator := web.Entry(ctx).Text(admin.OperatorName)
	switch w {
	case console.WorkSignIn:
		return b.visitors.take(ctx)
	case console.WorkSession:
		return b.lookups.take(ctx)
	case console.WorkUpload:
		return b.uploads.takeSlot(operator)
	}
	return b.operators.takeSlot(operator)
}
