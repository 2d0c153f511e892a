package userdb

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
)

// SortedSet is a tertiary record that holds members with scores.
type SortedSet struct{ r tertiary }

// Scored is a member of a sorted set with its score.
type Scored struct {
	Member string
	Score  float64
}

// SortedSet names the tertiary sorted set of the entry that a hint points at.
func (t *Type) SortedSet(h hints.Hint, name string) SortedSet {
	return SortedSet{tertiary{t, h, name, "zset"}}
}

// Put adds a member, or gives one that is there another score. A score must not be NaN.
func (s SortedSet) Put(ctx context.Context, score float64, member string) error {
	if math.IsNaN(score) {
		return change.Invalid(s.r.name, "score", "not a number")
	}
	_, err := s.r.write(ctx, "ZADD", ftoa(score), member)
	return err
}

// Increase adds to a member's score, from 0 for a new one, and returns the sum. A lost reply is
// ErrOutcomeUnknown.
func (s SortedSet) Increase(ctx context.Context, by float64, member string) (float64, error) {
	if math.IsNaN(by) {
		return 0, change.Invalid(s.r.name, "score", "not a number")
	}
	reply, err := s.r.writeOnce(ctx, "ZINCRBY", ftoa(by), member)
	if err != nil {
		return 0, err
	}
	return parseScore(reply.Text)
}

// Score returns a member's score, and whether it is there.
func (s SortedSet) Score(ctx context.Context, member string) (float64, bool, error) {
	reply, err := s.r.read(ctx, "ZSCORE", member)
	if err != nil || reply.Nil {
		return 0, false, err
	}
	score, err := parseScore(reply.Text)
	return score, err == nil, err
}

// Range returns the members from start to stop by rising score, both included, from 0; negative ones
// count from the end.
func (s SortedSet) Range(ctx context.Context, start, stop int64) ([]Scored, error) {
	reply, err := s.r.read(ctx, "ZRANGE", itoa(start), itoa(stop), "WITHSCORES")
	return scored(reply.Items, err)
}

// Between returns the members whose scores lie from low to high, both included, by rising score.
func (s SortedSet) Between(ctx context.Context, low, high float64) ([]Scored, error) {
	reply, err := s.r.read(ctx, "ZRANGEBYSCORE", ftoa(low), ftoa(high), "WITHSCORES")
	return scored(reply.Items, err)
}

// Remove takes members out and says how many were there.
func (s SortedSet) Remove(ctx context.Context, members ...string) (int64, error) {
	if len(members) == 0 {
		return 0, nil
	}
	reply, err := s.r.write(ctx, "ZREM", members...)
	return reply.Int, err
}

// Len says how many members there are.
func (s SortedSet) Len(ctx context.Context) (int64, error) {
	reply, err := s.r.read(ctx, "ZCARD")
	return reply.Int, err
}

func ftoa(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "+inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

func parseScore(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("reading a score: %w", err)
	}
	return f, nil
}

func scored(flat []string, err error) ([]Scored, error) {
	if err != nil {
		return nil, err
	}
	var all []Scored
	for i := 0; i+1 < len(flat); i += 2 {
		score, err := parseScore(flat[i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, Scored{Member: flat[i], Score: score})
	}
	return all, nil
}
