package userdb

import (
	"context"

	"github.com/coffeenode/userdb/internal/core"
	"github.com/coffeenode/userdb/internal/store"
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

func (s secrets) PasswordSet(ctx context.Context, typ string, r store.Record) error {
	t, err := s.db.Type(typ)
	if err == nil {
		t.passwordSet(ctx, r, "")
	}
	return err
}

func (s secrets) Disabled(ctx context.Context, typ string, r store.Record) error {
	_, err := s.db.Type(typ)
	if err == nil {
		s.db.emit(ctx, Event{Kind: EventDisable, PRK: r.Key})
	}
	return err
}
