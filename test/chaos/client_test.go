//go:build linux

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// clientEnv is an environment variable with the config of a client or service, as JSON. A process
// without it is the parent.
const clientEnv = "USERDB_CHAOS_CLIENT"

// A config describes a process, which is a client or a service.
type config struct {
	Number, Life int // Life counts how often the process with this number was replaced
	Seed         uint64
	Kind         string // kind of store
	Addrs        []string
	History      string // path of the history file
	Serves       string // address at which a service listens; "" for a client
	Services     []string
	Key          string // API key for the services
	Epoch        int    // first epoch; 0: wait for one
}

func (o config) name() string { return fmt.Sprintf("%d.%d", o.Number, o.Life) }

// A client is a process that asks the store random questions. It reads commands from its standard
// input, one on each line, and exits at the end of the input.
type client struct {
	config
	t     *testing.T
	proxy *redistest.Proxy

	users, members *userdb.Type

	rec   recorder
	rnd   *rand.Rand
	pool  *pool
	tags  int
	pulse *pulse

	opened chan struct{} // closed once the store is open

	mu           sync.Mutex
	epoch        int
	epochChanged *sync.Cond
}

// TestClient runs the client or service that clientEnv describes. It tests nothing, and is skipped
// if TestChaos did not start the process.
func TestClient(t *testing.T) {
	text := os.Getenv(clientEnv)
	if text == "" {
		t.Skip("a client of TestChaos, which runs it")
	}
	c := &client{t: t, pulse: newPulse(), opened: make(chan struct{})}
	if err := json.Unmarshal([]byte(text), &c.config); err != nil {
		t.Fatal(err)
	}
	if c.Serves != "" {
		serveStore(t, c.config) // does not return
	}
	c.epochChanged, c.epoch = sync.NewCond(&c.mu), c.Epoch
	c.rnd = rand.New(rand.NewPCG(c.Seed, uint64(c.Number)<<32|uint64(c.Life)))
	c.proxy = redistest.NewProxy(t, &redistest.Server{}) // the client uses only its dialer
	go c.readCommands()
	if err := c.openStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(c.opened)
	for {
		c.askRandom(t.Context(), c.waitForEpoch())
	}
}

// openStore creates the history file and opens the pool of secrets. Then it tries to open the store
// until that succeeds.
func (c *client) openStore(ctx context.Context) (err error) {
	if c.rec.file, err = os.OpenFile(c.History, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if c.pool, err = openPool(filepath.Join(filepath.Dir(c.History), "secrets.jsonl")); err != nil {
		return err
	}
	redis.SetLogger(quietLogger{})
	rc := connect(c.Kind, c.Addrs, c.proxy.Dialer())
	for {
		db, err := redisdb.New(ctx, rc, userdb.Options{Schema: chaosSchema(4 + c.Number%2), History: true})
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond) // a master may be down
			continue
		}
		if err == nil {
			db, err = withSkewedClock(db, c.Number)
		}
		if err != nil {
			return err
		}
		if c.users, err = db.Type("user"); err == nil {
			c.members, err = db.Type(testdb.ListType)
		}
		return err
	}
}

// withSkewedClock sets the clock of a process. Its number decides whether the clock is right, an
// hour ahead or an hour behind.
func withSkewedClock(db *userdb.DB, number int) (*userdb.DB, error) {
	ahead := time.Duration(number%3-1) * time.Hour
	return view.Reconfigure(db, func(c *view.Config) { c.OwnClock = func() time.Time { return time.Now().Add(ahead) } })
}

// quietLogger discards what go-redis logs about broken connections.
type quietLogger struct{}

func (quietLogger) Printf(context.Context, string, ...any) {}

// readCommands carries out the commands of the parent, and exits when the parent closes the pipe.
func (c *client) readCommands() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		var n int
		if len(words) > 1 {
			fmt.Sscan(words[1], &n)
		}
		switch words[0] {
		case "epoch":
			c.mu.Lock()
			c.epoch = n
			c.epochChanged.Broadcast()
			c.mu.Unlock()
		case "burst":
			go c.burst(context.Background(), time.Duration(n)*time.Millisecond)
		case "replies":
			c.proxy.CutReplies(n, words[2])
		case "requests":
			c.proxy.CutRequests(n, words[2])
		case "cut":
			c.proxy.CutAll()
		case "delay":
			c.proxy.Delay(time.Duration(n) * time.Millisecond)
		case "pass":
			c.proxy.Pass()
			fmt.Println("cuts", c.proxy.Cuts())
		}
	}
	os.Exit(0)
}

// waitForEpoch returns the epoch in progress. If there is none, it tells the parent that the client
// waits, and waits for one.
func (c *client) waitForEpoch() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == 0 {
		fmt.Println("waits")
	}
	for c.epoch == 0 {
		c.epochChanged.Wait()
	}
	return c.epoch
}

