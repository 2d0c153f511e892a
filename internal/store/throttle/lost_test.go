package throttle_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/internal/store/throttle"
)

// TestThrottleLostReplies loses the replies to calls that change counters. The calls are sent
// again, and must count only once.
func TestThrottleLostReplies(t *testing.T) {
	srv := redistest.Shared(t)
	p := redistest.NewProxy(t, srv)
	o, err := redis.ParseURL(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	for name, e := range map[string]throttler{
		"one server": single.New(c, single.Options{}), "a cluster": cluster.New(c, cluster.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			a := throttle.Counters{Account: countersKey(t, "lost", name), Origin: countersKey(t, "lost", name, "origin"), Name: "o"}
			counts := func() [2]int64 {
				n, _ := srv.Client().HGet(ctx, a.Account.String(), "sn").Int64()
				m, _ := srv.Client().HGet(ctx, a.Origin.String(), "sn").Int64()
				return [2]int64{n, m}
			}
			// loseReplies makes a call and loses the first two replies to it. operation is the
			// first argument of throttle.lua in that call.
			loseReplies := func(operation string, want [2]int64, call func() error) {
				t.Helper()
				p.CutReplies(2, operation)
				err := call()
				p.Pass()
				if got := counts(); err != nil || got != want {
					t.Errorf("%s: error %v; the account and the origin have counted %v, want %v", operation, err, got, want)
				}
			}
			var as [3]throttle.Admission
			for i := range as {
				loseReplies("admit", [2]int64{int64(i) + 1, int64(i) + 1}, func() (err error) { as[i], err = e.Admit(ctx, a); return err })
				if as[i].Wait != 0 || !as[i].AtOrigin || as[i].OwnBudget {
					t.Errorf("admission %d: got %+v, want one without a wait, counted at its origin", i, as[i])
				}
			}
			loseReplies("withdraw", [2]int64{2, 2}, func() error { return e.Withdraw(ctx, a, as[0]) })
			loseReplies("forgive", [2]int64{1, 1}, func() error { return e.Undo(ctx, a, as[1]) })
			loseReplies("reset", [2]int64{0, 1}, func() error { return e.Reset(ctx, a) })
		})
	}
}
