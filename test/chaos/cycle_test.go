//go:build linux

package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
)

// cycle runs epochs while the nemesis carries out its plan, then pauses all clients and judges the
// epochs.
func (r *run) cycle(i int, n *nemesis) {
	steps := plan(r.kind, r.seed, i, len(r.shards))
	r.print("cycle %d: %s", i, planText(steps))
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	var ended sync.WaitGroup
	ended.Go(func() { r.epochs(ctx) })
	ended.Go(func() { r.follower.follow(ctx) })
	for _, s := range steps {
		if r.ctx.Err() == nil {
			n.do(s)
		}
	}
	stop()
	ended.Wait()
	r.healAndJudge(i)
	if r.ctx.Err() != nil {
		r.t.Fatal("interrupted")
	}
}

// epochs begins one epoch after another until ctx ends.
func (r *run) epochs(ctx context.Context) {
	for ctx.Err() == nil {
		r.lastEpoch++
		r.setEpoch(r.lastEpoch)
		_ = sleep(ctx, epochLength) // a cycle may end in the middle of an epoch
	}
}

// watch prints the last line of the log whenever nothing was printed for a while.
func (r *run) watch(ctx context.Context) {
	for sleep(ctx, time.Second) == nil {
		r.mu.Lock()
		silent, lastLog := time.Since(r.lastPrint) > maxSilence, r.lastLog
		r.mu.Unlock()
		if silent {
			r.print("epoch %d; %s", r.epoch.Load(), lastLog)
		}
	}
}

func (r *run) progress() string {
	good, asked := 0, 0
	for verb, n := range r.all {
		good, asked = good+r.ok[verb], asked+n
	}
	return fmt.Sprintf("%d of %d operations judged so far succeeded; %d histories judged, %d of them undecided", good, asked, r.verdict.histories, r.verdict.undecided)
}

// healAndJudge ends all faults, pauses all clients, and judges the epochs of the cycle.
func (r *run) healAndJudge(cycle int) {
	r.epoch.Store(0)
	for i := range clients {
		r.process(i).send("pass")
	}
	for i := range clients {
		if err := r.process(i).pause(pauseTimeout); err != nil {
			r.t.Fatal(err)
		}
	}
	r.waitForAgreement()
	r.log("judging")
	ops := r.unjudgedOps()
	for e := r.judgedEpoch + 1; e <= r.lastEpoch; e++ {
		r.judgeEpoch(e, append(ops[e], r.readBack(e)...))
		r.checkSessions(e, ops[e])
		r.touchAccounts(e)
		r.report(inEpoch(e, r.judgeFeed(e, ops[e])))
	}
	r.judgedEpoch = r.lastEpoch
	r.report(r.follower.takeViolations())
	for i := range clients {
		r.report(r.process(i).takeViolations())
	}
	r.must(r.dropLastEvents())
	// After an even cycle the follower reads now, when its position is beyond the end of the feed.
	// After an odd one it reads only when new events have been added.
	if cycle%2 == 0 {
		r.must(r.follower.read(r.ctx))
	}
	found, err := confirmedDamage(r.ctx, r.rawDamage(ops, false))
	r.must(err)
	r.report(found)
	r.print("all faults are repaired; %s", r.progress())
}

// unjudgedOps returns the operations that are not judged yet, by epoch.
func (r *run) unjudgedOps() map[int][]op {
	var all []op
	for name, path := range r.files {
		ops, err := readHistory(path, name)
		if os.IsNotExist(err) {
			continue // killed before it could ask
		}
		r.must(err)
		all = append(all, slices.DeleteFunc(ops, func(o op) bool { return o.Epoch <= r.judgedEpoch })...)
	}
	return byEpoch(all)
}

func (r *run) judgeEpoch(e int, ops []op) {
	for _, o := range ops {
		r.all[o.Ask.Verb]++
		if o.Answer.What == "ok" {
			r.ok[o.Ask.Verb]++
		}
		if o.Answer.What == "ok" && o.Ask.List != nil {
			r.ok["list "+o.Ask.List.Verb]++
		}
	}
	v := judge(ops)
	r.verdict.histories += v.histories
	r.verdict.undecided += v.undecided
	r.report(inEpoch(e, v.violations))
}

