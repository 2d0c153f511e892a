package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sort"
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

// A request is a caller's call to the store, and an outcome is the store's answer.
type (
	request struct {
		// method is create, update, delete, find, holder (which asks who holds a value), release,
		// or forget (which frees a retired UID).
		method string
		uid    int
		how    string // for update: put, add, drop, first, unset, or move (to the other field)
		field  string // for update
		value  string
		email  string // for create
		name   string // for create
	}
	outcome struct {
		what string // ok, taken, absent, conflict, refused or unknown
		uid  int    // the entry that a find or holder returned; -1 for none
	}
)

const (
	linearUIDs   = 3
	linearValues = "abcd"
)

// linearSchema returns a schema with two types. Both retire UIDs, and their fields may have any
// value. A user holds names for longer than a test lasts, a guest for a moment.
func linearSchema() schema.Schema {
	holding := func(hold time.Duration) schema.Type {
		values := len(linearValues)
		return schema.Type{Primary: "uid", Fold: schema.FoldCasefold, Retire: true, Fields: map[string]schema.Field{
			"email": {Role: schema.RoleSecondary, Many: values},
			"name":  {Role: schema.RoleSecondary, Many: values, Hold: schema.Period(hold)},
		}}
	}
	return schema.Schema{Types: map[string]schema.Type{"user": holding(longHold), "guest": holding(shortHold)}}
}

// The times for which users and guests hold a name.
const (
	longHold  = time.Hour
	shortHold = time.Second // the shortest hold that a schema may declare
)

// A linearEntry is the state of an entry. A value is a letter. A field holds its values as one
// string of letters, the first value first.
type linearEntry struct {
	live, retired bool
	email, name   string
}

// A linearHold is an entry's hold of a name. It began at an unknown moment of a call, so it ends at
// an unknown moment between from and until. Both are in nanoseconds since the round began.
type linearHold struct {
	held        bool
	uid         int
	from, until int64
}

// A linearState is the state of a store.
type linearState struct {
	entries [linearUIDs]linearEntry
	held    [len(linearValues)]linearHold
}

// A linearOp is a request with the times of its call and its return.
type linearOp struct {
	request
	begin, end int64
	hold       time.Duration

	// lossy means that replies may be lost. Then a release or forget may be sent again, and if it
	// finds nothing to free, it may still report that it freed something.
	lossy bool
}

// owner returns the entry that has a value, or -1.
func (s linearState) owner(value string) int {
	return slices.IndexFunc(s.entries[:], func(e linearEntry) bool { return strings.Contains(e.email+e.name, value) })
}

// mayTake reports whether an entry may take a value during an operation, and whether it may be
// refused the value. Both are true if another entry holds the value and the hold ends at about that
// time.
func (s linearState) mayTake(o linearOp, value string) (take, refused bool) {
	if owner := s.owner(value); owner >= 0 && owner != o.uid {
		return false, true
	}
	h := s.held[strings.Index(linearValues, value)]
	if !h.held || h.uid == o.uid {
		return true, false
	}
	return o.end >= h.from, o.begin <= h.until
}

// withEntry returns the state after a change of an entry's values.
func (s linearState) withEntry(o linearOp, now linearEntry) linearState {
	was := s.entries[o.uid]
	s.entries[o.uid] = now
	for i, v := range linearValues {
		h, value := &s.held[i], string(v)
		switch {
		case strings.Contains(now.name, value), h.uid != o.uid && strings.Contains(now.email, value):
			*h = linearHold{}
		case strings.Contains(was.name, value) && !strings.Contains(now.email, value):
			*h = linearHold{true, o.uid, o.begin + int64(o.hold), math.MaxInt64}
			if o.end != math.MaxInt64 {
				h.until = o.end + int64(o.hold)
			}
		}
	}
	return s
}

// edited returns an entry after an update.
func (e linearEntry) edited(r request) linearEntry {
	values, other := &e.email, &e.name
	if r.field == "name" {
		values, other = other, values
	}
	rest := strings.Replace(*values, r.value, "", 1)
	switch had := rest != *values; {
	case r.how == "put" && *values != "":
		*values = r.value + strings.Replace((*values)[1:], r.value, "", 1)
	case r.how == "put" || r.how == "first":
		*values = r.value + rest
	case r.how == "add" && !had:
		*values += r.value
	case r.how == "drop":
		*values = rest
	case r.how == "unset":
		*values = ""
	case r.how == "move" && had:
		*values = rest
		*other = strings.Replace(*other, r.value, "", 1) + r.value
	}
	return e
}

