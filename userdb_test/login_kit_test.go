package userdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A loginSite is a store whose users log in. It has its own clock and records all events.
type loginSite struct {
	*site
	db    *userdb.DB
	users *userdb.Type

	mu      sync.Mutex
	now     time.Time
	onClock func() // called whenever the clock is read, unless nil
	events  []userdb.Event
	logs    bytes.Buffer // as text and as JSON
}

const (
	alicePassword = "correct horse battery"
	wrongPassword = "wrong horse battery"
)

// loginOptions returns the options of most login sites. They set enough hash workers that the queue
// has room for hundreds of logins at once.
//
// No field is ordered, since some tests change facets directly in Redis.
func loginOptions() userdb.Options { return userdb.Options{HashWorkers: 8, Schema: plainUser()} }

// eachLoginSite runs a test on every kind of store, with a user alice.
func eachLoginSite(t *testing.T, o userdb.Options, test func(t *testing.T, g *loginSite)) {
	t.Helper()
	eachStore(t, func(t *testing.T, s *site) {
		g := newLoginSite(s, o)
		g.add("alice", alicePassword)
		g.events = nil
		test(t, g)
	})
}

func newLoginSite(s *site, o userdb.Options) *loginSite {
	g := &loginSite{site: s, now: time.Now()}
	w := lockedWriter{g}
	o.Logger = slog.New(bothHandlers{slog.NewTextHandler(w, nil), slog.NewJSONHandler(w, nil)})
	o.OnEvent = g.recordEvent
	g.db = s.open(o)
	g.useClock(g.clock)
	return g
}

// useClock makes the store use a clock, or the server's if clock is nil.
func (g *loginSite) useClock(clock func() time.Time) {
	var err error
	g.db, err = view.Reconfigure(g.db, func(c *view.Config) { c.Clock = clock })
	must(g.t, err)
	g.users = typeOf(g.t, g.db, "user")
}

func (g *loginSite) recordEvent(_ context.Context, e userdb.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, e)
}

func (g *loginSite) clock() time.Time {
	g.mu.Lock()
	on := g.onClock
	g.mu.Unlock()
	if on != nil {
		on()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

func (g *loginSite) advance(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = g.now.Add(d)
}

// takeEvents returns the events since the last call.
func (g *loginSite) takeEvents() []userdb.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	events := g.events
	g.events = nil
	return events
}

func (g *loginSite) log() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.logs.String()
}

// A lockedWriter writes the log of a loginSite.
type lockedWriter struct{ g *loginSite }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	return w.g.logs.Write(p)
}

var _ io.Writer = lockedWriter{}

// bothHandlers writes log records in two formats.
type bothHandlers [2]slog.Handler

func (b bothHandlers) Enabled(ctx context.Context, l slog.Level) bool { return true }

func (b bothHandlers) Handle(ctx context.Context, r slog.Record) error {
	return errors.Join(b[0].Handle(ctx, r.Clone()), b[1].Handle(ctx, r.Clone()))
}

func (b bothHandlers) WithAttrs(as []slog.Attr) slog.Handler {
	return bothHandlers{b[0].WithAttrs(as), b[1].WithAttrs(as)}
}

func (b bothHandlers) WithGroup(name string) slog.Handler {
	return bothHandlers{b[0].WithGroup(name), b[1].WithGroup(name)}
}

// add creates a user whose name is also the UID. An empty password means none.
func (g *loginSite) add(name, password string) {
	g.t.Helper()
	if err := g.create(name, password); err != nil {
		g.t.Fatalf("creating %s: %v", name, err)
	}
}

func (g *loginSite) create(name, password string) error {
	_, err := g.users.Create(g.t.Context(), userdb.NewEntry{
		UID: name, Facets: schema.Texts("name", name, "email", name+"@example.com"), Password: password,
	})
	return err
}

// logIn logs in and returns the error.
func (g *loginSite) logIn(identifier, password, origin string) error {
	_, err := g.users.Login(g.t.Context(), identifier, password, userdb.Attempt{Origin: origin})
	return err
}

// failLogins makes n logins with a wrong password, and checks that each is answered by ErrLogin.
func (g *loginSite) failLogins(n int, identifier, origin string) {
	g.t.Helper()
	for i := range n {
		if err := g.logIn(identifier, wrongPassword, origin); !errors.Is(err, userdb.ErrLogin) {
			g.t.Fatalf("wrong password %d of %d: got error %v, want ErrLogin", i+1, n, err)
		}
	}
}

