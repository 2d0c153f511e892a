package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// An operation is a method and its arguments, such as "login P", "change P Q" or "create P name".
// P and Q stand for passwords; see passwordOf. A "session P" is a login and the start of a session.
type operation string

// A completedOperation describes an ended operation and the steps between which it ran.
type completedOperation struct {
	operation
	who        int
	begin, end int
	err        error
	entry      userdb.Entry
	secret     string // of the session that it started
}

// An entryState is an entry after a step.
type entryState struct {
	live, disabled      bool
	hash, name, changed string
	password            string // the latest password
	rev                 string
	fields              map[string]string
	by                  int // the actor of the step
}

// canLogIn reports whether a login with this password and name may succeed.
func (s entryState) canLogIn(pw, name string) bool {
	return s.live && !s.disabled && s.password == pw && s.name == name
}

// A loginExecution runs the operations of a scenario on one entry.
type loginExecution struct {
	*loginStore
	*execution
	uid       string
	running   map[int]operation  // by actor
	began     map[int]entryState // by actor: the entry when the operation began
	tried     map[int]bool       // by actor: the operation tried to write a hash
	history   []entryState       // by step
	completed []completedOperation
}

// A loginStore is the store of many executions.
type loginStore struct {
	t          *testing.T
	users      *userdb.Type
	raw        redis.UniversalClient
	hash       string // of the password P, with which every entry starts
	scenario   []string
	hashChecks map[string]bool // results of isHashOf
	current    *loginExecution
}

func newLoginStore(t *testing.T, engine, hash string, scenario []string) (*loginStore, *userdb.DB) {
	var db *userdb.DB
	var err error
	switch o := (userdb.Options{HashWorkers: 8}); engine {
	case "cluster":
		db = clusterOfOne(t, o)
	default:
		db, err = userdb.Open(t.Context(), "memory:", o)
		must(t, err)
	}
	s := &loginStore{t: t, users: typeOf(t, db, "user"), raw: clientOf(db), hash: hash, scenario: scenario, hashChecks: map[string]bool{}}
	s.raw.AddHook(turnHook{})
	_, err = s.users.Create(t.Context(), userdb.NewEntry{UID: "first", Facets: schema.Texts("name", "first"), Password: "Ppassword"})
	must(t, err)
	// Log in once beforehand, because only the first login creates some of the records.
	_, err = s.users.Login(t.Context(), "first", "Ppassword", userdb.Attempt{})
	must(t, err)
	return s, db
}

// passwordOf returns the password for a letter.
func passwordOf(letter string) string { return letter + "password" }

// start creates an entry and starts the actors of an execution.
func (s *loginStore) start(x *execution) {
	d := &loginExecution{
		loginStore: s, execution: x, uid: fmt.Sprint("uid", x.number),
		running: map[int]operation{}, began: map[int]entryState{}, tried: map[int]bool{},
	}
	s.current = d
	_, err := s.users.Create(s.t.Context(), userdb.NewEntry{UID: d.uid, Facets: schema.Texts("name", d.name("name"))})
	must(s.t, err)
	changed := time.Now().UTC().Format(time.RFC3339)
	must(s.t, s.raw.HSet(s.t.Context(), "user/uid:"+d.uid, "password", s.hash, "~passwd", changed).Err())
	d.history = []entryState{{password: passwordOf("P")}}
	d.history = []entryState{d.readState(-1)}
	x.onStep = func(who *actor) { d.history = append(d.history, d.readState(who.id)) }
	for _, operations := range s.scenario {
		x.addActor(func(ctx context.Context, who *actor) {
			for text := range strings.SplitSeq(operations, ", ") {
				x.mu.Lock()
				d.running[who.id], d.began[who.id], d.tried[who.id] = operation(text), d.history[x.steps], false
				begin := x.steps
				x.mu.Unlock()
				entry, err := d.do(ctx, operation(text))
				x.mu.Lock()
				end, secret := x.steps, ""
				x.mu.Unlock()
				if strings.HasPrefix(text, "session") && err == nil {
					_, secret, err = d.users.StartSession(ctx, entry, userdb.SessionOptions{})
				}
				x.mu.Lock()
				d.completed = append(d.completed, completedOperation{operation(text), who.id, begin, end, err, entry, secret})
				x.mu.Unlock()
			}
		})
	}
}

