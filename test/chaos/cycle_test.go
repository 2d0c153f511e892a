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
	"github.com/coffeenode/userdb/maintain/check"
)

// cycle is some epochs with faults, and a quiet moment in which all of it is judged.
func (r *run) cycle(i int, n *nemesis) {
	steps := plan(r.kind, r.seed, i, len(r.shards))
	r.print("cycle %d: %s", i, announced(steps))
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
	r.quiet(i)
	if r.ctx.Err() != nil {
		r.t.Fatal("interrupted")
	}
}

// epochs goes from one to the next.
func (r *run) epochs(ctx context.Context) {
	for ctx.Err() == nil {
		r.last++
		r.setEpoch(r.last)
		_ = sleep(ctx, epochLong) // a cycle may end in the middle of one
	}
}

// watch tells what is done where nothing else was told for a while.
func (r *run) watch(ctx context.Context) {
	for sleep(ctx, time.Second) == nil {
		r.mu.Lock()
		silent, doing := time.Since(r.said) > silence, r.doing
		r.mu.Unlock()
		if silent {
			r.print("epoch %d; %s", r.epoch.Load(), doing)
		}
	}
}

func (r *run) progress() string {
	good, asked := 0, 0
	for verb, n := range r.all {
		good, asked = good+r.ok[verb], asked+n
	}
	return fmt.Sprintf("%d of %d operations judged so far succeeded, %d histories judged, %d undecided", good, asked, r.verdict.histories, r.verdict.undecided)
}

// quiet heals all, has all clients wait, and judges.
func (r *run) quiet(cycle int) {
	r.epoch.Store(0)
	for i := range clients {
		r.process(i).say("pass")
	}
	for i := range clients {
		if err := r.process(i).pause(rest); err != nil {
			r.t.Fatal(err)
		}
	}
	r.agreed()
	r.log("judging")
	ops := r.histories()
	for e := r.judged + 1; e <= r.last; e++ {
		r.judgeEpoch(e, append(ops[e], r.lookBack(e)...))
		r.lookAtSessions(e, ops[e])
		r.touch(e)
		r.violated(within(e, r.judgeFeed(e, ops[e])))
	}
	r.judged = r.last
	r.violated(r.follower.complaints())
	for i := range clients {
		r.violated(r.process(i).complaints())
	}
	r.must(r.forget())
	if cycle%2 == 0 { // its position is beyond the end; else there is more behind it when the follower goes on
		r.must(r.follower.read(r.ctx))
	}
	found, err := lasting(r.ctx, r.rawDamage(ops, false))
	r.must(err)
	r.violated(found)
	r.print("quiet; %s", r.progress())
}

// histories are the operations of the epochs that are not judged yet.
func (r *run) histories() map[int][]op {
	var all []op
	for name, path := range r.files {
		ops, err := readHistory(path, name)
		if os.IsNotExist(err) {
			continue // killed before it could ask
		}
		r.must(err)
		all = append(all, slices.DeleteFunc(ops, func(o op) bool { return o.Epoch <= r.judged })...)
	}
	return byEpoch(all)
}

func (r *run) judgeEpoch(e int, ops []op) {
	for _, o := range ops {
		r.all[o.Ask.Verb]++
		if o.Answer.What == "ok" {
			r.ok[o.Ask.Verb]++
		}
	}
	v := judge(ops)
	r.verdict.histories += v.histories
	r.verdict.undecided += v.undecided
	r.violated(within(e, v.violations))
}

func within(e int, violations []string) []string {
	for i := range violations {
		violations[i] = fmt.Sprintf("epoch %d: %s", e, violations[i])
	}
	return violations
}

const mostShown = 5

func (r *run) violated(found []string) {
	for i, text := range found {
		if i == mostShown {
			r.t.Errorf("and %d more", len(found)-i)
			break
		}
		r.t.Errorf("VIOLATION (seed %d): %s", r.seed, text)
	}
	for _, text := range found {
		r.log("VIOLATION: %s", text)
	}
}

// lookBack asks, while nobody disturbs, for all accounts of an epoch, their tags and all values.
func (r *run) lookBack(e int) (ops []op) {
	c := r.caller(e)
	for uid := range accounts {
		ops = append(ops, r.calm(c, ask{Verb: "get", UID: uid}), r.calm(c, ask{Verb: "tags", UID: uid}))
		o := ops[len(ops)-2]
		for _, v := range o.Answer.Facets {
			if o.Answer.What == "ok" && v > 0 {
				if err := resolves(r.ctx, r.users, uidOf(e, uid), spelled(e, v, 1)); err != nil {
					r.violated([]string{err.Error()})
				}
			}
		}
	}
	for v := int8(1); v <= values; v++ {
		ops = append(ops, r.calm(c, ask{Verb: "find", Field: -1, Value: v}))
	}
	for n := range names {
		c.how = n % services // whose clock is ahead, or behind
		ops = append(ops, r.calm(c, ask{Verb: "once", UID: nobodys, Name: nameOf(e, n)}))
	}
	return ops
}

