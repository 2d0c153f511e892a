package connect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// startConstant starts a server that answers every command with the same reply, except that it
// refuses the commands that set up a connection.
func startConstant(t *testing.T, reply string) (addr string) {
	t.Helper()
	return listen(t, func(conn net.Conn) {
		go func() {
			defer conn.Close()
			in := bufio.NewReader(conn)
			for {
				words, err := readCommand(in)
				if err != nil {
					return
				}
				answer := reply
				if word := strings.ToLower(words[0]); word == "hello" || word == "client" {
					answer = "-ERR unknown command\r\n"
				}
				if _, err := conn.Write([]byte(answer)); err != nil {
					return
				}
			}
		}()
	})
}

// readCommand reads a command, which is an array of bulk strings.
func readCommand(in *bufio.Reader) (words []string, err error) {
	line, err := in.ReadString('\n')
	n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "*")))
	for range n {
		size, serr := in.ReadString('\n')
		length, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(size, "$")))
		word := make([]byte, length+2)
		_, rerr := io.ReadFull(in, word)
		if err = errors.Join(err, serr, rerr); err != nil {
			return nil, err
		}
		words = append(words, string(word[:length]))
	}
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	return words, err
}

// TestNumbersAreNotLists checks that a reply that is a number is not mistaken for an array of that
// length. The framing cannot refuse it, since a number is a valid reply.
func TestNumbersAreNotLists(t *testing.T) {
	for _, number := range []string{":-1\r\n", ":9223372036854775807\r\n", "$-1\r\n", "$1\r\n1\r\n"} {
		e, err := Open(t.Context(), "redis://"+startConstant(t, number)+"?max_retries=-1", store.Cache{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		if texts, err := store.Texts(t.Context(), e, []string{"a", "b"}); err == nil {
			t.Errorf("%q: got %v, want an error", number, texts)
		}
		c := redis.NewClient(&redis.Options{Addr: startConstant(t, number), MaxRetries: -1})
		t.Cleanup(func() { c.Close() })
		for name, cmd := range map[string]func(context.Context) *redis.Cmd{
			"mget":  func(ctx context.Context) *redis.Cmd { return c.Do(ctx, "mget", "a") },
			"hmget": func(ctx context.Context) *redis.Cmd { return c.Do(ctx, "hmget", "a", "b") },
		} {
			if list, err := redisx.List(cmd(t.Context()), 1); err == nil {
				t.Errorf("%s %q: got %v, want an error", name, number, list)
			}
		}
	}
}
