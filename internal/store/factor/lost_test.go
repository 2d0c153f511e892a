package factor_test

import (
	"context"
	"errors"
	"strings"
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

// TestLostReplies loses the replies to calls that change tickets or factors. The calls are sent
// again, and must count only once.
func TestLostReplies(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Shared(t))
	o, err := redis.ParseURL(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	for name, e := range map[string]store.Factors{
		"one server": single.New(c, single.Options{}), "a cluster": cluster.New(c, cluster.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			prk, err := recordkey.PRK("user", "uid", name)
			if err != nil {
				t.Fatal(err)
			}
			entry := session.Entry{Epoch: "e"}
			// loseReplies makes a call and loses the first two replies to it. operation is the
			// first argument of ticket.lua or enrol.lua in that call.
			loseReplies := func(operation string, wantTries int, call func(ctx context.Context) (factor.Ticket, error)) {
				t.Helper()
				p.CutReplies(2, operation)
				got, err := call(t.Context())
				p.Pass()
				if err != nil || got.Tries != wantTries {
					t.Errorf("%s: got %d attempts, error %v; want %d, no error", operation, got.Tries, err, wantTries)
				}
			}
			spend := func(attempt string) factor.Spend {
				return factor.Spend{PRK: prk, ID: "a", Generation: entry.Generation(), Attempt: attempt, Factor: "totp/a", Number: 7}
			}
			app := factor.Factor{Kind: factor.TOTP, ID: "a", Made: time.UnixMilli(1), Used: time.UnixMilli(1), Sealed: "s"}
			loseReplies("begin", 0, func(ctx context.Context) (factor.Ticket, error) {
				return factor.Ticket{}, e.BeginEnrolment(ctx, prk, factor.Pending{ID: "a", Sealed: "s"}, time.Time{})
			})
			loseReplies("confirm", 0, func(ctx context.Context) (factor.Ticket, error) {
				return factor.Ticket{}, e.StoreFactors(ctx, prk, "pending/a", []factor.Factor{app}, time.Time{})
			})
			replacement := app
			replacement.Sealed = "other"
			loseReplies("replace", 0, func(ctx context.Context) (factor.Ticket, error) {
				return factor.Ticket{}, e.ReplaceFactor(ctx, prk, app, replacement)
			})
			if err := e.ReplaceFactor(t.Context(), prk, app, app); !errors.Is(err, store.ErrConflict) {
				t.Errorf("replacing a value that has changed: got error %v, want %v", err, store.ErrConflict)
			}
			loseReplies("issue", 0, func(ctx context.Context) (factor.Ticket, error) {
				return e.IssueTicket(ctx, factor.Issue{PRK: prk, Seen: entry, ID: "a", Step: "password"})
			})
			for i, attempt := range []string{"first", "second"} {
				loseReplies("try", i+1, func(ctx context.Context) (factor.Ticket, error) {
					tried, err := e.TryTicket(ctx, factor.Try{
						PRK: prk, ID: "a", Generation: entry.Generation(), Attempt: attempt, Guessable: true, Factors: []string{"totp/a"},
					})
					if want := "1 1   other"; err == nil && tried.Factors[0] != want {
						t.Errorf("the factor is %q, want %q", tried.Factors[0], want)
					}
					return tried.Ticket, err
				})
			}
			loseReplies("spend", 0, func(ctx context.Context) (factor.Ticket, error) {
				return factor.Ticket{}, e.SpendTicket(ctx, spend("second"))
			})
			if err := e.SpendTicket(t.Context(), spend("first")); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("spent twice: got error %v, want %v", err, store.ErrNotFound)
			}
			_, values, err := e.ReadFactors(t.Context(), prk, []string{"totp/a", "tries/", "pending/a"}, time.Time{})
			if err != nil || len(values) != 3 {
				t.Fatalf("got %q, error %v, want three values", values, err)
			}
			f, err := factor.Parse("totp/a", values[0])
			if err != nil || f.Last() != 7 || f.Uses() != 1 || !f.HasAccepted(7) || f.HasAccepted(8) || f.Sealed != "other" {
				t.Errorf("the factor is %+v, error %v, want it to have accepted only 7, with the replacement's secret", f, err)
			}
			// Two attempts were counted, of which one was right.
			if !strings.HasSuffix(values[1], " 1") || values[2] != "" {
				t.Errorf("the counter and the pending factor are %q, want one wrong attempt and \"\"", values[1:])
			}
			loseReplies("forget", 0, func(ctx context.Context) (factor.Ticket, error) {
				return factor.Ticket{}, e.ForgetFactors(ctx, prk, []string{"totp/a"})
			})
		})
	}
}

// TestMalformedTickets checks that ParseTicket parses a ticket and refuses malformed members.
func TestMalformedTickets(t *testing.T) {
	if got, err := factor.ParseTicket("ticket/a", "5 b s o x.y."); err != nil || got.Tries != 2 || !got.Until.Equal(time.UnixMilli(5)) {
		t.Errorf("got %+v, error %v, want two attempts and the end at 5 ms", got, err)
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
			t.Errorf("%q is parsed as %+v, want an error", m, got)
		}
	}
}