// next returns the possible states after an operation that got an outcome. It returns none if the
// outcome cannot be true.
func (s linearState) next(o linearOp, got outcome) (after []linearState) {
	e := s.entries[o.uid]
	var h linearHold
	if o.value != "" {
		h = s.held[strings.Index(linearValues, o.value)]
	}
	possible := map[string]linearState{} // by outcome
	switch o.method {
	case "find":
		if got.what == "refused" || got.uid == s.owner(o.value) {
			return []linearState{s}
		}
		return nil
	case "holder":
		if got.what == "refused" || got.uid >= 0 && h.held && h.uid == got.uid && o.begin <= h.until || got.uid < 0 && (!h.held || o.end >= h.from) {
			return []linearState{s}
		}
		return nil
	case "release":
		if !h.held || o.end >= h.from {
			possible = s.nothingToFree(o)
		}
		if h.held && o.begin <= h.until {
			s := s
			s.held[strings.Index(linearValues, o.value)] = linearHold{}
			possible["ok"] = s
		}
	case "forget":
		if possible = s.nothingToFree(o); e.retired {
			s := s
			s.entries[o.uid].retired = false
			possible = map[string]linearState{"ok": s}
		}
	case "create", "update":
		now := linearEntry{live: true, email: o.email, name: o.name}
		if o.method == "update" {
			now = e.edited(o.request)
		}
		possible = s.write(o, now)
	case "delete":
		if possible["absent"] = s; e.live {
			possible = map[string]linearState{"ok": s.withEntry(o, linearEntry{retired: true})}
		}
	}
	switch got.what {
	case "unknown":
		if done, can := possible["ok"]; can {
			after = append(after, done)
		}
		return append(after, s)
	case "refused", "conflict":
		return []linearState{s}
	}
	if s, can := possible[got.what]; can {
		after = append(after, s)
	}
	return after
}

// nothingToFree returns the possible outcomes of a release or forget that finds nothing to free.
func (s linearState) nothingToFree(o linearOp) map[string]linearState {
	if o.lossy {
		return map[string]linearState{"absent": s, "ok": s}
	}
	return map[string]linearState{"absent": s}
}

// write returns the possible outcomes of a create or an update that changes the entry's state to
// now.
func (s linearState) write(o linearOp, now linearEntry) map[string]linearState {
	e := s.entries[o.uid]
	switch create := o.method == "create"; {
	case create && (e.live || e.retired):
		return map[string]linearState{"taken": s}
	case !create && !e.live:
		return map[string]linearState{"absent": s}
	}
	ok, taken := true, false
	for _, v := range now.email + now.name {
		if !strings.ContainsRune(e.email+e.name, v) {
			take, refused := s.mayTake(o, string(v))
			ok, taken = ok && take, taken || refused
		}
	}
	possible := map[string]linearState{}
	if ok {
		possible["ok"] = s.withEntry(o, now)
	}
	if taken {
		possible["taken"] = s
	}
	return possible
}

// linearModel returns a model of a store that carries out operations one after the other.
func linearModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{linearState{}} },
		Step: func(before, input, output any) (after []any) {
			for _, s := range before.(linearState).next(input.(linearOp), output.(outcome)) {
				after = append(after, s)
			}
			return after
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
	hold  time.Duration
	lossy bool // see linearOp
	round string
	begin time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *recorder) uid(i int) string { return fmt.Sprintf("r%s-%d", h.round, i) }

func (h *recorder) text(value string) string { return value + h.round }

// linearMethods lists the methods that callers call. A method that is listed twice is called twice
// as often.
var linearMethods = []string{
	"create", "create", "create", "update", "update", "update", "update", "update", "update", "update", "update", "delete",
	"find", "find", "find", "holder", "release", "release", "forget", "forget",
}

func (h *recorder) random(rnd *rand.Rand) request {
	value := func() string { return string(linearValues[rnd.IntN(len(linearValues))]) }
	r := request{method: linearMethods[rnd.IntN(len(linearMethods))], uid: rnd.IntN(linearUIDs)}
	switch r.method {
	case "create":
		r.email, r.name = value(), value()
	case "update":
		r.how = []string{"put", "put", "add", "add", "drop", "first", "unset", "move"}[rnd.IntN(8)]
		r.field, r.value = []string{"email", "name"}[rnd.IntN(2)], value()
	case "find", "holder", "release":
		r.value = value()
	}
	return r
}

// exchange returns requests that exchange values between two entries. Any of them may be refused.
func exchange(rnd *rand.Rand) []request {
	a, b := rnd.IntN(linearUIDs), rnd.IntN(linearUIDs)
	v, w := linearValues[rnd.IntN(len(linearValues)):][:1], linearValues[rnd.IntN(len(linearValues)):][:1]
	field := []string{"email", "name"}[rnd.IntN(2)]
	requests := []request{
		{method: "update", uid: a, how: "drop", field: field, value: v},
		{method: "release", value: v},
		{method: "update", uid: b, how: "first", field: field, value: v},
		{method: "update", uid: b, how: "drop", field: field, value: w},
		{method: "release", value: w},
		{method: "update", uid: a, how: "add", field: field, value: w},
	}
	if field == "email" { // its values are never held
		requests = slices.DeleteFunc(requests, func(r request) bool { return r.method == "release" })
	}
	return requests
}

