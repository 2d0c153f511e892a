package userdb_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/userdb"
)

// A factorState holds the store's records of the entry after a step.
type factorState struct {
	by       int // the actor of the step
	entry    store.Record
	password string // the letter of the latest password
	members  map[string]string
	sessions map[string]session.Session
}

func (s factorState) generation() string { return s.entry.ForSessions().Generation() }

// admits reports whether the entry may sign in.
func (s factorState) admits() bool {
	return s.entry.Live() && s.entry.Fields[store.FieldDisabled] == ""
}

func (s factorState) mark() factor.Mark { return factor.Mark(s.entry.Fields[factor.FieldMark]) }

// readState reads the store's records of the entry after a step.
func (d *factorExecution) readState(by int) factorState {
	ctx := context.Background()
	key := d.account.read.Key()
	hash := func(key string) map[string]string {
		fields, err := d.raw.HGetAll(ctx, key).Result()
		must(d.t, err)
		return fields
	}
	factors, err := factor.Key(key)
	must(d.t, err)
	sessions, err := session.Key(key)
	must(d.t, err)
	was := d.history[len(d.history)-1]
	s := factorState{
		by: by, password: was.password, members: hash(factors.String()), sessions: map[string]session.Session{},
		entry: store.Record{Key: key, Fields: hash(key.String())},
	}
	for id, text := range hash(sessions.String()) {
		if one, err := session.Parse(id, text); err == nil {
			s.sessions[id] = one
		}
	}
	if hash := s.entry.PasswordHash(); hash != was.entry.PasswordHash() && by >= 0 && hash != "" {
		d.mu.Lock()
		words := strings.Fields(d.running[by])
		d.mu.Unlock()
		s.password = words[len(words)-1]
	}
	return s
}

// checkStep checks the rules that must hold after every step, even if all actors stopped there.
func (d *factorExecution) checkStep() {
	was, now := d.history[len(d.history)-2], d.history[len(d.history)-1]
	d.mu.Lock()
	defer d.mu.Unlock()
	at, what := len(d.history)-1, d.running[now.by]
	d.checkEntry(what, now)

	// A change that ends the sessions and tickets of an entry gives it another generation.
	lost := slices.ContainsFunc(was.mark().Names(), func(name string) bool {
		return !strings.HasPrefix(name, factor.Recovery) && !slices.Contains(now.mark().Names(), name)
	})
	first := was.mark() == "" && now.mark() != ""
	set := was.password != now.password || was.entry.Fields[store.FieldChanged] != now.entry.Fields[store.FieldChanged]
	if was.entry.Live() && (lost || first || set || was.admits() && !now.admits()) {
		d.ended[was.generation()] = what
	}
	by, hasEnded := d.ended[now.generation()]
	if now.admits() && hasEnded {
		d.report("%s left earlier sessions and tickets valid", by)
	}
	if was.mark() != "" && now.password != was.password && strings.HasPrefix(what, "change") {
		d.report("%s changed the password without the factor", what)
	}
	operation := strings.Fields(what)[0]
	byOwner := operation == "replace" && now.password != was.password && was.mark() != ""
	if slices.Contains([]string{"confirm", "enrol", "addkey", "remove", "codes"}, operation) {
		byOwner = now.mark() != was.mark()
	}
	// A call that checked the owner's session may finish after that session alone has ended.
	owner := d.history[0].sessions[hashOf(d.account.session)]
	if byOwner && !owner.ValidFor(was.entry.ForSessions()) {
		d.report("%s was done in a session that had ended", what)
	}

	for name := range now.members {
		if d.born[name] == 0 && was.members[name] == "" && strings.HasPrefix(name, "ticket/") {
			d.born[name] = at
		}
	}
	for id, s := range now.sessions {
		if old, has := was.sessions[id]; has && s.VerifiedLevel2.After(old.VerifiedLevel2) {
			d.report("%s renewed level 2", what)
		}
		if _, has := was.sessions[id]; has || s.Generation != now.generation() || !now.admits() {
			continue
		}
		level2 := !s.VerifiedLevel2.IsZero()
		switch operation {
		case "login", "prove", "key", "read":
			if d.generationAt(d.read[now.by]) != s.Generation {
				d.report("%s began a session although all sessions had ended since", what)
			}
		case "raise":
			if d.history[0].generation() != s.Generation {
				d.report("%s raised a session that had ended", what)
			}
		}
		switch {
		case twoSteps(what):
			// New recovery codes end no sessions, so they may replace the old ones after the
			// commit.
			name := d.factorOf(proofOf(what))
			if level2 && !slices.ContainsFunc(d.history[d.began[now.by]:], func(s factorState) bool {
				return s.generation() == now.generation() && slices.Contains(s.mark().Names(), name)
			}) {
				d.report("%s began a session of level 2 without the factor", what)
			}
		case operation == "remove":
			// The session keeps the time of the last login in two steps from the session that it
			// replaces, however long ago that was.
			if s.VerifiedLevel2.After(owner.VerifiedLevel2) {
				d.report("%s renewed level 2", what)
			}
		case slices.Contains([]string{"confirm", "enrol", "anew", "addkey"}, operation):
		case level2 || now.mark() != "":
			d.report("%s began a session after only one step", what)
		}
	}
}

