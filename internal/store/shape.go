package store

import (
	"errors"
	"fmt"
	"strings"
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