// ask runs a request.
func (h *recorder) ask(ctx context.Context, r request) outcome {
	var err error
	found, uid := -1, hints.UID(h.uid(r.uid))
	number := func(uid string) int {
		n, _ := strconv.Atoi(uid[strings.LastIndex(uid, "-")+1:])
		return n
	}
	switch r.method {
	case "create":
		_, err = h.users.Create(ctx, userdb.NewEntry{UID: h.uid(r.uid), Facets: schema.Texts("email", h.text(r.email), "name", h.text(r.name))})
	case "update":
		_, err = h.users.Update(ctx, uid, func(e *userdb.Entry) error {
			h.edit(e, r)
			return nil
		})
	case "delete":
		err = h.users.Delete(ctx, uid)
	case "release":
		err = h.users.ReleaseHeld(ctx, "name", h.text(r.value))
	case "forget":
		err = h.users.ForgetUID(ctx, h.uid(r.uid))
	case "find":
		var e userdb.Entry
		if e, err = h.users.Find(ctx, hints.Any(h.text(r.value))); err == nil {
			found = number(e.UID())
		}
	case "holder":
		var held userdb.HeldValue
		if held, err = h.users.FindHeld(ctx, "name", h.text(r.value)); err == nil {
			found = number(held.UID)
		}
	}
	if errors.Is(err, userdb.ErrNotFound) && (r.method == "find" || r.method == "holder") {
		err = nil
	}
	return outcome{answerOf(err), found}
}

// edit carries out the change of an update on an entry; see linearEntry.edited.
func (h *recorder) edit(e *userdb.Entry, r request) {
	text, other := h.text(r.value), "name"
	if r.field == "name" {
		other = "email"
	}
	switch r.how {
	case "put":
		e.Put(r.field, schema.Text(text))
	case "add":
		e.AddText(r.field, text)
	case "drop":
		e.DropText(r.field, text)
	case "first":
		e.PutFirst(r.field, text)
	case "unset":
		e.Drop(r.field)
	case "move":
		if slices.Contains(e.Texts(r.field), text) {
			e.DropText(r.field, text)
			e.DropText(other, text)
			e.AddText(other, text)
		}
	}
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
	for asked := 0; asked < requests; {
		some := []request{h.random(rnd)}
		switch {
		case asked == 0 && id < linearUIDs:
			v := linearValues[id:][:1]
			some = []request{{method: "create", uid: id, email: v, name: v}}
		case rnd.IntN(8) == 0:
			some = exchange(rnd)
		}
		asked += len(some)
		for _, r := range some {
			h.record(ctx, id, r)
		}
	}
}

// record runs a request and records it.
func (h *recorder) record(ctx context.Context, id int, r request) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o := linearOp{request: r, hold: h.hold, lossy: h.lossy, begin: int64(time.Since(h.begin))}
	got := h.ask(ctx, r)
	if o.end = int64(time.Since(h.begin)); got.what == "unknown" {
		o.end = math.MaxInt64 // the server may still carry it out
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: o, Output: got, Call: o.begin, Return: o.end})
}

// A tally counts outcomes.
type tally struct {
	byOutcome map[string]int // by method and outcome
	refused   map[string]int // refused and unknown outcomes, by round
}

// checkLinearizable runs several rounds of concurrent callers, each round on its own values, and
// checks that every round is linearizable: as if its requests had run one after the other. Even
// rounds use users, odd ones guests. lossy says that replies may be lost.
func checkLinearizable(t *testing.T, db *userdb.DB, rounds int, lossy bool) (n tally) {
	t.Helper()
	const callers, requests = 6, 12
	n = tally{map[string]int{}, map[string]int{}}
	for round := range rounds {
		h := &recorder{users: typeOf(t, db, "user"), hold: longHold, lossy: lossy, round: fmt.Sprint(round), begin: time.Now()}
		if round%2 == 1 {
			h.users, h.hold = typeOf(t, db, "guest"), shortHold
		}
		var ended sync.WaitGroup
		for id := range callers {
			ended.Go(func() { h.runCaller(t.Context(), id, requests, rand.New(rand.NewPCG(uint64(round), uint64(id)))) })
		}
		ended.Wait()
		for _, op := range h.ops {
			what := op.Output.(outcome).what
			n.byOutcome[op.Input.(linearOp).method+" "+what]++
			if what == "refused" || what == "unknown" {
				n.refused[h.round]++
			}
		}
		if result := porcupine.CheckOperationsTimeout(linearModel(), h.ops, 30*time.Second); result == porcupine.Illegal {
			t.Errorf("round %d is not linearizable; some of its operations show it:", round)
			for _, op := range shrink(h.ops) {
				t.Logf("%d %10d–%10d %+v → %+v", op.ClientId, op.Call, op.Return, op.Input.(linearOp).request, op.Output)
			}
			return n
		}
	}
	return n
}

