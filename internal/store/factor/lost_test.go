package factor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/recordkey"
)

// TestLostReplies loses the replies to calls that change a ticket. The calls are sent again, and
// must count only once.
func TestLostReplies(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Shared(t))
	o, err := redis.ParseURL(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	for name, e := range map[string]store.Tickets{
		"one server": single.New(c, single.Options{}), "a cluster": cluster.New(c, cluster.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			prk, err := recordkey.PRK("user", "uid", name)
			if err != nil {
				t.Fatal(err)
			}
			entry := session.Entry{Epoch: "e"}
			// loseReplies makes a call and loses the first two replies to it. operation is the
			// first argument of ticket.lua in that call.
			loseReplies := func(operation string, wantTries int, call func(ctx context.Context) (factor.Ticket, error)) {
				t.Helper()
				p.CutReplies(2, operation)
				got, err := call(t.Context())
				p.Pass()
				if err != nil || got.Tries != wantTries {
					t.Errorf("%s: got %d attempts, error %v, want %d", operation, got.Tries, err, wantTries)
				}
			}
			use := func(attempt string) factor.Use {
				return factor.Use{PRK: prk, ID: "a", Generation: entry.Generation(), Attempt: attempt}
			}
			loseReplies("issue", 0, func(ctx context.Context) (factor.Ticket, error) {
				return e.IssueTicket(ctx, factor.Issue{PRK: prk, Seen: entry, ID: "a", Step: "password"})
			})
			for i, attempt := range []string{"first", "second"} {
				loseReplies("try", i+1, func(ctx context.Context) (factor.Ticket, error) { return e.TryTicket(ctx, use(attempt)) })
			}
			loseReplies("spend", 0, func(ctx context.Context) (factor.Ticket, error) {
				return factor.Ticket{}, e.SpendTicket(ctx, use("second"))
			})
			if err := e.SpendTicket(t.Context(), use("first")); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("spent twice: got error %v, want %v", err, store.ErrNotFound)
			}
		})
	}
}

// TestMalformedTickets checks that ParseTicket accepts no other members.
func TestMalformedTickets(t *testing.T) {
	if got, err := factor.ParseTicket("ticket/a", "5 b s o x.y."); err != nil || got.Tries != 2 || !got.Until.Equal(time.UnixMilli(5)) {
		t.Errorf("got %+v, error %v", got, err)
	}
	for _, m := range [][2]string{
		{"factor/a", "5 b s o "},
		{"ticket", "5 b s o "},
		{"ticket/a", ""},
		{"ticket/a", "- 5 b x"},
		{"ticket/a", "5 b s o"},
		{"ticket/a", "5 b s o x. y"},
		{"ticket/a", "x b s o "},
		{"ticket/a", "-5 b s o "},
		{"ticket/a", "1234567890123456 b s o "},
		{"ticket/a", "5 b +q o "},
		{"ticket/a", "5 b s +q "},
	} {
		if got, err := factor.ParseTicket(m[0], m[1]); err == nil {
			t.Errorf("%q is parsed as %+v", m, got)
		}
	}
}
