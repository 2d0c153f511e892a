package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
)

// at returns a time that is some milliseconds after a fixed one.
func at(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }

func TestClockOf(t *testing.T) {
	for _, test := range []struct {
		reported, before, after int
		want                    store.Clock
	}{
		{reported: 15, before: 10, after: 20, want: store.Clock{Within: 5 * time.Millisecond}},
		{reported: 3015, before: 10, after: 20, want: store.Clock{Ahead: 3 * time.Second, Within: 5 * time.Millisecond}},
		{reported: 0, before: 100, after: 100, want: store.Clock{Ahead: -100 * time.Millisecond}},
	} {
		if got := store.ClockOf(at(test.reported), at(test.before), at(test.after)); got != test.want {
			t.Errorf("%+v: got the clock %+v, want %+v", test, got, test.want)
		}
	}
}

// node returns a server whose clock is ahead by some milliseconds, give or take within.
func node(name string, ahead, within int) store.Server {
	ms := time.Millisecond
	return store.Server{Name: name, Clock: &store.Clock{Ahead: time.Duration(ahead) * ms, Within: time.Duration(within) * ms}}
}

func TestClockWarnings(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []store.Server
		want  string // in the text; "": no warning
	}{
		{"one server", []store.Server{node("a", 9000, 1)}, ""},
		{"both equally far ahead", []store.Server{node("a", 9000, 1), node("b", 9000, 1)}, ""},
		{"two seconds apart", []store.Server{node("a", 1000, 0), node("b", -1000, 0)}, ""},
		{"more than two seconds apart", []store.Server{node("a", 1000, 0), node("b", -1001, 0)}, "the server a is ahead of that of b by 2.001s or more"},
		{"the second server is ahead", []store.Server{node("a", -1001, 0), node("b", 1000, 0)}, "the server b is ahead of that of a by 2.001s"},
		{"the two of three that differ most", []store.Server{node("a", 0, 0), node("b", 3000, 0), node("c", -3000, 0)}, "b is ahead of that of c by 6s"},
		{"slow round trips, so the clocks may agree", []store.Server{node("a", 3000, 600), node("b", 0, 600)}, ""},
		{"slow round trips, but the clocks must differ", []store.Server{node("a", 3000, 400), node("b", 0, 400)}, "by 2.2s or more"},
		{"fifteen seconds behind this machine", []store.Server{node("a", -15000, 0)}, ""},
		{"more than fifteen seconds behind this machine", []store.Server{node("a", -20000, 0)}, "the server a is 20s behind this machine's"},
		{"a slow round trip, so perhaps less than fifteen seconds ahead", []store.Server{node("a", 20000, 6000)}, ""},
		{"ahead of this machine", []store.Server{node("a", 3600_000, 6000)}, "the server a is 1h0m0s ahead of this machine's"},
		{"one clock is unknown", []store.Server{node("a", 9000, 0), {Name: "b"}}, ""},
	} {
		got := store.Warnings(test.nodes)
		if len(got) == 0 && test.want == "" {
			continue
		}
		if len(got) != 1 || test.want == "" || !strings.Contains(got[0].Text, test.want) || got[0].Code != "clocks" || got[0].BreaksPromise {
			t.Errorf("%s: got %v, want %q", test.name, got, test.want)
		}
	}
}

// TestServerWarnings checks the warnings about a server, which of them break the promise that one
// identifier means one entry, and what the server may lose in a crash.
func TestServerWarnings(t *testing.T) {
	for _, test := range []struct {
		server store.Server
		loses  string
		want   string // codes of the warnings; ! marks those that break the promise
	}{
		{server: store.Server{}},
		{server: store.Server{AppendOnly: "yes", AppendFsync: "always", Eviction: "noeviction", Role: "master"}, loses: "nothing"},
		{server: store.Server{AppendOnly: "yes", AppendFsync: "everysec", Save: store.NoSave}, loses: "the last second"},
		{server: store.Server{AppendOnly: "yes", AppendFsync: "no"}, loses: "what the operating system has not written yet, about 30 s"},
		{server: store.Server{AppendOnly: "yes"}},
		{server: store.Server{AppendOnly: "no"}},
		{server: store.Server{AppendOnly: "no", Save: "3600 1", LastSave: "ok", LastAppend: "ok"}, loses: "everything since the last snapshot"},
		{server: store.Server{AppendOnly: "no", Save: store.NoSave}, loses: "everything", want: "not_persistent"},
		{server: store.Server{Eviction: "allkeys-lru", Role: "replica"}, want: "evicts! replica!"},
		{server: store.Server{LastSave: "err", LastAppend: "err"}, want: "save_failed append_failed"},
	} {
		test.server.Name = "here:1"
		var codes []string
		for _, w := range store.Warnings([]store.Server{test.server}) {
			if w.BreaksPromise {
				w.Code += "!"
			}
			codes = append(codes, w.Code)
			if !strings.HasPrefix(w.Text, "the server here:1 ") {
				t.Errorf("%s: the text %q does not begin with the server's name", w.Code, w.Text)
			}
		}
		if got := strings.Join(codes, " "); got != test.want || test.server.MayLose() != test.loses {
			t.Errorf("%+v: warnings %q, and MayLose returns %q; want %q and %q", test.server, got, test.server.MayLose(), test.want, test.loses)
		}
	}
}
