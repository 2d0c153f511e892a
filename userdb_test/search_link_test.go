package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A linkStore is the store of many executions. Each execution has its own entries E and F and
// identities x and y. An operation is "signin", which signs in with x, or names a method and an
// entry: "link E", "unlink E", "end E", "delete E" or "create E". A "link E" or "unlink E" concerns
// x, unless y follows. The owner of an entry links and unlinks in a session.
type linkStore struct {
	t        *testing.T
	users    *userdb.Type
	raw      redis.UniversalClient
	scenario linkScenario
	current  *linkExecution
}

// A linkScenario holds the first links, such as "E x", and the operations of the actors.
type linkScenario struct {
	linked string
	actors []string
	last   bool // the links are the only ways to sign in
}

func (s linkScenario) String() string { return s.linked + ": " + strings.Join(s.actors, " | ") }

// A linkExecution is one execution of a scenario.
type linkExecution struct {
	*linkStore
	*execution
	running  map[int]string             // by actor
	began    map[int]linkState          // by actor: the entries when the operation began
	secrets  map[string]string          // of the owners' sessions, by entry
	epochs   map[string]map[string]bool // in which the owner's sessions were valid, by entry
	history  []linkState                // by step
	signedIn []signedIn
}

// A linkState holds the fields of E and F after a step.
type linkState struct {
	fields map[string]map[string]string // by entry
	by     int                          // the actor of the step
}

// A signedIn is a session that a sign-in with x began.
type signedIn struct{ entry, secret string }

// has reports whether an entry is live and has an identity.
func (s linkState) has(entry, identity string) bool {
	fields := s.fields[entry]
	return fields[store.FieldType] != "" && (fields["links"] == identity || slices.ContainsFunc(store.FurtherIn(fields, "links"), func(f store.Further) bool {
		return f.Written == identity
	}))
}

func newLinkStore(t *testing.T, engine string, scenario linkScenario) (*linkStore, *userdb.DB) {
	t.Helper()
	o := linkOptions()
	var db *userdb.DB
	var err error
	if engine == "cluster" {
		db = clusterOfOne(t, o)
	} else {
		db, err = userdb.Open(t.Context(), "memory:", o)
		must(t, err)
	}
	s := &linkStore{t: t, users: typeOf(t, db, "user"), raw: clientOf(db), scenario: scenario}
	s.raw.AddHook(turnHook{})
	return s, db
}

func (d *linkExecution) uid(entry string) string { return fmt.Sprint(entry, d.number) }

// identity returns the identity that x or y stands for. No two executions have the same identities.
func (d *linkExecution) identity(name string) string {
	return fmt.Sprintf("%s%063x", map[string]string{"y": "1"}[name], d.number)
}

func (d *linkExecution) link(name string) userdb.Link {
	return userdb.Link{Field: "links", Identity: d.identity(name), Label: "op"}
}

// start makes the entries and starts the actors of an execution.
func (s *linkStore) start(x *execution) {
	d := &linkExecution{
		linkStore: s, execution: x, running: map[int]string{}, began: map[int]linkState{},
		secrets: map[string]string{}, epochs: map[string]map[string]bool{},
	}
	s.current = d
	ctx := s.t.Context()
	for _, entry := range []string{"E", "F"} {
		must(s.t, d.create(ctx, entry))
		e, err := s.users.Find(ctx, uid(d.uid(entry)))
		must(s.t, err)
		_, secret, err := s.users.StartSession(ctx, e, userdb.SessionOptions{})
		must(s.t, err)
		d.secrets[entry] = secret
		for link := range strings.SplitSeq(s.scenario.linked, ", ") {
			if of, name, _ := strings.Cut(link, " "); of == entry {
				_, err := s.users.LinkIdentity(ctx, secret, d.link(name))
				must(s.t, err)
			}
		}
		d.epochs[entry] = map[string]bool{d.read(entry)["~epoch"]: true}
	}
	d.history = []linkState{d.readState(-1)}
	x.onStep = func(who *actor) { d.history = append(d.history, d.readState(who.id)) }
	for _, operations := range s.scenario.actors {
		x.addActor(func(ctx context.Context, who *actor) {
			for op := range strings.SplitSeq(operations, ", ") {
				x.mu.Lock()
				d.running[who.id], d.began[who.id] = op, d.history[x.steps]
				x.mu.Unlock()
				d.do(ctx, op)
			}
		})
	}
}