// exhaust logs in with a wrong password until the store refuses to check any more attempts that
// day. It advances the clock by each wait that an answer demands. It returns how many attempts were
// checked.
func (g *loginSite) exhaust(identifier, origin string) (checked int) {
	g.t.Helper()
	for range 1000 {
		wait, err := waitOf(g.logIn(identifier, wrongPassword, origin))
		switch {
		case wait > time.Hour:
			return checked
		case wait > 0:
			g.advance(wait)
		case errors.Is(err, userdb.ErrLogin):
			checked++
		default:
			g.t.Fatalf("exhausting %s: %v", identifier, err)
		}
	}
	g.t.Fatalf("%s is never exhausted", identifier)
	return 0
}

// waitOf returns err and, if err is a *userdb.WaitError, the wait that it demands.
func waitOf(err error) (time.Duration, error) {
	var w *userdb.WaitError
	if errors.As(err, &w) && errors.Is(err, userdb.ErrTooManyAttempts) {
		return w.Wait, err
	}
	return 0, err
}

// countHashes calls do and returns how many password hashes it computes. own is the number of
// bcrypt rounds divided by the rounds of one hash of the type's cost; the test fails if that leaves
// a remainder. other is the number of hashes of other algorithms.
func (g *loginSite) countHashes(do func()) (own, other uint64) {
	g.t.Helper()
	rounds0, other0 := g.workDone()
	do()
	rounds, other := g.workDone()
	rounds -= rounds0
	perHash := uint64(1) << hashcost.Of(g.db.Schema().Types["user"].Policy().Cost)
	if rounds%perHash != 0 {
		g.t.Errorf("%d rounds are not a multiple of %d, the rounds of one hash", rounds, perHash)
	}
	return rounds / perHash, other - other0
}

// workDone returns how many rounds of bcrypt, and how many hashes of other algorithms, the store
// has computed for type user.
func (g *loginSite) workDone() (rounds, other uint64) {
	v := view.Of(g.db)
	t, err := v.Type("user")
	must(g.t, err)
	return v.Config.Hashing.HasherFor(t).Work()
}

// storedField returns a field of a user's record as Redis stores it.
func (g *loginSite) storedField(uid, field string) string {
	g.t.Helper()
	text, err := g.raw.HGet(g.t.Context(), "user/uid:"+uid, field).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		g.t.Fatal(err)
	}
	return text
}

// storeField writes a field directly to Redis, without the checks of userdb.
func (g *loginSite) storeField(uid, field, text string) {
	g.t.Helper()
	must(g.t, g.raw.HSet(g.t.Context(), "user/uid:"+uid, field, text).Err())
}

// keysUnder returns the keys of all records whose keys begin with a prefix.
func (g *loginSite) keysUnder(prefix string) (keys []string) {
	g.t.Helper()
	for _, k := range g.keys(g.t.Context()) {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys
}

// A serverAnswer is an error that a Redis server returns.
type serverAnswer string

func (r serverAnswer) Error() string { return string(r) }

// RedisError marks the error as one of the server's.
func (serverAnswer) RedisError() {}

// wordsOf returns a command as it is sent, with spaces between its words.
func wordsOf(cmd redis.Cmder) string {
	var words []string
	for _, arg := range cmd.Args() {
		if p, ok := arg.(*string); ok {
			arg = *p
		}
		words = append(words, fmt.Sprint(arg))
	}
	return strings.Join(words, " ")
}

// refuse makes all commands that contain a text fail, as if the server refused them.
func (g *loginSite) refuse(text string) {
	g.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		for _, cmd := range cmds {
			if strings.Contains(wordsOf(cmd), text) {
				err := serverAnswer("OOM refused by the test")
				cmd.SetErr(err)
				return err
			}
		}
		return send()
	})
}

func uid(name string) hints.Hint { return hints.UID(name) }

// describeEvent formats the fields of an event for a test table. It shows only the length of an
// identifier's hash and of a session's ID, which differ from run to run.
func describeEvent(e userdb.Event) string {
	words := []string{string(e.Kind)}
	if e.Key.IsValid() {
		words = append(words, e.Key.String())
	}
	if e.Identifier != "" {
		words = append(words, fmt.Sprintf("identifier:%d", len(e.Identifier)))
	}
	for _, w := range [][2]string{{"origin", e.Origin}, {"purpose", e.Purpose}, {"renewed", e.Renewed}, {"fields", strings.Join(e.Fields, ",")}} {
		if w[1] != "" {
			words = append(words, w[0]+":"+w[1])
		}
	}
	if e.Session != "" {
		words = append(words, fmt.Sprintf("session:%d", len(e.Session)))
	}
	if e.Wait > 0 {
		words = append(words, "wait:"+e.Wait.String())
	}
	return strings.Join(words, " ")
}
