package redistest

import (
	"context"
	"net"
	"testing"
)

// A Slot is a cluster slot that is being migrated from one master to another. Its existing keys
// stay until Finish; new keys go to the other master.
type Slot struct {
	From, To *Server
	t        testing.TB
	number   int64
}

// OpenSlot starts to migrate the slot of a key to another of the first three masters.
func (c *Cluster) OpenSlot(key string) *Slot {
	c.t.Helper()
	s := &Slot{From: c.Master(key), t: c.t}
	for _, node := range c.Nodes[:3] {
		if node != s.From {
			s.To = node
		}
	}
	n, err := s.From.Client().ClusterKeySlot(context.Background(), key).Result()
	c.must(err)
	s.number = n
	s.set(s.To, "IMPORTING", s.id(s.From))
	s.set(s.From, "MIGRATING", s.id(s.To))
	return s
}

// Finish moves the keys and then the slot itself.
func (s *Slot) Finish() {
	s.t.Helper()
	s.MoveKeys()
	s.set(s.To, "NODE", s.id(s.To))
	s.set(s.From, "NODE", s.id(s.To))
}

// MoveKeys moves the keys and leaves the slot open.
func (s *Slot) MoveKeys() {
	s.t.Helper()
	ctx, from := context.Background(), s.From.Client()
	host, port, _ := net.SplitHostPort(s.To.Addr())
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, int(s.number), 100).Result()
		s.must(err)
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
		for _, k := range keys {
			args = append(args, k)
		}
		s.must(from.Do(ctx, args...).Err())
	}
}

func (s *Slot) set(node *Server, state, id string) {
	s.t.Helper()
	s.must(node.Client().Do(context.Background(), "CLUSTER", "SETSLOT", s.number, state, id).Err())
}

func (s *Slot) id(node *Server) string {
	s.t.Helper()
	id, err := node.Client().ClusterMyID(context.Background()).Result()
	s.must(err)
	return id
}

func (s *Slot) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
