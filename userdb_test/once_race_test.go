package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCreateOnceDeletedUID deletes the entry of a request, and lets others have its UID. The
// repeated request must not return their entry.
func TestCreateOnceDeletedUID(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		ctx := t.Context()
		first := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "ann")}
		_, err := g.users.CreateOnce(ctx, "one", first)
		must(t, err)
		must(t, g.users.Delete(ctx, hints.UID("x")))

		add(t, g.users, "x", "name", "bob")
		e, err := g.users.CreateOnce(ctx, "one", first)
		wantErr(t, "a repeated request, after Create by another: got "+e.UID(), err, userdb.ErrNotFound)
		must(t, g.users.Delete(ctx, hints.UID("x")))

		second := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "eve")}
		_, err = g.users.CreateOnce(ctx, "two", second)
		must(t, err)
		e, err = g.users.CreateOnce(ctx, "one", first)
		wantErr(t, "a repeated request, after CreateOnce by another: got "+e.UID(), err, userdb.ErrNotFound)
		e, err = g.users.CreateOnce(ctx, "two", second)
		if must(t, err); e.Text("name") != "eve" {
			t.Errorf("the request that created the entry returned %v, want the name eve", e)
		}
		_, err = g.users.Update(ctx, hints.UID("x"), func(e *userdb.Entry) error {
			e.SetDisabled(true)
			e.Put("name", schema.Text("eva"))
			return nil
		})
		must(t, err)
		e, err = g.users.CreateOnce(ctx, "two", second)
		if must(t, err); e.Text("name") != "eva" {
			t.Errorf("after an update, the request that created the entry returned %v, want the name eva", e)
		}
		for _, p := range runCheck(t, g.db, check.Options{}) {
			t.Error(p)
		}
	})
}

// TestCreateOnceSweptReservation kills processes that make requests. Another program creates
// entries at the UIDs that they have reserved, and sweeps the reservations. The repeated requests
// must not return those entries.
func TestCreateOnceSweptReservation(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		swept := 0
		for at, killed := 0, true; killed; at++ {
			name := fmt.Sprint("ann", at)
			n := userdb.NewEntry{UID: name, Facets: schema.Texts("name", name)}
			var sent atomic.Int64
			g.tap.set(func(_ context.Context, _ []redis.Cmder, send func() error) error {
				if sent.Add(1) > int64(at) {
					return context.Canceled
				}
				return send()
			})
			_, err := g.users.CreateOnce(t.Context(), name, n)
			g.tap.set(nil)
			if killed = err != nil; !killed {
				break
			}
			add(t, g.users, n.UID, "name", fmt.Sprint("bob", at))
			_, err = g.users.Issue(t.Context(), hints.UID(n.UID), userdb.Token{Purpose: "p"})
			must(t, err)
			g.advance(11 * time.Second)
			e, err := g.users.CreateOnce(t.Context(), name, n)
			switch {
			case errors.Is(err, userdb.ErrNotFound):
				swept++
			case !errors.Is(err, userdb.ErrDuplicate):
				t.Errorf("killed at command %d: got %v, %v, want ErrDuplicate or ErrNotFound", at, e, err)
			}
		}
		if swept == 0 {
			t.Error("no reservation was swept")
		}
		repairLeftovers(t, g)
	})
}

// repairLeftovers repairs what killed calls leave behind on a cluster: claims and members of
// indexes. Any other problem is an error.
func repairLeftovers(t *testing.T, g *loginSite) {
	t.Helper()
	for _, p := range runCheck(t, g.db, check.Options{Repair: true}) {
		if !isLeftover(p) {
			t.Error(p)
		}
	}
}

// TestCreateOnceExpires kills a call after each of its commands, which are a second apart, and
// repeats it a day after one of them. The repeated call must succeed, which it would not if the
// reservation expired before the request.
func TestCreateOnceExpires(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		for at := int64(1); ; at++ {
			for second := range at {
				name := fmt.Sprint("ann", at, "-", second)
				n := userdb.NewEntry{Facets: schema.Texts("name", name)}
				var sent atomic.Int64
				g.tap.set(func(_ context.Context, _ []redis.Cmder, send func() error) error {
					if sent.Add(1) > at {
						return context.Canceled
					}
					g.advance(time.Second)
					return send()
				})
				_, err := g.users.CreateOnce(t.Context(), name, n)
				g.tap.set(nil)
				if err == nil {
					repairLeftovers(t, g)
					return
				}
				g.advance(24*time.Hour + time.Duration(second-at)*time.Second)
				if _, err := g.users.CreateOnce(t.Context(), name, n); err != nil {
					t.Errorf("killed after %d commands, a day and %d seconds after the first: %v", at, second, err)
				}
			}
		}
	})
}

