package redisx_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

func TestCheckOneSlot(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	if err := redisx.CheckOneSlot(ctx, server.Client()); err != nil {
		t.Errorf("one server: got %v, want no error", err)
	}
	node := redistest.Start(t, redistest.Config("cluster-enabled yes"))
	err := redisx.CheckOneSlot(ctx, node.Client())
	if !errors.Is(err, store.ErrUnsuitable) || !strings.Contains(err.Error(), "redis+cluster://HOST:PORT") {
		t.Errorf("a node of a cluster: got %v, want ErrUnsuitable with the URL to use instead", err)
	}
}

// TestRefusedConnection lets a server refuse a new connection. No reader may take that for an empty
// answer.
func TestRefusedConnection(t *testing.T) {
	ctx := t.Context()
	server := redistest.Start(t)
	admin := server.Client()
	if err := admin.Set(ctx, "a", "b", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">old", "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		read func(*redis.Client) error
	}{
		{"a scan", func(c *redis.Client) error {
			_, _, err := redisx.Scan(ctx, c, redisx.Cursor{}, store.Scan{Pattern: "*", Count: 10})
			return err
		}},
		{"a tally", func(c *redis.Client) error {
			_, _, err := redisx.Scan(ctx, c, redisx.Cursor{}, store.Scan{Pattern: "*", Tally: "a", Count: 10})
			return err
		}},
		{"a pipeline", func(c *redis.Client) error {
			pipe := c.Pipeline()
			pipe.HGetAll(ctx, "x")
			return redisx.Exec(ctx, pipe)
		}},
	} {
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "new"})
		t.Cleanup(func() { c.Close() })
		if err := tt.read(c); !strings.Contains(fmt.Sprint(err), "WRONGPASS") {
			t.Errorf("%s: got the error %v, want that of the server", tt.name, err)
		}
	}
}
