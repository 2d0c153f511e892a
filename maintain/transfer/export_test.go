package transfer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestExportOfOneEntry checks that the export of one entry has the tertiary records that another
// program's schema declares, and sends no SCAN.
func TestExportOfOneEntry(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		other := fullSchema()
		other.Types["user"].Tertiary["notes"] = schema.Tertiary{Kind: "list"}
		s = s.Under(t, other)
		typ := s.Type(t, "user")
		_, err := typ.Create(s.Ctx, userdb.NewEntry{UID: "a", Tags: []string{"x"}})
		if err == nil {
			_, err = typ.List(hints.UID("a"), "notes").Append(s.Ctx, "n1")
		}
		if err != nil {
			t.Fatal(err)
		}
		db, err := s.DB.With(fullSchema())
		if err != nil {
			t.Fatal(err)
		}
		scans := &scanCounter{}
		s.AddHook(scans)
		var b strings.Builder
		if _, err := transfer.Export(s.Ctx, db, &b, transfer.ExportOptions{Only: hints.UID("a"), Type: "user"}); err != nil {
			t.Fatal(err)
		}
		only := b.String()
		if !strings.Contains(only, `"notes":{"kind":"list","value":["n1"]}`) || !strings.Contains(only, `"tags":{"kind":"set","value":["x"]}`) {
			t.Errorf("got %s, want the entry with its notes and tags", only)
		}
		if n := scans.n.Load(); n > 0 {
			t.Errorf("the export took %d SCAN commands, want none", n)
		}
	})
}

// TestExportOfCreateOnce checks that an export omits the mark of the request that created an entry.
// The request is known only in its own store.
func TestExportOfCreateOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		n := userdb.NewEntry{UID: "a"}
		if _, err := s.Type(t, "user").CreateOnce(s.Ctx, "one", n); err != nil {
			t.Fatal(err)
		}
		record, err := s.Raw.HGetAll(s.Ctx, s.NS.String()+"user/uid:a").Result()
		if err != nil || record["~once"] == "" {
			t.Fatalf("got the record %v, %v; want a mark", record, err)
		}
		lines := s.export(t, transfer.ExportOptions{Secrets: true})
		if strings.Contains(lines, record["~once"]) || strings.Contains(lines, "once") {
			t.Errorf("the export has the mark: %s", lines)
		}
		other := s.subNamespace(t, "other")
		other.importText(t, lines, transfer.ImportOptions{}, created(1))
		record, err = s.Raw.HGetAll(s.Ctx, other.NS.String()+"user/uid:a").Result()
		if err != nil || record["~isa"] == "" || record["~once"] != "" {
			t.Errorf("got the imported record %v, %v; want no mark", record, err)
		}
		if _, err = other.Type(t, "user").CreateOnce(s.Ctx, "one", n); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("the request in the other store: got %v, want ErrDuplicate", err)
		}
	})
}

// A scanCounter counts the SCAN commands of a client.
type scanCounter struct{ n atomic.Int64 }

func (c *scanCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *scanCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *scanCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

func (c *scanCounter) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if cmd.Name() == "scan" {
			c.n.Add(1)
		}
	}
}