// TestCreateOnceOvertaken sends a request, and before one of its commands another call sends the
// same request and gets its answer. Both must return the same entry, unless the other call reports
// that the first is still running. If the entry is deleted after that answer, neither the first
// call nor a later one may create another.
func TestCreateOnceOvertaken(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for _, uid := range []string{"", "carol"} {
			t.Run(fmt.Sprintf("deleted %v, UID %q", deleted, uid), func(t *testing.T) {
				eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
					g.needs(manyClients)
					n := userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "carol"), Password: "battery staple"}
					for at := 0; g.overtakeAt(at, deleted, n); at++ {
					}
					g.wantNoReservation("afterwards")
				})
			})
		}
	}
}

// overtakeAt sends a request, and the same one before one of its commands, counted from 0. It
// returns false if there were fewer commands.
func (g *loginSite) overtakeAt(at int, deleted bool, n userdb.NewEntry) (overtaken bool) {
	t := g.t
	t.Helper()
	name := fmt.Sprint("request ", at)
	var other userdb.Entry
	var otherErr error
	g.beforeNthCommand(at, func(send func() error) error {
		overtaken = true
		if other, otherErr = g.users.CreateOnce(t.Context(), name, n); otherErr == nil && deleted {
			must(t, g.users.Delete(t.Context(), hints.UID(other.UID())))
		}
		return send()
	})
	e, err := g.users.CreateOnce(t.Context(), name, n)
	g.tap.set(nil)
	switch what := fmt.Sprint("overtaken at command ", at); {
	case deleted && overtaken && otherErr == nil && errors.Is(err, userdb.ErrNotFound):
	case err != nil:
		t.Errorf("%s: %v", what, err)
	case overtaken && otherErr != nil && !errors.Is(otherErr, userdb.ErrConflict):
		t.Errorf("%s, the other call: %v", what, otherErr)
	case overtaken && otherErr == nil && other.UID() != e.UID():
		t.Errorf("%s: got %v and %v, want one entry", what, e, other)
	}
	if err == nil && (otherErr != nil || !deleted || !overtaken) {
		must(t, g.users.Delete(t.Context(), hints.UID(e.UID())))
	}
	g.advance(11 * time.Second)
	e, err = g.users.CreateOnce(t.Context(), name, n)
	wantErr(t, fmt.Sprint("after the delete, overtaken at command ", at, ": got ", e), err, userdb.ErrNotFound)
	return overtaken
}

// beforeNthCommand calls do in place of one of the next commands, counted from 0. The other
// commands are sent as usual, including those of do.
func (g *loginSite) beforeNthCommand(n int, do func(send func() error) error) {
	var sent atomic.Int64
	g.tap.set(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if sent.Add(1) != int64(n)+1 {
			return send()
		}
		g.tap.set(nil)
		return do(send)
	})
}

// TestCreateOnceLateCommand delays one command of a request. Meanwhile, a repetition of the request
// is refused, so that the request is forgotten, and then a corrected request with the same name is
// sent. The late command arrives before one of the corrected request's commands. Neither request
// may return the entry of the other.
func TestCreateOnceLateCommand(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		g.needs(manyClients)
		if strings.HasPrefix(g.url, "redis+cluster:") {
			t.Skip("on a cluster, the others wait for seconds to take over the claims of the delayed call")
		}
		created := 0
		for late, hasLate := 0, true; hasLate; late++ {
			for at, hasAt := 0, true; hasAt; at++ {
				var ok bool
				hasLate, hasAt, ok = g.delayCommand(late, at)
				if ok {
					created++
				}
			}
		}
		if created == 0 {
			t.Error("the corrected request never created its entry")
		}
	})
}

