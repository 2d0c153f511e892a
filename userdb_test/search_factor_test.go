package userdb_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A factorStore is the store of many executions, which all begin with the same records of one
// entry. All operations name the entry, its tickets and its codes as factorAccount does.
type factorStore struct {
	t        *testing.T
	db       *userdb.DB
	users    *userdb.Type
	raw      redis.UniversalClient
	scenario factorScenario
	accounts int
	account  *factorAccount
	current  *factorExecution
}

// A factorScenario is a start and the operations of its actors. The starts are
//
//   - "plain": an entry without a factor, which is enrolling the app b.
//   - "one": an entry with the app a and recovery codes, which is enrolling the app b.
//   - "two": an entry with the apps a and b, and recovery codes.
//   - "key": as "one", and a passkey k.
//   - "guessed": as "one", after nineteen wrong codes from unknown origins, four of them with the
//     ticket t1.
type factorScenario struct {
	start  string
	actors []string
	delays bool // a script may be delayed
}

func (s factorScenario) String() string {
	return s.start + ": " + strings.Join(s.actors, " | ")
}

// A factorAccount is an entry before an execution, with the secrets that its owner knows.
type factorAccount struct {
	uid     string
	records []factorRecord
	step    int64             // of the codes that the apps show
	secrets map[string][]byte // of apps, by letter
	ids     map[string]string // of apps, by letter
	codes   []string          // recovery codes
	session string            // a secret
	tickets map[string]string // t1 and t2
	tokens  map[string]string // secrets, by purpose
	digest  string            // of the passkey
	read    userdb.Entry      // as a login returned it before the entry had a factor
}

// hasDistinctCodes reports whether the apps show a code only once in the minutes before and after
// now. Of a million codes, a few are equal by chance, and a used code would then be valid again.
func (a *factorAccount) hasDistinctCodes() bool {
	const near = 4 // steps
	seen := map[string]bool{}
	for _, secret := range a.secrets {
		for step := a.step - near; step <= a.step+near; step++ {
			code := totp.Code(secret, step)
			if seen[code] {
				return false
			}
			seen[code] = true
		}
	}
	return true
}

// A factorRecord is a record before an execution.
type factorRecord struct {
	key, kind string
	fields    map[string]string
	members   []string
	text      string
	life      time.Duration
}

// A factorResult describes an ended operation and the steps between which it ran.
type factorResult struct {
	operation  string
	who        int
	begin, mid int // mid is when its first method returned
	end        int
	err        error // of its first method
	startErr   error // of StartSession after that
	ticket     string
	codes      []string // recovery codes that it returned
}

func (o factorResult) words() []string { return strings.Fields(o.operation) }

// twoSteps reports whether an operation proves a factor, and so can begin a session of level 2.
func twoSteps(operation string) bool {
	return slices.Contains([]string{"prove", "raise", "key"}, strings.Fields(operation)[0])
}

// proofOf returns the word for the proof of an operation for which twoSteps returns true.
func proofOf(operation string) string {
	switch words := strings.Fields(operation); words[0] {
	case "prove":
		return words[2]
	case "key":
		return "k" + words[2]
	default:
		return words[1]
	}
}

// A factorExecution runs the operations of a scenario.
type factorExecution struct {
	*factorStore
	*execution
	running   map[int]string    // the operation of each actor
	own       map[int]string    // the ticket that each actor was given last
	read      map[int]string    // the rev of the entry that each actor starts a session with
	began     map[int]int       // the step at which the running operation of each actor began
	history   []factorState     // by step
	born      map[string]int    // the step after which a ticket was first seen
	ended     map[string]string // by generation: the operation that ended its sessions and tickets
	enrolled  map[string][]byte // secrets of apps that were enrolled by an operation, by ID
	completed []factorResult
}

// factorKey returns the key that a letter stands for.
func factorKey(letter string) []byte { return bytes.Repeat([]byte(letter), 32) }

