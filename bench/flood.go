package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/userdb"
)

// A flood is logins that come whether or not the ones before them have been served.
type flood struct {
	served, refused, other atomic.Int64
	stop                   func()
}

const (
	floodCost = 12
	tooMany   = 10 // times more logins than the machine can hash
	patience  = 30 * time.Second
)

// startFlood lets logins come until stop is called, which waits for the last of them.
func startFlood(ctx context.Context, users *userdb.Type, people int) (*flood, error) {
	stored, err := bcrypt.GenerateFromPassword([]byte(loginPassword), floodCost)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := bcrypt.CompareHashAndPassword(stored, []byte(loginPassword)); err != nil {
		return nil, err
	}
	every := time.Since(begin) / time.Duration(tooMany*runtime.GOMAXPROCS(0))
	ctx, cancel := context.WithCancel(ctx)
	f := &flood{}
	var wg sync.WaitGroup
	wg.Go(func() {
		next := time.NewTicker(every)
		defer next.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			wg.Go(func() { f.login(ctx, users, loginName(i%people)) })
			select {
			case <-next.C:
			case <-ctx.Done():
			}
		}
	})
	f.stop = func() { cancel(); wg.Wait() }
	return f, nil
}

// fill waits until so many wait that one was refused, for as long as anybody waits at most.
func (f *flood) fill(ctx context.Context) {
	for end := time.Now().Add(patience); f.refused.Load() == 0 && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
}

func (f *flood) login(ctx context.Context, users *userdb.Type, name string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := users.Login(ctx, name, loginPassword, userdb.Attempt{})
	switch {
	case err == nil:
		f.served.Add(1)
	case errors.Is(err, userdb.ErrUnavailable):
		f.refused.Add(1)
	case ctx.Err() == nil:
		f.other.Add(1)
	}
}

func (f *flood) note() string {
	return fmt.Sprintf("%d logins served, %d refused, %d otherwise", f.served.Load(), f.refused.Load(), f.other.Load())
}

// readUnderFlood reads idle, and then in a flood.
func (b *bench) readUnderFlood(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	people := 10 * runtime.GOMAXPROCS(0)
	db, users, err := b.loginStore(ctx, floodCost, people, 0)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	read := finds(users)
	read.name = "read"
	idle, err := interleave(ctx, b.server, 4, b.rounds, b.per, read)
	if err != nil {
		return outcome{}, err
	}
	f, err := startFlood(ctx, users, people)
	if err != nil {
		return outcome{}, err
	}
	f.fill(ctx)
	busy, err := interleave(ctx, b.server, 4, b.rounds, b.per, read)
	f.stop()
	if err != nil {
		return outcome{}, err
	}
	return outcome{ratio: busy[0].P99 / idle[0].P99, note: f.note(), variants: append(idle, busy...)}, nil
}

// memoryUnderFlood looks at what is in use while a flood goes on.
func (b *bench) memoryUnderFlood(ctx context.Context) (outcome, error) {
	defer b.server.reset(ctx)
	people := 10 * runtime.GOMAXPROCS(0)
	db, users, err := b.loginStore(ctx, floodCost, people, 0)
	if err != nil {
		return outcome{}, err
	}
	defer db.Close()
	f, err := startFlood(ctx, users, people)
	if err != nil {
		return outcome{}, err
	}
	defer f.stop()
	f.fill(ctx)
	var used []float64
	for range 2 * b.rounds {
		time.Sleep(400 * time.Millisecond)
		used = append(used, inUse())
	}
	early, late := median(used[:b.rounds]), median(used[b.rounds:])
	note := fmt.Sprintf("%.1f MiB, then %.1f; %s", early/(1<<20), late/(1<<20), f.note())
	return outcome{ratio: late / early, note: note}, nil
}

// inUse is what live objects and stacks take.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
