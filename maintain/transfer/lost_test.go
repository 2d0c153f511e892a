package transfer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// A losingStore is a store on servers that lose acknowledged writes: lose undoes all writes since
// keep.
type losingStore struct {
	name  string
	start func(t *testing.T) (url string, keep, lose func())
}

// detach breaks a replica's connection to its master, and keeps it broken.
func detach(t *testing.T, replica *redistest.Server) {
	t.Helper()
	c := replica.Client()
	defer c.Close()
	if err := errors.Join(c.ConfigSet(t.Context(), "masterauth", "wrong").Err(), c.ClientKillByFilter(t.Context(), "type", "master").Err()); err != nil {
		t.Fatal(err)
	}
}

var losingStores = []losingStore{
	{"one server", func(t *testing.T) (string, func(), func()) {
		s := redistest.Start(t)
		return s.URL(), func() {
			if err := s.Client().Save(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}, func() { s.Kill(); s.Restart() }
	}},
	{"Sentinel", func(t *testing.T) (string, func(), func()) {
		s := redistest.StartSentinel(t)
		lose := func() {
			sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addrs()[0]})
			defer sentinel.Close()
			// It refuses if the replica has not answered it for five seconds.
			eventually(t, "the failover begins", func() bool { return sentinel.Failover(t.Context(), redistest.MasterName).Err() == nil })
			s.Master.Kill()
			eventually(t, "the replica takes over", func() bool { return s.Current() == s.Replica })
			s.WaitReady()
		}
		return s.URL(), func() { detach(t, s.Replica) }, lose
	}},
	{"cluster", func(t *testing.T) (string, func(), func()) {
		c := redistest.StartCluster(t)
		master := c.Master("user/uid:1")
		var replica *redistest.Server
		for _, node := range c.Nodes {
			client := node.Client()
			info, err := client.Info(t.Context(), "replication").Result()
			if err != nil {
				t.Fatal(err)
			}
			if _, port, _ := strings.Cut(master.Addr(), ":"); strings.Contains(info, "master_port:"+port) {
				replica = node
			}
			client.Close()
		}
		if replica == nil {
			t.Fatal("the master has no replica")
		}
		lose := func() {
			client := replica.Client()
			defer client.Close()
			if err := client.Do(t.Context(), "cluster", "failover", "takeover").Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the replica takes over", func() bool {
				return c.Master("user/uid:1") == replica
			})
		}
		return c.URL(), func() { detach(t, replica) }, lose
	}},
}

// TestResumeAfterLoss checks that an import that is resumed imports the lines that the servers have
// lost meanwhile, and no line twice. Lines have neither UIDs nor identifiers.
func TestResumeAfterLoss(t *testing.T) {
	const n = 2500
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, `{"facets":{"motto":"number %d"}}`+"\n", i)
	}
	errCut := errors.New("cut off")
	for _, s := range losingStores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			url, keep, lose := s.start(t)
			db := openURL(t, url)
			var state transfer.ImportState
			kept := false
			cut := transfer.ImportOptions{Save: func(now transfer.ImportState) error {
				if !kept {
					kept = true
					keep()
				}
				if state = now; state.Lines >= 2000 {
					return errCut
				}
				return nil
			}}
			if _, err := transfer.Import(t.Context(), db, strings.NewReader(in.String()), cut); !errors.Is(err, errCut) {
				t.Fatal(err)
			}
			lose()
			if got := count(t, db); got >= 2000 {
				t.Fatalf("the servers lost nothing: they have %d entries", got)
			}
			restarted := 0
			report, err := transfer.Import(t.Context(), db, strings.NewReader(in.String()), transfer.ImportOptions{Resume: state, Restarted: func() { restarted++ }})
			if want := (transfer.Report{Read: n, Created: n, NoPassword: n, NoIdentifier: n}); err != nil || report != want || restarted != 1 {
				t.Errorf("resumed: %+v, %v, and Restarted was called %d times; want %+v, no error, and one call", report, err, restarted, want)
			}
			if got := count(t, db); got != n {
				t.Errorf("there are %d entries, want %d", got, n)
			}
		})
	}
}

// TestImportWhileServersLose checks that an import during which servers restart, or replicas take
// over, does not claim that everything was imported.
func TestImportWhileServersLose(t *testing.T) {
	in := strings.Repeat(`{"facets":{"motto":"x"}}`+"\n", 100) // one batch
	for _, s := range losingStores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			url, keep, lose := s.start(t)
			db := openURL(t, url)
			var state transfer.ImportState
			save := func(now transfer.ImportState) error { state = now; return nil }
			// The first import creates the record by which an import recognizes its store.
			if _, err := transfer.Import(t.Context(), db, strings.NewReader(""), transfer.ImportOptions{Save: save}); err != nil {
				t.Fatal(err)
			}
			keep()
			report, err := transfer.Import(t.Context(), db, strings.NewReader(in), transfer.ImportOptions{Save: func(now transfer.ImportState) error { lose(); return save(now) }})
			if !errors.Is(err, transfer.ErrLost) || report.Created != 100 {
				t.Errorf("got %+v, %v; want 100 created entries and ErrLost", report, err)
			}
			if report, err = transfer.Import(t.Context(), db, strings.NewReader(in), transfer.ImportOptions{Resume: state}); err != nil || report.Created != 100 || count(t, db) != 100 {
				t.Errorf("resumed: got %+v, %v, %d entries; want 100", report, err, count(t, db))
			}
		})
	}
}

func openURL(t *testing.T, url string) *userdb.DB {
	t.Helper()
	db, err := userdb.Open(t.Context(), url, userdb.Options{Schema: fullSchema(), Namespace: recordkey.Namespace{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func count(t *testing.T, db *userdb.DB) int64 {
	t.Helper()
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	got := testdb.Must(users.Count(t.Context(), userdb.Query{}))
	return got.Entries
}

func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for begin := time.Now(); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}
