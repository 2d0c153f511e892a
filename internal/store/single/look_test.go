package single

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// newReadEngine returns an engine whose server has one record of each kind that ReadRaw
// distinguishes.
func newReadEngine(t *testing.T) *Engine {
	t.Helper()
	c := redistest.Shared(t).Client()
	for _, words := range []string{"SET s text", "SET empty ", "HSET h a 1 b 2", "SADD set x", "XADD stream 1-1 a 1 a 2", "XADD stream 1-2 b 3", "ZADD z .1 m 2e9 n", "RPUSH l b a"} {
		var args []any
		for word := range strings.SplitSeq(words, " ") {
			args = append(args, word)
		}
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return New(c, Options{})
}

func TestReadRaw(t *testing.T) {
	e := newReadEngine(t)
	keys := []string{"s", "none", "h", "set", "empty"}
	kinds, err := store.Kinds(t.Context(), e, keys)
	if want := []string{"string", "none", "hash", "set", "string"}; err != nil || !reflect.DeepEqual(kinds, want) {
		t.Errorf("kinds %q, %v; want %q", kinds, err, want)
	}
	texts, err := store.Texts(t.Context(), e, keys)
	if want := []store.Text{{Wire: "text", Exists: true}, {}, {}, {}, {Exists: true}}; err != nil || !reflect.DeepEqual(textsOf(texts), want) {
		t.Errorf("texts %v, %v; want %v", textsOf(texts), err, want)
	}
	hashes, err := store.Hashes(t.Context(), e, keys[:4])
	whole := map[string]string{"a": "1", "b": "2"}
	if err != nil || !hashes[0].WrongType || hashes[1].WrongType || len(hashes[1].Fields) != 0 || !reflect.DeepEqual(hashes[2].Fields, whole) || !hashes[3].WrongType {
		t.Errorf("hashes %v, %v; want a wrong type, no fields, %v and a wrong type", hashes, err, whole)
	}
	fields := []store.RawRead{{Key: "h", Field: "b"}, {Key: "h", Field: "c"}, {Key: "none", Field: "b"}, {Key: "s", Field: "b"}}
	for i := range fields {
		fields[i].As = store.RawField
	}
	facets, err := e.ReadRaw(t.Context(), fields)
	if want := []store.Text{{Wire: "2", Exists: true}, {}, {}, {}}; err != nil || !reflect.DeepEqual(textsOf(facets), want) {
		t.Errorf("facets %v, %v; want %v", textsOf(facets), err, want)
	}
	sets, err := store.Sets(t.Context(), e, []string{"set", "none", "s"}, 10)
	if err != nil || !reflect.DeepEqual(sets[0].Items, []string{"x"}) || sets[1].WrongType || len(sets[1].Items) != 0 || !sets[2].WrongType {
		t.Errorf("sets %v, %v; want one with the member x, one without members and a wrong type", sets, err)
	}
	raws, err := store.Inspect(t.Context(), e, []string{"stream"}, 1)
	want := []store.Message{{ID: "1-1", Pairs: []store.Facet{{Field: "a", Wire: "1"}, {Field: "a", Wire: "2"}}}}
	if err != nil || !reflect.DeepEqual(raws[0].Messages, want) || raws[0].Size != 2 {
		t.Errorf("stream %v, %v; want 2 messages, the first of them %v", raws, err, want)
	}
	for _, limit := range []int{0, 9} {
		all, err := store.Inspect(t.Context(), e, []string{"s", "h", "set", "z", "l", "none"}, limit)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(all[1].Pairs, func(a, b store.Facet) int { return strings.Compare(a.Field, b.Field) })
		for i, want := range []store.Raw{
			{Key: "s", Type: "string", Size: 4, TTL: -1, Text: store.Text{Wire: "text", Exists: true}},
			{Key: "h", Type: "hash", Size: 2, TTL: -1, Pairs: []store.Facet{{Field: "a", Wire: "1"}, {Field: "b", Wire: "2"}}},
			{Key: "set", Type: "set", Size: 1, TTL: -1, Items: []string{"x"}},
			{Key: "z", Type: "zset", Size: 2, TTL: -1, Items: []string{"m", "n"}, Scores: []float64{0.1, 2e9}},
			{Key: "l", Type: "list", Size: 2, TTL: -1, Items: []string{"b", "a"}},
			{Key: "none", Type: store.KindNone, TTL: -2},
		} {
			if !reflect.DeepEqual(all[i], want) {
				t.Errorf("limit %d: got %+v, want %+v", limit, all[i], want)
			}
		}
	}
	if n, err := e.Cardinalities(t.Context(), []recordkey.Key{{}}); err != nil || n[0] != 7 {
		t.Errorf("%d records, %v; want 7", n, err)
	}
}

// textsOf returns the texts of raws.
func textsOf(raws []store.Raw) (texts []store.Text) {
	for _, r := range raws {
		texts = append(texts, r.Text)
	}
	return texts
}

// TestReadRawMany reads more keys than one MGET takes, and more members than one page of a set
// holds.
func TestReadRawMany(t *testing.T) {
	e := newReadEngine(t)
	const n = 2500
	keys := make([]string, n)
	pipe := e.client.Pipeline()
	for i := range n {
		keys[i] = fmt.Sprint("k", i)
		pipe.Set(t.Context(), keys[i], fmt.Sprint("v", i), 0)
		pipe.SAdd(t.Context(), "large", keys[i])
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	texts, err := store.Texts(t.Context(), e, keys)
	if err != nil || len(texts) != n || texts[0].Wire != "v0" || texts[n-1].Wire != "v2499" {
		t.Errorf("%d texts, %v; want %d", len(texts), err, n)
	}
	pages, err := store.Sets(t.Context(), e, []string{"large"}, 100)
	if err != nil || pages[0].Next == "" || len(pages[0].Items) > 200 {
		t.Errorf("%d members, next page at %q, %v; want at most 200, and a next page", len(pages[0].Items), pages[0].Next, err)
	}
}

func TestReadRawUnavailable(t *testing.T) {
	e, ctx, keys := newReadEngine(t), t.Context(), []string{"x"}
	e.client.Close()
	for name, read := range map[string]func() error{
		"records": func() error { _, err := e.Cardinalities(ctx, []recordkey.Key{{}}); return err },
		"kinds":   func() error { _, err := store.Kinds(ctx, e, keys); return err },
		"texts":   func() error { _, err := store.Texts(ctx, e, keys); return err },
		"facets":  func() error { _, err := e.ReadRaw(ctx, []store.RawRead{{Key: "x", As: store.RawField}}); return err },
		"hashes":  func() error { _, err := store.Hashes(ctx, e, keys); return err },
		"sets":    func() error { _, err := store.Sets(ctx, e, keys, 1); return err },
		"all":     func() error { _, err := store.Inspect(ctx, e, keys, 1); return err },
	} {
		if err := read(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", name, err)
		}
	}
}
