package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// A request describes what one caller asks of the store, and an outcome what the store answered.
type (
	request struct {
		method       string // create, update, delete, find
		uid          int
		field, value string
		email, name  string
	}
	outcome struct {
		what string // ok, taken, absent, conflict, refused or unknown
		uid  int    // the entry that a find returned; -1 for none
	}
)

const (
	linearUIDs   = 3
	linearValues = "abc"
)

// linearModel returns a model of a store that carries out requests one after the other. Its state
// says which entry has which e-mail and name.
func linearModel() porcupine.Model {
	type entry struct {
		live        bool
		email, name string
	}
	type state [linearUIDs]entry
	holder := func(s state, value string) int {
		for i, e := range s {
			if e.live && value != "" && (e.email == value || e.name == value) {
				return i
			}
		}
		return -1
	}
	// step returns the state after a request that is carried out, and its true answer.
	step := func(s state, r request) (state, string) {
		e := &s[r.uid]
		switch {
		case r.method == "create" && e.live:
			return s, "taken"
		case r.method != "create" && !e.live:
			return s, "absent"
		}
		was := *e
		switch {
		case r.method == "delete":
			*e = entry{}
			return s, "ok"
		case r.method == "create":
			*e = entry{true, r.email, r.name}
		case r.field == "email":
			e.email = r.value
		default:
			e.name = r.value
		}
		now := *e
		*e = was
		for _, v := range []string{now.email, now.name} {
			if h := holder(s, v); h >= 0 && h != r.uid {
				return s, "taken"
			}
		}
		*e = now
		return s, "ok"
	}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(before, input, output any) []any {
			s, r, o := before.(state), input.(request), output.(outcome)
			if r.method == "find" {
				if o.what == "refused" || o.uid == holder(s, r.value) {
					return []any{s}
				}
				return nil
			}
			after, answer := step(s, r)
			switch o.what {
			case "unknown":
				return []any{s, after}
			case "refused", "conflict":
				return []any{s}
			case answer:
				return []any{after}
			}
			return nil
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
	return m.ToModel()
}

// A recorder runs random requests of several callers, and records when each began and ended, and
// its outcome.
type recorder struct {
	users *userdb.Type
	round string
	begin time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *recorder) uid(i int) string { return fmt.Sprintf("r%s-%d", h.round, i) }

func (h *recorder) text(value string) string { return value + h.round }

func (h *recorder) random(rnd *rand.Rand) request {
	value := func() string { return string(linearValues[rnd.IntN(len(linearValues))]) }
	r := request{method: []string{"create", "create", "update", "update", "delete", "find", "find", "find"}[rnd.IntN(8)], uid: rnd.IntN(linearUIDs)}
	switch r.method {
	case "create":
		r.email, r.name = value(), value()
	case "update":
		r.field, r.value = []string{"email", "name"}[rnd.IntN(2)], value()
	case "find":
		r.value = value()
	}
	return r
}

// ask runs a request.
func (h *recorder) ask(ctx context.Context, r request) outcome {
	var err error
	found := -1
	switch r.method {
	case "create":
		_, err = h.users.Create(ctx, userdb.NewEntry{UID: h.uid(r.uid), Facets: schema.Texts("email", h.text(r.email), "name", h.text(r.name))})
	case "update":
		_, err = h.users.Update(ctx, hints.UID(h.uid(r.uid)), putText(r.field, h.text(r.value)))
	case "delete":
		err = h.users.Delete(ctx, hints.UID(h.uid(r.uid)))
	case "find":
		var e userdb.Entry
		if e, err = h.users.Find(ctx, hints.Any(h.text(r.value))); err == nil {
			found, _ = strconv.Atoi(e.UID()[strings.LastIndex(e.UID(), "-")+1:])
		} else if errors.Is(err, userdb.ErrNotFound) {
			err = nil
		}
	}
	return outcome{answerOf(err), found}
}

func answerOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, userdb.ErrOutcomeUnknown), errors.Is(err, userdb.ErrUnconfirmed):
		return "unknown"
	case errors.Is(err, userdb.ErrDuplicate):
		return "taken"
	case errors.Is(err, userdb.ErrNotFound):
		return "absent"
	case errors.Is(err, userdb.ErrConflict):
		return "conflict"
	case errors.Is(err, userdb.ErrUnavailable):
		return "refused"
	}
	return err.Error()
}

func (h *recorder) runCaller(ctx context.Context, id, requests int, rnd *rand.Rand) {
	for range requests {
		r := h.random(rnd)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		call := time.Since(h.begin)
		o := h.ask(ctx, r)
		cancel()
		end := int64(time.Since(h.begin))
		if o.what == "unknown" {
			end = math.MaxInt64 // the server may still carry it out
		}
		h.mu.Lock()
		h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: r, Output: o, Call: int64(call), Return: end})
		h.mu.Unlock()
	}
}