func (d *linkExecution) create(ctx context.Context, entry string) error {
	n := userdb.NewEntry{UID: d.uid(entry), Facets: schema.Texts("name", "name of "+d.uid(entry))}
	if !d.scenario.last {
		n.Password = alicePassword
	}
	_, err := d.users.Create(ctx, n)
	return err
}

// do carries out an operation, and reports an error that no order explains.
func (d *linkExecution) do(ctx context.Context, op string) {
	words := append(strings.Fields(op), "", "x")
	entry, name := words[1], words[2]
	if name == "" {
		name = "x"
	}
	d.mu.Lock()
	secret := d.secrets[entry]
	d.mu.Unlock()
	var err error
	allowed := []error{userdb.ErrNotFound}
	switch words[0] {
	case "signin":
		allowed = append(allowed, userdb.ErrConflict)
		var e userdb.Entry
		if e, err = d.users.LoginLinked(ctx, d.link("x"), userdb.Attempt{}); err == nil {
			var key string
			if _, key, err = d.users.StartSession(ctx, e, userdb.SessionOptions{}); err == nil {
				d.mu.Lock()
				d.signedIn = append(d.signedIn, signedIn{e.UID()[:1], key})
				d.mu.Unlock()
			}
		}
	case "link":
		allowed = append(allowed, userdb.ErrDuplicate)
		_, err = d.users.LinkIdentity(ctx, secret, d.link(name))
	case "unlink":
		allowed = append(allowed, userdb.ErrConflict)
		o := userdb.UnlinkOptions{Labels: []string{"op"}}
		if d.scenario.last {
			allowed = append(allowed, userdb.ErrInvalid)
		}
		var key string
		if _, _, key, err = d.users.UnlinkIdentity(ctx, secret, d.link(name), o); err == nil {
			d.mu.Lock()
			d.secrets[entry] = key
			d.mu.Unlock()
		}
	case "end":
		_, err = d.users.EndSessions(ctx, uid(d.uid(entry)))
	case "delete":
		err = d.users.Delete(ctx, uid(d.uid(entry)))
	case "create":
		err = d.create(ctx, entry)
	default:
		panic("unknown operation " + op)
	}
	if err != nil && !slices.ContainsFunc(allowed, func(target error) bool { return errors.Is(err, target) }) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.report("%s returned %v", op, err)
	}
}

func (d *linkExecution) read(entry string) map[string]string {
	fields, err := d.raw.HGetAll(context.Background(), "user/uid:"+d.uid(entry)).Result()
	must(d.t, err)
	return fields
}