// caller returns the parent's own caller.
func (r *run) caller(epoch int) caller { return caller{r.users, epoch, 0, r.serves, r.key} }

// lookAtSessions looks for sessions that are listed, and that nobody was given.
func (r *run) lookAtSessions(e int, ops []op) {
	for uid := range accounts {
		var ids []string
		for s, err := range r.users.Sessions(r.ctx, hints.UID(uidOf(e, uid))) {
			if err == nil {
				ids = append(ids, s.ID)
			}
		}
		r.violated(within(e, unacknowledged(uid, ids, ops)))
	}
}

// touch changes all accounts of an epoch: with the next change the feed has what a client that was killed left out.
func (r *run) touch(e int) {
	for uid := range accounts {
		r.calm(r.caller(e), ask{Verb: "tag", UID: uid, Tags: []string{fmt.Sprintf("end.%d.%d", e, uid)}})
	}
}

// calm asks until there is an answer.
func (r *run) calm(c caller, q ask) (o op) {
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
			r.violated([]string{"all is healed, and there is no answer: " + o.String()})
			return o
		}
	}
}

// rawDamage reads all records and says what is wrong with them, tags that were inherited included.
func (r *run) rawDamage(ops map[int][]op, repaired bool) func() ([]string, error) {
	return func() ([]string, error) {
		begin := now()
		all, err := readAll(r.ctx, r.client)
		if err != nil {
			return nil, err
		}
		found := damage(all, repaired)
		for e, of := range ops {
			for uid := range accounts {
				name := "user/uid:" + uidOf(e, uid)
				if all[name].hash["~isa"] == "" || all[name].hash["~fill"] != "" { // its tags are not in place yet
					continue
				}
				reading := op{Client: rawClient, Epoch: e, Begin: begin, End: begin + 1, Ask: ask{Verb: "tags", UID: uid}, Answer: answer{What: "ok", UID: -1, Tags: all[name+"/tags"].members}}
				of := slices.DeleteFunc(slices.Clone(of), func(o op) bool { return !o.ours(uid) || o.Ask.Verb == "tags" })
				for _, text := range wrongTags(uid, append(of, reading)) {
					head, _, _ := strings.Cut(text, ":\n")
					found = append(found, fmt.Sprintf("the record of %s/tags: %s (%v)", name, head, reading.Answer.Tags))
				}
			}
		}
		return found, nil
	}
}

// finish ends the clients, repairs, and looks whether the run was worth something.
func (r *run) finish(n *nemesis, minutes float64) {
	r.log("repairing")
	cuts := r.cutsOf
	for i := range clients {
		r.process(i).kill()
		cuts += r.process(i).cutsSoFar()
	}
	repairs := 0
	for left := []string{""}; len(left) > 0; repairs++ {
		if repairs == mostRepairs {
			r.violated(left)
			break
		}
		r.log("repaired: %v", r.check(true))
		left = r.check(false)
		r.log("left by the repair: %v", left)
	}
	found, err := lasting(r.ctx, r.rawDamage(nil, true))
	r.must(err)
	r.violated(found)
	r.worth(n, cuts, minutes)
	r.print("%d repairs; %s; steps %v; %d replies and requests lost; %s",
		repairs, r.progress(), n.done, cuts, sortedCounts(r.ok))
}

// mostRepairs are enough: a repair leaves for the next one what somebody who was killed may still be at.
const mostRepairs = 4

func (r *run) check(repair bool) (problems []string) {
	for p, err := range check.Run(r.ctx, r.db, check.Options{Repair: repair}) {
		r.must(err)
		if p.Severity == check.SeverityError {
			problems = append(problems, "check says: "+p.String())
		}
	}
	return problems
}

// worth fails a run in which nothing happened.
func (r *run) worth(n *nemesis, cuts int, minutes float64) {
	good := 0
	for _, verb := range []string{"create", "update", "delete", "find", "get", "password", "login", "disable", "enable", "tag", "replace", "tags", "begin", "check", "end", "endid", "endall", "issue", "redeem", "invite", "accept", "once"} {
		if good += r.ok[verb]; r.ok[verb] == 0 {
			r.t.Errorf("no %s succeeded", verb)
		}
	}
	if float64(good) < leastOps*minutes {
		r.t.Errorf("only %d operations succeeded in %v minutes", good, minutes)
	}
	if len(n.done) == 0 {
		r.t.Error("the nemesis did nothing")
	}
	if n.done["replies"] > 0 && cuts == 0 {
		r.t.Error("no reply was lost")
	}
	if r.follower.gaps == 0 {
		r.t.Error("the follower never lost its position")
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