// askRandom asks one random question, or several for a swap. After some creates it removes the tags
// at once, perhaps before they are in place. It ends some sessions as soon as they have begun,
// before another client can end them.
func (c *client) askRandom(ctx context.Context, epoch int) {
	q := randomQuestion(c.rnd, c.tag)
	c.must(c.addSecret(&q, epoch))
	if q.Verb == "swap" {
		c.swap(ctx, epoch, q.UID)
		return
	}
	a, again := c.ask(ctx, epoch, q), c.rnd.IntN(2) == 0
	switch {
	case again && q.Verb == "create" && len(q.Tags) > 0:
		c.ask(ctx, epoch, question{Verb: "replace", UID: q.UID})
	case again && q.Verb == "begin" && a.What == "ok":
		end := []string{"end", "endid"}[c.rnd.IntN(2)]
		c.ask(ctx, epoch, question{Verb: end, UID: q.UID, Secret: a.Secret, ID: a.ID})
		c.ask(ctx, epoch, question{Verb: "check", UID: q.UID, Secret: a.Secret})
	}
}

// addSecret adds the secret of a session, token or invitation, or an idempotency key, to a question
// that needs one. If the pool has no such secret yet, the question becomes one that returns a
// secret.
func (c *client) addSecret(q *question, epoch int) error {
	if q.Verb == "once" {
		q.Name = idempotencyKey(epoch, c.rnd.IntN(idempotencyKeys))
	}
	kind := map[string]string{"check": "begin", "end": "begin", "endid": "begin", "redeem": "issue", "accept": "invite"}[q.Verb]
	if kind == "" {
		return nil
	}
	s, ok, err := c.pool.pick(c.rnd, kind, epoch)
	if !ok {
		q.Verb = kind
		return err
	}
	q.Secret, q.ID, q.UID = s.Secret, s.ID, s.UID
	return nil
}

// tag returns a tag that nobody else gives in this run.
func (c *client) tag() string {
	c.tags++
	return fmt.Sprintf("%s.%d", c.name(), c.tags)
}

// timeouts lists the time limits of calls. Some are so short that they end in the middle of a call.
var timeouts = []time.Duration{300 * time.Millisecond, 2 * time.Second, 2 * time.Second, 6 * time.Second}

// ask records a question, asks it with a random time limit and spelling, and records the answer. If
// the answer contains a secret, ask adds it to the pool.
func (c *client) ask(ctx context.Context, epoch int, q question) answer {
	timeout, how := timeouts[c.rnd.IntN(len(timeouts))], c.rnd.IntN(3)
	n := c.rec.n
	c.rec.n++
	c.must(c.rec.write(line{N: n, Epoch: epoch, At: now(), Ask: &q}))
	var a answer
	late := c.pulse.timeCall(userdb.WithActor(ctx, userdb.Actor{Name: whoOf(c.name(), n)}), timeout, func(ctx context.Context) {
		a = caller{c.users, c.members, epoch, how, c.Services, c.Key}.do(ctx, q)
	})
	if !slices.Contains(hashing, q.Verb) {
		a.Late = late
	}
	c.must(c.rec.write(line{N: n, At: now(), Answer: &a}))
	if a.What == "ok" && a.Secret != "" {
		c.must(c.pool.add(secret{q.Verb, epoch, q.UID, a.Secret, a.ID}))
	}
	return a
}

func (c *client) must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// swap exchanges values between two accounts in several operations. Each of them can fail, because
// another client may write in between.
func (c *client) swap(ctx context.Context, epoch, uid int) {
	other := (uid + 1 + c.rnd.IntN(accounts-1)) % accounts
	a, b := c.ask(ctx, epoch, question{Verb: "get", UID: uid}), c.ask(ctx, epoch, question{Verb: "get", UID: other})
	i, j := c.rnd.IntN(len(fields)), c.rnd.IntN(len(fields))
	if a.What != "ok" || b.What != "ok" || a.Facets[i] == 0 || b.Facets[j] == 0 {
		return
	}
	c.ask(ctx, epoch, question{Verb: "update", UID: uid, Change: "drop", Field: i})
	c.ask(ctx, epoch, question{Verb: "update", UID: other, Change: "put", Field: j, Value: a.Facets[i]})
	c.ask(ctx, epoch, question{Verb: "update", UID: uid, Change: "put", Field: i, Value: b.Facets[j]})
}

// checkResolves returns an error unless an entry is found both by its UID and by text, which is one
// of its identifiers.
func checkResolves(ctx context.Context, users *userdb.Type, uid, text string) error {
	for _, h := range []hints.Hint{hints.Any(text), hints.UID(uid)} {
		e, err := users.Find(ctx, h)
		if err != nil {
			return fmt.Errorf("finding %s by its own identifier %q: %w", uid, text, err)
		}
		if e.UID() != uid {
			return fmt.Errorf("the identifier %q of %s finds %s", text, uid, e.UID())
		}
	}
	return nil
}