// shrink removes operations from a list that is not linearizable, and the rest is not linearizable
// either. It removes those that began after the contradiction was complete, and then, one at a
// time, those that changed nothing.
func shrink(ops []porcupine.Operation) []porcupine.Operation {
	illegal := func(ops []porcupine.Operation) bool {
		return porcupine.CheckOperationsTimeout(linearModel(), ops, 5*time.Second) == porcupine.Illegal
	}
	moments := make([]int64, len(ops))
	for i, op := range ops {
		moments[i] = op.Return
	}
	slices.Sort(moments)
	if n := sort.Search(len(moments), func(n int) bool { return illegal(until(ops, moments[n])) }); n < len(moments) {
		ops = until(ops, moments[n])
	}
	for i := len(ops) - 1; i >= 0; i-- {
		without := slices.Delete(slices.Clone(ops), i, i+1)
		if o := ops[i].Input.(linearOp); !o.changes(ops[i].Output.(outcome)) && illegal(without) {
			ops = without
		}
	}
	return ops
}

// until returns the operations that began at or before a moment. If an operation ended after the
// moment, its outcome becomes unknown, or it is left out because it changed nothing.
func until(ops []porcupine.Operation, moment int64) (part []porcupine.Operation) {
	for _, op := range ops {
		o, got := op.Input.(linearOp), op.Output.(outcome)
		if op.Call > moment || op.Return > moment && !o.changes(got) {
			continue
		}
		if op.Return > moment {
			o.end, got.what = math.MaxInt64, "unknown"
			op.Input, op.Output, op.Return = o, got, o.end
		}
		part = append(part, op)
	}
	return part
}

// changes reports whether an operation may have changed the store.
func (o linearOp) changes(got outcome) bool {
	return o.method != "find" && o.method != "holder" && (got.what == "ok" || got.what == "unknown")
}

// roundInSRK matches an SRK, and captures the number of the round that wrote it.
var roundInSRK = regexp.MustCompile(`^(?:user|guest)/[a-z]+:[a-z]([0-9]+)/~prk$`)

func linearRounds() int {
	if n, err := strconv.Atoi(os.Getenv("USERDB_LINEAR_ROUNDS")); err == nil {
		return n
	}
	return 6
}

// cutRepeatedly loses replies to scripts again and again, and closes all connections now and then,
// until the returned function stops it.
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
		db, err := redisdb.New(t.Context(), c, userdb.Options{Schema: linearSchema()})
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
			n := checkLinearizable(t, db, linearRounds(), strings.HasSuffix(tt.name, "connections close"))
			ended.Wait()
			end()
			t.Logf("outcomes: %v; refused or unknown by round: %v", n.byOutcome, n.refused)
			wantRepairable(t, db, func(p check.Problem) bool {
				of := roundInSRK.FindStringSubmatch(p.Key)
				// A claim may remain while its slot moves, although the reply said that the value
				// is taken. No reader sees the claim.
				return isLeftover(p) && of != nil &&
					(tt.name == "cluster, slots move" || strings.HasPrefix(tt.name, "cluster") && n.refused[of[1]] > 0)
			})
		})
	}
}

// TestLinearizableDuringFailover kills a master while callers write. Redis may then lose writes
// that it acknowledged, so the test only reports what it finds.
func TestLinearizableDuringFailover(t *testing.T) {
	onlyInSoak(t)
	c := redistest.StartCluster(t, redistest.FailsOver)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{Schema: linearSchema(), Replicas: 1})
	must(t, err)
	defer db.Close()
	var ended sync.WaitGroup
	ended.Go(func() {
		time.Sleep(500 * time.Millisecond)
		c.Nodes[0].Kill()
	})
	h := &recorder{users: typeOf(t, db, "user"), hold: longHold, round: "k", begin: time.Now()}
	for id := range 6 {
		ended.Go(func() { h.runCaller(t.Context(), id, 40, rand.New(rand.NewPCG(1, uint64(id)))) })
	}
	ended.Wait()
	result := porcupine.CheckOperationsTimeout(linearModel(), h.ops, time.Minute)
	t.Logf("kill -9 of a master: %v; check found %v", result, runCheck(t, db, check.Options{}))
}
