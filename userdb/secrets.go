package userdb

import (
	"context"

	"github.com/coffeenode/userdb/internal/core"
)

// secrets lets package maintain bring in entries with their passwords.
type secrets struct{ db *DB }

var _ core.Secrets = secrets{}

func (s secrets) Hash(ctx context.Context, typ, password string, own []string) (string, error) {
	t, err := s.db.Type(typ)
	if err != nil {
		return "", err
	}
	return t.hash(ctx, password, own)
}

func (s secrets) Judge(ctx context.Context, typ, password string, own []string) error {
	t, err := s.db.Type(typ)
	if err != nil {
		return err
	}
	if err := t.judge(ctx, password, own); err != nil {
		return err
	}
	return t.hasher().Hashable(password)
}

func (s secrets) Usable(typ, hash string) error {
	t, err := s.db.Type(typ)
	if err != nil {
		return err
	}
	return t.hasher().Usable(hash)
}
