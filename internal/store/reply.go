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

// ParseReply takes what a client made of a reply: nil, a number, a text or a list of those.
func ParseReply(v any) (Reply, error) {
	switch v := v.(type) {
	case nil:
		return Reply{Nil: true}, nil
	case int64:
		return Reply{Int: v}, nil
	case string:
		return Reply{Text: v}, nil
	case []any:
		items, err := texts(v)
		return Reply{Items: items}, err
	}
	return Reply{}, fmt.Errorf("reply of kind %T", v)
}

func texts(list []any) ([]string, error) {
	items := make([]string, len(list))
	for i, item := range list {
		switch item := item.(type) {
		case string:
			items[i] = item
		case int64:
			items[i] = strconv.FormatInt(item, 10)
		case nil:
		default:
			return nil, fmt.Errorf("reply item of kind %T", item)
		}
	}
	return items, nil
}
