package check

import (
	"context"
	"slices"
)

// looks is how often something that others are changing is looked at again.
const looks = 4

// sure looks at items, and once more at those that something seems to be wrong with, until two looks
// in a row say the same. A problem that both found, with every entry at the same version, was there
// in between: where every change is one step, no writer can cause a false alarm. Of what changes all the
// time only that much is reported.
func sure[T any](ctx context.Context, items []T, look func(context.Context, []T) (findings, error)) ([]Problem, error) {
	found, _, err := certain(ctx, items, look)
	return problems(found), err
}

// certain is sure with the findings, and with the items that they are about.
func certain[T any](ctx context.Context, items []T, look func(context.Context, []T) (findings, error)) (findings, []T, error) {
	found, err := look(ctx, items)
	var both findings
	for range looks {
		if err != nil || len(found) == 0 {
			return nil, nil, err
		}
		before := found
		items = suspects(items, before)
		if found, err = look(ctx, items); err != nil {
			return nil, nil, err
		}
		if both = common(before, found); len(both) == len(found) {
			break
		}
	}
	return both, items, nil
}

// suspects are the items that something was found about.
func suspects[T any](items []T, found findings) []T {
	at := make([]int, len(found))
	for i, f := range found {
		at[i] = f.at
	}
	slices.Sort(at)
	var some []T
	for _, i := range slices.Compact(at) {
		some = append(some, items[i])
	}
	return some
}

// common are the findings of now that were there before.
func common(before, now findings) findings {
	type identity struct{ code, key, seen string }
	known := make(map[identity]bool, len(before))
	for _, f := range before {
		known[identity{f.Code, f.Key, f.seen}] = true
	}
	var both findings
	for _, f := range now {
		if known[identity{f.Code, f.Key, f.seen}] {
			both = append(both, f)
		}
	}
	return both
}

func problems(fs findings) []Problem {
	if len(fs) == 0 {
		return nil
	}
	ps := make([]Problem, len(fs))
	for i, f := range fs {
		ps[i] = f.Problem
	}
	return ps
}