func inEpoch(e int, violations []string) []string {
	for i := range violations {
		violations[i] = fmt.Sprintf("epoch %d: %s", e, violations[i])
	}
	return violations
}

// maxShown limits how many violations of one kind a run prints. The log has all.
const maxShown = 5

func (r *run) report(found []string) {
	for i, text := range found {
		if i == maxShown {
			r.t.Errorf("and %d more", len(found)-i)
			break
		}
		r.t.Errorf("VIOLATION (seed %d): %s", r.seed, text)
	}
	for _, text := range found {
		r.log("VIOLATION: %s", text)
	}
}

// readBack reads all accounts of an epoch, their tags and all values, and sends the request of each
// idempotency key again. It is called while there are no faults. It also checks that each account
// is found by its own identifiers.
func (r *run) readBack(e int) (ops []op) {
	c := r.caller(e)
	for uid := range accounts {
		ops = append(ops, r.askUntilAnswered(c, question{Verb: "get", UID: uid}), r.askUntilAnswered(c, question{Verb: "tags", UID: uid}))
		o := ops[len(ops)-2]
		for _, v := range o.Answer.Facets {
			if o.Answer.What == "ok" && v > 0 {
				if err := checkResolves(r.ctx, r.users, uidOf(e, uid), spelling(e, v, 1)); err != nil {
					r.report([]string{err.Error()})
				}
			}
		}
	}
	for v := int8(1); v <= values; v++ {
		ops = append(ops, r.askUntilAnswered(c, question{Verb: "find", Field: -1, Value: v}))
	}
	for n := range idempotencyKeys {
		c.how = n % services // each service in turn: the clock of one is ahead, the other's behind
		ops = append(ops, r.askUntilAnswered(c, question{Verb: "once", UID: noAccount, Name: idempotencyKey(e, n)}))
	}
	return ops
}

// caller returns a caller for the parent's questions.
func (r *run) caller(epoch int) caller {
	return caller{r.users, r.members, epoch, 0, r.serviceAddrs, r.key}
}

// checkSessions reports each listed session whose secret no client got.
func (r *run) checkSessions(e int, ops []op) {
	for uid := range accounts {
		var ids []string
		for s, err := range r.users.Sessions(r.ctx, hints.UID(uidOf(e, uid))) {
			if err == nil {
				ids = append(ids, s.ID)
			}
		}
		r.report(inEpoch(e, unknownSessions(uid, ids, ops)))
	}
}

// touchAccounts changes each account of an epoch. If a killed client wrote a line of history but
// did not add it to the feed, this next change of the account adds it.
func (r *run) touchAccounts(e int) {
	for uid := range accounts {
		r.askUntilAnswered(r.caller(e), question{Verb: "tag", UID: uid, Tags: []string{fmt.Sprintf("end.%d.%d", e, uid)}})
	}
}

// askUntilAnswered asks until the answer is definite, and reports a violation if that takes too
// long.
func (r *run) askUntilAnswered(c caller, q question) (o op) {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
		o = op{Client: "end", N: -1, Epoch: c.epoch, Begin: now(), Ask: q}
		o.Answer = c.do(ctx, q)
		o.End = now()
		cancel()
		if !slices.Contains([]string{"refused", "unknown", "conflict"}, o.Answer.What) || r.ctx.Err() != nil {
			return o
		}
		if time.Since(begin) > 20*time.Second {
			r.report([]string{"no definite answer, although all faults are repaired: " + o.String()})
			return o
		}
	}
}