// readState reads the entries after a step of an actor, and checks the effect of the step.
func (d *linkExecution) readState(by int) linkState {
	now := linkState{map[string]map[string]string{"E": d.read("E"), "F": d.read("F")}, by}
	if by < 0 {
		return now
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	was, op := d.history[len(d.history)-1], d.running[by]
	x := d.identity("x")
	if now.has("E", x) && now.has("F", x) {
		d.report("%s left the identity linked to both entries", op)
	}
	for _, entry := range []string{"E", "F"} {
		before := was.fields[entry]["~epoch"]
		if now.has(entry, x) && !was.has(entry, x) && (op != "link "+entry || !d.epochs[entry][before]) {
			d.report("%s linked the identity without a valid session of the owner", op)
		}
		if after := now.fields[entry]["~epoch"]; after != before && strings.HasPrefix(op, "unlink "+entry) {
			d.epochs[entry] = map[string]bool{after: true} // the owner goes on with a new session
		}
	}
	return now
}

// verify returns the problem after an execution, or "" if there is none. A session that an identity
// began is valid only while the entry has the identity. If links are the only ways to sign in, E
// keeps one.
func (s *linkStore) verify() string {
	d := s.current
	last := d.history[len(d.history)-1]
	for _, one := range d.signedIn {
		e, _, err := s.users.Session(context.Background(), one.secret)
		if err == nil && (e.UID() != d.uid(one.entry) || !last.has(one.entry, d.identity("x"))) {
			d.report("signin has a session of %s, which does not have the identity", one.entry)
		}
	}
	if s.scenario.last && last.fields["E"]["links"] == "" {
		d.report("unlink removed the last way to sign in")
	}
	return d.violation
}

// linkScenarios lists the scenarios that the store must pass.
var linkScenarios = []linkScenario{
	{"", []string{"signin", "link E"}, false},
	{"", []string{"link E", "link F"}, false},
	{"", []string{"link E", "end E"}, false},
	{"", []string{"link E", "delete E, create E"}, false},
	{"", []string{"link E, signin", "link F, signin"}, false},
	{"", []string{"signin", "link E", "link F"}, false},
	{"E x", []string{"signin", "unlink E"}, false},
	{"E x", []string{"signin", "unlink E, link E"}, false},
	{"E x", []string{"signin", "unlink E, link F"}, false},
	{"E x", []string{"signin", "delete E, create E"}, false},
	{"E x", []string{"signin", "delete E, create E, link F"}, false},
	{"E x", []string{"signin", "unlink E", "link F"}, false},
	{"E x", []string{"signin", "delete E", "link F"}, false},
	{"E x", []string{"unlink E", "link F, signin"}, false},
	{"E x", []string{"unlink E", "unlink E, link E"}, false},
	{"E x", []string{"unlink E", "end E"}, false},
	{"E x, E y", []string{"unlink E", "unlink E y"}, true},
	{"E x, E y", []string{"unlink E", "unlink E y", "signin"}, true},
}

// exploreLinks runs a scenario in all orders up to the given number of preemptions. It returns a
// violation, or "", and the number of orders.
func exploreLinks(t *testing.T, engine string, scenario linkScenario, m *linkMutant, preemptions int) (violation string, executions int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, db := newLinkStore(t, engine, scenario)
		e := &explorer{
			start: s.start, verify: s.verify, tamper: m.tamper(s),
			preemptions: preemptions, maxExecutions: envInt("USERDB_LOGIN_ORDERS", 3000),
		}
		violation = e.explore()
		if executions = e.executions; executions == e.maxExecutions {
			t.Logf("NOT exhaustive: more than %d orders", executions)
		}
		must(t, db.Close())
	})
	return violation, executions
}

// TestLinkInterleavings runs sign-ins with an identity, and the calls that link it, remove the
// link, and delete the entry, in all orders of their commands up to the number of preemptions of
// TestLoginInterleavings. No order may give a session to an identity that is not linked, or a link
// to an entry whose owner did not ask for it in a valid session.
func TestLinkInterleavings(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		t.Run(engine, func(t *testing.T) {
			var total atomic.Int64
			t.Cleanup(func() { t.Logf("%d orders", total.Load()) })
			for _, scenario := range linkScenarios {
				t.Run(scenario.String(), func(t *testing.T) {
					t.Parallel()
					preemptions := envInt("USERDB_LOGIN_PREEMPTIONS", 1) + 2 - len(scenario.actors)
					violation, executions := exploreLinks(t, engine, scenario, nil, preemptions)
					total.Add(int64(executions))
					if violation != "" {
						t.Errorf("after %d orders: %s", executions, violation)
					}
				})
			}
		})
	}
}

// A linkMutant is a method without one of its safeguards.
type linkMutant struct {
	name      string
	operation string // the method
	scenario  linkScenario
	// read changes the fields of an entry that the method has read. write changes the arguments of
	// the scripts that the method sends.
	read      func(d *linkExecution, entry string, now map[string]string, began linkState)
	write     func(d *linkExecution, entry string, args []any)
	violation string // how the violation begins
}

