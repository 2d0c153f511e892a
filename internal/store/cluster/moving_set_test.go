package cluster

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// A pageHook calls move before the tenth page of a record is read.
type pageHook struct {
	pages int
	move  func()
}

func (*pageHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*pageHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *pageHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := strings.ToLower(cmd.Name()); name == "sscan" || name == "hscan" {
			if h.pages++; h.pages == 10 {
				h.move()
			}
		}
		return next(ctx, cmd)
	}
}

// TestRecordMovesWhileRead moves a record, while its pages are read, to a node on which a cursor
// means something else. The reader must get all elements.
func TestRecordMovesWhileRead(t *testing.T) {
	c, ctx := redistest.StartCluster(t), t.Context()
	const size = 1000
	read := func(e *Engine, prk, key recordkey.Key, kind string) ([]string, error) {
		all, err := e.Read(ctx, []store.EntryRead{{PRK: prk, Keys: []recordkey.Key{key}, Kinds: []string{kind}}})
		if err != nil {
			return nil, err
		}
		return all[0].Parts[0].Values, all[0].Err
	}
	command := func(e *Engine, prk, key recordkey.Key, kind string) ([]string, error) {
		name := map[string]string{"set": "SMEMBERS", "hash": "HGETALL"}[kind]
		reply, err := e.Tertiary(ctx, store.Op{PRK: prk, Key: key, Command: name})
		return reply.Items, err
	}
	for i, tt := range []struct {
		name, kind string
		read       func(e *Engine, prk, key recordkey.Key, kind string) ([]string, error)
	}{
		{"an entry with a set", "set", read},
		{"an entry with a hash", "hash", read},
		{"a set", "set", command},
		{"a hash", "hash", command},
	} {
		prk, err := recordkey.PRK("user", "uid", "u"+strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		key, err := prk.Tertiary("tags")
		if err != nil {
			t.Fatal(err)
		}
		client := c.Client()
		pipe := client.Pipeline()
		pipe.HSet(ctx, prk.String(), store.FieldType, "user", store.FieldRev, "ABCDEFGHIJKL", "uid", "u"+strconv.Itoa(i))
		for n := range size {
			if tt.kind == "set" {
				pipe.SAdd(ctx, key.String(), n)
			} else {
				pipe.HSet(ctx, key.String(), n, "x")
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		hook := &pageHook{move: func() { c.OpenSlot(key.String()).Finish() }}
		client.AddHook(hook)
		values, err := tt.read(New(client, Options{MemberBatch: 20}), prk, key, tt.kind)
		got := map[string]bool{}
		for i, v := range values {
			if tt.kind == "set" || i%2 == 0 {
				got[v] = true
			}
		}
		if hook.pages < 10 {
			t.Errorf("%s: read in %d pages, so that the record did not move meanwhile", tt.name, hook.pages)
		}
		if len(got) != size || err != nil {
			t.Errorf("%s: got %d elements, error %v; want %d", tt.name, len(got), err, size)
		}
	}
}
