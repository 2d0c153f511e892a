package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrReply is a reply of another kind than the command has, or none at all without an error: through a client that
// changes what it sends, or from what is no Redis server. It never means "no": whether the command was carried
// out is not known.
var ErrReply = errors.New("a reply of another kind than the command has")

// A Shape says of which kind a reply may be.
type Shape uint8

// Kinds of replies. A verdict is a list that begins with a word.
const (
	IsNumber Shape = 1 << iota
	IsText
	IsNil
	IsList
	IsVerdict
	IsTexts
)

var shapeNames = []string{"a number", "a text", "nil", "a list", "a list that begins with a word", "a list of texts"}

func (s Shape) String() string {
	var names []string
	for i, name := range shapeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// Check is ErrReply for a reply of another kind.
func (s Shape) Check(v any) error {
	if s&shapeOf(v) != 0 {
		return nil
	}
	return fmt.Errorf("%w: %T, want %v", ErrReply, v, s)
}

// shapeOf is every shape that a reply has.
func shapeOf(v any) Shape {
	switch v := v.(type) {
	case nil:
		return IsNil
	case int64:
		return IsNumber
	case string:
		return IsText
	case []any:
		s := IsList | IsTexts
		if len(v) > 0 {
			if word, is := v[0].(string); is && word != "" {
				s |= IsVerdict
			}
		}
		for _, item := range v {
			if _, is := item.(string); !is {
				s &^= IsTexts
			}
		}
		return s
	}
	return 0
}

// A Doer sends commands: a client, or a pipeline.
type Doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// MGet and HMGet send what go-redis has methods for, and read the reply by its kind: those methods take a number, or
// the length of a text, for the length of a list, and make room for as much.
func MGet(ctx context.Context, d Doer, keys []string) *redis.Cmd {
	return d.Do(ctx, words("mget", keys)...)
}

// HMGet is MGet for fields of a hash.
func HMGet(ctx context.Context, d Doer, key string, fields ...string) *redis.Cmd {
	return d.Do(ctx, words("hmget", append([]string{key}, fields...))...)
}

func words(command string, rest []string) []any {
	args := []any{command}
	for _, word := range rest {
		args = append(args, word)
	}
	return args
}

// List is the reply to a command that is answered by a list of n.
func List(cmd *redis.Cmd, n int) ([]any, error) {
	v, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	if err := IsList.Check(v); err != nil {
		return nil, err
	}
	list := v.([]any)
	return list, AsMany(len(list), n)
}

// AsMany is ErrReply where a list that answers one by one is not as long as what was asked.
func AsMany(got, want int) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%w: %d answers, want %d", ErrReply, got, want)
}

// Unknown is ErrReply for a word that no script of ours answers.
func Unknown(word string) error {
	const most = 40
	return fmt.Errorf("%w: unknown answer %.*q", ErrReply, most, word)
}