// generationAt returns the last generation that the entry had with the given rev.
func (d *factorExecution) generationAt(rev string) string {
	for _, s := range slices.Backward(d.history) {
		if rev != "" && strings.HasPrefix(s.entry.Fields[store.FieldRev], rev) {
			return s.generation()
		}
	}
	return ""
}

// checkEntry checks that a process that reads the entry and its factors finds all their parts, so
// that the owner is not locked out.
func (d *factorExecution) checkEntry(what string, s factorState) {
	if !s.entry.Live() {
		return
	}
	marked, hidden := s.mark() != "", s.entry.Fields[factor.FieldHash] != ""
	if marked != hidden || marked != (s.entry.Fields[store.FieldPassword] == factor.HashMarker) {
		d.report("%s left the password hash where it does not belong%s", what, d.unreported())
	}
	for _, name := range s.mark().Names() {
		if _, err := factor.Parse(name, s.members[name]); err != nil {
			d.report("%s left no factor %s%s", what, strings.SplitN(name, "/", 2)[0], d.unreported())
		}
	}
}

// unreported returns a suffix for a violation: "" if check reports the damage.
func (d *factorExecution) unreported() string {
	for range check.Run(context.Background(), d.db, check.Options{}) {
		return ""
	}
	return ", and check does not report it"
}

// verify returns the problem after an execution, or "" if there is none.
func (s *factorStore) verify() string {
	d := s.current
	used := map[string]string{} // operations that used a code or a ticket
	use := func(what, operation string) {
		if other := used[what]; other != "" {
			d.report("%s and %s both used %s", other, operation, strings.SplitN(what, "/", 2)[0])
		}
		used[what] = operation
	}
	for _, o := range d.completed {
		switch words := o.words(); {
		case o.err != nil:
		case twoSteps(o.operation):
			if words[0] == "prove" {
				use("ticket/"+o.ticket, o.operation)
			}
			if words[0] == "key" {
				use("answer/"+words[1], o.operation)
			}
			// k0 is a passkey, which may prove itself more than once.
			if proof := proofOf(o.operation); proof != "k0" {
				use("code "+proof, o.operation)
			}
		case words[0] == "confirm":
			use("code "+words[1], o.operation)
		}
	}
	for _, o := range d.completed {
		d.verifyResult(o)
	}
	if d.violation == "" {
		d.verifyRecord()
		d.verifyTickets()
		d.verifyOwner(used)
	}
	return d.violation
}

// verifyResult checks that a successful operation was possible, and that a failed one had a reason.
func (d *factorExecution) verifyResult(o factorResult) {
	during, last := d.history[o.begin:o.mid+1], d.history[o.mid]
	words := o.words()
	disturbed := d.wasDisturbed(o)
	switch words[0] {
	case "login", "link":
		refused := errors.Is(o.err, userdb.ErrFactor)
		marked := slices.ContainsFunc(during, func(s factorState) bool { return s.mark() != "" })
		switch {
		case o.err == nil && words[0] == "login" && (last.mark() != "" || !last.admits()):
			d.report("%s succeeded after only one step", o.operation)
		case refused && !marked:
			d.report("%s asked for a factor that did not exist", o.operation)
		case o.err != nil && !refused && !disturbed:
			d.report("%s returned %v", o.operation, o.err)
		}
	case "prove":
		d.verifyProve(o, last)
	case "key":
		d.verifyKey(o, last)
	case "raise":
		_, _, err := d.users.Session(context.Background(), d.account.session)
		if o.err == nil && err == nil {
			d.report("%s left the old session valid", o.operation)
		}
		if o.err != nil && !disturbed {
			d.report("%s returned %v", o.operation, o.err)
		}
	case "late":
		if !errors.Is(o.err, userdb.ErrNotFound) {
			d.report("%s returned %v", o.operation, o.err)
		}
	case "read", "create", "anew":
	default:
		if o.err != nil && !disturbed && !(errors.Is(o.err, userdb.ErrFactor) && last.mark() != "") {
			d.report("%s returned %v", o.operation, o.err)
		}
	}
	if o.err == nil && o.startErr != nil && !disturbed && words[0] != "read" {
		d.report("%s began no session: %v", o.operation, o.startErr)
	}
}

