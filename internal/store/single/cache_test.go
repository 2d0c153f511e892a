package single

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/store"
)

// unchanging lists the methods of an engine that change nothing in the hash of an entry except
// ~note, and so make no cached copy stale. Add a new method to this list or, if it changes entries,
// override it in cache.go.
var unchanging = []string{
	"AcceptPasskey", "Admit", "AppendFeed", "BeginEnrolment", "Bulk", "Cardinalities", "ClearSessions", "CountOrder", "EndSession", "Feed", "FeedEnd", "FeedEntries",
	"FindSession", "ForgetFactors", "HasMembers", "History", "Invite", "IssueTicket", "Limit", "ListSessions", "LoginWait", "Order",
	"Peek", "PeekIssued", "Ping", "Read", "ReadFactors", "ReadRaw", "ReplaceFactor", "Reset", "Scan", "ScanAll", "Secret", "Settle", "Spend", "SpendTicket",
	"StoreFactors",
	"Tertiary", "ThrottleState", "Time", "TryTicket", "Undo", "VerifySession",
}

// TestCachedForgets checks that every method of an engine is either in the list unchanging or
// overridden by Cached.
func TestCachedForgets(t *testing.T) {
	engine, cached := reflect.TypeFor[store.Engine](), reflect.TypeFor[*Cached]()
	methods := map[string]bool{}
	for i := range engine.NumMethod() {
		name := engine.Method(i).Name
		methods[name] = true
		m, _ := cached.MethodByName(name)
		file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
		own := strings.HasSuffix(file, "cache.go")
		if own == slices.Contains(unchanging, name) {
			t.Errorf("%s: in the list unchanging: %v, overridden in cache.go: %v; want one of the two", name, slices.Contains(unchanging, name), own)
		}
	}
	for _, name := range unchanging {
		if !methods[name] {
			t.Errorf("%s is not a method of an engine; those are %v", name, slices.Sorted(maps.Keys(methods)))
		}
	}
}

// reply returns a reply to HGETALL in RESP3.
func reply(pairs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%%%d\r\n", len(pairs)/2)
	for _, text := range pairs {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(text), text)
	}
	return b.String()
}

// TestCacheable checks that the cache keeps entries without their password hashes, and nothing
// else.
func TestCacheable(t *testing.T) {
	long := strings.Repeat("x", maxReply)
	for _, tt := range []struct{ name, reply, want string }{
		{"an entry", reply("~isa", "user", "name", "Ann"), reply("~isa", "user", "name", "Ann")},
		{"a password hash", reply("~isa", "user", "password", "$2a$12$abc", "name", "Ann"), reply("~isa", "user", "name", "Ann")},
		{"password hashes first and last", reply("password", "1", "~isa", "user", "password", "2"), reply("~isa", "user")},
		{"a value with line ends, and an empty value", reply("~isa", "user", "bio", "a\r\n$3\r\npassword", "job", ""), reply("~isa", "user", "bio", "a\r\n$3\r\npassword", "job", "")},
		{"no fields", reply(), ""},
		{"a tombstone", reply("~rev", "abc", "~dying", "1"), ""},
		{"an empty type", reply("~isa", "", "name", "Ann"), ""},
		{"a reply over the limit", reply("~isa", "user", "bio", long), ""},
		{"an empty reply", "", ""},
		{"an array", "*2\r\n$4\r\n~isa\r\n$4\r\nuser\r\n", ""},
		{"fewer pairs than announced", "%2\r\n$4\r\n~isa\r\n$4\r\nuser\r\n", ""},
		{"more than announced", reply("~isa", "user") + "$1\r\na\r\n", ""},
		{"a number in place of a value", "%1\r\n$4\r\n~isa\r\n:1\r\n", ""},
		{"a negative length", "%1\r\n$4\r\n~isa\r\n$-1\r\n", ""},
		{"a length past the end", "%1\r\n$4\r\n~isa\r\n$9\r\nuser\r\n", ""},
	} {
		kept, ok := cacheable([]byte(tt.reply))
		if ok != (tt.want != "") || ok && string(kept) != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.name, kept, ok, tt.want)
		}
	}
}

// FuzzCacheable checks that cacheable leaves its own results unchanged, which shows that they
// contain no password hash.
func FuzzCacheable(f *testing.F) {
	f.Add([]byte(reply("~isa", "user", "password", "x", "name", "Ann"))) // as Redis replies
	f.Add([]byte("%1\r\n$99999999999999999999\r\n"))                     // not an int
	f.Add([]byte("%9223372036854775807\r\n$4\r\n~isa\r\n"))              // too many pairs
	f.Fuzz(func(t *testing.T, b []byte) {
		kept, ok := cacheable(b)
		if !ok {
			return
		}
		again, ok := cacheable(kept)
		if !ok || !bytes.Equal(again, kept) {
			t.Errorf("cacheable(%q) returns %q, and cacheable of that returns %q, %v; want the same", b, kept, again, ok)
		}
	})
}

// TestForget checks that a reply that was on its way when its record was forgotten is not kept.
func TestForget(t *testing.T) {
	c := newCopies(store.Cache{Entries: 10})
	ask := func(key string) (token uint64) {
		t.Helper()
		token, fetch := c.Reserve("0 hgetall "+key, []string{"0 " + key})
		if !fetch {
			t.Fatalf("%s: a read is under way already", key)
		}
		return token
	}
	answer := func(key string, token uint64, name string) bool {
		return c.FulfillOwned("0 hgetall "+key, token, 1, []byte(reply("~isa", "user", "name", name)))
	}
	has := func(key string) bool { _, ok := c.Get(t.Context(), "0 hgetall "+key); return ok }

	c.Cancel("0 hgetall "+probeKey, ask(probeKey))
	old := ask("user/uid:u")
	c.forget("user/uid:u")
	if answer("user/uid:u", old, "old") || has("user/uid:u") {
		t.Error("an older reply is kept")
	}
	if !answer("user/uid:u", ask("user/uid:u"), "new") || !has("user/uid:u") {
		t.Error("a newer reply is not kept")
	}
	c.forget("user/uid:u2")
	if !has("user/uid:u") {
		t.Error("another record was forgotten")
	}
	c.forget("user/uid:u")
	if has("user/uid:u") {
		t.Error("the copy is still there")
	}
}

// TestCacheLimit checks that the cache keeps no more copies than its limit, the newest among them.
func TestCacheLimit(t *testing.T) {
	c := newCopies(store.Cache{Entries: 2})
	for _, key := range []string{"a", "b", "c"} {
		token, _ := c.Reserve(key, []string{key})
		c.FulfillOwned(key, token, 1, []byte(reply("~isa", "user")))
	}
	if _, last := c.Get(t.Context(), "c"); !last || c.Len() != 2 {
		t.Errorf("%d copies, the last one among them: %v; want 2, true", c.Len(), last)
	}
}
