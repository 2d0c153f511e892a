package userdb

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
)

// hashing lets package maintain bring in entries with their passwords.
type hashing struct{ db *DB }

var _ view.Hashing = hashing{}

func (s hashing) Hash(ctx context.Context, typ, password string, own []string) (string, error) {
	t, err := s.db.Type(typ)
	if err != nil {
		return "", err
	}
	return t.hash(ctx, password, own)
}

func (s hashing) Judge(ctx context.Context, typ, password string, own []string) error {
	t, err := s.db.Type(typ)
	if err != nil {
		return err
	}
	if err := t.judge(ctx, password, own); err != nil {
		return err
	}
	return t.hasher().Hashable(password)
}

func (s hashing) Usable(typ, hash string) error {
	t, err := s.db.Type(typ)
	if err != nil {
		return err
	}
	return t.hasher().Usable(hash)
}

func (s hashing) PasswordSet(ctx context.Context, typ string, r store.Record) error {
	t, err := s.db.Type(typ)
	if err == nil {
		t.passwordSet(ctx, r, "")
	}
	return err
}

func (s hashing) Disabled(ctx context.Context, typ string, r store.Record) error {
	_, err := s.db.Type(typ)
	if err == nil {
		s.db.emit(ctx, Event{Kind: EventDisable, PRK: r.Key})
	}
	return err
}

func (s hashing) Work(typ string) (rounds, foreign uint64) {
	return s.db.hashers.byCost[s.db.view.Schema.Types[typ].Policy().Cost].Work()
}
