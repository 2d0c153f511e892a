package check_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCheckWhileWriting lets writers change all that an entry has, to and fro, while checks run: what
// they see in between is no damage.
func TestCheckWhileWriting(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.Clean(t)
		for n := range 4 {
			s.User(t, n+1)
		}
		stop := s.writing(t, 4)
		for range 10 {
			testdb.Same(t, "of all", s.Check(t, check.Options{}), nil)
			testdb.Same(t, "of one", s.Check(t, check.Options{Only: hints.UID("u1").Of("user")}), nil)
		}
		stop()
		testdb.Same(t, "at rest", s.Check(t, check.Options{}), nil)
	})
}

// writing lets n writers change entries until stop, which waits for them.
func (s *site) writing(t *testing.T, n int) (stop func()) {
	ctx, cancel := context.WithCancel(s.Ctx)
	var writers sync.WaitGroup
	for n := range n {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := s.rewrite(ctx, n+1, i); err != nil && ctx.Err() == nil {
					t.Errorf("writer %d: %v", n, err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		writers.Wait()
	}
}

// rewrite changes entry n to one of two states, and makes and ends another.
func (s *site) rewrite(ctx context.Context, n, i int) error {
	user, err := s.DB.Type("user")
	if err != nil {
		return err
	}
	h := hints.UID(fmt.Sprintf("u%d", n))
	_, err = user.Update(ctx, h, func(e *userdb.Entry) error {
		e.Put("name", schema.Text(fmt.Sprintf("Name %d %d", n, i%2)))
		e.Put("job", schema.Text([]string{"Cook", "Boss"}[i%2]))
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := user.Tags(h).Add(ctx, "to and fro"); err != nil {
		return err
	}
	if _, err := user.Tags(h).Remove(ctx, "to and fro"); err != nil {
		return err
	}
	passing := userdb.NewEntry{UID: fmt.Sprintf("p%d", n), Tags: []string{"a"}, Facets: schema.Texts("name", fmt.Sprintf("passing %d", n), "email", fmt.Sprintf("p%d@x.org", n), "job", "Cook")}
	if _, err := user.Create(ctx, passing); err != nil && !errors.Is(err, userdb.ErrDuplicate) {
		return err
	}
	return user.Delete(ctx, hints.UID(passing.UID))
}