// checkLinearizable runs several rounds of concurrent callers, each round on its own values, and
// checks that every round is linearizable: as if its requests had run one after the other. It
// returns, by round, the number of requests that were refused or whose outcome is unknown.
func checkLinearizable(t *testing.T, users *userdb.Type, rounds int) (refused map[string]int) {
	t.Helper()
	const callers, requests = 6, 12
	refused = map[string]int{}
	for round := range rounds {
		h := &recorder{users: users, round: fmt.Sprint(round), begin: time.Now()}
		var ended sync.WaitGroup
		for id := range callers {
			ended.Go(func() { h.runCaller(t.Context(), id, requests, rand.New(rand.NewPCG(uint64(round), uint64(id)))) })
		}
		ended.Wait()
		for _, op := range h.ops {
			if what := op.Output.(outcome).what; what == "refused" || what == "unknown" {
				refused[h.round]++
			}
		}
		if result := porcupine.CheckOperationsTimeout(linearModel(), h.ops, 30*time.Second); result == porcupine.Illegal {
			t.Errorf("round %d is not linearizable:", round)
			for _, op := range h.ops {
				t.Logf("%d %10d–%10d %+v → %+v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
			}
			return refused
		}
	}
	return refused
}

// roundInSRK matches the key of an SRK, and captures the number of the round that wrote it.
var roundInSRK = regexp.MustCompile(`^user/[a-z]+:[a-z]([0-9]+)/~prk$`)

func linearRounds() int {
	if n, err := strconv.Atoi(os.Getenv("USERDB_LINEAR_ROUNDS")); err == nil {
		return n
	}
	return 6
}

// cutRepeatedly closes all connections again and again, and drops some replies, until the returned
// function stops it.
func cutRepeatedly(t *testing.T, p *redistest.Proxy, every time.Duration) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if p.CutReplies(1, "evalsha"); i%8 == 7 {
				p.CutAll()
			}
			time.Sleep(every)
		}
		p.Pass()
	})
	return func() {
		stop()
		ended.Wait()
		if p.Cuts() == 0 {
			t.Error("no connection was closed")
		}
	}
}

// TestLinearizable records the answers that concurrent callers get, and looks for an order of their
// requests that explains all of them.
func TestLinearizable(t *testing.T) {
	openOver := func(t *testing.T, c redis.UniversalClient) *userdb.DB {
		db, err := redisdb.New(t.Context(), c, userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
		must(t, err)
		return db
	}
	clusterClient := func(t *testing.T, c *redistest.Cluster, o redis.ClusterOptions) redis.UniversalClient {
		o.Addrs, o.ContextTimeoutEnabled, o.ClusterStateReloadInterval = c.Addrs(), true, time.Second
		client := redis.NewClusterClient(&o)
		t.Cleanup(func() { client.Close() })
		return client
	}
	nothing := func() {}
	for _, tt := range []struct {
		name string

		// during runs at the same time as the requests; end runs after both.
		open func(t *testing.T) (db *userdb.DB, during, end func())
	}{
		{"redis", func(t *testing.T) (*userdb.DB, func(), func()) {
			return openOver(t, redistest.Start(t).Client()), nothing, nothing
		}},
		{"redis, connections close", func(t *testing.T) (*userdb.DB, func(), func()) {
			srv := redistest.Start(t)
			p := redistest.NewProxy(t, srv)
			client := redis.NewClient(&redis.Options{Addr: p.Addr(), ContextTimeoutEnabled: true})
			t.Cleanup(func() { client.Close() })
			return openOver(t, client), nothing, cutRepeatedly(t, p, 5*time.Millisecond)
		}},
		{"cluster", func(t *testing.T) (*userdb.DB, func(), func()) {
			return openOver(t, clusterClient(t, redistest.StartCluster(t), redis.ClusterOptions{})), nothing, nothing
		}},
		{"cluster, connections close", func(t *testing.T) (*userdb.DB, func(), func()) {
			c := redistest.StartCluster(t)
			p := redistest.NewProxy(t, c.Nodes[0])
			db := openOver(t, clusterClient(t, c, redis.ClusterOptions{Dialer: p.Dialer()}))
			return db, nothing, cutRepeatedly(t, p, 40*time.Millisecond)
		}},
		{"cluster, slots move", func(t *testing.T) (*userdb.DB, func(), func()) {
			c := redistest.StartCluster(t)
			db := openOver(t, clusterClient(t, c, redis.ClusterOptions{}))
			return db, func() {
				for round := range 2 {
					for _, v := range linearValues {
						reshard(t, c, 40, fmt.Sprintf("user/email:%c%d/~prk", v, round), fmt.Sprintf("user/name:%c%d/~prk", v, round),
							fmt.Sprintf("user/uid:r%d-0", round))
					}
				}
			}, nothing
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db, during, end := tt.open(t)
			var ended sync.WaitGroup
			ended.Go(during)
			refused := checkLinearizable(t, typeOf(t, db, "user"), linearRounds())
			ended.Wait()
			end()
			t.Logf("calls by round that were refused or whose outcome is unknown: %v", refused)
			wantRepairable(t, db, func(p check.Problem) bool {
				of := roundInSRK.FindStringSubmatch(p.Key)
				return strings.HasPrefix(tt.name, "cluster") && isLeftover(p) && of != nil && refused[of[1]] > 0
			})
		})
	}
}

// TestLinearizableDuringFailover kills a master while callers write. Redis may then lose writes
// that it acknowledged, so the test only reports what it finds.
func TestLinearizableDuringFailover(t *testing.T) {
	onlyInSoak(t)
	c := redistest.StartCluster(t, redistest.FailsOver)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{Schema: wideSchema(schema.FoldCasefold), Replicas: 1})
	must(t, err)
	defer db.Close()
	var ended sync.WaitGroup
	ended.Go(func() {
		time.Sleep(500 * time.Millisecond)
		c.Nodes[0].Kill()
	})
	h := &recorder{users: typeOf(t, db, "user"), round: "k", begin: time.Now()}
	for id := range 6 {
		ended.Go(func() { h.runCaller(t.Context(), id, 40, rand.New(rand.NewPCG(1, uint64(id)))) })
	}
	ended.Wait()
	result := porcupine.CheckOperationsTimeout(linearModel(), h.ops, time.Minute)
	t.Logf("kill -9 of a master: %v; check found %v", result, runCheck(t, db, check.Options{}))
}
