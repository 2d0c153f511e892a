package connect

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
)

// startLiar starts a server that answers every command with the current reply.
func startLiar(t *testing.T, reply *atomic.Pointer[string]) (addr string) {
	t.Helper()
	return listen(t, func(conn net.Conn) { go answerAll(conn, reply) })
}

// answerAll reads commands, which are arrays of bulk strings, and answers each with the current
// reply.
func answerAll(conn net.Conn, reply *atomic.Pointer[string]) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "*")))
		for range 2 * n {
			if _, err = in.ReadString('\n'); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if _, err := conn.Write([]byte(*reply.Load())); err != nil {
			return
		}
	}
}

// badReplies holds replies that no server sends. A client that allocates what some of them announce
// runs out of memory.
var badReplies = map[string]string{
	"a text":             "$9999999999999\r\n",
	"a verbatim text":    "=9999999999999\r\n",
	"an error":           "!9999999999999\r\n",
	"a list":             "*9999999999999\r\n",
	"a set":              "~9999999999999\r\n",
	"a map":              "%9999999999999\r\n",
	"a push":             ">9999999999999\r\n",
	"an attribute":       "|9999999999999\r\n",
	"a negative length":  "*-7\r\n",
	"not a number":       "$x\r\n",
	"too large a number": "$99999999999999999999999999\r\n",
	"lists in lists":     strings.Repeat("*1\r\n", 1<<16),
	"many lists":         strings.Repeat("*9000000\r\n", 20),
	"an empty line":      "\r\n",
	"an endless line":    "+" + strings.Repeat("x", maxLine+1),
}

func TestAbsurdReplies(t *testing.T) {
	var reply atomic.Pointer[string]
	addr := startLiar(t, &reply)
	ctx := t.Context()
	for name, text := range badReplies {
		t.Run(name, func(t *testing.T) {
			reply.Store(&text)
			engines := map[string]store.Engine{}
			for _, url := range []string{"redis://" + addr + "?max_retries=-1", "redis+cluster://" + addr, "redis+sentinel://" + addr + "?master_name=m"} {
				e, err := Open(ctx, url, store.Cache{})
				if err != nil {
					t.Fatal(err)
				}
				engines[url] = e
			}
			one := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
			many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, MaxRetries: -1})
			for _, c := range []redis.UniversalClient{one, many} {
				t.Cleanup(func() { c.Close() })
				e, err := Use(c, store.Cache{})
				if err != nil {
					t.Fatal(err)
				}
				engines[fmt.Sprintf("%T", c)] = e
			}
			for how, e := range engines {
				if err := e.Ping(ctx); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: got %v, want ErrUnavailable", how, err)
				}
				e.Close()
			}
		})
	}
}

// TestBoundedRealServer sends long strings and long arrays to a real server through bounded
// connections. The client is passed to Use several times.
func TestBoundedRealServer(t *testing.T) {
	ctx, srv := t.Context(), redistest.Shared(t)
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: srv.Addr(), Protocol: protocol})
		t.Cleanup(func() { c.Close() })
		for range 3 {
			if _, err := Use(c, store.Cache{}); err != nil {
				t.Fatal(err)
			}
		}
		long := strings.Repeat("x\r\n", 1<<20)
		all := make([]any, 1<<16)
		for i := range all {
			all[i] = i
		}
		pipe := c.Pipeline()
		pipe.Del(ctx, "long", "list", "hash")
		pipe.Set(ctx, "long", long, 0)
		pipe.RPush(ctx, "list", all...)
		pipe.HSet(ctx, "hash", "a", "", "b", long)
		got, list, hash := pipe.Get(ctx, "long"), pipe.LRange(ctx, "list", 0, -1), pipe.HGetAll(ctx, "hash")
		nested := pipe.Eval(ctx, "return {1, {2, {}, {'a', false}}, 'b'}", nil)
		none := pipe.Get(ctx, "none")
		if _, err := pipe.Exec(ctx); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		if got.Val() != long || len(list.Val()) != len(all) || hash.Val()["b"] != long || nested.Err() != nil || none.Err() != redis.Nil {
			t.Errorf("protocol %d: got %d bytes, %d items, %d fields, %v; want %d, %d, 2 and no error",
				protocol, len(got.Val()), len(list.Val()), len(hash.Val()), nested.Err(), len(long), len(all))
		}
		if n := len(c.Options().Addr); n == 0 || c.Ping(ctx).Err() != nil {
			t.Error("the client no longer works")
		}
	}
}

// everyReply holds complete replies of every type.
const everyReply = "+OK\r\n-ERR x\r\n:1\r\n$3\r\na\r\n\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*2\r\n:1\r\n$1\r\n*\r\n%1\r\n+a\r\n*1\r\n_\r\n" +
	"|1\r\n+ttl\r\n:3\r\n~2\r\n#t\r\n,1.5\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n=5\r\ntxt:x\r\n!3\r\nERR\r\n(123\r\n%0\r\n|0\r\n+end\r\n"

// TestFramingOfValidReplies checks that nothing is left after complete replies, whatever the size
// of the pieces in which they arrive.
func TestFramingOfValidReplies(t *testing.T) {
	for size := 1; size <= len(everyReply); size++ {
		var f framing
		for at := 0; at < len(everyReply); at += size {
			if err := f.parse([]byte(everyReply[at:min(at+size, len(everyReply))])); err != nil {
				t.Fatalf("in pieces of %d bytes: %v", size, err)
			}
		}
		if len(f.lists) != 0 || f.items != 0 || f.skip != 0 || len(f.line) != 0 {
			t.Fatalf("in pieces of %d bytes: after complete replies the state is %+v, want nothing left", size, f)
		}
	}
}

func FuzzFraming(f *testing.F) {
	f.Add([]byte(everyReply), 3)
	f.Add([]byte("*3\r\n$1\r\na\r\n|1\r\n"), 1)
	for _, text := range badReplies {
		f.Add([]byte(text[:min(len(text), 100)]), 7)
	}
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		size = max(1, size%64)
		var once, pieces framing
		_ = once.parse(stream)
		for at := 0; at < len(stream); at += size {
			_ = pieces.parse(stream[at:min(at+size, len(stream))])
		}
		if (once.err == nil) != (pieces.err == nil) || once.err == nil && (once.items != pieces.items || once.skip != pieces.skip) {
			t.Errorf("%q: the state is %+v if it is parsed at once, but in pieces of %d bytes %+v", stream, once, size, pieces)
		}
	})
}
