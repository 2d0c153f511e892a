package connect

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// TestOneDial checks that no client of a store dials again by itself. If it did, each attempt of
// the engine at a host that is down would cost five dials.
func TestOneDial(t *testing.T) {
	for _, url := range []string{"redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1?master_name=m", "redis+cluster://127.0.0.1:1"} {
		e, err := Open(t.Context(), url, store.Cache{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		dials := 0
		switch c := Clients(e)[0].(type) {
		case *redis.Client:
			dials = c.Options().DialerRetries
		case *redis.ClusterClient:
			dials = c.Options().DialerRetries
		}
		if dials != 1 {
			t.Errorf("%s: the client dials %d times for each connection, want once", url, dials)
		}
	}
}

// TestUnknownMasterOrDatabase opens masters and databases that do not exist, and checks that the
// error says so. It must not say that a key does not exist. A survey of a Sentinel that was opened
// as a server must also fail.
func TestUnknownMasterOrDatabase(t *testing.T) {
	sentinels := redistest.StartSentinel(t)
	key, err := recordkey.Parse("user/uid:1")
	if err != nil {
		t.Fatal(err)
	}
	lost := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: sentinels.Addrs(), MasterName: "nosuch"})
	t.Cleanup(func() { lost.Close() })
	for _, tt := range []struct {
		url    string
		client redis.UniversalClient // if not nil, used instead of url
		want   string
	}{
		{strings.Replace(sentinels.URL(), "master_name="+redistest.MasterName, "master_name=nosuch", 1), nil, "no Sentinel that answers knows a master"},
		{"a client of the caller's", lost, "no Sentinel that answers knows a master"},
		{redistest.Shared(t).URL() + "99999", nil, "DB index is out of range"},
	} {
		e, err := Open(t.Context(), tt.url, store.Cache{})
		if tt.client != nil {
			e, err = Use(tt.client, store.Cache{})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		refused := func(what string, err error) {
			if !errors.Is(err, store.ErrUnsuitable) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s at %s: got %v, want ErrUnsuitable with %q", what, tt.url, err, tt.want)
			}
		}
		refused("ping", e.Ping(t.Context()))
		found, err := e.Find(t.Context(), []store.Lookup{{PRK: key}})
		if err == nil {
			err = found[0].Err
		}
		refused("find", err)
		_, err = e.Apply(t.Context(), store.Change{Key: key, Create: true})
		refused("create", err)
	}
	e, err := Open(t.Context(), "redis://"+sentinels.Addrs()[0], store.Cache{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	for _, closely := range []bool{true, false} {
		_, err := e.Survey(t.Context(), closely)
		if !errors.Is(err, store.ErrUnsuitable) || !strings.Contains(err.Error(), "the server is a Sentinel, ") {
			t.Errorf("survey of a Sentinel, closely %t: got %v, want ErrUnsuitable", closely, err)
		}
	}
}

// TestSentinelsDown checks that a change is certainly not made if the Sentinels of the store are
// down, and that the error is one line that names each Sentinel.
func TestSentinelsDown(t *testing.T) {
	e, err := Open(t.Context(), "redis+sentinel://127.0.0.1:1?addr=127.0.0.1:2&master_name=m", store.Cache{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	key, err := recordkey.Parse("user/uid:1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Apply(t.Context(), store.Change{Key: key, Create: true})
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrUnavailable alone", err)
	}
	for _, want := range []string{"no Sentinel answers: dial", "127.0.0.1:1: connect", "127.0.0.1:2: connect"} {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %q, want one line with %q", err, want)
		}
	}
}
