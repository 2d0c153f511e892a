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
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// clientEnv holds the orders of a client, as JSON; a process that has it is one.
const clientEnv = "USERDB_CHAOS_CLIENT"

// orders say what a client is.
type orders struct {
	Number, Life int // it is the so manyeth process of this number
	Seed         uint64
	Kind         string // of store
	Addrs        []string
	History      string // the file
	Serves       string // where a service listens; "": it is a client
	Services     []string
	Key          string // for them
	Epoch        int    // 0: wait
}

func (o orders) name() string { return fmt.Sprintf("%d.%d", o.Number, o.Life) }

// A client is one process that asks. What it is to do comes by its input, a line each; it ends with its input.
type client struct {
	orders
	t     *testing.T
	proxy *redistest.Proxy
	users *userdb.Type
	rec   recorder
	rnd   *rand.Rand
	pool  *pool
	tags  int
	pulse *pulse

	opened chan struct{} // closed when the store is open

	mu    sync.Mutex
	epoch int
	woken *sync.Cond
}

// TestClient is a client's process, and no test.
func TestClient(t *testing.T) {
	text := os.Getenv(clientEnv)
	if text == "" {
		t.Skip("a client of TestChaos, which runs it")
	}
	c := &client{t: t, pulse: newPulse(), opened: make(chan struct{})}
	if err := json.Unmarshal([]byte(text), &c.orders); err != nil {
		t.Fatal(err)
	}
	if c.Serves != "" {
		serveStore(t, c.orders)
	}
	c.woken, c.epoch = sync.NewCond(&c.mu), c.Epoch
	c.rnd = rand.New(rand.NewPCG(c.Seed, uint64(c.Number)<<32|uint64(c.Life)))
	c.proxy = redistest.NewProxy(t, &redistest.Server{}) // its dialer is what is wanted
	go c.obey()
	if err := c.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(c.opened)
	for {
		c.one(t.Context(), c.current())
	}
}

// open opens the store, and then its history.
func (c *client) open(ctx context.Context) (err error) {
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
			time.Sleep(100 * time.Millisecond) // a master may be dead
			continue
		}
		if err == nil {
			db, err = apart(db, c.Number)
		}
		if err != nil {
			return err
		}
		c.users, err = db.Type("user")
		return err
	}
}

// apart has a process go by a clock that is an hour ahead or behind, or right.
func apart(db *userdb.DB, number int) (*userdb.DB, error) {
	ahead := time.Duration(number%3-1) * time.Hour
	return view.Reconfigure(db, func(c *view.Config) { c.OwnClock = func() time.Time { return time.Now().Add(ahead) } })
}

// quietLogger keeps what go-redis says of broken connections from the output.
type quietLogger struct{}

func (quietLogger) Printf(context.Context, string, ...any) {}

// obey reads what the parent says, until it is gone.
func (c *client) obey() {
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
			c.woken.Broadcast()
			c.mu.Unlock()
		case "crowd":
			go c.crowd(context.Background(), time.Duration(n)*time.Millisecond)
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

// current waits for an epoch, and says that it waits.
func (c *client) current() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == 0 {
		fmt.Println("waits")
	}
	for c.epoch == 0 {
		c.woken.Wait()
	}
	return c.epoch
}

// one asks for one random thing; a swap is several. After some creates the tags are taken away at once, while they may not
// be in place yet, and some sessions are ended before anybody else can do so.
func (c *client) one(ctx context.Context, epoch int) {
	q := randomAsk(c.rnd, c.tag)
	c.must(c.withSecret(&q, epoch))
	if q.Verb == "swap" {
		c.swap(ctx, epoch, q.UID)
		return
	}
	a, again := c.ask(ctx, epoch, q), c.rnd.IntN(2) == 0
	switch {
	case again && q.Verb == "create" && len(q.Tags) > 0:
		c.ask(ctx, epoch, ask{Verb: "replace", UID: q.UID})
	case again && q.Verb == "begin" && a.What == "ok":
		end := []string{"end", "endid"}[c.rnd.IntN(2)]
		c.ask(ctx, epoch, ask{Verb: end, UID: q.UID, Secret: a.Secret, ID: a.ID})
		c.ask(ctx, epoch, ask{Verb: "check", UID: q.UID, Secret: a.Secret})
	}
}

// withSecret gives a question that needs one the secret of a session, a token or an invitation, or the name of a request.
// Where there is no secret, it asks for one.
func (c *client) withSecret(q *ask, epoch int) error {
	if q.Verb == "once" {
		q.Name = nameOf(epoch, c.rnd.IntN(names))
	}
	kind := map[string]string{"check": "begin", "end": "begin", "endid": "begin", "redeem": "issue", "accept": "invite"}[q.Verb]
	if kind == "" {
		return nil
	}
	s, is, err := c.pool.some(c.rnd, kind, epoch)
	if !is {
		q.Verb = kind
		return err
	}
	q.Secret, q.ID, q.UID = s.Secret, s.ID, s.UID
	return nil
}

func (c *client) tag() string {
	c.tags++
	return fmt.Sprintf("%s.%d", c.name(), c.tags)
}

var times = []time.Duration{300 * time.Millisecond, 2 * time.Second, 2 * time.Second, 6 * time.Second}

func (c *client) ask(ctx context.Context, epoch int, q ask) answer {
	most, how := times[c.rnd.IntN(len(times))], c.rnd.IntN(3)
	n := c.rec.n
	c.rec.n++
	c.must(c.rec.write(line{N: n, Epoch: epoch, At: now(), Ask: &q}))
	var a answer
	late := c.pulse.within(userdb.WithActor(ctx, userdb.Actor{Name: whoOf(c.name(), n)}), most, func(ctx context.Context) {
		a = caller{c.users, epoch, how, c.Services, c.Key}.do(ctx, q)
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

// swap gives two accounts each other's value, as far as others let it: each step is a verb of its own.
func (c *client) swap(ctx context.Context, epoch, uid int) {
	other := (uid + 1 + c.rnd.IntN(accounts-1)) % accounts
	a, b := c.ask(ctx, epoch, ask{Verb: "get", UID: uid}), c.ask(ctx, epoch, ask{Verb: "get", UID: other})
	i, j := c.rnd.IntN(len(fields)), c.rnd.IntN(len(fields))
	if a.What != "ok" || b.What != "ok" || a.Facets[i] == 0 || b.Facets[j] == 0 {
		return
	}
	c.ask(ctx, epoch, ask{Verb: "update", UID: uid, Change: "drop", Field: i})
	c.ask(ctx, epoch, ask{Verb: "update", UID: other, Change: "put", Field: j, Value: a.Facets[i]})
	c.ask(ctx, epoch, ask{Verb: "update", UID: uid, Change: "put", Field: i, Value: b.Facets[j]})
}

// resolves reports whether an entry's own identifiers find it.
func resolves(ctx context.Context, users *userdb.Type, uid, text string) error {
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
