//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A step describes one act of the nemesis.
type step struct {
	kind     string
	shard    int           // the shard of the affected master
	client   int           // the affected client
	uid      int           // account whose slots are moved
	after    time.Duration // wait before the step
	duration time.Duration // duration of the step
	// inside is the kind of a step that is carried out while slots are half open; "" for none.
	inside string
	// n is the number of replies or requests to lose, the delay in milliseconds, or the space left
	// on the disk in units of 64 bytes.
	n    int
	text string // only commands that contain it lose their replies or requests

	command string // command that a server refuses
}

func (s step) String() string {
	switch s.kind {
	case "move":
		inside := ""
		if s.inside != "" {
			inside = " with " + step{kind: s.inside, shard: s.shard, client: s.client, duration: s.duration / 2, n: s.n, text: s.text}.String()
		}
		return fmt.Sprintf("move slots of account %d, half open twice for %v%s", s.uid, s.duration, inside)
	case "kill", "stop":
		return fmt.Sprintf("%s master %d for %v", s.kind, s.shard, s.duration)
	case "failover":
		return fmt.Sprintf("failover %d", s.shard)
	case "forbid", "fill", "disk":
		return s.refusalText()
	case "replies", "requests":
		return fmt.Sprintf("lose %d %s of clients %d in commands with %q", s.n, s.kind, s.clients(), s.text)
	case "delay":
		return fmt.Sprintf("delay client %d by %d ms for %v", s.client, s.n, s.duration)
	case "kill-service", "stop-service":
		return fmt.Sprintf("%s %d for %v", s.kind, s.client%services, s.duration)
	case "burst":
		return fmt.Sprintf("stop master %d for %v during a burst in client %d", s.shard, s.duration+burstTime, s.client)
	case "cut", "kill-client":
		return fmt.Sprintf("%s %d", s.kind, s.client)
	}
	return fmt.Sprintf("%s %d for %v", s.kind, s.client, s.duration)
}

// kinds lists the kinds of step. A kind that is listed twice is chosen twice as often.
var kinds = []string{
	"kill", "kill", "stop", "stop", "failover", "failover", "move", "move", "move", "move", "move",
	"replies", "replies", "requests", "cut", "delay", "kill-client", "kill-client", "stop-client", "stop-client",
	"forbid", "forbid", "forbid", "fill", "disk", "kill-service", "stop-service", "burst",
}

// insideKinds lists the kinds of step that the nemesis may carry out while slots are half open. A
// failover is not among them; see the package comment.
var insideKinds = []string{"", "", "kill", "stop", "replies", "kill-client", "stop-client", "delay"}

// texts lists texts that select the commands whose requests or replies are lost. Every call of a
// script contains evalsha. Only some calls contain the other texts.
var (
	// rareTexts lists the texts that occur in few commands.
	rareTexts = []string{"session_start", "session_end", "session_end", "issue", "redeem"}
	texts     = append([]string{"evalsha", "create", "update", "delete"}, rareTexts...)
)

// clients returns the clients that lose requests or replies in a step: all of them if the text is
// rare.
func (s step) clients() (all []int) {
	if !slices.Contains(rareTexts, s.text) {
		return []int{s.client}
	}
	for i := range clients {
		all = append(all, i)
	}
	return all
}

// plan returns the steps of a cycle. The first cycles have at least one step of each kind, so that
// even a short run tests each promise.
func plan(kind string, seed uint64, cycle, shards int) (steps []step) {
	kinds, first := supported(kind, kinds), firstSteps(kind)
	rnd := rand.New(rand.NewPCG(seed, uint64(cycle)))
	tenths := func(least, most int) time.Duration {
		return time.Duration(least+rnd.IntN(most-least+1)) * 100 * time.Millisecond
	}
	for i := range stepsOfCycle {
		s := step{
			kind: kinds[rnd.IntN(len(kinds))], shard: rnd.IntN(shards), client: rnd.IntN(clients), uid: rnd.IntN(accounts),
			after: tenths(0, 8), duration: tenths(2, 20), inside: insideKinds[rnd.IntN(len(insideKinds))], n: 1 + rnd.IntN(12),
			text: texts[rnd.IntN(len(texts))], command: commands[rnd.IntN(len(commands))],
		}
		if n := firstOfCycle*cycle + i; i < firstOfCycle && n < len(first) {
			s.kind, s.text = first[n].kind, cmp.Or(first[n].text, texts[0])
			s.command = cmp.Or(first[n].command, s.command)
		}
		switch s.kind {
		case "stop-client", "stop":
			s.duration += tenths(0, 15)
		case "forbid":
			s.duration += tenths(5, 15) // long enough to affect most kinds of operations
		}
		steps = append(steps, s)
	}
	return steps
}

