package userdb_test

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// afterScan calls do after the first pipeline that scans a server.
type afterScan struct {
	once sync.Once
	do   func()
}

func (h *afterScan) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *afterScan) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *afterScan) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "scan" }) {
			h.once.Do(h.do)
		}
		return err
	}
}

// TestRotateKeysWhileSlotsMove moves the slot of an entry, while the keys are rotated, from a
// master that was not yet scanned to the one that was. The entry is damaged, so that reading it
// fails. RotateKeys must read the entry and return this error.
func TestRotateKeysWhileSlotsMove(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	first := c.Master("0") // scans begin there
	key := "user/uid:u"
	for n := 0; c.Master(key) == first; n++ {
		key = "user/uid:u" + strconv.Itoa(n)
	}
	must(t, c.Client().HSet(t.Context(), key, "~isa", "another type").Err())
	slot := c.OpenSlot(key)
	if slot.To != first {
		t.Fatal("the slot moves to a master that is not scanned first")
	}
	client := c.Client()
	moved := false
	hook := &afterScan{do: func() { slot.Finish(); moved = true }}
	client.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
	db, err := redisdb.New(t.Context(), client, userdb.Options{Keys: [][]byte{bytes.Repeat([]byte("a"), 32)}})
	must(t, err)
	_, err = typeOf(t, db, "user").RotateKeys(t.Context())
	wantErr(t, "RotateKeys with a damaged entry", err, userdb.ErrCorrupt)
	if !moved {
		t.Error("nothing was scanned while the slot moved")
	}
}
