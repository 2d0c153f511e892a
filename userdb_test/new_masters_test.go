package userdb_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// cachedScripts returns the number of scripts that a server has cached.
func cachedScripts(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Client().Info(t.Context(), "memory").Result()
	must(t, err)
	_, rest, _ := strings.Cut(info, "number_of_cached_scripts:")
	n, _, _ := strings.Cut(rest, "\r\n")
	count, err := strconv.Atoi(n)
	must(t, err)
	return count
}

// TestClusterNewMastersHaveScripts adds a shard and promotes a replica. Both must get the scripts,
// and must still serve after they lose them.
func TestClusterNewMastersHaveScripts(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.FailsOver)
	db, err := userdb.Open(t.Context(), c.URL(), userdb.Options{})
	must(t, err)
	defer db.Close()
	users := typeOf(t, db, "user")
	add(t, users, "u", "name", "you")
	write := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := users.Update(ctx, hints.UID("u"), putText("job", what))
		must(t, err)
	}
	wantScripts := func(what string, s *redistest.Server) {
		t.Helper()
		const least = 5
		eventually(t, what+" has the scripts", func() bool { return cachedScripts(t, s) >= least })
	}
	shard := c.AddShard()
	if n := cachedScripts(t, shard); n > 0 {
		t.Fatalf("a new server has %d scripts, want none", n)
	}
	from := c.Master("user/uid:u")
	slot, err := from.Client().ClusterKeySlot(t.Context(), "user/uid:u").Result()
	must(t, err)
	moveSlot(t, from.Client(), shard.Client(), shard.Addr(), slot)
	write("on a new shard")
	wantScripts("the new shard", shard)

	addReplicated(t, c.URL(), "v", "name", "others")
	before := c.Master("user/uid:v")
	before.Kill()
	eventually(t, "a replica takes over", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = users.Update(ctx, hints.UID("v"), putText("job", "cook"))
		return err == nil
	})
	after := c.Master("user/uid:v")
	if after == before {
		t.Error("no replica took over")
	}
	wantScripts("the promoted replica", after)

	must(t, clientOf(db).(*redis.ClusterClient).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.ScriptFlush(ctx).Err()
	}))
	write("after all scripts are gone")
	add(t, users, "w", "name", "all")
	must(t, users.Delete(t.Context(), hints.UID("w")))
	wantRepairable(t, db, noExcuse)
}

// A promoter makes a demoted master a master again after it has refused three writes.
type promoter struct {
	promote func()
	refused int
}

func (*promoter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*promoter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p *promoter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if redis.HasErrorPrefix(err, "READONLY") {
			if p.refused++; p.refused == 3 {
				p.promote()
			}
		}
		return err
	}
}

// TestDemotedMaster writes to a master that has become a replica. The client must retry after
// READONLY until the server is a master again.
func TestDemotedMaster(t *testing.T) {
	t.Parallel()
	server, other := redistest.Start(t), redistest.Start(t)
	admin, client := server.Client(), server.Client()
	host, port, _ := strings.Cut(other.Addr(), ":")
	other.Kill() // a replica of a running master would replace its records with the master's
	p := &promoter{promote: func() { must(t, admin.ReplicaOf(context.Background(), "NO", "ONE").Err()) }}
	client.AddHook(p)
	db, err := redisdb.New(t.Context(), client, userdb.Options{})
	must(t, err)
	users := typeOf(t, db, "user")
	add(t, users, "first", "name", "first") // stores the schema
	for _, tt := range []struct {
		name string
		do   func() error
	}{
		{"create", func() error {
			_, err := users.Create(t.Context(), userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "you")})
			return err
		}},
		{"update", func() error {
			_, err := users.Update(t.Context(), hints.UID("first"), putText("name", "last"))
			return err
		}},
		{"delete", func() error { return users.Delete(t.Context(), hints.UID("first")) }},
	} {
		p.refused = 0
		must(t, admin.ReplicaOf(t.Context(), host, port).Err())
		if err := tt.do(); err != nil || p.refused < 3 {
			t.Errorf("%s: got %v after %d refused writes, want success after at least 3", tt.name, err, p.refused)
		}
	}
	wantRepairable(t, db, noExcuse)
}
