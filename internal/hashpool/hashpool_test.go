package hashpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// second sleeps for one second of synctest's clock.
func second() { time.Sleep(time.Second) }

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// flood starts n jobs of one second each, and waits until each is running, waiting or refused. The
// function errs waits until all jobs have ended, and returns their errors.
func flood(t *testing.T, p *Pool, n int) (errs func() []error) {
	t.Helper()
	return floodAs(t, p, Caller{}, n)
}

// floodAs does what flood does, with jobs of one caller.
func floodAs(t *testing.T, p *Pool, c Caller, n int) (errs func() []error) {
	t.Helper()
	var (
		mu  sync.Mutex
		wg  sync.WaitGroup
		all []error
	)
	for range n {
		wg.Go(func() {
			err := p.Do(t.Context(), c, second)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, err)
		})
	}
	synctest.Wait()
	return func() []error {
		wg.Wait()
		return all
	}
}

// counted returns how many jobs are running or waiting, plus how many actors, origins and accounts
// are still counted. It is 0 for a pool without jobs.
func (p *Pool) counted() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.lanes {
		l := &p.lanes[i]
		n += l.jobs + len(l.actors) + len(l.origins) + len(l.accounts)
	}
	return n
}

func count(errs []error, want error) (n int) {
	for _, err := range errs {
		if errors.Is(err, want) {
			n++
		}
	}
	return n
}

func TestNoMoreRunThanWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQueue(3, 100)
		defer p.Close()
		var (
			mu            sync.Mutex
			running, most int
			wg            sync.WaitGroup
		)
		begin := time.Now()
		for range 30 {
			wg.Go(func() {
				err := p.Do(t.Context(), Caller{}, func() {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					second()
					mu.Lock()
					running--
					mu.Unlock()
				})
				if err != nil {
					t.Errorf("Do: got %v, want no error", err)
				}
			})
		}
		wg.Wait()
		if most != 3 {
			t.Errorf("%d jobs ran at once, want 3", most)
		}
		if got := time.Since(begin); got != 10*time.Second {
			t.Errorf("30 jobs took %v, want 10s", got)
		}
	})
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1)
		defer p.Close()
		var got, want []int
		for i := range 20 {
			want = append(want, i)
			go func() {
				_ = p.Do(t.Context(), Caller{}, func() {
					got = append(got, i)
					second()
				})
			}()
			synctest.Wait()
		}
		if err := p.Do(t.Context(), Caller{}, second); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("served %v, want %v", got, want)
		}
	})
}

// newQueue returns a pool with the given number of workers and maximum number of waiting jobs in
// each lane.
func newQueue(workers, queue int) *Pool {
	p := New(workers)
	for i := range p.lanes {
		p.lanes[i].limit = workers + queue
	}
	return p
}

func TestQueueIsBounded(t *testing.T) {
	for _, tt := range []struct {
		pool func() *Pool
		jobs int
		busy int
	}{
		{func() *Pool { return newQueue(2, 5) }, 10, 3},
		{func() *Pool { return newQueue(2, 5) }, 7, 0},
		{func() *Pool { return newQueue(1, 0) }, 4, 3},
		{func() *Pool { return New(2) }, 300, 300 - 2 - 2*queuePerWorker[General]},
		{func() *Pool { return New(0) }, 1 + (1+queuePerWorker[General])*min(initialProcs(), runtime.NumCPU()), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := tt.pool()
			defer p.Close()
			if got := count(flood(t, p, tt.jobs)(), ErrBusy); got != tt.busy {
				t.Errorf("%d workers, at most %d jobs: %d of %d jobs were refused, want %d", p.workers, p.lanes[General].limit, got, tt.jobs, tt.busy)
			}
			if err := p.Do(t.Context(), Caller{}, second); err != nil {
				t.Errorf("%d workers, at most %d jobs, afterwards: got %v, want no error", p.workers, p.lanes[General].limit, err)
			}
		})
	}
}