func newFactorStore(t *testing.T, engine string, scenario factorScenario) *factorStore {
	o := passkeyOptions()
	o.Keys = [][]byte{factorKey("n"), factorKey("o")}
	var db *userdb.DB
	var err error
	if engine == "cluster" {
		db = clusterOfOne(t, o)
	} else {
		db, err = userdb.Open(t.Context(), "memory:", o)
		must(t, err)
	}
	s := &factorStore{t: t, db: db, users: typeOf(t, db, "user"), raw: clientOf(db), scenario: scenario}
	s.raw.AddHook(turnHook{})
	return s
}

// newAccount creates the entry of the next executions. The clock is then at the beginning of a step
// of time-based codes.
func (s *factorStore) newAccount() {
	ctx := s.t.Context()
	if s.account != nil {
		must(s.t, s.raw.Del(ctx, s.keys()...).Err())
	}
	s.accounts++
	a := &factorAccount{
		uid: fmt.Sprint("alice", s.accounts), digest: fmt.Sprintf("%064x", s.accounts),
		secrets: map[string][]byte{}, ids: map[string]string{},
		tickets: map[string]string{}, tokens: map[string]string{},
	}
	s.account = a
	_, err := s.users.Create(ctx, s.newEntry())
	must(s.t, err)
	a.read, err = s.users.Login(ctx, a.uid, passwordOf("P"), userdb.Attempt{})
	must(s.t, err)
	_, a.session, err = s.users.StartSession(ctx, a.read, userdb.SessionOptions{})
	must(s.t, err)
	a.read, err = s.users.Login(ctx, a.uid, passwordOf("P"), userdb.Attempt{})
	must(s.t, err)
	switch s.scenario.start {
	case "plain":
		s.enrol("b")
	case "two":
		s.enrol("a")
		s.confirm("a")
		s.enrol("b")
		s.confirm("b")
	default:
		s.enrol("a")
		s.confirm("a")
		s.enrol("b")
	}
	if s.scenario.start == "key" {
		_, err := s.addPasskey(ctx, a.session)
		must(s.t, err)
		e, err := s.users.Find(ctx, uid(a.uid))
		must(s.t, err)
		for _, id := range e.FactorIDs() {
			if factor.IsOfDigest(factor.Passkey+"/"+id, a.digest) {
				a.ids["k"] = id
			}
		}
	}
	s.seal("o")
	for _, purpose := range []string{"reset", "link"} {
		a.tokens[purpose], err = s.users.Issue(ctx, uid(a.uid), userdb.Token{Purpose: purpose})
		must(s.t, err)
	}
	now := time.Now()
	time.Sleep(now.Truncate(30 * time.Second).Add(90 * time.Second).Sub(now))
	a.step = totp.Step(time.Now())
	if !a.hasDistinctCodes() {
		s.newAccount()
		return
	}
	if s.scenario.start != "plain" {
		for _, name := range []string{"t1", "t2"} {
			a.tickets[name], err = s.firstStep(ctx, "P")
			must(s.t, err)
		}
	}
	if s.scenario.start == "guessed" {
		ticket := a.tickets["t1"]
		for i := range factor.MaxGuesses - 1 {
			if i%factor.MaxTries == factor.MaxTries-1 { // t1 has had four attempts, and others five
				ticket, err = s.firstStep(ctx, "P")
				must(s.t, err)
			}
			_, err := s.users.Prove(ctx, ticket, s.proof("x", ""), userdb.Attempt{})
			wantErr(s.t, "a wrong code", err, userdb.ErrLogin)
		}
	}
	s.save()
}

// addPasskey enrols the passkey k in a session.
func (s *factorStore) addPasskey(ctx context.Context, secret string) (userdb.FactorChange, error) {
	return s.users.AddPasskey(ctx, secret, passkeys.Credential{
		Field: "passkeys", Digest: s.account.digest, Name: "k", Stored: []byte("key"),
		For: passkeys.Binding(passkeys.ForRegister, secret),
	}, userdb.SessionOptions{})
}

