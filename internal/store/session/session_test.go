package session_test

import (
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/recordkey"
)

// TestStart checks that a session that the script has stored is read as it was given.
func TestStart(t *testing.T) {
	c, now := redistest.Shared(t).Client(), time.UnixMilli(1767323045000)
	prk, err := recordkey.PRK("user", "uid", "started")
	if err != nil {
		t.Fatal(err)
	}
	key, err := session.Key(prk)
	if err != nil {
		t.Fatal(err)
	}
	s := session.Start{
		PRK: prk, Seen: session.Entry{Epoch: "e", Changed: "2026 x"}, ID: "id", Life: time.Hour, Idle: time.Minute,
		Origin: "a b", Agent: "c/d\ne", Now: now,
	}
	run := func(args []string) []session.Session {
		t.Helper()
		var all []any
		for _, a := range append(args, "") { // without lines for the history
			all = append(all, a)
		}
		reply, err := c.Eval(t.Context(), history.Lua+session.Lua, []string{key.String()}, all...).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		return session.ParseAll(reply)
	}
	want := session.Session{
		ID: "id", Generation: s.Seen.Generation(), Begun: now, Seen: now, Verified: now, Ends: now.Add(time.Hour),
		Idle: time.Minute, Origin: "a b", Agent: "c/d\ne",
	}
	for _, args := range [][]string{
		s.Args("e"), s.Args("e"), session.Args(session.List, now, "", want.Generation), session.Args(session.Seen, now, "id", ""),
		session.Args(session.Verify, now, "id", want.Generation),
	} {
		if got := run(args); len(got) != 1 || got[0] != want {
			t.Errorf("%q: got %+v, want %+v", args[0], got, want)
		}
	}
	for _, args := range [][]string{
		session.Args(session.List, now, "", "other"), session.Args(session.Verify, now, "id", "other"),
		session.Args(session.Clear, now, "", want.Generation), session.Args(session.List, now, "", want.Generation),
	} {
		if got := run(args); len(got) != 0 {
			t.Errorf("%q: got %+v, want none", args[0], got)
		}
	}
}

// TestValidFor checks which entries a session is valid for.
func TestValidFor(t *testing.T) {
	e := session.Entry{Epoch: "e", Changed: "c"}
	s := session.Session{Generation: e.Generation()}
	for name, c := range map[string]struct {
		entry session.Entry
		want  bool
	}{
		"the same":         {e, true},
		"another rev":      {session.Entry{Rev: "r", Epoch: "e", Changed: "c"}, true},
		"another epoch":    {session.Entry{Epoch: "f", Changed: "c"}, false},
		"another password": {session.Entry{Epoch: "e", Changed: "d"}, false},
		"disabled":         {session.Entry{Epoch: "e", Changed: "c", Disabled: true}, false},
	} {
		if got := s.ValidFor(c.entry); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if none := (session.Session{Generation: session.Entry{}.Generation()}); none.ValidFor(session.Entry{}) {
		t.Error("a session is valid for an entry without an epoch")
	}
}

// TestMalformedSessions checks that Parse accepts no other texts.
func TestMalformedSessions(t *testing.T) {
	for _, text := range []string{"", "- 5 call", "1 2 3 4 5 b o", "1 2 3 4 5 b o a x", "1 2 3 4 x b o a", "1 2 3 4 -5 b o a", "1234567890123456 2 3 4 5 b o a", "1 2 3 4 5 b +q a"} {
		if got, err := session.Parse("id", text); err == nil {
			t.Errorf("%q is parsed as %+v", text, got)
		}
	}
}