func (d *loginExecution) name(of string) string { return of + " of " + d.uid }

func (d *loginExecution) do(ctx context.Context, op operation) (userdb.Entry, error) {
	words := strings.Fields(string(op))
	switch words[0] {
	case "login", "session":
		return d.users.Login(ctx, d.name("name"), passwordOf(words[1]), userdb.Attempt{})
	case "set":
		return userdb.Entry{}, errOf(d.users.SetPassword(ctx, uid(d.uid), passwordOf(words[1])))
	case "change":
		return userdb.Entry{}, errOf(d.users.ChangePassword(ctx, uid(d.uid), passwordOf(words[1]), passwordOf(words[2]), userdb.Attempt{}))
	case "end":
		return d.users.EndSessions(ctx, uid(d.uid))
	case "disable":
		return userdb.Entry{}, d.users.Disable(ctx, uid(d.uid))
	case "enable":
		return userdb.Entry{}, d.users.Enable(ctx, uid(d.uid))
	case "delete":
		return userdb.Entry{}, d.users.Delete(ctx, uid(d.uid))
	case "create":
		return d.users.Create(ctx, userdb.NewEntry{UID: d.uid, Facets: schema.Texts("name", d.name(words[2])), Password: passwordOf(words[1])})
	case "rename":
		return d.users.Update(ctx, uid(d.uid), putText("name", d.name(words[1])))
	}
	panic("unknown operation " + op)
}