// firstStep logs in with a password and returns the ticket, or "" if the entry has no factor.
func (s *factorStore) firstStep(ctx context.Context, password string) (ticket string, err error) {
	_, err = s.users.Login(ctx, s.account.uid, passwordOf(password), userdb.Attempt{})
	if refused, ok := errors.AsType[*userdb.FactorError](err); ok {
		return refused.Ticket, nil
	}
	return "", err
}

func (s *factorStore) newEntry() userdb.NewEntry {
	name := s.account.uid
	return userdb.NewEntry{UID: name, Facets: schema.Texts("name", name), Password: passwordOf("P")}
}

func (s *factorStore) enrol(letter string) {
	e, err := s.users.EnrolTOTP(s.t.Context(), s.account.session, userdb.TOTPOptions{Name: letter})
	must(s.t, err)
	s.account.ids[letter], s.account.secrets[letter] = e.ID, decodeSecret(s.t, e.Secret)
}

func (s *factorStore) confirm(letter string) {
	a := s.account
	code := totp.Code(a.secrets[letter], totp.Step(time.Now()))
	c, err := s.users.ConfirmTOTP(s.t.Context(), a.session, a.ids[letter], code, userdb.SessionOptions{})
	must(s.t, err)
	if c.Secret != "" {
		a.session, a.codes = c.Secret, c.RecoveryCodes
	}
}

// seal encrypts the factors of the entry with the key that a letter stands for.
func (s *factorStore) seal(letter string) {
	ctx := s.t.Context()
	both, err := sealed.New([][]byte{factorKey("o"), factorKey("n")})
	must(s.t, err)
	ring, err := sealed.New([][]byte{factorKey(letter)})
	must(s.t, err)
	record, err := factor.Key(s.account.read.Key())
	must(s.t, err)
	for name, value := range s.raw.HGetAll(ctx, record.String()).Val() {
		f, err := factor.Parse(name, value)
		if err != nil {
			continue
		}
		secret, err := both.Open(f.Sealed, "", s.account.read.Key().String(), name)
		must(s.t, err)
		f.Sealed = ring.Seal(secret, "", s.account.read.Key().String(), name)
		must(s.t, s.raw.HSet(ctx, record.String(), name, f.Value()).Err())
	}
}

// keys returns the keys of all records that name the entry or its passkey.
func (s *factorStore) keys() (all []string) {
	for _, name := range []string{s.account.uid, s.account.digest} {
		keys, err := s.raw.Keys(context.Background(), "*"+name+"*").Result()
		must(s.t, err)
		all = append(all, keys...)
	}
	return all
}

// save stores the records of the entry in memory, and restore writes them again.
func (s *factorStore) save() {
	ctx := s.t.Context()
	for _, key := range s.keys() {
		r := factorRecord{key: key, kind: s.raw.Type(ctx, key).Val(), life: s.raw.PTTL(ctx, key).Val()}
		switch r.kind {
		case "hash":
			r.fields = s.raw.HGetAll(ctx, key).Val()
		case "string":
			r.text = s.raw.Get(ctx, key).Val()
		case "set":
			r.members = s.raw.SMembers(ctx, key).Val()
		default:
			s.t.Fatalf("%s is a %s", key, r.kind)
		}
		s.account.records = append(s.account.records, r)
	}
}

func (s *factorStore) restore() {
	ctx := s.t.Context()
	if keys := s.keys(); len(keys) > 0 {
		must(s.t, s.raw.Del(ctx, keys...).Err())
	}
	for _, r := range s.account.records {
		switch r.kind {
		case "hash":
			must(s.t, s.raw.HSet(ctx, r.key, r.fields).Err())
		case "string":
			must(s.t, s.raw.Set(ctx, r.key, r.text, 0).Err())
		case "set":
			must(s.t, s.raw.SAdd(ctx, r.key, r.members).Err())
		}
		if r.life > 0 {
			must(s.t, s.raw.PExpire(ctx, r.key, r.life).Err())
		}
	}
}

