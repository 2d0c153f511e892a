package inspect_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/recordkey"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// A site is a store under test, with helpers.
type site struct{ *testdb.Site }

func newSite(s *testdb.Site) *site { return &site{s} }

var eachEngine = testdb.Each(testdb.EachEngine, newSite)

func (s *site) dump(t *testing.T, o inspect.Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := inspect.Dump(s.Ctx, s.DB, &b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// createEveryKind creates a record of each Redis type except a stream (see TestDumpStream), some
// with bytes that a terminal would interpret.
func (s *site) createEveryKind(t *testing.T) {
	t.Helper()
	for _, c := range [][]string{
		{
			"HSET", "user/uid:1", "~isa", "user", "~prk", "user/uid:1", "uid", "1", "name", "Alice", "password", "$2a$10$secret",
			"motto", " to be ", "evil", "\x1b]0;owned\a\u202e", "a very long name of a field, it is", "x", "", "empty",
		},
		{"SET", "user/name:Alice/~prk", "user/uid:1"},
		{"SET", "long", strings.Repeat("é", 1000)},
		{"SET", "binary", "\x89PNG\r\n\x1a\n\x00\xff"},
		{"SET", "odd \x1b[2J", "x"},
		{"SADD", "user/uid:1/tags", "go", "c++", "b \"quoted\""},
		{"RPUSH", "list", "one", "two"},
		{"ZADD", "scores", "1.5", "low", "1e21", "high"},
		{"SET", "~inner/user/name:x/~prk", "in a namespace inside"},
		{"SET", "~/throttle/x", "the store's own"},
	} {
		s.Do(t, c...)
	}
	for i := range 250 {
		s.Do(t, "RPUSH", "many", fmt.Sprint(i))
	}
}

func TestDump(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.createEveryKind(t)
		got := s.dump(t, inspect.Options{})
		testdb.Golden(t, "testdata/dump.golden", got)
		if strings.Contains(got, "secret") {
			t.Error("the dump shows a password hash")
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("the dump has the unprintable character %q", got[i:i+1])
		}
		if got := s.dump(t, inspect.Options{Pattern: "user/uid:1", Format: "long", Reveal: true}); !strings.Contains(got, "password                  $2a$10$secret\n") {
			t.Errorf("with Reveal, the dump lacks the password hash:\n%s", got)
		}
		want := "user/name:Alice/~prk  string\n    user/uid:1\n"
		if got := s.dump(t, inspect.Options{Pattern: "user/name:*"}); got != want {
			t.Errorf("pattern: got\n%s\nwant\n%s", got, want)
		}
		want = "\x1b[1muser/name:Alice/~prk\x1b[0m  \x1b[2mstring\x1b[0m\n    user/uid:1\n"
		if got := s.dump(t, inspect.Options{Pattern: "user/name:*", Color: true}); got != want {
			t.Errorf("color: got %q, want %q", got, want)
		}
		if got := s.dump(t, inspect.Options{Pattern: "nothing"}); got != "" {
			t.Errorf("a pattern that matches nothing: got %q, want nothing", got)
		}
	})
}

func TestDumpStream(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.ServerClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Do(t, "XADD", "events", "1-1", "who", "alice", "what", "a\nb")
	for i := range 120 {
		s.Do(t, "XADD", "long", fmt.Sprintf("2-%d", i+1), "n", "x")
	}
	want := "events  stream, 1\n    1-1  who=alice  what=\"a\\nb\"\n"
	if got := s.dump(t, inspect.Options{Pattern: "events"}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got := s.dump(t, inspect.Options{Pattern: "long"})
	if !strings.HasPrefix(got, "long  stream, 120\n") || !strings.HasSuffix(got, "    2-100  n=x\n    … 20 more\n") {
		t.Errorf("got\n%s\nwant 100 of the 120 elements, and the number of the others", got)
	}
}

// TestDumpMany dumps the largest number of records that a dump sorts, and a larger number.
func TestDumpMany(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, n := range []int{10_000, 10_100} {
			pipe := s.Raw.Pipeline()
			for i := range n {
				pipe.Set(s.Ctx, s.Key(fmt.Sprint("k", i)), "v", 0)
			}
			if _, err := pipe.Exec(s.Ctx); err != nil {
				t.Fatal(err)
			}
			text := strings.TrimSuffix(s.dump(t, inspect.Options{}), "\n    v\n")
			records := strings.Split(text, "\n    v\n")
			if n == 10_000 && !slices.IsSorted(records) {
				t.Error("10,000 records are not sorted")
			}
			slices.Sort(records)
			if got := len(slices.Compact(records)); got != n || len(records) != n {
				t.Errorf("got %d records, %d of them different; want %d", len(records), got, n)
			}
		}
	})
}

type brokenWriter struct{ remaining int }

var errFull = errors.New("disk full")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.remaining -= len(p); w.remaining < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestDumpFails(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.createEveryKind(t)
	err := inspect.Dump(s.Ctx, s.DB, &bytes.Buffer{}, inspect.Options{Format: "brief"})
	if !errors.Is(err, inspect.ErrFormat) || err.Error() != `no such format of a dump: "brief"; want long, short or keys` {
		t.Errorf("unknown format: got %v, want ErrFormat", err)
	}
	for _, remaining := range []int{0, 1000} {
		if err := inspect.Dump(s.Ctx, s.DB, &brokenWriter{remaining}, inspect.Options{}); !errors.Is(err, errFull) {
			t.Errorf("a writer that fails after %d bytes: got %v, want errFull", remaining, err)
		}
	}
}
