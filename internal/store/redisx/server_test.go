package redisx_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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