// start prepares the entry and starts the actors of an execution.
func (s *factorStore) start(x *execution) {
	if s.account == nil || totp.Step(time.Now()) != s.account.step {
		s.newAccount()
	} else {
		s.restore()
	}
	if x.process = s.raw.Process; !s.scenario.delays {
		x.mayDelay = nil
	}
	d := &factorExecution{
		factorStore: s, execution: x, running: map[int]string{}, own: map[int]string{},
		read: map[int]string{}, began: map[int]int{},
		born: map[string]int{}, ended: map[string]string{}, enrolled: map[string][]byte{},
	}
	for letter, id := range s.account.ids {
		d.enrolled[id] = s.account.secrets[letter]
	}
	s.current = d
	d.history = []factorState{{by: -1, password: "P"}}
	d.history = []factorState{d.readState(-1)}
	x.onStep = func(who *actor) {
		for _, late := range x.actors {
			if by := late.delayedBy; by != nil && d.running[late.id] == "" {
				d.running[late.id], d.began[late.id] = d.running[by.id], d.began[by.id]
				d.read[late.id] = d.read[by.id]
			}
		}
		d.history = append(d.history, d.readState(who.id))
		d.checkStep()
	}
	for _, operations := range s.scenario.actors {
		x.addActor(func(ctx context.Context, who *actor) {
			for text := range strings.SplitSeq(operations, ", ") {
				x.mu.Lock()
				d.running[who.id], d.began[who.id] = text, x.steps
				o := factorResult{operation: text, who: who.id, begin: x.steps}
				x.mu.Unlock()
				d.do(ctx, &o)
				x.mu.Lock()
				o.end = x.steps
				d.completed = append(d.completed, o)
				x.mu.Unlock()
			}
		})
	}
}

// hashOf returns the hash of a secret, which names its session or ticket.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func ticketName(secret string) string { return "ticket/" + hashOf(secret) }

// proof returns the proof for a word: "a" is the code that the app a shows, "a-" and "a+" are the
// codes before and after that one; "r0" is a recovery code; "k7" is the answer of the passkey for a
// purpose, with the counter 7; "x" is a wrong code of an app, and "y" a wrong recovery code.
func (s *factorStore) proof(word, purpose string) userdb.Proof {
	if n, ok := strings.CutPrefix(word, "k"); ok {
		return s.answer(purpose, purpose+word, n)
	}
	if n, ok := strings.CutPrefix(word, "r"); ok {
		return userdb.RecoveryCode(s.account.codes[n[0]-'0'])
	}
	switch word {
	case "x":
		return userdb.TOTP("x")
	case "y":
		return userdb.RecoveryCode("y")
	}
	return userdb.TOTP(s.code(word))
}

// answer returns the answer of the passkey to a challenge that was made for a purpose.
func (s *factorStore) answer(purpose, challenge, counter string) userdb.Proof {
	return userdb.PasskeyProof(passkeys.Answer{
		Field: "passkeys", Digest: s.account.digest, For: purpose,
		Challenge: hashOf(challenge), Until: time.Now().Add(5 * time.Minute),
		Verify: func([]byte) (uint32, error) {
			n, err := strconv.ParseUint(counter, 10, 32)
			return uint32(n), err
		},
	})
}

func isWrong(word string) bool { return word == "x" || word == "y" }

func (s *factorStore) code(word string) string {
	steps := strings.Count(word, "+") - strings.Count(word, "-")
	return totp.Code(s.account.secrets[word[:1]], s.account.step+int64(steps))
}

// factorOf returns the name that a proof's factor has in the record of factors.
func (s *factorStore) factorOf(word string) string {
	if strings.HasPrefix(word, "r") || word == "y" {
		for name := range s.account.factors() {
			if strings.HasPrefix(name, factor.Recovery) {
				return name
			}
		}
	}
	if strings.HasPrefix(word, "k") {
		return factor.Passkey + "/" + s.account.ids["k"]
	}
	return factor.TOTP + "/" + s.account.ids[word[:1]]
}

// factors returns the factors in the record before an execution, by name.
func (a *factorAccount) factors() map[string]string {
	for _, r := range a.records {
		if strings.HasPrefix(r.key, "~/factor/") {
			factors := maps.Clone(r.fields)
			maps.DeleteFunc(factors, func(name, value string) bool {
				return errOf(factor.Parse(name, value)) != nil
			})
			return factors
		}
	}
	return nil
}

