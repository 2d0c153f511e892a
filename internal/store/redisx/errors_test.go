package redisx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// An errorReply is an error that a server returned.
type errorReply string

func (a errorReply) Error() string { return string(a) }
func (errorReply) RedisError()     {}

func TestFail(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	read := &net.OpError{Op: "read", Err: io.EOF}
	for _, tt := range []struct {
		err             error
		unavailable     bool
		retryable, sent bool
	}{
		{errorReply("LOADING Redis is loading"), true, true, false},
		{errorReply("READONLY You can't write"), true, true, false},
		{errorReply("OOM command not allowed"), true, false, false},
		{errorReply("NOAUTH Authentication required."), true, false, false},
		{errorReply("CLUSTERDOWN Hash slot not served"), true, true, false},
		{errorReply("LOADING KeyDB is loading the dataset in memory"), true, true, false},
		{errorReply("DENIED Redis is running in protected mode"), true, false, false},
		{errorReply("ERR max number of clients + cluster connections reached"), true, false, false},
		{errorReply("ERR max daily request limit exceeded. Limit: 10000"), true, false, false},
		{errorReply("ERR invalid password"), true, false, false},
		{errorReply("ERR Client sent AUTH, but no password is set"), true, false, false},
		{errorReply("ERR AUTH <password> called without any password configured for the default user."), true, false, false},
		{errorReply("WRONGTYPE Operation against a key"), false, false, false},
		{errorReply("ERR syntax error"), false, false, false},
		{errorReply("ERR Script attempted to access a non local key in a cluster node script: ab, on @user_script:34."), true, true, true},
		{errorReply("OOM command not allowed script: ab, on @user_script:34."), true, false, true},
		{dial, true, true, false},
		{read, true, true, true},
		{io.EOF, true, true, true},
		{redis.ErrPoolTimeout, true, true, false},
		{redis.ErrClosed, true, false, false},
		{context.Canceled, false, false, false},
		{context.DeadlineExceeded, true, true, false},
		{fmt.Errorf("%w: %w", ErrAbandoned, context.DeadlineExceeded), true, true, true},
		{fmt.Errorf("%w: %w", ErrAbandoned, context.Canceled), false, false, true},
	} {
		err := Fail(tt.err)
		if !errors.Is(err, tt.err) {
			t.Errorf("Fail(%v) = %v, which does not wrap its cause", tt.err, err)
		}
		if got := errors.Is(err, store.ErrUnavailable); got != tt.unavailable {
			t.Errorf("Fail(%v) is ErrUnavailable: %v, want %v", tt.err, got, tt.unavailable)
		}
		if got := Retryable(tt.err); got != tt.retryable {
			t.Errorf("Retryable(%v) = %v, want %v", tt.err, got, tt.retryable)
		}
		if got := Sent(tt.err); got != tt.sent {
			t.Errorf("Sent(%v) = %v, want %v", tt.err, got, tt.sent)
		}
	}
	keyDB := errorReply("ERR Error running script (call to f_ab): @user_script:3: @user_script: 3: -OOM command not allowed")
	if err := Fail(keyDB); !errors.Is(err, keyDB) || !strings.Contains(err.Error(), "KeyDB and Redis before version 7") || !Sent(keyDB) {
		t.Errorf("Fail(%v) = %v, want an error that names the servers that are not supported", keyDB, err)
	}
	for _, text := range []string{
		"ERR DB index is out of range", "ERR This instance has cluster support disabled",
		"ERR unknown command 'sentinel', with args beginning with: 'get-master-addr-by-name' 'm' ",
	} {
		if err := Fail(errorReply(text)); !errors.Is(err, store.ErrUnsuitable) || Retryable(err) || Sent(err) {
			t.Errorf("Fail(%s) = %v, want ErrUnsuitable, which is not worth another attempt", text, err)
		}
	}
	if Fail(nil) != nil {
		t.Error("Fail(nil) is not nil")
	}
}

func TestParseReply(t *testing.T) {
	for _, tt := range []struct {
		command string
		in      any
		want    store.Reply
		ok      bool
	}{
		{"LPOP", nil, store.Reply{Nil: true}, true},
		{"SISMEMBER", int64(3), store.Reply{Int: 3}, true},
		{"HGET", "x", store.Reply{Text: "x"}, true},
		{"LRANGE", []any{"a", int64(2)}, store.Reply{Items: []string{"a", "2"}}, true},
		{"SMEMBERS", []any{}, store.Reply{}, true},
		{"LRANGE", []any{"a", nil}, store.Reply{}, false},
		// RESP3 returns pairs as nested lists, which become one list.
		{"LRANGE", []any{[]any{}, "a"}, store.Reply{Items: []string{"a"}}, true},
		{"LRANGE", []any{errors.New("x")}, store.Reply{}, false},
		{"ZSCORE", 3.5, store.Reply{Text: "3.5"}, true},
		{"ZCARD", 3.5, store.Reply{}, false},
		{"SISMEMBER", nil, store.Reply{}, false},
		{"SISMEMBER", "1", store.Reply{}, false},
		{"SMEMBERS", nil, store.Reply{}, false},
		{"SMEMBERS", int64(0), store.Reply{}, false},
		{"HGET", int64(0), store.Reply{}, false},
		{"HGET", []any{}, store.Reply{}, false},
		{"UNKNOWN", int64(0), store.Reply{}, false},
	} {
		got, err := ParseReply(tt.command, tt.in)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, store.ErrReply) {
			t.Errorf("ParseReply(%s, %v) returns the error %v; want success: %v, otherwise ErrReply", tt.command, tt.in, err, tt.ok)
		}
		if tt.ok && (got.Nil != tt.want.Nil || got.Int != tt.want.Int || got.Text != tt.want.Text || len(got.Items) != len(tt.want.Items)) {
			t.Errorf("ParseReply(%s, %v) = %+v, want %+v", tt.command, tt.in, got, tt.want)
		}
	}
}
