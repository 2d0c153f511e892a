package token_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

func prkOf(t *testing.T, uid string) recordkey.Key {
	t.Helper()
	prk, err := recordkey.PRK("user", "uid", uid)
	if err != nil {
		t.Fatal(err)
	}
	return prk
}

// run runs a script with the given arguments.
func run(t *testing.T, c *redis.Client, script, key string, args []string) []string {
	t.Helper()
	all := make([]any, len(args))
	for i := range args {
		all[i] = args[i]
	}
	reply, err := c.Eval(t.Context(), script, []string{key}, all...).StringSlice()
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestInvitation checks that a token that the script has stored is read as it was given, and that
// it ends when its time is over.
func TestInvitation(t *testing.T) {
	c, now := redistest.Shared(t).Client(), time.UnixMilli(1767323045000)
	i := token.Invitation{
		Token: token.Token{Hash: "h", Purpose: "invite:e mail", Fields: []string{"email", "~sent"}, Value: "a b/c\nd"},
		PRK:   prkOf(t, "invited"), Life: time.Hour, Now: now,
	}
	key, err := token.Key(i.PRK)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, c, token.Lua+token.InviteLua, key.String(), i.Args()); got[0] != "ok" {
		t.Fatalf("got %q, want ok", got)
	}
	for _, age := range []time.Duration{0, time.Minute, time.Hour - time.Millisecond, time.Hour} {
		reply := run(t, c, token.Lua+token.PeekLua, key.String(), token.PeekArgs("h", now.Add(age), false))
		got, left, ok := token.ParsePeek("h", reply)
		switch valid := age < time.Hour; {
		case ok != valid:
			t.Errorf("after %v: got %+v, valid %v; want valid %v", age, got, ok, valid)
		case valid && (left != time.Hour-age || !reflect.DeepEqual(got, i.Token)):
			t.Errorf("after %v: got %+v, valid for %v; want %+v, valid for %v", age, got, left, i.Token, time.Hour-age)
		}
	}
	open, ok := token.Parse("h", c.HGet(t.Context(), key.String(), "h").Val())
	if want := (token.Stored{Token: i.Token, Until: now.Add(time.Hour), Number: 1}); !ok || !reflect.DeepEqual(open, want) {
		t.Errorf("got %+v, %v, want %+v", open, ok, want)
	}
}

// TestWaitingToken checks that peek finds a token that waits in the entry.
func TestWaitingToken(t *testing.T) {
	c, now := redistest.Shared(t).Client(), time.UnixMilli(1767323045000)
	key, until := prkOf(t, "waiting").String(), strconv.FormatInt(now.Add(time.Hour).UnixMilli(), 10)
	if err := c.HSet(t.Context(), key, token.FieldTokens, "0\nh1 "+until+" 1 reset  v1\nh2 "+until+" 2 reset  v2").Err(); err != nil {
		t.Fatal(err)
	}
	for hash, value := range map[string]string{"h1": "v1", "h2": "v2", "h": "", "0": ""} {
		got, _, ok := token.ParsePeek(hash, run(t, c, token.Lua+token.PeekLua, key, token.PeekArgs(hash, now, true)))
		if ok != (value != "") || got.Value != value {
			t.Errorf("%s: got %+v, %v, want the value %q", hash, got, ok, value)
		}
	}
}

// TestMark checks which tokens the values of ~tokens allow.
func TestMark(t *testing.T) {
	const now, later, past = 1000, "2000", "500"
	members := map[string]string{"a": later + " 1 p  va", "b": later + " 2 p  vb", "old": past + " 3 p  v", "bad": "x"}
	for mark, want := range map[token.Mark]string{
		"": "", "1bbbbbb": "b a", "1bbbbbb a": "b", "0": "", "1bbbbbb a b": "",
		"0\nw 2000 5 p  vw": "w", "1b a\nw 2000 5 p  vw": "w b", "1b\na 2000 9 p  waits": "a b",
	} {
		var got []string
		for _, o := range mark.Open(members, time.UnixMilli(now)) {
			got = append(got, o.Hash)
			if !mark.Allows(o.Hash) || !mark.Any() {
				t.Errorf("%q: Open returns %s, but Allows(%[2]q) or Any returns false", mark, o.Hash)
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: got %q, want %q", mark, text, want)
		}
	}
	if m := token.Mark("1bbbbbb a\nw 2000 5 p  vw"); !m.Ended("a") || m.Ended("b") || m.Ended("w") {
		t.Errorf("%q: want exactly a to have ended", m)
	}
}

// TestMalformedTokens checks that Parse refuses malformed texts.
func TestMalformedTokens(t *testing.T) {
	for _, text := range []string{"", "1 2 p f", "1 2 p  v x", "x 2 p  v", "1 -2 p  v", "1 2 p zz v", "1 2 +q  v"} {
		if got, ok := token.Parse("h", text); ok {
			t.Errorf("%q is parsed as %+v, want false", text, got)
		}
	}
}