// TestNobodyFillsTheQueue checks that one origin, and one account, gets only a share of a lane. The
// rest of the lane, and the other lanes, must stay open to others, and the share must be free again
// afterwards.
func TestNobodyFillsTheQueue(t *testing.T) {
	for _, workers := range []int{1, 2, 8} {
		for lane := range laneCount {
			for _, one := range []Caller{
				{Lane: lane, Origin: "192.0.2.7"},
				{Lane: lane, Account: "user/uid:u"},
				{Lane: lane, Origin: "192.0.2.7", Account: "user/uid:u"},
			} {
				synctest.Test(t, func(t *testing.T) {
					p := New(workers)
					defer p.Close()
					errs := floodAs(t, p, one, 1000)
					others := []Caller{{Lane: lane}, {Lane: lane, Actor: "key:web", Origin: "o", Account: "a"}, one}
					others[2].Lane = (lane + 1) % laneCount
					for _, c := range others {
						go func() {
							if err := p.Do(t.Context(), c, second); err != nil {
								t.Errorf("%d workers, after a flood from %+v: the job of %+v: got %v, want no error", workers, one, c, err)
							}
						}()
					}
					if got, want := 1000-count(errs(), ErrBusy), sharePerWorker*workers; got != want {
						t.Errorf("%d workers: %+v got %d jobs done, want %d", workers, one, got, want)
					}
					if err := p.Do(t.Context(), one, second); err != nil {
						t.Errorf("%d workers, afterwards: the job of %+v: got %v, want no error", workers, one, err)
					}
				})
			}
		}
	}
}

// TestActorsLeaveRoom checks that an actor gets as many slots as it leaves free, and that another
// actor still gets a slot, however many have taken all the slots that they can get.
func TestActorsLeaveRoom(t *testing.T) {
	for lane := range laneCount {
		for actors := 1; actors <= 5; actors++ {
			synctest.Test(t, func(t *testing.T) {
				p := New(4)
				defer p.Close()
				var errs []func() []error
				for i := range actors {
					errs = append(errs, floodAs(t, p, Caller{Lane: lane, Actor: fmt.Sprint("key:", i)}, 1000))
				}
				var last sync.WaitGroup
				last.Go(func() {
					if err := p.Do(t.Context(), Caller{Lane: lane, Actor: "key:web"}, second); err != nil {
						t.Errorf("lane %d, after %d greedy actors: got %v, want no error", lane, actors, err)
					}
				})
				most := 1000 - count(errs[0](), ErrBusy)
				if want := (p.lanes[lane].limit + 1) / 2; most != want {
					t.Errorf("lane %d: the first actor got %d slots, want %d", lane, most, want)
				}
				for i := range actors {
					errs[i]()
				}
				last.Wait()
			})
		}
	}
}

// TestLanesTakeTurns adds a hundred jobs to each lane but one, and then three to that one. The
// three must be accepted, and not wait for all those before them.
func TestLanesTakeTurns(t *testing.T) {
	for late := range laneCount {
		synctest.Test(t, func(t *testing.T) {
			p := New(1)
			defer p.Close()
			var got []bool // for each turn, whether the late lane had it
			start := func(lane Lane) {
				go func() {
					if err := p.Do(t.Context(), Caller{Lane: lane}, func() { got = append(got, lane == late); second() }); err != nil && lane == late {
						t.Errorf("lane %d, after a flood in the others: got %v, want no error", late, err)
					}
				}()
				synctest.Wait()
			}
			for lane := range laneCount {
				for range 100 {
					if lane != late {
						start(lane)
					}
				}
			}
			for range 3 {
				start(late)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			// One job is running, and each of the other lanes has a job at its head.
			want := []bool{false, false, false, false, true, false, false, false, true, false, false, false, true}
			if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
				t.Errorf("lane %d had its turns at %v; want it to begin with %v", late, got, want)
			}
		})
	}
}

