package userdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/internal/hashpool"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
)

// hashers make and check passwords: one for each cost that the schema names, on one pool. Only the
// function knows the peppers, so that nothing that prints a DB prints them.
type hashers struct {
	pool   *hashpool.Pool
	hasher func(cost int) (*password.Hasher, error)
	byCost map[int]*password.Hasher
}

func newHashers(o Options) *hashers {
	peppered := func(cost int) (*password.Hasher, error) {
		return password.New(password.Options{Cost: cost, Peppers: o.Peppers})
	}
	return &hashers{pool: hashpool.New(hashpool.Options{Workers: o.HashWorkers}), hasher: peppered}
}

// forSchema is hs for the types of another schema.
func (hs *hashers) forSchema(s schema.Schema) (*hashers, error) {
	more := &hashers{pool: hs.pool, hasher: hs.hasher, byCost: map[int]*password.Hasher{}}
	for name, t := range s.Types {
		cost := t.Policy().Cost
		if more.byCost[cost] != nil {
			continue
		}
		h, err := hs.hasher(cost)
		if err != nil {
			return nil, fmt.Errorf("type %s: %w", name, err)
		}
		more.byCost[cost] = h
	}
	return more, nil
}

func (t *Type) hasher() *password.Hasher { return t.db.hashers.byCost[t.t.Schema.Policy().Cost] }

// newHash makes a hash of a password that bcrypt can take.
func (t *Type) newHash(ctx context.Context, pw string) (string, error) {
	var hash string
	var failed error
	if err := t.onPool(ctx, func() { hash, failed = t.hasher().Hash(pw) }); err != nil {
		return "", err
	}
	return hash, failed
}

// onPool runs work that keeps a core busy, as many at a time as there are workers.
func (t *Type) onPool(ctx context.Context, job func()) error {
	err := t.db.hashers.pool.Do(ctx, job)
	if errors.Is(err, hashpool.ErrBusy) || errors.Is(err, hashpool.ErrClosed) {
		return fmt.Errorf("%w: hashing passwords: %w", ErrUnavailable, err)
	}
	return err
}
