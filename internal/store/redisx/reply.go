package redisx

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// A Shape is the set of kinds that a reply may be of.
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
	return fmt.Errorf("%w: %T, want %v", store.ErrReply, v, s)
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
	return fmt.Errorf("%w: %d answers, want %d", store.ErrReply, got, want)
}

// Unknown is ErrReply for a word that no script of ours answers.
func Unknown(word string) error {
	const most = 40
	return fmt.Errorf("%w: unknown answer %.*q", store.ErrReply, most, word)
}

// shapes are the kinds of replies to tertiary commands.
var shapes = map[string]Shape{
	"SADD": IsNumber, "SREM": IsNumber, "SISMEMBER": IsNumber, "SCARD": IsNumber, "SMEMBERS": IsList,
	"RPUSH": IsNumber, "LPUSH": IsNumber, "LREM": IsNumber, "LLEN": IsNumber,
	"LRANGE": IsList, "LPOP": IsText | IsNil, "RPOP": IsText | IsNil,
	"ZADD": IsNumber, "ZREM": IsNumber, "ZCARD": IsNumber, "ZINCRBY": IsText, "ZSCORE": IsText | IsNil,
	"ZRANGE": IsList, "ZRANGEBYSCORE": IsList,
	"HSET": IsNumber, "HDEL": IsNumber, "HLEN": IsNumber, "HGET": IsText | IsNil, "HGETALL": IsList,
	"SET": IsText, "GET": IsText | IsNil, "UNLINK": IsNumber,
}

// ParseReply takes what a client made of the reply to a tertiary command; ErrReply where it is of another kind.
func ParseReply(command string, v any) (store.Reply, error) {
	v = flat(v)
	if err := shapes[command].Check(v); err != nil {
		return store.Reply{}, err
	}
	switch v := v.(type) {
	case int64:
		return store.Reply{Int: v}, nil
	case string:
		return store.Reply{Text: v}, nil
	case []any:
		items, err := texts(v)
		return store.Reply{Items: items}, err
	}
	return store.Reply{Nil: true}, nil
}

func texts(list []any) ([]string, error) {
	items := make([]string, len(list))
	for i, item := range list {
		if err := (IsText | IsNumber).Check(item); err != nil {
			return nil, err
		}
		switch item := item.(type) {
		case string:
			items[i] = item
		case int64:
			items[i] = strconv.FormatInt(item, 10)
		}
	}
	return items, nil
}

// flat undoes what a newer protocol makes of pairs: maps, and scores as numbers in lists of their own.
func flat(v any) any {
	switch v := v.(type) {
	case map[any]any:
		list := make([]any, 0, 2*len(v))
		for k, x := range v {
			list = append(list, flat(k), flat(x))
		}
		return list
	case []any:
		var list []any
		for _, x := range v {
			if inner, ok := flat(x).([]any); ok {
				list = append(list, inner...)
			} else {
				list = append(list, flat(x))
			}
		}
		return list
	case float64:
		return fmt.Sprintf("%.17g", v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	}
	return v
}

// Items are those of a reply that is a list.
func Items(reply any) []any {
	list, _ := reply.([]any)
	return list
}

// Text is item i of a list, "" where it is no text.
func Text(list []any, i int) string {
	if i >= len(list) {
		return ""
	}
	s, _ := list[i].(string)
	return s
}

// Texts are those of a reply that is a list of texts.
func Texts(reply any) []string {
	list := Items(reply)
	all := make([]string, len(list))
	for i := range list {
		all[i] = Text(list, i)
	}
	return all
}

// Numbers are those of a reply that is a list of numbers.
func Numbers(reply any) ([]int64, error) {
	list := Items(reply)
	all := make([]int64, len(list))
	for i, item := range list {
		if err := IsNumber.Check(item); err != nil {
			return nil, err
		}
		all[i] = item.(int64)
	}
	return all, nil
}