// wasDisturbed reports whether somebody else has changed a dependency of an operation, before or
// while it ran: the generation, factors and password of the entry, the session of its owner, or the
// factor that is being enrolled.
func (d *factorExecution) wasDisturbed(o factorResult) bool {
	first := d.history[0]
	for _, s := range d.history[:o.end+1] {
		_, session := s.sessions[hashOf(d.account.session)]
		changed := s.generation() != first.generation() || s.mark() != first.mark() || !s.admits() || !session
		for name := range first.members {
			if _, has := s.members[name]; !has && strings.HasPrefix(name, "pending/") {
				changed = true
			}
		}
		if changed && s.by != o.who {
			return true
		}
	}
	return d.hasRival(o)
}

// hasRival reports whether another operation may have made this one fail, because it was the same
// operation, or used the same proof or a proof by the same app or passkey.
func (d *factorExecution) hasRival(o factorResult) bool {
	return slices.ContainsFunc(d.completed, func(other factorResult) bool {
		if other.who == o.who && other.begin == o.begin {
			return false
		}
		if !twoSteps(o.operation) || !twoSteps(other.operation) {
			return other.operation == o.operation
		}
		// The other proof may have been accepted before the entry changed.
		accepted := other.err == nil || errors.Is(other.err, userdb.ErrNotFound)
		one, two := proofOf(o.operation), proofOf(other.operation)
		return accepted && (one == two || one[0] == two[0] && one[0] != 'r' && two != "k0")
	})
}

// inForce reports whether the factor of a proof lets somebody sign in.
func (d *factorExecution) inForce(s factorState, proof string) bool {
	return s.admits() && slices.Contains(s.mark().Names(), d.factorOf(proof))
}

// verifyProve checks an operation that proved a factor.
func (d *factorExecution) verifyProve(o factorResult, last factorState) {
	words := o.words()
	wrong := isWrong(words[2])
	switch {
	case o.ticket == "":
		return // the login gave none
	case o.err == nil && (wrong || !d.inForce(last, words[2])):
		d.report("%s succeeded without the factor", o.operation)
		return
	}
	// The ticket belongs to the generation that the entry had before the ticket was stored, or to
	// one that the entry never had.
	born := d.born[ticketName(o.ticket)]
	issued, _ := factor.ParseTicket(ticketName(o.ticket), d.history[born].members[ticketName(o.ticket)])
	if o.err == nil && issued.Generation != last.generation() {
		d.report("%s succeeded with an earlier ticket", o.operation)
	}
	sound := true // nothing stops the owner
	for _, s := range d.history[min(born, o.end) : o.end+1] {
		sound = sound && s.admits() && s.generation() == issued.Generation && s.mark() == d.history[born].mark()
	}
	sound = sound && slices.Contains(d.history[born].mark().Names(), d.factorOf(words[2]))
	rivals := 0
	for _, r := range d.completed {
		if r.words()[0] == "prove" && r.ticket == o.ticket && r.operation != o.operation {
			rivals++
		}
	}
	switch {
	case wrong:
		if o.err == nil {
			d.report("%s succeeded", o.operation)
		}
	case sound && o.err != nil && rivals == 0 && !d.hasRival(o):
		d.report("%s refused the owner: %v", o.operation, o.err)
	case sound && o.err == nil && o.startErr != nil:
		d.report("%s began no session: %v", o.operation, o.startErr)
	}
	if d.scenario.start == "guessed" && wrong && errors.Is(o.err, userdb.ErrLogin) {
		judged := 0
		for _, r := range d.completed {
			if words := r.words(); words[0] == "prove" && isWrong(words[2]) && errors.Is(r.err, userdb.ErrLogin) {
				judged++
			}
		}
		if judged > 1 {
			d.report("%d wrong codes were judged", judged)
		}
	}
}

// verifyKey checks an operation that signed in with the passkey alone.
func (d *factorExecution) verifyKey(o factorResult, last factorState) {
	switch {
	case o.err == nil && !d.inForce(last, "k"):
		d.report("%s succeeded without the factor", o.operation)
	case o.err != nil && !d.wasDisturbed(o):
		d.report("%s refused the owner: %v", o.operation, o.err)
	}
}

