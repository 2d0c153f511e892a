package redisx

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
)

// describe returns a survey as text, for comparison.
func describe(s store.Server) string {
	text := strings.Join([]string{s.Role, s.Eviction, s.AppendOnly, s.AppendFsync, s.LastAppend, s.Save, s.LastSave}, " ")
	for _, n := range []*int64{s.Replicas, s.MinReplicas} {
		if n == nil {
			text += " nil"
		} else {
			text += " " + time.Duration(*n).String()
		}
	}
	if s.Clock != nil {
		text += " clock"
	}
	return text
}

func TestSurvey(t *testing.T) {
	for _, test := range []struct {
		name, config, rights string
		closely              bool
		want, warns          string // the result of describe, and the codes of the warnings
	}{
		{name: "default test server", closely: true, want: "master noeviction no everysec ok never ok 0s 0s clock", warns: "not_persistent"},
		{name: "default test server, without asking for its settings", want: "master noeviction no  ok  ok 0s nil"},
		{
			name: "persistent", config: "appendonly yes\nappendfsync always\nsave 60 1000 900 1\nmin-replicas-to-write 2", closely: true,
			want: "master noeviction yes always ok 60 1000 900 1 ok 0s 2ns clock",
		},
		{name: "evicting", config: "maxmemory-policy allkeys-lru", want: "master allkeys-lru no  ok  ok 0s nil", warns: "evicts"},
		{name: "evicting keys with a time to live", config: "maxmemory-policy volatile-ttl", want: "master volatile-ttl no  ok  ok 0s nil", warns: "evicts"},
		{name: "a replica", config: "replicaof 127.0.0.1 1", want: "replica noeviction no  ok  ok 0s nil", warns: "replica"},
		{name: "least rights", closely: true, rights: "+info +time", want: "master noeviction no  ok  ok 0s nil clock"},
		{name: "INFO is forbidden", rights: "+get", want: "       nil nil"},
		{name: "everything is forbidden", closely: true, rights: "+get", want: "       nil nil"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config(strings.Split("user app on nopass ~* -@all "+test.rights+"\n"+test.config, "\n")...))
			o := &redis.Options{Addr: server.Addr(), DisableIdentity: true}
			if test.rights != "" {
				o.Username, o.Password = "app", "any"
			}
			c := redis.NewClient(o)
			defer c.Close()
			s, err := Survey(t.Context(), c, "here", test.closely)
			if got := describe(s); err != nil || got != test.want || s.Name != "here" {
				t.Errorf("got name %q, error %v, want %q, no error\n got %q\nwant %q", s.Name, err, "here", got, test.want)
			}
			var warns []string
			for _, w := range store.Warnings([]store.Server{s}) {
				warns = append(warns, w.Code)
			}
			if got := strings.Join(warns, " "); got != test.warns {
				t.Errorf("warnings %q, want %q", got, test.warns)
			}
		})
	}
}

// TestSurveyNames checks that a server found through Sentinels reports its own address, unless it
// denies its user CLIENT INFO.
func TestSurveyNames(t *testing.T) {
	server := redistest.Start(t, redistest.Config("user app on nopass ~* +@all -client|info"))
	s, err := Survey(t.Context(), server.Client(), "", true)
	if err != nil || s.Name != server.Addr() {
		t.Errorf("with the permission: got %q, %v, want %s", s.Name, err, server.Addr())
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "any"})
	defer c.Close()
	if s, err = Survey(t.Context(), c, "", true); err != nil || s.Name != "that Sentinels name" {
		t.Errorf("without the permission: got %q, %v, want %q", s.Name, err, "that Sentinels name")
	}
}

func TestSurveyVersions(t *testing.T) {
	for info, want := range map[string]string{
		"redis_version:7.0.15\r\n": "redis 7.0.15",
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n": "valkey 8.0.1",
		"used_memory:1\r\n": "",
	} {
		if got := parseInfo("here", info).Version; got != want {
			t.Errorf("%q: got %q, want %q", info, got, want)
		}
	}
	failed := parseInfo("here", "rdb_last_bgsave_status:err\r\naof_last_write_status:err\r\n")
	if failed.LastSave != "err" || failed.LastAppend != "err" {
		t.Errorf("got %+v, want err for LastSave and LastAppend", failed)
	}
}

func TestSurveyOfStoppedServer(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client()
	server.Kill()
	for _, closely := range []bool{false, true} {
		if s, err := Survey(t.Context(), c, "here", closely); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("closely %t: got %+v, %v, want ErrUnavailable", closely, s, err)
		}
	}
}
