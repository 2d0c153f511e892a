package userdb_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestClusterContention has many callers want one value that nobody has: one gets it soon, the others are
// told, and nobody waits past the deadline.
func TestClusterContention(t *testing.T) {
	const runs = 7
	s := clusterSite(t)
	t.Cleanup(s.check)
	users := s.wide()
	add(t, users, "first", "name", "first") // so that the schema is stored
	for _, tt := range []struct {
		callers int
		fields  []string
	}{
		{64, secondaries[:1]},
		{256, secondaries[:1]},
		{64, secondaries},
		{256, secondaries},
	} {
		t.Run(fmt.Sprintf("%d callers, %d fields", tt.callers, len(tt.fields)), func(t *testing.T) {
			var trips []int
			for run := range runs {
				value := fmt.Sprintf("v%d-%d-%d", tt.callers, len(tt.fields), run)
				trips = append(trips, contend(t, s, users, tt.callers, value, tt.fields))
			}
			slices.Sort(trips)
			t.Logf("rounds until the first success, of whoever had it: %v", trips)
			if median := trips[runs/2]; median > 20 {
				t.Errorf("the first success came after %d rounds in the median, want at most 20", median)
			}
		})
	}
}

type callKey struct{}

// A caller counts its rounds: commands that are under way at the same time are one.
type caller struct {
	sync.Mutex
	under, rounds int
}

func (c *caller) pass(send func() error) error {
	c.Lock()
	if c.under == 0 {
		c.rounds++
	}
	c.under++
	c.Unlock()
	err := send()
	c.Lock()
	c.under--
	c.Unlock()
	return err
}

// contend returns how many rounds the first caller that succeeded needed.
func contend(t *testing.T, s *site, users *userdb.Type, callers int, value string, fields []string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s.tap.set(func(ctx context.Context, _ []redis.Cmder, send func() error) error {
		if c, ok := ctx.Value(callKey{}).(*caller); ok {
			return c.pass(send)
		}
		return send()
	})
	defer s.tap.set(nil)
	var once sync.Once
	first := 0
	errs := together(callers, func(i int) error {
		var c caller
		_, err := users.Create(context.WithValue(ctx, callKey{}, &c), userdb.NewEntry{Facets: schema.Texts(fields[i%len(fields)], value)})
		if err == nil {
			once.Do(func() { first = c.rounds })
		}
		return err
	})
	oneWins(t, errs, userdb.ErrDuplicate)
	return first
}

// rounds counts the rounds of a verb: commands that are under way at the same time are one.
func (s *site) rounds(do func()) int {
	var mu sync.Mutex
	under, rounds := 0, 0
	s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		mu.Lock()
		if under == 0 {
			rounds++
		}
		under++
		mu.Unlock()
		time.Sleep(25 * time.Millisecond) // so that commands of one round meet
		err := send()
		time.Sleep(25 * time.Millisecond)
		mu.Lock()
		under--
		mu.Unlock()
		return err
	})
	defer s.tap.set(nil)
	do()
	return rounds
}

// TestClusterRounds counts the rounds of the verbs that matter, where nobody contends.
func TestClusterRounds(t *testing.T) {
	s := clusterSite(t)
	t.Cleanup(s.check)
	users, ctx := s.users(), t.Context()
	_, err := users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("name", "first")})
	must(t, err)
	for _, tt := range []struct {
		name string
		want int
		do   func() error
	}{
		{"create", 3, func() error {
			_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("email", "u@example.com", "name", "you")})
			return err
		}},
		{"find by UID", 1, func() error { _, err := users.Find(ctx, hints.UID("u")); return err }},
		{"find by any identifier", 2, func() error { _, err := users.Find(ctx, hints.Any("you")); return err }},
		{"update of a plain facet", 2, func() error {
			_, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Put("job", schema.Text("cook")); return nil })
			return err
		}},
		{"update of an identifier", 6, func() error {
			_, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Put("name", schema.Text("me")); return nil })
			return err
		}},
	} {
		if got := s.rounds(func() { must(t, tt.do()) }); got != tt.want {
			t.Errorf("%s: %d rounds, want %d", tt.name, got, tt.want)
		}
	}
}