// TestWaitOfOtherLane checks that the deadline of a job is compared with the time that its own lane
// takes: the sixty jobs of one lane delay a job of another by two turns only.
func TestWaitOfOtherLane(t *testing.T) {
	for _, tt := range []struct {
		deadline time.Duration
		want     error
	}{{2900 * time.Millisecond, ErrBusy}, {3 * time.Second, nil}} {
		synctest.Test(t, func(t *testing.T) {
			p := New(1)
			defer p.Close()
			flood(t, p, 1)() // so that the pool knows how long a job takes
			wait := flood(t, p, 60)
			if err := p.Do(within(t, tt.deadline), Caller{Lane: Operators}, second); !errors.Is(err, tt.want) {
				t.Errorf("deadline in %v: got %v, want %v", tt.deadline, err, tt.want)
			}
			wait()
		})
	}
}

// TestRefusedIfTooLateForDeadline adds a job to a pool with two workers and seven jobs of one
// second each, so that the new job would end after four seconds.
func TestRefusedIfTooLateForDeadline(t *testing.T) {
	for _, tt := range []struct {
		deadline time.Duration
		want     error
	}{
		{500 * time.Millisecond, ErrBusy},
		{3900 * time.Millisecond, ErrBusy},
		{4 * time.Second, nil},
		{time.Hour, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := New(2)
			defer p.Close()
			flood(t, p, 1)() // so that the pool knows how long a job takes
			wait := flood(t, p, 7)
			begin := time.Now()
			err := p.Do(within(t, tt.deadline), Caller{}, second)
			if !errors.Is(err, tt.want) {
				t.Errorf("deadline in %v: got %v, want %v", tt.deadline, err, tt.want)
			}
			if got := time.Since(begin); err != nil && got != 0 {
				t.Errorf("deadline in %v: refused after %v, want at once", tt.deadline, got)
			}
			if busy, is := errors.AsType[*BusyError](err); err != nil && (!is || busy.Wait != 3*time.Second) {
				t.Errorf("deadline in %v: got %+v, want a BusyError with Wait 3s", tt.deadline, busy)
			}
			wait()
		})
	}
}

// TestAverageForgetsSlowJob checks that a job that took an hour, for example because the process
// was suspended, does not make the pool refuse later jobs.
func TestAverageForgetsSlowJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1)
		defer p.Close()
		_ = p.Do(t.Context(), Caller{}, func() { time.Sleep(time.Hour) })
		for i := range 100 {
			if err := p.Do(within(t, 2*time.Second), Caller{}, second); err != nil {
				t.Fatalf("job %d: got %v, want no error", i, err)
			}
		}
		wait := flood(t, p, 1)
		if err := p.Do(within(t, 3*time.Second), Caller{}, second); err != nil {
			t.Errorf("while another job runs: %v", err)
		}
		wait()
	})
}

// TestLateJobsAreRefusedAtOnce has jobs become slower while others wait. Those that can no longer
// end before their deadlines are refused as soon as that is clear, not at their deadlines, and the
// others run.
func TestLateJobsAreRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1)
		defer p.Close()
		flood(t, p, 1)() // so that the pool expects a job to take a second
		begin := time.Now()
		go func() { _ = p.Do(t.Context(), Caller{}, func() { time.Sleep(17 * time.Second) }) }()
		synctest.Wait()
		var mu sync.Mutex
		ended := map[time.Duration]int{}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				err := p.Do(within(t, 40*time.Second), Caller{}, second)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					ended[0]++
				} else if ended[time.Since(begin)]++; !errors.Is(err, ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("refused with %v, want ErrBusy alone", err)
				}
			})
		}
		wg.Wait()
		// After 4 s, the pool expects the others to take 2.5 s each: 36 s are left, for 14 jobs.
		// After 8 s, it expects 4.5 s, which leaves 7, and after 16 s, 8.5 s.
		if want := map[time.Duration]int{0: 2, 4 * time.Second: 6, 8 * time.Second: 7, 16 * time.Second: 5}; !maps.Equal(ended, want) {
			t.Errorf("jobs were done (0) or refused after %v, want %v", ended, want)
		}
		if n := p.counted(); n != 0 {
			t.Errorf("%d jobs are left, want none", n)
		}
	})
}