// verifyRecord checks the final record of factors.
func (d *factorExecution) verifyRecord() {
	ctx := context.Background()
	last := d.history[len(d.history)-1]
	key, err := factor.Key(last.entry.Key)
	must(d.t, err)
	anew := slices.ContainsFunc(d.history, func(s factorState) bool { return !s.entry.Live() })
	failed := 0
	for _, o := range d.completed {
		if twoSteps(o.operation) && o.err != nil {
			failed++
		}
	}
	for name, value := range last.members {
		kind, rest, _ := strings.Cut(name, "/")
		// A late command may store a factor that needs no enrolment.
		mayBeLeft := d.scenario.delays && (kind == factor.Recovery || kind == factor.Passkey)
		switch {
		case slices.Contains(last.mark().Names(), name), mayBeLeft:
		case anew && kind != "ticket":
			d.report("the new entry has %s of the old one", kind)
		case kind == factor.TOTP, kind == factor.Recovery, kind == factor.Passkey:
			d.report("a factor is left that counts for nothing: %s", kind)
		case kind == "pending" && slices.Contains(last.mark().Names(), factor.TOTP+"/"+rest):
			d.report("an enrolment can be confirmed again")
		case kind == "tries" && d.scenario.start != "guessed":
			_, text, _ := strings.Cut(value, " ")
			if count, err := strconv.Atoi(text); err != nil || count > failed {
				d.report("%q wrong codes are counted, but %d attempts failed", text, failed)
			}
		}
	}
	if len(last.members) == 0 {
		return
	}
	switch life := d.raw.PTTL(ctx, key.String()).Val(); {
	case last.mark() != "" && life >= 0:
		d.report("the record of the factors expires")
	case last.mark() == "" && life < 0 && !d.scenario.delays:
		d.report("the record stays without a factor")
	}
}

// verifyTickets checks that tickets of an earlier generation are useless, even with a right code.
func (d *factorExecution) verifyTickets() {
	last := d.history[len(d.history)-1]
	if len(d.ended) == 0 {
		return
	}
	tickets := slices.Collect(maps.Values(d.account.tickets))
	for _, o := range d.completed {
		if strings.HasPrefix(o.operation, "login") && o.ticket != "" {
			tickets = append(tickets, o.ticket)
		}
	}
	for _, ticket := range tickets {
		issued, err := factor.ParseTicket(ticketName(ticket), last.members[ticketName(ticket)])
		if err != nil || issued.Generation == last.generation() {
			continue
		}
		if _, err := d.prove(ticket); !errors.Is(err, userdb.ErrNotFound) {
			d.report("an old ticket is still valid: %v", err)
		}
	}
}

// prove takes the second step with a code that nobody has used before, or with the passkey.
func (d *factorExecution) prove(ticket string) (userdb.Entry, error) {
	p := d.proof("k0", passkeys.Binding(passkeys.ForTicket, ticket))
	for _, name := range d.history[len(d.history)-1].mark().Names() {
		if secret := d.enrolled[strings.TrimPrefix(name, factor.TOTP+"/")]; secret != nil {
			p = userdb.TOTP(totp.Code(secret, totp.Step(time.Now())+1))
		}
	}
	return d.users.Prove(context.Background(), ticket, p, userdb.Attempt{})
}

// verifyOwner checks that the owner can sign in at the end, with the factors that the entry has,
// and that used codes are useless.
func (d *factorExecution) verifyOwner(used map[string]string) {
	ctx, last := context.Background(), d.history[len(d.history)-1]
	if !last.admits() || d.scenario.start == "guessed" {
		return
	}
	e, err := d.users.Login(ctx, d.account.uid, passwordOf(last.password), userdb.Attempt{})
	refused, ok := errors.AsType[*userdb.FactorError](err)
	if ok != (last.mark() != "") {
		d.report("at the end a login with the password returned %v, but the entry has the factors %q", err, last.mark().Names())
		return
	}
	if ok {
		for what, operation := range used {
			word, isCode := strings.CutPrefix(what, "code ")
			if !isCode || !d.inForce(last, word) {
				continue
			}
			p := d.proof(word, passkeys.Binding(passkeys.ForTicket, refused.Ticket))
			if _, err := d.users.Prove(ctx, refused.Ticket, p, userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
				d.report("the code of %s can be used again: %v", operation, err)
				return
			}
		}
		e, err = d.prove(refused.Ticket)
	}
	var s userdb.Session
	if err == nil {
		s, _, err = d.users.StartSession(ctx, e, userdb.SessionOptions{})
	}
	if err != nil || ok && s.Level() != 2 {
		d.report("at the end the owner cannot sign in; a factor was asked for: %v; %v", ok, err)
		return
	}
	if ok {
		d.verifyCodes(refused, last)
	}
}

// verifyCodes checks that a recovery code of one of the owner's sets is valid.
func (d *factorExecution) verifyCodes(refused *userdb.FactorError, last factorState) {
	ctx := context.Background()
	sets := [][]string{d.account.codes}
	for _, o := range d.completed {
		if errors.Is(o.err, userdb.ErrOutcomeUnknown) {
			return
		}
		sets = append(sets, o.codes)
	}
	for _, codes := range slices.Backward(sets) {
		if len(codes) == 0 {
			continue
		}
		ticket, err := d.firstStep(ctx, last.password)
		if err == nil {
			_, err = d.users.Prove(ctx, ticket, userdb.RecoveryCode(codes[9]), userdb.Attempt{})
		}
		if err == nil {
			return
		}
	}
	d.report("at the end no recovery code of the owner is valid: %v", refused.Methods)
}
