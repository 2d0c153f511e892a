package store

import (
	"context"

	"github.com/coffeenode/userdb/recordkey"
)

// An Orderer reads and mends ordered indexes: sorted sets whose members lie in the order of their bytes.
type Orderer interface {
	// Order returns the next members between two bounds.
	Order(ctx context.Context, o Order) ([]string, error)
	// Placed says of each place whether it is taken.
	Placed(ctx context.Context, places []Ranked) ([]bool, error)
	// Occupy takes a place for an entry if that is live and holds the place's facet, and frees it otherwise.
	Occupy(ctx context.Context, entry recordkey.Key, place Ranked) error
	// Vacate frees a place, unless its entry is live and has by now another value than the facet given,
	// which does not lead there. The zero key is an entry that is not there.
	Vacate(ctx context.Context, entry recordkey.Key, place Ranked) error
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