// do carries out an operation.
func (d *factorExecution) do(ctx context.Context, o *factorResult) {
	a, words, from := d.account, o.words(), userdb.Attempt{}
	first := func(err error) bool {
		o.err = err
		d.mu.Lock()
		defer d.mu.Unlock()
		o.mid = d.steps
		if refused, ok := errors.AsType[*userdb.FactorError](err); ok && refused.Ticket != "" {
			o.ticket = refused.Ticket
			d.own[o.who] = refused.Ticket
		}
		return err == nil
	}
	start := func(e userdb.Entry) {
		d.mu.Lock()
		d.read[o.who] = e.Rev()
		d.mu.Unlock()
		_, _, o.startErr = d.users.StartSession(ctx, e, userdb.SessionOptions{})
	}
	changed := func(c userdb.FactorChange, err error) {
		o.codes = c.RecoveryCodes
		first(err)
	}
	switch words[0] {
	case "login":
		if e, err := d.users.Login(ctx, a.uid, passwordOf(words[1]), from); first(err) {
			start(e)
		}
	case "link":
		_, _, _, err := d.users.RedeemSession(ctx, "link", a.tokens["link"], userdb.SessionOptions{})
		first(err)
	case "read":
		first(nil)
		start(a.read)
	case "prove":
		o.ticket = a.tickets[words[1]]
		if words[1] == "own" {
			d.mu.Lock()
			o.ticket = d.own[o.who]
			d.mu.Unlock()
		}
		if len(words) > 3 {
			from.Origin = words[3]
		}
		p := d.proof(words[2], passkeys.Binding(passkeys.ForTicket, o.ticket))
		if e, err := d.users.Prove(ctx, o.ticket, p, from); first(err) {
			start(e)
		}
	case "key":
		if e, err := d.users.LoginPasskey(ctx, d.answer("", words[1], words[2]), from); first(err) {
			start(e)
		}
	case "late":
		time.Sleep(factor.TicketLife)
		code := totp.Code(a.secrets["a"], totp.Step(time.Now()))
		first(errOf(d.users.Prove(ctx, a.tickets[words[1]], userdb.TOTP(code), from)))
	case "raise":
		p := d.proof(words[1], passkeys.Binding(passkeys.ForSession, a.session))
		_, s, _, err := d.users.RaiseSession(ctx, a.session, p, userdb.SessionOptions{})
		if first(err); err == nil && s.Level() != 2 {
			d.report("%s returned a session of level %d", o.operation, s.Level())
		}
	case "verify":
		first(errOf3(d.users.VerifySession(ctx, a.session, passwordOf("P"), from)))
	case "confirm":
		changed(d.users.ConfirmTOTP(ctx, a.session, a.ids[words[1]], d.code(words[1]), userdb.SessionOptions{}))
	case "enrol":
		first(d.enrolInto(ctx, o, a.session))
	case "addkey":
		changed(d.addPasskey(ctx, a.session))
	case "begin":
		first(errOf(d.users.EnrolTOTP(ctx, a.session, userdb.TOTPOptions{})))
	case "remove":
		changed(d.users.RemoveFactor(ctx, a.session, a.ids[words[1]], userdb.SessionOptions{}))
	case "reset":
		first(errOf(d.users.ResetFactors(ctx, uid(a.uid))))
	case "codes":
		codes, err := d.users.ReplaceRecoveryCodes(ctx, a.session)
		first(err)
		o.codes = codes
	case "newcodes":
		codes, err := d.users.ResetRecoveryCodes(ctx, uid(a.uid))
		first(err)
		o.codes = codes
	case "rotate":
		first(errOf(d.users.RotateKeys(ctx)))
	case "set":
		first(errOf(d.users.SetPassword(ctx, uid(a.uid), passwordOf(words[1]))))
	case "replace": // the owner changes the password in the session
		from.Session = a.session
		first(errOf(d.users.ChangePassword(ctx, uid(a.uid), passwordOf(words[1]), passwordOf(words[2]), from)))
	case "change":
		first(errOf(d.users.ChangePassword(ctx, uid(a.uid), passwordOf(words[1]), passwordOf(words[2]), from)))
	case "forgot":
		first(errOf(d.users.ResetPassword(ctx, "reset", a.tokens["reset"], passwordOf(words[1]))))
	case "disable":
		first(d.users.Disable(ctx, uid(a.uid)))
	case "enable":
		first(d.users.Enable(ctx, uid(a.uid)))
	case "delete":
		first(d.users.Delete(ctx, uid(a.uid)))
	case "create":
		first(errOf(d.users.Create(ctx, d.newEntry())))
	case "anew": // the owner of the new entry enrols an app
		e, err := d.users.Login(ctx, a.uid, passwordOf("P"), from)
		if !first(err) {
			return
		}
		_, secret, err := d.users.StartSession(ctx, e, userdb.SessionOptions{})
		if err == nil {
			err = d.enrolInto(ctx, o, secret)
		}
		o.startErr = err
	default:
		panic("unknown operation " + o.operation)
	}
}