// readState reads the entry after a step of an actor, and checks that its hash is of the password
// that was set last.
func (d *loginExecution) readState(by int) entryState {
	fields, err := d.raw.HGetAll(context.Background(), "user/uid:"+d.uid).Result()
	must(d.t, err)
	was := d.history[len(d.history)-1]
	s := entryState{
		live: fields["~isa"] != "", disabled: fields["~disabled"] != "", hash: fields["password"], name: fields["name"],
		changed: fields["~passwd"], password: was.password, rev: fields["~rev"], fields: fields, by: by,
	}
	if s.hash == was.hash {
		return s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch words := strings.Fields(string(d.running[by])); {
	case len(words) == 0: // the initial hash
	case words[0] == "set", words[0] == "create":
		s.password = passwordOf(words[1])
	case words[0] == "change":
		s.password = passwordOf(words[2])
		if !was.live || was.disabled || was.password != passwordOf(words[1]) {
			d.report("%s changed the password, but the entry was %+v", d.running[by], was)
		}
	}
	if s.live && !d.isHashOf(s.hash, s.password) {
		d.report("%s left a hash that is not of %s", d.running[by], s.password)
	}
	return s
}

func (d *loginExecution) isHashOf(hash, pw string) bool {
	key := hash + " " + pw
	if _, known := d.hashChecks[key]; !known {
		d.hashChecks[key] = bcrypt.CompareHashAndPassword([]byte("$2a"+hash[3:]), []byte(pw)) == nil
	}
	return d.hashChecks[key]
}

// verify returns the problem after an execution, or "" if there is none.
func (s *loginStore) verify() string {
	d := s.current
	for _, op := range d.completed {
		during := d.history[op.begin : op.end+1]
		switch strings.Fields(string(op.operation))[0] {
		case "session":
			d.verifySession(op)
		case "login":
			d.verifyLogin(op, during)
		default:
			d.verifyOther(op, during)
		}
	}
	return d.violation
}

// verifyLogin checks a login. If it succeeded, the entry must still have been able to log in after
// the last command of the login, and the returned entry must have the time of the last change of
// its password. If the login failed, there must have been a reason.
func (d *loginExecution) verifyLogin(op completedOperation, during []entryState) {
	pw, name := passwordOf(strings.Fields(string(op.operation))[1]), d.name("name")
	last := during[len(during)-1]
	always := !slices.ContainsFunc(during, func(s entryState) bool { return !s.canLogIn(pw, name) })
	switch {
	case op.err == nil && !last.canLogIn(pw, name):
		d.report("%s succeeded, but the entry was %+v", op.operation, last)
	case op.err == nil:
		at, err := time.Parse(time.RFC3339, last.changed)
		if err != nil || !op.entry.PasswordChanged().Equal(at) {
			d.report("%s returned an entry whose password changed at %v, want %s", op.operation, op.entry.PasswordChanged(), last.changed)
		}
	case !errors.Is(op.err, userdb.ErrLogin) || always:
		d.report("%s returned %v", op.operation, op.err)
	}
}

// verifySession checks that a session is valid at the end if and only if nothing has ended all
// sessions since its login, and that it could be started in that case.
func (d *loginExecution) verifySession(op completedOperation) {
	if op.entry.UID() == "" {
		return // the login failed: other scenarios check that
	}
	last := op.end // the last step with the revision that the login returned
	for last > op.begin && !strings.HasPrefix(d.history[last].rev, op.entry.Rev()) {
		last--
	}
	ended := false
	for i := last + 1; i < len(d.history); i++ {
		was, now := d.history[i-1], d.history[i]
		ended = ended || !now.live || now.disabled || now.changed != was.changed || now.rev != was.rev && d.operationsOf(now.by) == "end"
	}
	_, _, err := d.users.Session(context.Background(), op.secret)
	switch {
	case ended && err == nil:
		d.report("%s is valid, but all sessions have ended since its login", op.operation)
	case !ended && op.err != nil:
		d.report("%s returned %v", op.operation, op.err)
	case !ended && err != nil:
		d.report("%s began, but is not valid: %v", op.operation, err)
	}
}

// operationsOf returns the operations of an actor, or "" if by is negative.
func (d *loginExecution) operationsOf(by int) string {
	if by < 0 {
		return ""
	}
	return d.scenario[by]
}

// verifyOther checks that a method that succeeded did its work while it ran, and that one that
// failed had a reason. A change that failed must also have written nothing.
func (d *loginExecution) verifyOther(op completedOperation, during []entryState) {
	words := strings.Fields(string(op.operation))
	any := func(of func(entryState) bool) bool { return slices.ContainsFunc(during, of) }
	gone := any(func(s entryState) bool { return !s.live })
	refused := any(func(s entryState) bool {
		return s.disabled || !s.live || s.password != passwordOf(words[min(1, len(words)-1)])
	})
	wrote := false
	for i := 1; i < len(during); i++ {
		wrote = wrote || during[i].by == op.who && during[i].rev != during[i-1].rev
	}
	var ok bool
	switch words[0] {
	case "disable":
		ok = op.err == nil && any(func(s entryState) bool { return s.disabled }) || errors.Is(op.err, userdb.ErrNotFound) && gone
	case "enable":
		ok = op.err == nil && any(func(s entryState) bool { return !s.disabled }) || errors.Is(op.err, userdb.ErrNotFound) && gone
	case "delete":
		ok = op.err == nil && gone || errors.Is(op.err, userdb.ErrNotFound) && gone
	case "change":
		ok = op.err == nil && wrote ||
			!wrote && (errors.Is(op.err, userdb.ErrLogin) && refused || errors.Is(op.err, userdb.ErrNotFound) && gone ||
				errors.Is(op.err, userdb.ErrConflict) && any(func(s entryState) bool { return s.hash != during[0].hash }))
	default: // set, end, create, rename
		ok = op.err == nil && wrote || errors.Is(op.err, userdb.ErrNotFound) && gone
	}
	if !ok {
		d.report("%s returned %v, and wrote: %v", op.operation, op.err, wrote)
	}
}

// scenarios lists the operations of the actors of each scenario.
var scenarios = [][]string{
	{"login P", "disable"},
	{"login P", "disable, enable"},
	{"login P", "set Q"},
	{"login P", "set P"},
	{"login Q", "set Q"},
	{"login P", "set Q, set P"},
	{"login P", "change P Q"},
	{"login P", "delete"},
	{"login P", "delete, create P name"},
	{"login P", "delete, create Q name"},
	{"login P", "delete, create P another"},
	{"login P", "rename another"},
	{"login P, login P", "disable"},
	{"login P", "login P", "disable"},
	{"login P", "login P", "set Q"},
	{"login P", "change P Q", "disable"},
	{"login P", "set Q", "disable, enable"},
	{"login P", "set Q", "delete"},
	{"change P Q", "disable"},
	{"change P Q", "disable, enable"},
	{"change P Q", "set R"},
	{"change P Q", "change P R"},
	{"change P Q", "delete, create P name"},
	{"change P Q", "login P", "delete"},
	{"session P", "end"},
	{"session P", "set P"},
	{"session P", "change P Q"},
	{"session P", "disable, enable"},
	{"session P", "delete, create P name"},
	{"session P, session P", "end"},
	{"session P", "session P", "end"},
	{"session P", "rename another"},
}

// initialHashes returns a hash that the next login replaces, and one that it keeps.
func initialHashes(t *testing.T) map[string]string {
	return map[string]string{"replaced": bcryptOf(t, "b", 5, passwordOf("P")), "kept": hashWith(t, passwordOf("P"))}
}

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// exploreScenario runs a scenario in the orders with up to the given number of preemptions, but in
// at most USERDB_LOGIN_ORDERS of them. It returns a violation, or "", and the number of orders.
func exploreScenario(
	t *testing.T, engine, hash string, scenario []string, m *mutant, preemptions int,
) (violation string, executions int) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newLoginStore(t, engine, hash, scenario)
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

// TestLoginInterleavings runs logins together with other calls, in all orders of their commands up
// to a number of preemptions, with a hash that a login replaces and with one that it keeps. The
// number of preemptions is one if there are two actors, and zero if there are three; 'make
// test-all' adds one to it, and 'make search' two. A login must not succeed if the entry can no
// longer log in after the login's last command.
func TestLoginInterleavings(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		t.Run(engine, func(t *testing.T) {
			var total atomic.Int64
			t.Cleanup(func() { t.Logf("%d orders", total.Load()) })
			for name, hash := range initialHashes(t) {
				for _, scenario := range scenarios {
					t.Run(name+"/"+strings.Join(scenario, " | "), func(t *testing.T) {
						t.Parallel()
						preemptions := envInt("USERDB_LOGIN_PREEMPTIONS", 1) + 2 - len(scenario)
						violation, executions := exploreScenario(t, engine, hash, scenario, nil, preemptions)
						total.Add(int64(executions))
						if violation != "" {
							t.Errorf("after %d orders: %s", executions, violation)
						}
					})
				}
			}
		})
	}
}