// TestBusyMachine fills the queue with jobs that take twenty times as long as those before them, or
// with slow jobs from the beginning. Most jobs must be refused long before one of them has ended,
// and as many must be done as can be done before their deadlines.
func TestBusyMachine(t *testing.T) {
	for _, before := range []int{0, 20} {
		synctest.Test(t, func(t *testing.T) {
			p := New(2)
			defer p.Close()
			for range before {
				_ = p.Do(t.Context(), Caller{}, func() { time.Sleep(time.Second / 4) })
			}
			begun := time.Now()
			var mu sync.Mutex
			var refused []time.Duration
			done := 0
			var wg sync.WaitGroup
			for range 250 {
				wg.Go(func() {
					err := p.Do(within(t, 30*time.Second), Caller{}, func() { time.Sleep(5 * time.Second) })
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						done++
					case errors.Is(err, ErrBusy):
						refused = append(refused, time.Since(begun))
					default:
						t.Error(err)
					}
				})
			}
			wg.Wait()
			early := 0
			for _, after := range refused {
				if after <= 2*time.Second {
					early++
				}
			}
			if early < 190 || done != 12 {
				t.Errorf("after %d jobs: %d were refused within 2 s, and %d were done; want at least 190 and 12", before, early, done)
			}
			if n := p.counted(); n != 0 {
				t.Errorf("%d jobs are left, want none", n)
			}
		})
	}
}

// TestSpareJobs checks that a spare job runs if a worker is free, and is otherwise refused instead
// of waiting.
func TestSpareJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(2)
		defer p.Close()
		wait := flood(t, p, 1)
		if err := p.Do(t.Context(), Caller{Spare: true}, second); err != nil {
			t.Errorf("with a free worker: got %v, want no error", err)
		}
		wait()
		wait = flood(t, p, 2)
		if err := p.Do(t.Context(), Caller{Spare: true}, second); !errors.Is(err, ErrBusy) {
			t.Errorf("without a free worker: got %v, want ErrBusy", err)
		}
		wait()
	})
}

// TestDeadlineInQueue has jobs become slower, so that a deadline passes while a job waits. The
// error must match both ErrBusy and DeadlineExceeded.
func TestDeadlineInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1)
		defer p.Close()
		flood(t, p, 1)()
		go func() { _ = p.Do(t.Context(), Caller{}, func() { time.Sleep(time.Minute) }) }()
		synctest.Wait()
		err := p.Do(within(t, 5*time.Second), Caller{}, second)
		if !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrBusy and DeadlineExceeded", err)
		}
	})
}

func TestEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1)
		defer p.Close()
		wait := flood(t, p, 1)
		ran := false
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := p.Do(ctx, Caller{}, func() { ran = true }); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled while it waits: %v, want context.Canceled", err)
		}
		if err := p.Do(ctx, Caller{}, func() { ran = true }); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled before: %v, want context.Canceled", err)
		}
		// The average is still unknown, but the first job has taken a millisecond.
		if err := p.Do(within(t, time.Millisecond), Caller{}, func() { ran = true }); !errors.Is(err, ErrBusy) {
			t.Errorf("deadline before its turn: %v, want ErrBusy", err)
		}
		wait()
		if ran {
			t.Error("a job ran whose context had ended")
		}
	})
}

// TestDoWaitsForRunningJob checks that Do does not abandon a running job. What a job wrote must be
// complete when Do returns.
func TestDoWaitsForRunningJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(1)
		defer p.Close()
		done := false
		err := p.Do(within(t, time.Millisecond), Caller{}, func() { second(); done = true })
		if err != nil || !done {
			t.Errorf("Do = %v, job done %v; want nil, true", err, done)
		}
	})
}

func TestPanicGivesTheWorkerBack(t *testing.T) {
	p := newQueue(1, 0)
	defer p.Close()
	func() {
		defer func() {
			if got := recover(); got != "job" {
				t.Errorf("the panic reached the caller as %v, want job", got)
			}
		}()
		_ = p.Do(t.Context(), Caller{}, func() { panic("job") })
	}()
	if err := p.Do(t.Context(), Caller{}, func() {}); err != nil {
		t.Errorf("after a panic: got %v, want no error", err)
	}
}