// enrolInto enrols another app in a session, and keeps the owner's secrets.
func (d *factorExecution) enrolInto(ctx context.Context, o *factorResult, session string) error {
	e, err := d.users.EnrolTOTP(ctx, session, userdb.TOTPOptions{})
	if err != nil {
		return err
	}
	secret := decodeSecret(d.t, e.Secret)
	d.mu.Lock()
	d.enrolled[e.ID] = secret
	d.mu.Unlock()
	c, err := d.users.ConfirmTOTP(ctx, session, e.ID, totp.Code(secret, d.account.step), userdb.SessionOptions{})
	o.codes = c.RecoveryCodes
	return err
}

func errOf3[A, B any](_ A, _ B, err error) error { return err }

// isSentAgain reports whether a command is a script about factors or sessions, which its sender
// sends again if it gets no reply.
func isSentAgain(cmd redis.Cmder) bool {
	text := wordsOf(cmd)
	return strings.HasPrefix(cmd.Name(), "eval") && (strings.Contains(text, " ~/factor/") ||
		strings.Contains(text, " ~/session/") || strings.Contains(text, " "+factor.FieldMark+" "))
}

// factorScenarios lists the scenarios that the store must pass.
var factorScenarios = []factorScenario{
	{start: "one", actors: []string{"prove t1 a", "prove t2 a"}, delays: true},
	{start: "one", actors: []string{"prove t1 a"}, delays: true},
	{start: "one", actors: []string{"login P, prove own a, remove a"}, delays: true},
	{start: "one", actors: []string{"prove t1 a, disable, enable"}, delays: true},
	{start: "one", actors: []string{"prove t1 a, delete, create P, anew"}, delays: true},
	{start: "one", actors: []string{"set Q, login Q, prove own a"}, delays: true},
	{start: "one", actors: []string{"raise a, set Q"}, delays: true},
	{start: "one", actors: []string{"raise a, delete, create P, anew"}, delays: true},
	{start: "one", actors: []string{"codes, remove a"}, delays: true},
	{start: "one", actors: []string{"confirm b, reset"}, delays: true},
	{start: "plain", actors: []string{"confirm b, reset"}, delays: true},
	{start: "plain", actors: []string{"addkey, delete, create P"}, delays: true},
	{start: "plain", actors: []string{"enrol"}, delays: true},
	{start: "key", actors: []string{"key c 0, remove k"}, delays: true},
	{start: "one", actors: []string{"prove t1 a-", "prove t1 a"}},
	{start: "one", actors: []string{"prove t1 r0", "prove t2 r0"}, delays: true},
	{start: "one", actors: []string{"login P, prove own a-, prove own a"}, delays: true},
	{start: "one", actors: []string{"prove t1 a", "remove a"}},
	{start: "one", actors: []string{"prove t1 a", "reset"}},
	{start: "one", actors: []string{"prove t1 a", "set Q"}},
	{start: "one", actors: []string{"prove t1 a", "forgot Q"}},
	{start: "one", actors: []string{"prove t1 a", "disable, enable"}},
	{start: "one", actors: []string{"prove t1 a", "delete, create P"}},
	{start: "one", actors: []string{"prove t1 a", "confirm b"}},
	{start: "one", actors: []string{"prove t1 a", "codes"}},
	{start: "one", actors: []string{"prove t1 r0", "codes"}},
	{start: "one", actors: []string{"prove t1 a", "rotate"}},
	{start: "one", actors: []string{"prove t1 r0", "rotate"}},
	{start: "one", actors: []string{"prove t1 a", "verify, raise a-"}},
	{start: "one", actors: []string{"raise a", "remove a"}},
	{start: "one", actors: []string{"raise a", "disable, enable"}},
	{start: "one", actors: []string{"login P", "reset"}},
	{start: "one", actors: []string{"link", "reset"}},
	{start: "one", actors: []string{"change P Q", "reset"}},
	{start: "one", actors: []string{"codes", "codes"}},
	{start: "one", actors: []string{"codes", "remove a"}},
	{start: "one", actors: []string{"codes", "rotate"}},
	{start: "one", actors: []string{"newcodes", "remove a"}},
	{start: "one", actors: []string{"remove a", "confirm b"}},
	{start: "one", actors: []string{"remove a", "enrol"}},
	{start: "one", actors: []string{"remove a", "set Q"}},
	{start: "one", actors: []string{"confirm b", "confirm b"}},
	{start: "one", actors: []string{"confirm b", "delete, create P"}, delays: true},
	{start: "one", actors: []string{"replace P Q", "disable, enable"}},
	{start: "one", actors: []string{"replace P Q", "remove a"}},
	{start: "one", actors: []string{"replace P Q", "set R"}},
	{start: "one", actors: []string{"replace P Q", "delete, create P"}},
	{start: "one", actors: []string{"late t1"}},
	{start: "one", actors: []string{"raise a", "raise a"}, delays: true},
	{start: "one", actors: []string{"raise r0", "raise r0"}},
	{start: "one", actors: []string{"raise a", "prove t1 a"}},
	{start: "one", actors: []string{"raise a", "set Q"}},
	{start: "one", actors: []string{"raise a", "delete, create P"}},
	{start: "one", actors: []string{"prove t1 a", "disable"}},
	{start: "one", actors: []string{"login P, prove own a", "disable, enable"}},
	{start: "one", actors: []string{"prove t1 a", "delete, create P, anew"}},
	{start: "one", actors: []string{"login P, prove own a", "delete, create P"}},
	{start: "one", actors: []string{"codes", "delete, create P"}, delays: true},
	{start: "one", actors: []string{"remove a", "delete, create P"}, delays: true},
	{start: "key", actors: []string{"key c 0", "key c 0"}, delays: true},
	{start: "key", actors: []string{"key c 5", "key d 5"}},
	{start: "key", actors: []string{"key c 5", "prove t1 k5"}},
	{start: "key", actors: []string{"prove t1 k5", "prove t2 k5"}},
	{start: "key", actors: []string{"key c 0", "remove k"}},
	{start: "key", actors: []string{"key c 0", "disable"}},
	{start: "key", actors: []string{"key c 0", "disable, enable"}},
	{start: "key", actors: []string{"key c 0", "set Q"}},
	{start: "key", actors: []string{"key c 0", "reset"}},
	{start: "key", actors: []string{"key c 0", "rotate"}},
	{start: "key", actors: []string{"key c 0", "delete, create P"}},
	{start: "key", actors: []string{"prove t1 k5", "remove k"}},
	{start: "key", actors: []string{"raise k5", "raise k5"}},
	{start: "key", actors: []string{"key c 0", "remove k", "disable, enable"}},
	{start: "one", actors: []string{"prove t1 a", "prove t2 a", "remove a"}},
	{start: "one", actors: []string{"prove t1 a", "codes", "disable, enable"}},
	{start: "one", actors: []string{"prove t1 a", "set Q", "delete, create P"}},
	{start: "one", actors: []string{"raise a", "confirm b", "codes"}},
	{start: "two", actors: []string{"remove a", "remove b"}},
	{start: "two", actors: []string{"login P, prove own b", "remove b"}},
	{start: "two", actors: []string{"prove t1 b", "remove a"}},
	{start: "plain", actors: []string{"login P", "confirm b"}},
	{start: "plain", actors: []string{"read", "confirm b"}},
	{start: "plain", actors: []string{"link", "confirm b"}},
	{start: "plain", actors: []string{"change P Q", "confirm b"}},
	{start: "plain", actors: []string{"set Q", "confirm b"}},
	{start: "plain", actors: []string{"confirm b", "confirm b"}, delays: true},
	{start: "plain", actors: []string{"confirm b", "enrol"}},
	{start: "plain", actors: []string{"confirm b", "disable, enable"}},
	{start: "plain", actors: []string{"confirm b", "delete, create P"}, delays: true},
	{start: "plain", actors: []string{"confirm b", "reset"}},
	{start: "plain", actors: []string{"verify", "confirm b"}},
	{start: "plain", actors: []string{"addkey", "confirm b"}},
	{start: "plain", actors: []string{"addkey", "addkey"}},
	{start: "one", actors: []string{"addkey", "remove a"}},
	{start: "one", actors: []string{"addkey", "delete, create P"}},
	{start: "guessed", actors: []string{"prove t1 x", "prove t2 x"}},
	{start: "guessed", actors: []string{"prove t1 x A", "prove t2 x B"}},
	{start: "guessed", actors: []string{"prove t1 y", "prove t1 y"}},
	{start: "guessed", actors: []string{"prove t1 r0", "prove t2 x"}},
}