// A mutant is a method without one of its safeguards: its reads of the entry return something else,
// or it writes something else.
type mutant struct {
	name      string
	operation string // the method
	scenario  []string
	tried     bool // the safeguard is missing only after the method has tried to write a hash
	read      func(now map[string]string, began entryState) map[string]string
	write     func(d *loginExecution, args []any)
	keptHash  bool   // also run with a hash that the method keeps
	violation string // how the violation begins
}

// staleField returns a read that returns a field as it was when the operation began.
func staleField(field string) func(map[string]string, entryState) map[string]string {
	return func(now map[string]string, began entryState) map[string]string {
		if now["~isa"] != "" {
			now[field] = began.fields[field]
		}
		return now
	}
}

// alwaysEnabled reads the entry as enabled.
func alwaysEnabled(now map[string]string, _ entryState) map[string]string {
	delete(now, "~disabled")
	return now
}

// staleEntry reads the entry as it was when the operation began.
func staleEntry(_ map[string]string, began entryState) map[string]string {
	return maps.Clone(began.fields)
}

// mutants lists methods that lack one safeguard, with a scenario that reveals it.
var mutants = []mutant{
	{
		name:      "a login that does not read the entry again",
		operation: "login",
		scenario:  []string{"login P", "disable"},
		read:      staleEntry,
		keptHash:  true,
		violation: "login P succeeded",
	},
	{
		name:      "a login that does not read the entry after it replaced the hash",
		operation: "login",
		scenario:  []string{"login P", "set Q"},
		tried:     true,
		read:      staleEntry,
		violation: "login P succeeded",
	},
	{
		name:      "a login that misses a delete",
		operation: "login",
		scenario:  []string{"login P", "delete"},
		read:      staleEntry,
		keptHash:  true,
		violation: "login P succeeded",
	},
	{
		name:      "a login that ignores disabled",
		operation: "login",
		scenario:  []string{"login P", "disable"},
		read:      alwaysEnabled,
		keptHash:  true,
		violation: "login P succeeded",
	},
	{
		name:      "a login that ignores the identifier",
		operation: "login",
		scenario:  []string{"login P", "delete, create P another"},
		read:      staleField("name"),
		keptHash:  true,
		violation: "login P succeeded",
	},
	{
		name:      "a login that ignores a new hash",
		operation: "login",
		scenario:  []string{"login P", "set Q"},
		read:      staleField("password"),
		keptHash:  true,
		violation: "login P succeeded",
	},
	{
		name:      "a login that replaces the hash of any revision",
		operation: "login",
		scenario:  []string{"login P", "set Q"},
		write:     acceptAnyRevision,
		violation: "login P left a hash",
	},
	{
		name:      "a change that ignores a new hash",
		operation: "change",
		scenario:  []string{"change P Q", "set R"},
		tried:     true,
		read:      staleField("password"),
		keptHash:  true,
		violation: "change P Q changed the password",
	},
	{
		name:      "a change that ignores disabled",
		operation: "change",
		scenario:  []string{"change P Q", "disable"},
		tried:     true,
		read:      alwaysEnabled,
		keptHash:  true,
		violation: "change P Q changed the password",
	},
	{
		name:      "a change that writes over any revision",
		operation: "change",
		scenario:  []string{"change P Q", "disable"},
		write:     acceptAnyRevision,
		keptHash:  true,
		violation: "change P Q changed the password",
	},
	{
		name:      "a session of any epoch",
		operation: "session",
		scenario:  []string{"session P", "end"},
		write:     acceptAnyEpoch,
		keptHash:  true,
		violation: "session P is valid",
	},
}