// delayCommand delays a command of a request until just before a command of the corrected request.
// hasLate and hasAt report whether the two requests had the commands with these numbers. created
// reports whether the corrected request created its entry.
func (g *loginSite) delayCommand(late, at int) (hasLate, hasAt, created bool) {
	t := g.t
	t.Helper()
	ctx, name := t.Context(), fmt.Sprint("request ", late, " ", at)
	first := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "carol")}
	corrected := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "dora")}
	g.beforeNthCommand(late, func(send func() error) error {
		if _, err := g.users.Create(ctx, userdb.NewEntry{UID: "y", Facets: schema.Texts("name", "carol")}); errors.Is(err, userdb.ErrDuplicate) {
			return send() // the first request has created its entry
		}
		hasLate = true
		g.advance(11 * time.Second)
		_, err := g.users.CreateOnce(ctx, name, first)
		wantErr(t, "the repeated request", err, userdb.ErrDuplicate)
		must(t, g.users.Delete(ctx, hints.UID("y")))
		var sendErr error
		g.beforeNthCommand(at, func(sendCorrected func() error) error {
			hasAt = true
			sendErr = send()
			return sendCorrected()
		})
		e, err := g.users.CreateOnce(ctx, name, corrected)
		g.tap.set(nil)
		created = err == nil
		switch bad, ok := errors.AsType[*userdb.FieldError](err); {
		case created && e.Text("name") != "dora":
			t.Errorf("late command %d before command %d: the corrected request returned %v, want the name dora", late, at, e)
		case !created && !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrDuplicate) && (!ok || bad.Rule != "once"):
			t.Errorf("late command %d before command %d: the corrected request: %v", late, at, err)
		}
		if !hasAt {
			sendErr = send()
		}
		return sendErr
	})
	e, err := g.users.CreateOnce(ctx, name, first)
	g.tap.set(nil)
	if err == nil && (created || e.Text("name") != "carol") {
		t.Errorf("late command %d before command %d: the first request returned %v, want an error or its own entry", late, at, e)
	}
	if err := g.users.Delete(ctx, hints.UID("x")); err != nil && !errors.Is(err, userdb.ErrNotFound) {
		t.Error(err)
	}
	return hasLate, hasAt, created
}

// TestCreateOnceForgotten sends a request and, under the same name, a corrected one, which relies
// on the reservation of the first. Meanwhile two delayed commands arrive: one of the first request,
// and one of a repetition of it that is refused and forgets the reservation. The corrected request
// must never return an entry of the first.
func TestCreateOnceForgotten(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		g.needs(manyClients)
		if strings.HasPrefix(g.url, "redis+cluster:") {
			t.Skip("on a cluster, the others wait for seconds to take over the claims of the delayed call")
		}
		for late, hasLate := 0, true; hasLate; late++ {
			for forgotten, hasForgotten := 0, true; hasForgotten; forgotten++ {
				for at, hasAt := 0, true; hasAt; at++ {
					hasLate, hasForgotten, hasAt = g.forgetMeanwhile(late, forgotten, at)
				}
			}
		}
	})
}

// forgetMeanwhile delays a command of a request, and a command of the call that repeats it and is
// refused. Both arrive before a command of the corrected request. The results report whether the
// requests had the commands with these numbers.
func (g *loginSite) forgetMeanwhile(late, forgotten, at int) (hasLate, hasForgotten, hasAt bool) {
	t := g.t
	t.Helper()
	ctx, name := t.Context(), fmt.Sprint("request ", late, " ", forgotten, " ", at)
	first := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "carol")}
	corrected := userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "dora")}
	g.beforeNthCommand(late, func(send func() error) error {
		if _, err := g.users.Create(ctx, userdb.NewEntry{UID: "y", Facets: schema.Texts("name", "carol")}); errors.Is(err, userdb.ErrDuplicate) {
			return send() // the first request has created its entry
		}
		hasLate = true
		g.advance(11 * time.Second)
		var sendErr error
		g.beforeNthCommand(forgotten, func(sendForget func() error) error {
			hasForgotten = true
			var forgetErr error
			if err := g.users.Delete(ctx, hints.UID("y")); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				t.Error(err)
			}
			g.beforeNthCommand(at, func(sendCorrected func() error) error {
				hasAt = true
				sendErr, forgetErr = send(), sendForget()
				return sendCorrected()
			})
			e, err := g.users.CreateOnce(ctx, name, corrected)
			g.tap.set(nil)
			if err == nil && e.Text("name") != "dora" {
				t.Errorf("commands %d, %d and %d: the corrected request returned %v, want the name dora", late, forgotten, at, e)
			}
			if !hasAt {
				sendErr, forgetErr = send(), sendForget()
			}
			return forgetErr
		})
		_, _ = g.users.CreateOnce(ctx, name, first)
		g.tap.set(nil)
		if !hasForgotten {
			sendErr = send()
		}
		return sendErr
	})
	_, _ = g.users.CreateOnce(ctx, name, first)
	g.tap.set(nil)
	for _, uid := range []string{"x", "y"} {
		if err := g.users.Delete(ctx, hints.UID(uid)); err != nil && !errors.Is(err, userdb.ErrNotFound) {
			t.Error(err)
		}
	}
	return hasLate, hasForgotten, hasAt
}