// exploreFactors runs a scenario in all orders up to the given number of preemptions. It returns a
// violation, or "", and the number of orders.
func exploreFactors(
	t *testing.T, engine string, scenario factorScenario, m *factorMutant, preemptions int,
) (violation string, executions int) {
	synctest.Test(t, func(t *testing.T) {
		s := newFactorStore(t, engine, scenario)
		e := &explorer{
			start: s.start, verify: s.verify, tamper: m.tamper(s), mayDelay: isSentAgain, seen: map[uint64]int{},
			preemptions: preemptions, maxExecutions: envInt("USERDB_LOGIN_ORDERS", 3000),
		}
		violation = e.explore()
		if executions = e.executions; executions == e.maxExecutions {
			t.Logf("NOT exhaustive: more than %d orders", executions)
		}
		must(t, s.db.Close())
	})
	return violation, executions
}

// leftOut reports whether 'make test' leaves out a scenario or mutant: it runs every third one on
// one server, and every sixth one on a cluster.
func leftOut(engine string, i int) bool {
	return testing.Short() && i%map[string]int{"single": 3, "cluster": 6}[engine] != 0
}

// TestFactorInterleavings runs sign-ins in two steps and changes of factors in all orders of their
// commands up to a number of preemptions: one, or none if there are three actors or if a script may
// be delayed. 'make search' adds one to it.
func TestFactorInterleavings(t *testing.T) {
	for _, engine := range []string{"single", "cluster"} {
		t.Run(engine, func(t *testing.T) {
			var total atomic.Int64
			t.Cleanup(func() { t.Logf("%d orders", total.Load()) })
			for i, scenario := range factorScenarios {
				if leftOut(engine, i) {
					continue
				}
				t.Run(scenario.String(), func(t *testing.T) {
					t.Parallel()
					// The calls have more commands than a login: one preemption less, at least one.
					preemptions := max(1, envInt("USERDB_LOGIN_PREEMPTIONS", 1)-1)
					if len(scenario.actors) > 2 || scenario.delays {
						preemptions--
					}
					violation, executions := exploreFactors(t, engine, scenario, nil, preemptions)
					total.Add(int64(executions))
					if violation != "" {
						t.Errorf("after %d orders: %s", executions, violation)
					}
					t.Logf("%d orders", executions)
				})
			}
		})
	}
}
