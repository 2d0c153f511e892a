package userdb

import (
	"context"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
)

// send runs a command. If the command reads a range of a list or a sorted set, which may have any
// length, send fetches the range in several pages.
func (r tertiary) send(ctx context.Context, op store.Op) (store.Reply, error) {
	switch op.Command {
	case "LRANGE":
		return r.sendRange(ctx, op, "LLEN", 1)
	case "ZRANGE":
		return r.sendRange(ctx, op, "ZCARD", 2)
	case "ZRANGEBYSCORE":
		return r.sendScores(ctx, op)
	}
	return r.t.view.Tertiary(ctx, r.t.declared, op)
}

// sendRange reads the elements from the first argument to the second, both included. Negative
// arguments count from the end. If it needs the length of the record to know where to begin or to
// stop, it first asks for the length, with lengthCommand. A reply has itemsPerElement items for
// each element.
func (r tertiary) sendRange(ctx context.Context, op store.Op, lengthCommand string, itemsPerElement int) (store.Reply, error) {
	start, _ := strconv.ParseInt(op.Args[0], 10, 64)
	stop, _ := strconv.ParseInt(op.Args[1], 10, 64)
	short := (start < 0) == (stop < 0) && stop-start < store.MemberBatch
	switch {
	case short:
		return r.t.view.Tertiary(ctx, r.t.declared, op)
	case start < 0 || stop < -1:
		lengthOp := op
		lengthOp.Command, lengthOp.Args = lengthCommand, nil
		n, err := r.t.view.Tertiary(ctx, r.t.declared, lengthOp)
		if err != nil {
			return store.Reply{}, err
		}
		if start < 0 {
			start = max(0, start+n.Int)
		}
		if stop < 0 {
			stop += n.Int
		}
		if stop < 0 {
			return store.Reply{}, nil
		}
	}
	all := store.Reply{Items: []string{}}
	for stop < 0 || start <= stop {
		last := start + store.MemberBatch - 1
		if stop >= 0 {
			last = min(last, stop)
		}
		page := op
		page.Args = append([]string{itoa(start), itoa(last)}, op.Args[2:]...)
		reply, err := r.t.view.Tertiary(ctx, r.t.declared, page)
		if err != nil {
			return store.Reply{}, err
		}
		all.Items = append(all.Items, reply.Items...)
		if len(reply.Items) < itemsPerElement*store.MemberBatch {
			break
		}
		start = last + 1
	}
	return all, nil
}

// sendScores reads the members between two scores, page by page.
func (r tertiary) sendScores(ctx context.Context, op store.Op) (store.Reply, error) {
	all := store.Reply{Items: []string{}}
	for {
		page := op
		page.Args = append(op.Args[:len(op.Args):len(op.Args)], "LIMIT", strconv.Itoa(len(all.Items)/2), strconv.Itoa(store.MemberBatch))
		reply, err := r.t.view.Tertiary(ctx, r.t.declared, page)
		if err != nil {
			return store.Reply{}, err
		}
		if all.Items = append(all.Items, reply.Items...); len(reply.Items) < 2*store.MemberBatch {
			return all, nil
		}
	}
}