// acceptAnyEpoch makes the script that checks the entry of a session expect its current epoch.
func acceptAnyEpoch(d *loginExecution, args []any) {
	if now := d.history[len(d.history)-1]; len(args) == 10 {
		*args[6].(*string), *args[7].(*string) = now.fields["~epoch"], now.changed
	}
}

// acceptAnyRevision makes a script expect the current revision.
func acceptAnyRevision(d *loginExecution, args []any) {
	now := d.history[len(d.history)-1].rev
	for _, arg := range args {
		text, ok := arg.(*string)
		for _, s := range d.history {
			if ok && len(s.rev) >= 12 && *text == s.rev[:12] {
				*text = now[:min(12, len(now))]
			}
		}
	}
}

// tamper returns what removes the mutant's safeguard from commands and replies, or nil if m is nil.
func (m *mutant) tamper(s *loginStore) *tamper {
	if m == nil {
		return nil
	}
	tampered := func(d *loginExecution, who *actor) (entryState, bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.began[who.id], strings.HasPrefix(string(d.running[who.id]), m.operation) && (d.tried[who.id] || !m.tried)
	}
	return &tamper{
		before: func(who *actor, cmd redis.Cmder) {
			d := s.current
			if _, ok := tampered(d, who); ok && m.write != nil && strings.HasPrefix(cmd.Name(), "eval") {
				m.write(d, cmd.Args())
			}
			if strings.Contains(wordsOf(cmd), "password $2a$") {
				d.mu.Lock()
				d.tried[who.id] = true
				d.mu.Unlock()
			}
		},
		after: func(who *actor, cmd redis.Cmder) {
			began, ok := tampered(s.current, who)
			if fields, reads := cmd.(*redis.MapStringStringCmd); reads && ok && m.read != nil && cmd.Name() == "hgetall" {
				fields.SetVal(m.read(maps.Clone(fields.Val()), began))
			}
		},
	}
}

// TestLoginMutations runs each mutant, which lacks one safeguard. The explorer must find a
// violation.
func TestLoginMutations(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		for _, m := range mutants {
			for name, hash := range initialHashes(t) {
				if name == "kept" && !m.keptHash {
					continue
				}
				t.Run(engine+"/"+name+"/"+m.name, func(t *testing.T) {
					t.Parallel()
					violation, executions := exploreScenario(t, engine, hash, m.scenario, &m, 4-len(m.scenario))
					if !strings.HasPrefix(violation, m.violation) {
						t.Errorf("after %d orders the search found %q, want %q", executions, violation, m.violation)
					}
				})
			}
		}
	}
}