// rawDamage returns a function that reads all records and describes their damage, including tags
// inherited from a deleted account. ops holds the operations by epoch. If repaired is set,
// leftovers of interrupted operations also count as damage.
func (r *run) rawDamage(ops map[int][]op, repaired bool) func() ([]string, error) {
	return func() ([]string, error) {
		begin := now()
		all, err := readAll(r.ctx, r.client)
		if err != nil {
			return nil, err
		}
		found := damage(all, repaired)
		for e, epochOps := range ops {
			found = append(found, testdb.RecordViolations(e, listOps(epochOps), func(key string) map[string]string { return all[key].hash })...)
			for uid := range accounts {
				name := "user/uid:" + uidOf(e, uid)
				// There is no such entry, or its tags are not in place yet.
				if all[name].hash["~isa"] == "" || all[name].hash["~fill"] != "" {
					continue
				}
				reading := op{Client: rawClient, Epoch: e, Begin: begin, End: begin + 1, Ask: question{Verb: "tags", UID: uid}, Answer: answer{What: "ok", UID: -1, Tags: all[name+"/tags"].members}}
				accountOps := slices.DeleteFunc(slices.Clone(epochOps), func(o op) bool { return !o.about(uid) || o.Ask.Verb == "tags" })
				for _, text := range tagViolations(uid, append(accountOps, reading)) {
					head, _, _ := strings.Cut(text, ":\n")
					found = append(found, fmt.Sprintf("the record of %s/tags: %s (%v)", name, head, reading.Answer.Tags))
				}
			}
		}
		return found, nil
	}
}

// finish kills the clients, repairs the store, checks that nothing is left to repair, and fails the
// run if too little happened in it.
func (r *run) finish(n *nemesis, minutes float64) {
	r.log("repairing")
	cuts := r.oldCuts
	for i := range clients {
		r.process(i).kill()
		cuts += r.process(i).cutCount()
	}
	repairs := 0
	for remaining := []string{""}; len(remaining) > 0; repairs++ {
		if repairs == maxRepairs {
			r.report(remaining)
			break
		}
		r.log("repaired: %v", r.check(true))
		remaining = r.check(false)
		r.log("left by the repair: %v", remaining)
	}
	found, err := confirmedDamage(r.ctx, r.rawDamage(nil, true))
	r.must(err)
	r.report(found)
	r.checkCoverage(n, cuts, minutes)
	r.print("%d repairs; %s; steps %v; %d replies and requests lost; %s",
		repairs, r.progress(), n.done, cuts, sortedCounts(r.ok))
}

// maxRepairs is the number of repairs that may be needed. A repair does not touch a record on which
// a client may still be working, even if that client was killed. A later repair does.
const maxRepairs = 4

// check runs check.Run and returns the errors that it found.
func (r *run) check(repair bool) (problems []string) {
	for p, err := range check.Run(r.ctx, r.db, check.Options{Repair: repair}) {
		r.must(err)
		if p.Severity == check.SeverityError {
			problems = append(problems, "check.Run reports: "+p.String())
		}
	}
	return problems
}

// checkCoverage fails a run in which too little happened to prove anything.
func (r *run) checkCoverage(n *nemesis, cuts int, minutes float64) {
	good := 0
	for _, verb := range []string{"create", "add", "drop", "first", "exchange", "delete", "release", "find"} {
		if r.ok["list "+verb] == 0 {
			r.t.Errorf("no %s of a list succeeded", verb)
		}
	}
	for _, verb := range []string{"create", "update", "delete", "find", "get", "password", "login", "disable", "enable", "tag", "replace", "tags", "begin", "check", "end", "endid", "endall", "issue", "redeem", "invite", "accept", "once", "list"} {
		if good += r.ok[verb]; r.ok[verb] == 0 {
			r.t.Errorf("no %s succeeded", verb)
		}
	}
	if float64(good) < minOpsPerMinute*minutes {
		r.t.Errorf("only %d operations succeeded in %v minutes", good, minutes)
	}
	if len(n.done) == 0 {
		r.t.Error("the nemesis did nothing")
	}
	if n.done["replies"] > 0 && cuts == 0 {
		r.t.Error("no reply was lost")
	}
	if r.follower.gaps == 0 {
		r.t.Error("the follower never found a gap in the feed")
	}
	if 10*r.verdict.undecided > r.verdict.histories {
		r.t.Errorf("%d of %d histories could not be judged in time", r.verdict.undecided, r.verdict.histories)
	}
}

func sorted(texts []string) string { return strings.Join(slices.Sorted(slices.Values(texts)), " ") }

func sortedCounts(m map[string]int) string {
	texts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(texts, ", ")
}