// supported returns the kinds of step that a kind of store allows.
func supported(store string, steps []string) []string {
	return slices.DeleteFunc(slices.Clone(steps), func(step string) bool {
		return step == "move" && store != kindCluster || step == "failover" && store == kindOne
	})
}

const (
	stepsOfCycle = 6
	// firstOfCycle is the number of steps of a cycle that come from firstSteps, as long as any are
	// left.
	firstOfCycle = 4
	// burstTime is the minimum time for which the master does not answer a burst. It is so long
	// that a call that waited for the master would return long after its context ended.
	burstTime = 5 * time.Second
)

// firstSteps returns at least one step of each kind that a kind of store allows, for the first
// cycles.
func firstSteps(kind string) []step {
	steps := []step{
		{kind: "move"},
		{kind: "kill-client"},
		{kind: "forbid", command: "expire"},
		{kind: "replies", text: "session_end"},
		{kind: "burst"},
		{kind: "kill"},
		{kind: "failover"},
		{kind: "replies"},
		{kind: "stop"},
		{kind: "stop-client"},
		{kind: "forbid", command: "hdel"},
		{kind: "requests"},
		{kind: "cut"},
		{kind: "delay"},
		{kind: "kill-service"},
		{kind: "fill"},
		{kind: "disk"},
		{kind: "stop-service"},
	}
	return slices.DeleteFunc(steps, func(s step) bool { return len(supported(kind, []string{s.kind})) == 0 })
}

// minCycles returns the number of cycles that all first steps need.
func minCycles(kind string) int { return (len(firstSteps(kind)) + firstOfCycle - 1) / firstOfCycle }

// A nemesis carries out the steps of a plan, and counts them by kind.
type nemesis struct {
	r    *run
	done map[string]int
}

func (n *nemesis) do(s step) {
	time.Sleep(s.after)
	n.r.log("begins: %v", s)
	n.act(s)
	n.done[s.kind]++
	n.r.log("ended: %v", s)
}

func (n *nemesis) act(s step) {
	r := n.r
	switch s.kind {
	case "kill":
		master := r.master(s.shard)
		master.Kill()
		time.Sleep(s.duration)
		master.Restart()
		r.waitReady()
	case "stop":
		r.stopMaster(s.shard, s.duration)
		r.waitReady()
	case "burst":
		r.process(s.client).send("burst %d", (s.duration + burstTime).Milliseconds())
		r.stopMaster(s.shard, s.duration+burstTime)
		r.waitReady()
	case "failover":
		r.failover(s.shard)
	case "forbid":
		r.forbid(s.shard, s.command, s.duration)
	case "fill":
		r.fill(s.shard, s.duration)
	case "disk":
		r.fillDisk(s.shard, 64*s.n, s.duration)
	case "move":
		n.move(s)
	case "replies", "requests":
		for _, i := range s.clients() {
			r.process(i).send("%s %d %s", s.kind, s.n, s.text)
		}
	case "cut":
		r.process(s.client).send("cut")
	case "delay":
		r.process(s.client).send("delay %d", s.n)
		time.Sleep(s.duration)
		r.process(s.client).send("delay 0")
	case "kill-client":
		r.replaceClient(s.client)
	case "stop-client":
		pauseProcess(r.process(s.client), s.duration)
	case "kill-service":
		r.replaceService(s.client % services)
	case "stop-service":
		pauseProcess(r.services[s.client%services], s.duration)
	}
}

// move moves the slots of an account, of its tags and of one of its SRKs to another shard. It keeps
// the slots half open twice: before and after it moves their records.
func (n *nemesis) move(s step) {
	epoch := max(int(n.r.epoch.Load()), 1)
	uid := uidOf(epoch, s.uid)
	value := spelling(epoch, int8(1+s.uid%values), 0)
	var moves []*move
	for _, key := range []string{"user/uid:" + uid, "user/uid:" + uid + "/tags", "user/" + fields[s.n%len(fields)] + ":" + escaped(value) + "/~prk"} {
		if m := n.r.openSlot(key); m != nil {
			moves = append(moves, m)
		}
	}
	time.Sleep(s.duration)
	if s.inside != "" {
		n.act(step{kind: s.inside, shard: s.shard, client: s.client, duration: s.duration / 2, n: s.n, text: s.text})
		n.done[s.inside+" while slots are half open"]++
	}
	for _, m := range moves {
		n.r.migrateSlot(m)
	}
	time.Sleep(s.duration)
	for _, m := range moves {
		n.r.closeSlot(m)
	}
}

// planText returns a description of a plan in one line.
func planText(steps []step) string {
	texts := make([]string, len(steps))
	for i, s := range steps {
		texts[i] = fmt.Sprintf("+%v %v", s.after, s)
	}
	return strings.Join(texts, " · ")
}
