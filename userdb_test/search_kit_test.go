package userdb_test

import (
	"cmp"
	"context"
	"net"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A search takes the verbs of several players through all orders of their commands, as far as its budget of
// preemptions goes: how often a player is stopped before a command while others go on. Every order is played anew,
// on an entry of its own.
type search struct {
	play        func(*play)   // begins the players of a play
	judge       func() string // the play that is over
	tamper      *tamper       // nil: none
	preemptions int
	most        int // plays
	plays       int
}

// A tamper changes what a player sends, or the answer that it gets.
type tamper struct {
	before, after func(who *player, cmd redis.Cmder)
}

// A play is one order of commands.
type play struct {
	mu      sync.Mutex
	tamper  *tamper
	number  int
	players []*player
	choices []choosing
	steps   int
	watch   func(*player) // after every step of a player, or of nobody's
}

// A choosing is a moment of a play: who could go on, and who did.
type choosing struct {
	could       []int // players, the one that went on before at first; timePasses: time goes by
	chosen      int   // index
	preempts    bool  // the first could have gone on
	preemptions int   // before
}

const timePasses = -1 // instead of a player

// A player does some verbs, one after the other.
type player struct {
	id      int
	play    *play
	pending []*gated
	ended   bool
}

// A gated command waits to be sent.
type gated struct {
	cmd  redis.Cmder
	text string
	send chan struct{}
	sent chan struct{}
	seen chan struct{} // what it did
}

type playerKey struct{}

// cast begins what a player does.
func (p *play) cast(do func(ctx context.Context, who *player)) {
	who := &player{id: len(p.players), play: p}
	p.players = append(p.players, who)
	go func() {
		do(context.WithValue(context.Background(), playerKey{}, who), who)
		p.mu.Lock()
		defer p.mu.Unlock()
		who.ended = true
	}()
}

// A stagehand holds up the commands of players. It is the last hook of a client.
type stagehand struct{}

// DialHook implements redis.Hook.
func (stagehand) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (stagehand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		who, is := ctx.Value(playerKey{}).(*player)
		if !is || handshake([]redis.Cmder{cmd}) {
			return next(ctx, cmd)
		}
		return who.through(cmd, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook: on a cluster each command goes its own way.
func (stagehand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		who, is := ctx.Value(playerKey{}).(*player)
		if !is || handshake(cmds) {
			return next(ctx, cmds)
		}
		errs := make([]error, len(cmds))
		var wg sync.WaitGroup
		for i, cmd := range cmds {
			wg.Go(func() {
				errs[i] = who.through(cmd, func() error { return next(ctx, []redis.Cmder{cmd}) })
			})
		}
		wg.Wait()
		return cmp.Or(errs...)
	}
}

// through waits until the command's turn has come.
func (who *player) through(cmd redis.Cmder, next func() error) error {
	g := &gated{cmd: cmd, text: wordsOf(cmd), send: make(chan struct{}), sent: make(chan struct{}), seen: make(chan struct{})}
	p := who.play
	p.mu.Lock()
	who.pending = append(who.pending, g)
	p.mu.Unlock()
	<-g.send
	if t := p.tamper; t != nil && t.before != nil {
		t.before(who, cmd)
	}
	err := next()
	if t := p.tamper; t != nil && t.after != nil && err == nil {
		t.after(who, cmd)
	}
	close(g.sent)
	<-g.seen
	return err
}

// first is the command of a player that is sent next: of several at a time the same one in every play.
func (who *player) first() *gated {
	return slices.MinFunc(who.pending, func(a, b *gated) int { return cmp.Compare(a.text, b.text) })
}

// options are who can go on, last first; sleepers can, where time goes by.
func (p *play) options(last int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var could []int
	asleep := false
	for _, who := range p.players {
		switch {
		case len(who.pending) > 0:
			could = append(could, who.id)
		case !who.ended:
			asleep = true
		}
	}
	slices.SortStableFunc(could, func(a, b int) int { return cmp.Compare(min(1, (a-last)*(a-last)), min(1, (b-last)*(b-last))) })
	if asleep {
		could = append(could, timePasses)
	}
	return could
}

// step lets a player send one command, or time go by for those who wait for that.
func (p *play) step(id int) {
	var who *player
	if id == timePasses {
		time.Sleep(time.Second)
	} else {
		who = p.players[id]
		p.mu.Lock()
		g := who.first()
		who.pending = slices.DeleteFunc(who.pending, func(o *gated) bool { return o == g })
		p.steps++
		p.mu.Unlock()
		close(g.send)
		<-g.sent
		p.watch(who)
		close(g.seen)
	}
	synctest.Wait()
}

// run plays an order: as begun, and from there on without preemption.
func (p *play) run(begun []int) {
	synctest.Wait()
	last, used := 0, 0
	for could := p.options(last); len(could) > 0; could = p.options(last) {
		c := choosing{could: could, preempts: could[0] == last, preemptions: used}
		if at := len(p.choices); at < len(begun) {
			c.chosen = min(begun[at], len(could)-1)
		}
		p.choices = append(p.choices, c)
		if c.preempts && c.chosen > 0 {
			used++
		}
		if next := could[c.chosen]; next != timePasses {
			last = next
		}
		p.step(could[c.chosen])
	}
}

// next is the order to be played after this one, nil after the last.
func (p *play) next(most int) []int {
	for at := len(p.choices) - 1; at >= 0; at-- {
		c := p.choices[at]
		if c.chosen+1 >= len(c.could) || c.preempts && c.chosen == 0 && c.preemptions >= most {
			continue
		}
		order := make([]int, at+1)
		for i := range at {
			order[i] = p.choices[i].chosen
		}
		order[at] = c.chosen + 1
		return order
	}
	return nil
}

// find returns a violation, or "" when all orders have been played.
func (s *search) find() string {
	for order := []int{}; order != nil && s.plays < s.most; {
		p := &play{number: s.plays, tamper: s.tamper}
		s.play(p)
		p.run(order)
		s.plays++
		if wrong := s.judge(); wrong != "" {
			return wrong + " in the order " + p.String()
		}
		order = p.next(s.preemptions)
	}
	return ""
}

// String is who went on at each step: digits, and a dot where time went by.
func (p *play) String() string {
	text := make([]byte, len(p.choices))
	for i, c := range p.choices {
		text[i] = '.'
		if id := c.could[c.chosen]; id != timePasses {
			text[i] = byte('0' + id)
		}
	}
	return string(text)
}
