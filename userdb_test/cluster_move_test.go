package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestMoveToCluster copies all records of one server to a cluster, as tools do: they are the same, and what
// follows keeps the promise over them.
func TestMoveToCluster(t *testing.T) {
	one, ctx := serverSite(t), t.Context()
	t.Cleanup(one.check)
	users := one.wide()
	for i := range 50 {
		_, err := users.Create(ctx, userdb.NewEntry{
			UID: fmt.Sprint("u", i), Facets: schema.Texts("name", fmt.Sprint("Name ", i), "email", fmt.Sprint("e", i), "job", "cook"), Tags: []string{"a", "b"},
		})
		must(t, err)
	}
	must(t, users.Delete(ctx, hints.UID("u49")))
	six := clusterSite(t)
	t.Cleanup(six.check)
	moved := six.wide()
	six.copyFrom(ctx, one)
	if diff := same(one.records(ctx), six.records(ctx)); diff != "" {
		t.Fatalf("the records are not the same:\n%s", diff)
	}
	six.inspect(t)
	_, err := moved.Create(ctx, userdb.NewEntry{Facets: schema.Texts("nick", "NAME 1")})
	wantField(t, "a name that was moved", err, userdb.ErrDuplicate, "nick")
	for i := range 49 {
		_, err := moved.Update(ctx, hints.Any(fmt.Sprint("name ", i)), func(e *userdb.Entry) error {
			e.Put("name", schema.Text(fmt.Sprint("e", i))) // what is its own under another field
			e.Put("email", schema.Text(fmt.Sprint("name ", i)))
			return nil
		})
		must(t, err)
	}
	must(t, moved.Delete(ctx, hints.UID("u7")))
	if _, err := moved.Find(ctx, hints.Any("e7")); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("deleted, and found: %v", err)
	}
	add(t, moved, "u49", "name", "Name 49")
}

// copyFrom copies all records with DUMP and RESTORE.
func (s *site) copyFrom(ctx context.Context, from *site) {
	s.t.Helper()
	for _, k := range from.keys(ctx) {
		dump, err := from.raw.Dump(ctx, k).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		must(s.t, err)
		life, err := from.raw.PTTL(ctx, k).Result()
		must(s.t, err)
		must(s.t, s.raw.RestoreReplace(ctx, k, max(life, 0), dump).Err())
	}
}

func (s *site) records(ctx context.Context) map[string]string { return texts(s.dump(ctx), "") }