// TestGoexitIsNotSuccess checks that a job that ends its goroutine also ends the caller's, and does
// not count as a success.
func TestGoexitIsNotSuccess(t *testing.T) {
	p := newQueue(1, 0)
	defer p.Close()
	returned := false
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = p.Do(t.Context(), Caller{}, runtime.Goexit)
		returned = true
	})
	wg.Wait()
	if returned {
		t.Error("Do returned although the job did not")
	}
	if err := p.Do(t.Context(), Caller{}, func() {}); err != nil {
		t.Errorf("afterwards: got %v, want no error", err)
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQueue(2, 10)
		errs := flood(t, p, 7)
		begin := time.Now()
		p.Close()
		if got := time.Since(begin); got != time.Second {
			t.Errorf("Close took %v, want the second that the running jobs need", got)
		}
		if got := count(errs(), ErrClosed); got != 5 {
			t.Errorf("%d waiting jobs got ErrClosed, want 5", got)
		}
		if err := p.Do(t.Context(), Caller{}, second); !errors.Is(err, ErrClosed) {
			t.Errorf("Do after Close: %v, want ErrClosed", err)
		}
		p.Close()
	})
}

func TestOneProcessorStaysFree(t *testing.T) {
	cpus := runtime.NumCPU()
	for _, tt := range []struct {
		env            string // the environment's GOMAXPROCS
		procs, workers int    // GOMAXPROCS before, and the argument of New
		want           int    // GOMAXPROCS after
	}{
		{"", cpus, cpus, cpus + 1},
		{"", cpus + 1, cpus, cpus + 1},
		{"", cpus + 9, cpus, cpus + 9},
		{"", 1, 1, 2},
		{"", cpus, cpus + 5, cpus},
		{"2", cpus, cpus, cpus},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Setenv("GOMAXPROCS", tt.env)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(tt.procs))
			for range 2 {
				New(tt.workers).Close()
			}
			if got := runtime.GOMAXPROCS(0); got != tt.want {
				t.Errorf("Go has %d processors, want %d", got, tt.want)
			}
		})
	}
}

// TestFloodLeavesNothing checks that no jobs are counted after a flood. synctest itself checks that
// no goroutine is left.
func TestFloodLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQueue(4, 50)
		errs := flood(t, p, 5000)()
		if got := count(errs, ErrBusy); got != 5000-54 {
			t.Errorf("%d were refused, want %d", got, 5000-54)
		}
		if got := p.counted(); got != 0 {
			t.Errorf("%d jobs are still counted, want none", got)
		}
		p.Close()
	})
}

// TestEveryJobIsAccountedFor starts random jobs with random deadlines. Each job must run once or
// its caller must get an error, and the pool must be empty in the end.
func TestEveryJobIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(r, "workers")
		queue := rapid.IntRange(0, 10).Draw(r, "queue")
		jobs := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 40).Draw(r, "milliseconds")
		synctest.Test(t, func(t *testing.T) {
			p := newQueue(workers, queue)
			var wg sync.WaitGroup
			for i, ms := range jobs {
				wg.Go(func() {
					time.Sleep(time.Duration(i*ms%977) * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(jobs[len(jobs)-1-i])*time.Millisecond)
					defer cancel()
					ran := 0
					c := Caller{Lane(ms % int(laneCount)), fmt.Sprint(ms % 7), fmt.Sprint(ms % 3), fmt.Sprint(ms % 5), ms%2 == 0}
					err := p.Do(ctx, c, func() { ran++; time.Sleep(time.Duration(ms) * time.Millisecond) })
					if (err == nil) != (ran == 1) || ran > 1 {
						t.Errorf("job %d: ran %d times, error %v; want once and no error, or never and an error", i, ran, err)
					}
				})
			}
			wg.Wait()
			if got := p.counted(); got != 0 {
				t.Errorf("%d jobs are still counted, want none", got)
			}
			p.Close()
		})
	})
}

func ExamplePool() {
	p := New(1)
	defer p.Close()
	err := p.Do(context.Background(), Caller{}, func() {
		fmt.Println("making a hash")
	})
	if errors.Is(err, ErrBusy) {
		fmt.Println("try again later")
	}
	// Output: making a hash
}
