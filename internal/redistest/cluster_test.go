package redistest

import (
	"fmt"
	"strings"
	"testing"
)

func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts six servers")
	}
	c := StartCluster(t, FailsOver)
	client := c.Client()
	if want := "redis+cluster://" + c.Nodes[0].Addr() + "?addr="; !strings.HasPrefix(c.URL(), want) || strings.Count(c.URL(), "addr=") != 5 {
		t.Errorf("URL %s, want it to begin with %s and to list 5 further addresses", c.URL(), want)
	}
	for i := range 100 {
		if err := client.Set(t.Context(), fmt.Sprint(i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	killed := c.Master("k")
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n := killed.Client().Exists(t.Context(), "k").Val(); n != 1 {
		t.Fatal("Master returned a node that does not have the key")
	}
	if err := client.Do(t.Context(), "WAIT", 1, 1000).Err(); err != nil {
		t.Fatal(err)
	}
	killed.Kill()
	c.WaitReady()
	if now := c.Master("k"); now == killed {
		t.Error("the killed node is still master")
	}
	fresh := c.Client()
	if err := fresh.Set(t.Context(), "k", "w", 0).Err(); err != nil {
		t.Error(err)
	}
	killed.Restart()
	c.WaitReady()
	if got, err := c.Client().Get(t.Context(), "k").Result(); got != "w" {
		t.Errorf("got %q, %v; want w, which was written after the failover", got, err)
	}
}

func TestSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("starts five servers")
	}
	s := StartSentinel(t, FailsOver)
	client := s.Client()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), "WAIT", 1, 1000).Err(); err != nil {
		t.Fatal(err)
	}
	if s.Current() != s.Master {
		t.Error("the first master is not master")
	}
	s.Master.Kill()
	err := eventually(func() error {
		if s.Current() != s.Replica {
			return fmt.Errorf("no failover")
		}
		return client.Set(t.Context(), "k", "w", 0).Err()
	})
	if err != nil {
		t.Error(err)
	}
	s.WaitReady()
	s.Master.Restart()
	s.WaitReady()
	if got, err := s.Client().Get(t.Context(), "k").Result(); got != "w" {
		t.Errorf("got %q, %v; want w, which was written after the failover", got, err)
	}
	if want := "redis+sentinel://" + s.Sentinels[0].Addr() + "?master_name=userdb&addr="; !strings.HasPrefix(s.URL(), want) {
		t.Errorf("URL %s, want it to begin with %s", s.URL(), want)
	}
}
