package single

import (
	"context"
	"errors"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A joint makes the entries of callers that create at the same time, many in one script: that costs the
// server less than half.
type joint struct {
	underWay redisx.Counter
	batcher  *redisx.Batcher[*creation]
}

func newJoint(create func(context.Context, []*createGroup)) *joint {
	return &joint{batcher: redisx.NewBatcher(createsMost, func(ctx context.Context, cs []*creation) {
		var needs store.Needs
		all := make([]*creation, 0, len(cs))
		for _, c := range cs {
			if needs.Add(c.c) { // else another of them comes first
				all = append(all, c)
			}
		}
		create(ctx, groups(all))
	})}
}

// apply makes an entry together with others, or says that this one was not made: done is false, and
// maybe that nobody knows. An error is one of the context.
func (j *joint) apply(ctx context.Context, c store.Change, token string) (done, maybe bool, err error) {
	one := &creation{c: &c, token: token}
	if err := j.batcher.Do(ctx, one); err != nil {
		return false, errors.Is(err, redisx.ErrAbandoned), err
	}
	return one.done, one.maybe, nil
}
