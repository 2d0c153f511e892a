package store

import (
	"fmt"
	"strconv"
)

// A Reply is what one command on a tertiary record answered. Nil is set where there was nothing.
type Reply struct {
	Nil   bool
	Int   int64
	Text  string
	Items []string
}

// Empty reports whether there was nothing: no element, no such member.
func (r Reply) Empty() bool { return r.Int == 0 && r.Text == "" && len(r.Items) == 0 }

// shapes are of which kind the replies to tertiary commands are.
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
func ParseReply(command string, v any) (Reply, error) {
	v = flat(v)
	if err := shapes[command].Check(v); err != nil {
		return Reply{}, err
	}
	switch v := v.(type) {
	case int64:
		return Reply{Int: v}, nil
	case string:
		return Reply{Text: v}, nil
	case []any:
		items, err := texts(v)
		return Reply{Items: items}, err
	}
	return Reply{Nil: true}, nil
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