var linkMutants = []linkMutant{
	{
		name:      "a link in a session that has ended",
		operation: "link",
		scenario:  linkScenario{"", []string{"link E", "end E"}, false},
		read: func(_ *linkExecution, entry string, now map[string]string, began linkState) {
			if now["~isa"] != "" {
				now["~epoch"] = began.fields[entry]["~epoch"]
			}
		},
		violation: "link E linked the identity without a valid session of the owner",
	},
	{
		name:      "a link over any revision",
		operation: "link",
		scenario:  linkScenario{"", []string{"link E", "end E"}, false},
		write:     acceptAnyLinkRevision,
		violation: "link E linked the identity without a valid session of the owner",
	},
	{
		name:      "a link of an identity that another entry has",
		operation: "link",
		scenario:  linkScenario{"E x", []string{"link F", "signin"}, false},
		write: func(d *linkExecution, _ string, args []any) {
			claimed := "user/links:" + d.identity("x")
			for _, arg := range args {
				if text, ok := arg.(*string); ok && strings.HasPrefix(*text, claimed) {
					*text = strings.Replace(*text, claimed, claimed+"0", 1)
				}
			}
		},
		violation: "link F left the identity linked to both entries",
	},
	{
		name:      "a sign-in in any epoch",
		operation: "signin",
		scenario:  linkScenario{"E x", []string{"signin", "unlink E"}, false},
		write: func(d *linkExecution, _ string, args []any) {
			if len(args) == 10 {
				*args[6].(*string) = d.history[len(d.history)-1].fields["E"]["~epoch"]
			}
		},
		violation: "signin has a session of E",
	},
	{
		name:      "an unlink that ends no sessions",
		operation: "unlink",
		scenario:  linkScenario{"E x", []string{"signin", "unlink E"}, false},
		write: func(d *linkExecution, entry string, args []any) {
			for i, arg := range args[:len(args)-1] {
				name, ok := arg.(*string)
				value, isText := args[i+1].(*string)
				if ok && isText && *name == "~epoch" {
					*value = d.history[len(d.history)-1].fields[entry]["~epoch"]
				}
			}
		},
		violation: "signin has a session of E",
	},
	{
		name:      "an unlink that counts a password that is not there",
		operation: "unlink",
		scenario:  linkScenario{"E x, E y", []string{"unlink E, unlink E y", "signin"}, true},
		read: func(_ *linkExecution, _ string, now map[string]string, _ linkState) {
			if now["~isa"] != "" {
				now["password"] = "$2a$04$" + strings.Repeat("a", 53)
			}
		},
		violation: "unlink removed the last way to sign in",
	},
}

// acceptAnyLinkRevision makes a script expect the current revision of an entry.
func acceptAnyLinkRevision(d *linkExecution, entry string, args []any) {
	now := d.history[len(d.history)-1].fields[entry]["~rev"]
	for _, arg := range args {
		text, ok := arg.(*string)
		for _, s := range d.history {
			if rev := s.fields[entry]["~rev"]; ok && len(rev) >= 12 && *text == rev[:12] {
				*text = now[:min(12, len(now))]
			}
		}
	}
}

// tamper returns hooks that remove the mutant's safeguard, or nil if m is nil.
func (m *linkMutant) tamper(s *linkStore) *tamper {
	if m == nil {
		return nil
	}
	tampered := func(d *linkExecution, who *actor) (began linkState, entry string, ok bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		words := append(strings.Fields(d.running[who.id]), "")
		return d.began[who.id], words[1], words[0] == m.operation
	}
	return &tamper{
		before: func(who *actor, cmd redis.Cmder) {
			if _, entry, ok := tampered(s.current, who); ok && m.write != nil && strings.HasPrefix(cmd.Name(), "eval") {
				m.write(s.current, entry, cmd.Args())
			}
		},
		after: func(who *actor, cmd redis.Cmder) {
			began, entry, ok := tampered(s.current, who)
			if fields, reads := cmd.(*redis.MapStringStringCmd); reads && ok && m.read != nil && cmd.Name() == "hgetall" {
				now := maps.Clone(fields.Val())
				m.read(s.current, entry, now, began)
				fields.SetVal(now)
			}
		},
	}
}

// TestLinkMutations runs each mutant, which lacks one safeguard. The explorer must find a
// violation.
func TestLinkMutations(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		for _, m := range linkMutants {
			t.Run(engine+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				violation, executions := exploreLinks(t, engine, m.scenario, &m, 4-len(m.scenario.actors))
				if !strings.HasPrefix(violation, m.violation) {
					t.Errorf("after %d orders the search found %q, want %q", executions, violation, m.violation)
				}
			})
		}
	}
}
