package session_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/recordkey"
)

// TestStart stores a session. The commands of the script must return it as it was given, but not
// for another generation or after it was cleared.
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

// TestLevel2 checks that a session of level 2 keeps the time of its second step, that a password
// renews only the time of its first step, and that earlier versions of userdb, which do not know
// levels, do not consider it valid.
func TestLevel2(t *testing.T) {
	c, now := redistest.Shared(t).Client(), time.UnixMilli(1767323045000)
	key := "~/session/{user/uid:level2}"
	seen := session.Entry{Epoch: "e", Changed: "2026/x"}
	later := now.Add(time.Minute)
	run := func(args []string) session.Session {
		t.Helper()
		all := make([]any, 0, len(args)+1)
		for _, a := range append(args, "") { // without lines for the history
			all = append(all, a)
		}
		reply, err := c.Eval(t.Context(), history.Lua+session.Lua, []string{key}, all...).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		if got := session.ParseAll(reply); len(got) == 1 {
			return got[0]
		}
		return session.Session{}
	}
	s := session.Start{Seen: seen, ID: "id", Life: time.Hour, Idle: 10 * time.Minute, Level: 2, Now: now}
	for _, step := range []struct {
		args         []string
		wantVerified time.Time
	}{
		{s.Args("e"), now},
		{s.Args("e"), now}, // sent again
		{session.Args(session.Seen, later, "id", ""), now},
		{session.Args(session.Verify, later, "id", seen.Generation()), later},
		{session.Args(session.List, later, "", seen.Generation()), later},
	} {
		got := run(step.args)
		if !got.VerifiedLevel2.Equal(now) || !got.Verified.Equal(step.wantVerified) || !got.ValidFor(seen) {
			t.Errorf("%q: got %+v, want a valid session verified at %v, and for level 2 at %v", step.args[0], got, step.wantVerified, now)
		}
	}
	text, err := c.HGet(t.Context(), key, "id").Result()
	if err != nil {
		t.Fatal(err)
	}
	// The sixth of eight words is all that earlier versions compare with the generation.
	if words := strings.Split(text, " "); len(words) != 8 || words[5] == seen.Generation() {
		t.Errorf("the session is stored as %q, want eight words, and one that earlier versions refuse", text)
	}
	if got := run(session.Args(session.Clear, later, "", seen.Generation())); got != (session.Session{}) {
		t.Errorf("cleared: got %+v, want none", got)
	}
	if n := c.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("a session of level 2 is not cleared")
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
		"a second factor":  {session.Entry{Epoch: "e", Changed: "c", Factor: "g totp"}, false},
		"disabled":         {session.Entry{Epoch: "e", Changed: "c", Disabled: true}, false},
	} {
		if got := s.ValidFor(c.entry); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	s.VerifiedLevel2 = time.UnixMilli(1)
	if e.Factor = "g totp"; !s.ValidFor(e) {
		t.Error("a session of level 2 is not valid for an entry with a second factor")
	}
	if none := (session.Session{Generation: session.Entry{}.Generation()}); none.ValidFor(session.Entry{}) {
		t.Error("a session is valid for an entry without an epoch")
	}
}

// TestMalformedSessions checks that Parse refuses malformed texts.
func TestMalformedSessions(t *testing.T) {
	for _, text := range []string{"", "- 5 call", "1 2 3 4 5 b o", "1 2 3 4 5 b o a x", "1 2 3 4 x b o a", "1 2 3 4 -5 b o a", "1234567890123456 2 3 4 5 b o a", "1 2 3 4 5 b +q a", "1 2 3 4 5 b/c/ o a", "1 2 3 4 5 b/c/x o a", "1 2 3 4 5 b/c/1/2 o a", "1 2 3 4 5 b/c/1234567890123456 o a"} {
		if got, err := session.Parse("id", text); err == nil {
			t.Errorf("%q is parsed as %+v, want an error", text, got)
		}
	}
}