// TestCreateOnceTakenOver delays one command of a request that chooses a UID until a request with
// another name wants the same UID. By then the first request counts as dead. Its command arrives
// before one of the commands of the second request. One of the two requests must get the UID,
// whichever is repeated, and the other one must be refused.
func TestCreateOnceTakenOver(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		g.needs(manyClients)
		first, second := 0, 0
		for late, hasLate := 0, true; hasLate; late++ {
			for at, hasAt := 0, true; hasAt && hasLate; at++ {
				var winner string
				hasLate, hasAt, winner = g.takeOverAt(late, at)
				switch winner {
				case "carol":
					first++
				case "dora":
					second++
				}
			}
		}
		if first == 0 || second == 0 {
			t.Errorf("the first request got the UID %d times, the second one %d times; want both", first, second)
		}
		g.wantNoReservation("afterwards")
	})
}

// takeOverAt delays a command of a request until just before a command of another request. hasLate
// and hasAt report whether the two requests had the commands with these numbers. winner is the name
// in the entry.
func (g *loginSite) takeOverAt(late, at int) (hasLate, hasAt bool, winner string) {
	t := g.t
	t.Helper()
	ctx, what := t.Context(), fmt.Sprintf("late command %d before command %d", late, at)
	create := func(of string) (userdb.Entry, error) {
		return g.users.CreateOnce(ctx, what+of, userdb.NewEntry{UID: "x", Facets: schema.Texts("name", of)})
	}
	g.beforeNthCommand(late, func(send func() error) error {
		hasLate = true
		g.advance(11 * time.Second)
		var sendErr error
		g.beforeNthCommand(at, func(sendOther func() error) error {
			hasAt = true
			sendErr = send()
			return sendOther()
		})
		_, err := create("dora")
		g.tap.set(nil)
		if err != nil && !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("%s: the other request: %v", what, err)
		}
		if !hasAt {
			sendErr = send()
		}
		return sendErr
	})
	_, err := create("carol")
	g.tap.set(nil)
	if err != nil && !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrDuplicate) {
		t.Errorf("%s: %v", what, err)
	}
	for _, of := range []string{"carol", "dora"} {
		g.advance(11 * time.Second)
		e, err := create(of)
		switch {
		case err == nil && (winner != "" || e.Text("name") != of):
			t.Errorf("%s: the request of %s got %v after that of %q had got the UID; want its own entry, or an error", what, of, e, winner)
		case err == nil:
			winner = of
		case !errors.Is(err, userdb.ErrDuplicate):
			t.Errorf("%s: %s repeated: %v", what, of, err)
		}
	}
	if winner == "" {
		t.Errorf("%s: nobody got the UID", what)
	}
	if e, err := g.users.Find(ctx, hints.UID("x")); err != nil || e.Text("name") != winner {
		t.Errorf("%s: the entry is %v, %v; want %s", what, e, err, winner)
	}
	must(t, g.users.Delete(ctx, hints.UID("x")))
	return hasLate, hasAt, winner
}

// TestCreateOnceGivenUp cuts off a request that chooses a UID, before each of its commands in turn.
// Another request must get the UID at once, or be refused because the first one created the entry.
func TestCreateOnceGivenUp(t *testing.T) {
	eachLoginSite(t, userdb.Options{}, func(t *testing.T, g *loginSite) {
		for at, more := 0, true; more; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			more = false
			g.beforeNthCommand(at, func(func() error) error {
				more = true
				cancel()
				return ctx.Err()
			})
			_, err := g.users.CreateOnce(ctx, fmt.Sprint("a", at), userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "carol")})
			g.tap.set(nil)
			cancel()
			_, other := g.users.CreateOnce(t.Context(), fmt.Sprint("b", at), userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "dora")})
			if err == nil && !errors.Is(other, userdb.ErrDuplicate) || err != nil && other != nil {
				t.Errorf("the request cut off at %d: got error %v; the other request: got error %v; want one to succeed", at, err, other)
			}
			if at < 5 && err == nil {
				t.Errorf("the request was not cut off at %d", at)
			}
			must(t, g.users.Delete(t.Context(), hints.UID("x")))
		}
		// On a cluster, a call that is cut off leaves claims (I4).
		runCheck(t, g.db, check.Options{Repair: true})
	})
}
