package store

import (
	"context"

	"github.com/coffeenode/userdb/recordkey"
)

// An Orderer reads ordered indexes: sorted sets whose members lie in the order of their bytes.
type Orderer interface {
	// Order returns the next members between two bounds.
	Order(ctx context.Context, o Order) ([]string, error)
	// Placed says of each place whether it is taken.
	Placed(ctx context.Context, places []Ranked) ([]bool, error)
}

// An Order asks for at most Count members of the ordered index Key between two bounds, in reverse from
// Max down to Min.
type Order struct {
	Key      recordkey.Key
	Min, Max Bound
	Reverse  bool
	Count    int
}

// A Bound is an end of a range of members. The zero Bound is none.
type Bound struct {
	At   string
	Open bool // without At itself
	Is   bool
}

// Lex is the bound as the commands of sorted sets take it; free stands for none.
func (b Bound) Lex(free string) string {
	switch {
	case !b.Is:
		return free
	case b.Open:
		return "(" + b.At
	}
	return "[" + b.At
}
