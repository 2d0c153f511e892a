package recordkey_test

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

func TestPatterns(t *testing.T) {
	acme := namespace("ac*me")
	for _, row := range []struct {
		p    recordkey.Pattern
		want string
	}{
		{recordkey.Pattern{}, "*"},
		{recordkey.Pattern{Namespace: acme}, `~ac\*me/*`},
		{recordkey.Pattern{Kind: recordkey.KindPRK, Type: "user", Field: "uid"}, "user/uid:*"},
		{recordkey.Pattern{Kind: recordkey.KindSRK, Type: "user", Value: "Bob"}, "user/*:Bob/~prk"},
		{recordkey.Pattern{Kind: recordkey.KindSRK, Type: "user", Value: "*"}, `user/*:\*/~prk`},
		{recordkey.Pattern{Kind: recordkey.KindSRK, Type: "user", Field: "name"}, "user/name:*/~prk"},
		{recordkey.Pattern{Kind: recordkey.KindIndex, Type: "user", Field: "job"}, "user/job:*/~prks"},
		{recordkey.Pattern{Kind: recordkey.KindTertiary, Type: "user", Field: "uid", Value: "a b"}, "user/uid:a+_b/*"},
		{recordkey.Pattern{Namespace: acme, Kind: recordkey.KindTertiary, Type: "user", Name: "x-y"}, `~ac\*me/user/*:*/x\-y`},
		{recordkey.Pattern{Kind: recordkey.KindOwn}, "~/*"},
		{recordkey.Pattern{Namespace: acme, Kind: recordkey.KindOwn, Name: "throttle"}, `~ac\*me/~/throttle/*`},
	} {
		if got := row.p.String(); got != row.want {
			t.Errorf("%+v: got %q, want %q", row.p, got, row.want)
		}
	}
}

func TestPatternMatch(t *testing.T) {
	keys := []string{
		"user/uid:a", "user/uid:a/tags", "user/name:a/~prk", "user/name:b/~prk", "user/job:a/~prks",
		"team/name:a/~prk", "~acme/user/name:a/~prk", "~acme/~eu/user/uid:a", "~/schema/user", "~acme/~/schema/user",
		"~/token/{user/uid:a}",
	}
	for _, row := range []struct {
		p    recordkey.Pattern
		want []int // indices into keys
	}{
		{recordkey.Pattern{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{recordkey.Pattern{Namespace: namespace("acme")}, []int{6, 7, 9}},
		{recordkey.Pattern{Kind: recordkey.KindPRK, Type: "user", Field: "uid"}, []int{0}},
		{recordkey.Pattern{Kind: recordkey.KindSRK, Value: "a"}, []int{2, 5}},
		{recordkey.Pattern{Kind: recordkey.KindSRK, Type: "user", Value: "a"}, []int{2}},
		{recordkey.Pattern{Namespace: namespace("acme"), Kind: recordkey.KindSRK}, []int{6}},
		{recordkey.Pattern{Kind: recordkey.KindTertiary, Name: "tags"}, []int{1}},
		{recordkey.Pattern{Kind: recordkey.KindTertiary, Name: "friends"}, nil},
		{recordkey.Pattern{Kind: recordkey.KindIndex, Field: "job"}, []int{4}},
		{recordkey.Pattern{Kind: recordkey.KindOwn}, []int{8, 10}},
		{recordkey.Pattern{Kind: recordkey.KindOwn, Name: "token"}, []int{10}},
		{recordkey.Pattern{Kind: recordkey.KindOwn, Name: "schema"}, []int{8}},
		{recordkey.Pattern{Kind: recordkey.KindOwn, Name: "sch"}, nil},
	} {
		want := map[int]bool{}
		for _, i := range row.want {
			want[i] = true
		}
		for i, key := range keys {
			if got := row.p.Match(parse(key)); got != want[i] {
				t.Errorf("%+v matches %s: got %v, want %v", row.p, key, got, want[i])
			}
		}
	}
	if (recordkey.Pattern{}).Match(recordkey.Key{}) {
		t.Error("a pattern matches the zero Key")
	}
}

// redisMatches reports whether pattern matches s in Redis, whose manual describes stars, question
// marks, character classes and backslashes.
func redisMatches(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	if pattern[0] == '*' {
		return redisMatches(pattern[1:], s) || s != "" && redisMatches(pattern, s[1:])
	}
	if s == "" {
		return false
	}
	switch pattern[0] {
	case '?':
		return redisMatches(pattern[1:], s[1:])
	case '\\':
		return pattern[1] == s[0] && redisMatches(pattern[2:], s[1:])
	case '[': // the only class that Glob returns
		return pattern[:4] == `[\\]` && s[0] == '\\' && redisMatches(pattern[4:], s[1:])
	}
	return pattern[0] == s[0] && redisMatches(pattern[1:], s[1:])
}

func TestGlob(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{"Alice", "Alice"},
		{`*?[]^-\`, `\*\?\[\]\^\-\\`},
		{`C:\temp\Eve`, `C:\\temp[\\]Eve`},
	} {
		if got := recordkey.Glob(row.text); got != row.want {
			t.Errorf("Glob(%q) = %q, want %q", row.text, got, row.want)
		}
	}
}

func TestGlobMatchesItselfOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := crumbs().Draw(t, "a"), crumbs().Draw(t, "b")
		if !redisMatches(recordkey.Glob(a), a) || a != b && redisMatches(recordkey.Glob(a), b) {
			t.Fatalf("%q must match %q and no other text, such as %q", recordkey.Glob(a), a, b)
		}
	})
}

// TestPatternsMatchTheirKeys checks that a pattern finds the keys that it selects, whatever text it
// contains. SCAN may return more.
func TestPatternsMatchTheirKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := keys().Draw(t, "key")
		p := recordkey.Pattern{
			Namespace: k.Namespace(), Kind: k.Kind(),
			Type: k.Type(), Field: k.Field(), Value: k.Value(), Name: k.Name(),
		}
		if parts := k.Parts(); len(parts) > 1 {
			p.Name = parts[0]
		}
		if !p.Match(k) || !redisMatches(p.String(), k.String()) {
			t.Fatalf("%+v, as %q, does not find %s", p, p, k)
		}
		p.Field, p.Value = "", ""
		if !p.Match(k) || !redisMatches(p.String(), k.String()) {
			t.Fatalf("%+v, as %q, does not find %s", p, p, k)
		}
	})
}

// TestNaughtyPatternsOnMiniredis checks that patterns also work on miniredis, which parses them
// differently from Redis.
func TestNaughtyPatternsOnMiniredis(t *testing.T) {
	ctx := context.Background()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	texts := append(naughtyStrings(t), `\E`, `a\Eb`, `\E.*\Q`, `\E(`, `\Q`, `a\`, `[\\]E`, "*", "^", "[^a]", "\xff")
	for _, s := range texts {
		k, err := recordkey.SRK("user", "name", s)
		if err != nil {
			continue // empty or too long
		}
		server.Set(k.String(), "")
	}
	server.Set("user/name:other/~prk", "")
	for _, s := range texts {
		k, err := recordkey.SRK("user", "name", s)
		if err != nil {
			continue
		}
		p := recordkey.Pattern{Kind: recordkey.KindSRK, Type: "user", Value: s}
		found, _, err := client.Scan(ctx, 0, p.String(), 100_000).Result()
		if err != nil || len(found) != 1 || found[0] != k.String() {
			t.Errorf("%q: pattern %q finds %q, %v; want only the key itself", s, p, found, err)
		}
	}
}
